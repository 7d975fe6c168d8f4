//! The threads of an executor that has only so many of them: what each waits for, for whoever looks for deadlocks.
//!
//! Owns: the places of the threads, and the list of all crews. A place is written by its thread, and read by any, under its lock.
//!
//! # Why a report is true
//!
//! 1. A thread of a crew that stops without a deadline, in a wait for something that executors are to do, says so in its place before
//!    it stops, and takes it back when it goes on, before it leaves the frame of the wait.
//! 2. Who looks holds the locks of all places at once, so nobody goes on, and sees which of the waiting ones are armed: nobody has given
//!    them what they wait for. (What a thread of a crew gave before it stopped is seen: it took its place's lock after that.) It looks a second time: those that are armed at both looks were so all at one moment between.
//! 3. Among those is searched the greatest set of threads each of which has a [`Need`] that threads of the set alone could meet:
//!    a job's end or room, of an executor all of whose threads are in the set; the drain or the end of one of whose threads one is;
//!    the end of a group that has an item of such an executor, or a starter that runs on such a thread. So it comes from
//!    outside or not at all. Outside can be no one but who cancels.
#![expect(
    unsafe_code,
    reason = "looks at the wait words and the needs of threads that are held in their waits"
)]

use std::panic::Location;
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use sinew_core::wait::{Kind, Waiter};

use crate::coroutine::TaskEstate;
use crate::scheduler::current;
use crate::sys::clock;

/// See the file's head.
#[derive(Debug)]
pub(crate) struct Crew {
    name: Box<str>,
    /// Whether a thread's name is the crew's with a number.
    is_numbered: bool,
    pub(crate) built_at: &'static Location<'static>,
    places: Box<[Place]>,
}

/// See [`Crew::serve`].
pub(crate) type Purge = fn(*const ());

/// What a thread of a crew says of itself.
#[derive(Debug, Default)]
pub(crate) struct Place {
    stop: Mutex<Option<Stop>>,
}

/// What a thread waits for, without a deadline.
#[derive(Debug, Clone, Copy)]
struct Stop {
    awaited: Awaited,
    /// The number of the thread.
    thread: u64,
    since_ns: u64,
    /// Whether what runs on the thread is none of the executor's jobs: the executor is drained without it.
    is_aside: bool,
    /// In the thread's frame, which it does not leave before this is taken back.
    waiter: NonNull<Waiter>,
}

// SAFETY: the pointers are followed under the lock of the place only, while what they point to is in place; a need is `Sync`.
unsafe impl Send for Stop {}

/// Who stands still, as far as somebody knows. Each answer names the executor.
pub(crate) trait Standing {
    /// Whether all threads of this executor do.
    fn whole(&self, executor: usize) -> Option<usize>;

    /// Whether a job of this executor does; or, with `or_aside`, whatever one of its threads runs.
    fn part(&self, executor: usize, or_aside: bool) -> Option<usize>;

    /// Whether this party does: a thread by its number, or a coroutine.
    fn party(&self, number: u64) -> Option<usize>;

    /// Whether the task does that is to bring the future with this identity.
    fn task(&self, _future: *const ()) -> Option<usize> {
        None
    }
}

/// What has to come about before a wait ends.
pub(crate) trait Need: Sync {
    /// If those who stand still are all that could bring it about: one of their executors.
    fn blocker(&self, standing: &dyn Standing) -> Option<usize>;
}

/// That the executor with this identity gets on with its jobs.
pub(crate) struct Progress(pub(crate) usize);

impl Need for Progress {
    fn blocker(&self, standing: &dyn Standing) -> Option<usize> {
        standing.whole(self.0)
    }
}

/// That one of several executors gets on.
pub(crate) struct AnyProgress(pub(crate) Vec<usize>);

impl Need for AnyProgress {
    fn blocker(&self, standing: &dyn Standing) -> Option<usize> {
        let mut blockers = self.0.iter().map(|&executor| standing.whole(executor));
        let first = blockers.next()??;
        blockers.all(|one| one.is_some()).then_some(first)
    }
}

/// That the executor with this identity comes to the end of its jobs.
pub(crate) struct Drained(pub(crate) usize);

impl Need for Drained {
    fn blocker(&self, standing: &dyn Standing) -> Option<usize> {
        standing.part(self.0, false)
    }
}

/// That the threads of the executor with this identity end.
pub(crate) struct Over(pub(crate) usize);

impl Need for Over {
    fn blocker(&self, standing: &dyn Standing) -> Option<usize> {
        standing.part(self.0, true)
    }
}

/// What a thread is about to wait for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Awaited {
    kind: Kind,
    need: NonNull<()>,
    /// To be called with `need` while that is in place.
    ask: unsafe fn(NonNull<()>, &dyn Standing) -> Option<usize>,
}

impl Awaited {
    /// It is to be told of no longer than `need` is lent.
    pub(crate) fn new<N: Need>(kind: Kind, need: &N) -> Self {
        unsafe fn ask<N: Need>(need: NonNull<()>, standing: &dyn Standing) -> Option<usize> {
            // SAFETY: the caller says that it is in place; it was made from such a one.
            unsafe { need.cast::<N>().as_ref() }.blocker(standing)
        }
        Self {
            kind,
            need: NonNull::from(need).cast(),
            ask: ask::<N>,
        }
    }
}

/// The calling party itself: who would stand still if it waited.
pub(crate) struct Caller;

impl Standing for Caller {
    fn whole(&self, executor: usize) -> Option<usize> {
        current::is_sole_worker_of(executor).then_some(executor)
    }

    fn part(&self, executor: usize, _: bool) -> Option<usize> {
        current::is_worker_of(ptr::without_provenance(executor)).then_some(executor)
    }

    fn party(&self, number: u64) -> Option<usize> {
        (number == current::party_number()).then_some(0)
    }

    fn task(&self, future: *const ()) -> Option<usize> {
        TaskEstate::is_task_of(future).then_some(0)
    }
}

static CREWS: Mutex<Vec<(usize, Weak<Crew>)>> = Mutex::new(Vec::new());

fn crews() -> MutexGuard<'static, Vec<(usize, Weak<Crew>)>> {
    CREWS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Crew {
    /// That of the executor with this identity. Without a number of threads it is one, which has the executor's own name.
    pub(crate) fn new(
        identity: *const (),
        name: &str,
        threads: Option<usize>,
        built_at: &'static Location<'static>,
    ) -> Arc<Self> {
        let crew = Arc::new(Self {
            name: name.into(),
            is_numbered: threads.is_some(),
            built_at,
            places: (0..threads.unwrap_or(1))
                .map(|_| Place::default())
                .collect(),
        });
        let mut all = crews();
        all.retain(|(_, crew)| crew.strong_count() > 0);
        all.push((identity.addr(), Arc::downgrade(&crew)));
        crew
    }

    /// Runs `f` as the thread with this number; it must not unwind. `purge` ends those of the executor's jobs that were asked to stop
    /// and have not begun; it is given the identity. The thread stays one of the executor's to its end: what its thread-locals
    /// drop cannot wait for it either.
    pub(crate) fn serve(&self, number: usize, identity: *const (), purge: Purge, f: impl FnOnce()) {
        let place = self.places.get(number).map_or(ptr::null(), ptr::from_ref);
        let purge = (self.places.len() == 1).then_some(purge);
        current::set_pool(identity, place, purge);
        f();
        current::set_pool(identity, ptr::null(), None);
    }

    /// The same for the one thread of an executor that does its jobs while coroutines of the thread wait for them.
    pub(crate) fn serve_loop<R>(&self, identity: *const (), f: impl FnOnce() -> R) -> R {
        let place = self.places.first().map_or(ptr::null(), ptr::from_ref);
        current::set_pool(identity, place, None);
        let result = f();
        current::set_pool(ptr::null(), ptr::null(), None);
        result
    }
}

impl Crew {
    /// The name of the thread with this number.
    pub(crate) fn thread_name(&self, number: usize) -> String {
        match self.is_numbered {
            true => format!("{}-{number}", self.name),
            false => self.name.to_string(),
        }
    }
}

impl Place {
    fn lock(&self) -> MutexGuard<'_, Option<Stop>> {
        self.stop.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Says what the thread waits for as long as it lives.
#[must_use]
pub(super) struct Stopped<'a>(Option<&'a Place>);

/// The calling thread is about to stop, with this waiter, which outlives what comes back.
pub(super) fn stop<'a>(waiter: &Waiter, deadline_ns: Option<u64>) -> Stopped<'a> {
    let Some(awaited) = current::awaited() else {
        return Stopped(None);
    };
    // SAFETY: not null inside of `Crew::serve`, which borrows it.
    let place = unsafe { current::place_in_crew().as_ref() };
    let Some(place) = place.filter(|_| deadline_ns.is_none()) else {
        return Stopped(None);
    };
    *place.lock() = Some(Stop {
        awaited,
        thread: current::thread_number(),
        since_ns: clock::now_ns(),
        is_aside: current::is_aside(),
        waiter: NonNull::from(waiter),
    });
    Stopped(Some(place))
}

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        if let Some(place) = self.0 {
            *place.lock() = None;
        }
    }
}

/// A thread of a crew that stands still, for good but for a cancel.
pub(crate) struct Still {
    /// Its executor.
    pub(crate) identity: usize,
    pub(crate) crew: Arc<Crew>,
    /// Which of the crew's threads it is.
    pub(crate) place: usize,
    pub(crate) thread: u64,
    pub(crate) kind: Kind,
    pub(crate) since_ns: u64,
    /// The executor that it waits for, one of whose threads stands still too.
    pub(crate) awaited: usize,
}

/// A thread that may stand still.
struct Suspect<'a> {
    identity: usize,
    crew: &'a Arc<Crew>,
    place: usize,
    stop: Stop,
}

/// Those that are left.
struct Left<'a>(&'a [Suspect<'a>]);

impl Standing for Left<'_> {
    fn whole(&self, executor: usize) -> Option<usize> {
        let of_it = || self.0.iter().filter(|one| one.identity == executor);
        let threads = of_it().next()?.crew.places.len();
        (of_it().count() == threads).then_some(executor)
    }

    fn part(&self, executor: usize, or_aside: bool) -> Option<usize> {
        let mut all = self.0.iter();
        all.any(|one| one.identity == executor && (or_aside || !one.stop.is_aside))
            .then_some(executor)
    }

    fn party(&self, number: u64) -> Option<usize> {
        let one = self.0.iter().find(|one| one.stop.thread == number)?;
        Some(one.identity)
    }
}

impl Suspect<'_> {
    fn is_armed(&self) -> bool {
        // SAFETY: the place is locked, so the thread is in the frame.
        unsafe { self.stop.waiter.as_ref() }.word.is_armed()
    }

    fn blocker(&self, standing: &dyn Standing) -> Option<usize> {
        let Awaited { need, ask, .. } = self.stop.awaited;
        // SAFETY: as above: what the thread waits for is lent to its wait.
        unsafe { ask(need, standing) }
    }
}

/// The threads that wait for what only others of them could bring about.
pub(crate) fn standing_still() -> Vec<Still> {
    let all: Vec<_> = crews()
        .iter()
        .filter_map(|(identity, crew)| Some((*identity, crew.upgrade()?)))
        .collect();
    // In the order of the list, so that two who look do not wait for each other. The threads take their own only.
    let held: Vec<Vec<_>> = all
        .iter()
        .map(|(_, crew)| crew.places.iter().map(Place::lock).collect())
        .collect();
    let mut suspects = Vec::new();
    for ((identity, crew), places) in all.iter().zip(&held) {
        for (place, stop) in places.iter().enumerate() {
            suspects.extend(stop.map(|stop| Suspect {
                identity: *identity,
                crew,
                place,
                stop,
            }));
        }
    }
    // Twice: see the file's head.
    suspects.retain(Suspect::is_armed);
    suspects.retain(Suspect::is_armed);
    loop {
        let blockers: Vec<_> = suspects
            .iter()
            .map(|one| one.blocker(&Left(&suspects)))
            .collect();
        if blockers.iter().all(Option::is_some) {
            let still = suspects.iter().zip(blockers.into_iter().flatten());
            return still.map(|(one, awaited)| one.found(awaited)).collect();
        }
        let mut blockers = blockers.iter();
        suspects.retain(|_| blockers.next().is_some_and(Option::is_some));
    }
}

impl Suspect<'_> {
    fn found(&self, awaited: usize) -> Still {
        Still {
            identity: self.identity,
            crew: self.crew.clone(),
            place: self.place,
            thread: self.stop.thread,
            kind: self.stop.awaited.kind,
            since_ns: self.stop.since_ns,
            awaited,
        }
    }
}
