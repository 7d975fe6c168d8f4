//! The threads of an executor that has only so many of them: what each waits for, for whoever looks for deadlocks.
//!
//! Owns: the places of the threads, and the list of all crews. A place is written by its thread, and read by any, under its lock.
//!
//! # Why a report is true
//!
//! 1. A thread of a crew that stops without a deadline, in a wait for something that an executor is to do, says so in its place before
//!    it stops, and takes it back when it goes on, before it leaves the frame of the wait.
//! 2. Who looks holds the locks of all places at once, so nobody goes on, and sees which of the waiting ones are armed: nobody has given
//!    them what they wait for. (What a thread of a crew gave before it stopped is seen: it took its place's lock after that.) It looks a second time: those that are armed at both looks were so all at one moment between.
//! 3. Among those are searched the crews of which every thread waits for a crew that is among them too. What they wait for
//!    is a job's end, room or the drain of an executor all of whose threads stood still at that moment; so it comes from outside
//!    or not at all. Outside can be no one but who cancels.
#![expect(
    unsafe_code,
    reason = "looks at the wait words of threads that are held in their waits"
)]

use std::panic::Location;
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use sinew_core::wait::{Kind, Waiter};

use crate::scheduler::current;
use crate::sys::clock;

/// See the file's head.
#[derive(Debug)]
pub(crate) struct Crew {
    pub(crate) name: Box<str>,
    pub(crate) built_at: &'static Location<'static>,
    places: Box<[Place]>,
}

/// What a thread of a crew says of itself.
#[derive(Debug, Default)]
pub(crate) struct Place {
    stop: Mutex<Option<Stop>>,
}

/// What a thread waits for, without a deadline.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stop {
    /// The executor that is to do it, as an identity.
    pub(crate) awaited: usize,
    pub(crate) kind: Kind,
    /// The number of the thread.
    pub(crate) thread: u64,
    pub(crate) since_ns: u64,
    /// In the thread's frame, which it does not leave before this is taken back.
    waiter: NonNull<Waiter>,
}

// SAFETY: the pointer is followed under the lock of the place only, while what it points to is in place.
unsafe impl Send for Stop {}

/// What a thread is about to wait for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Awaited {
    pub(crate) executor: usize,
    pub(crate) kind: Kind,
}

static CREWS: Mutex<Vec<(usize, Weak<Crew>)>> = Mutex::new(Vec::new());

fn crews() -> MutexGuard<'static, Vec<(usize, Weak<Crew>)>> {
    CREWS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Crew {
    /// That of the executor with this identity.
    pub(crate) fn new(
        identity: *const (),
        name: &str,
        threads: usize,
        built_at: &'static Location<'static>,
    ) -> Arc<Self> {
        let crew = Arc::new(Self {
            name: name.into(),
            built_at,
            places: (0..threads).map(|_| Place::default()).collect(),
        });
        let mut all = crews();
        all.retain(|(_, crew)| crew.strong_count() > 0);
        all.push((identity.addr(), Arc::downgrade(&crew)));
        crew
    }

    /// Runs `f` as the thread with this number; it must not unwind. The thread stays one of the executor's to its end: what its thread-locals
    /// drop cannot wait for it either.
    pub(crate) fn serve(&self, number: usize, identity: *const (), f: impl FnOnce()) {
        let place = self.places.get(number).map_or(ptr::null(), ptr::from_ref);
        current::set_pool(identity, place, self.places.len() == 1);
        f();
        current::set_pool(identity, ptr::null(), false);
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
    let Some(Awaited { executor, kind }) = current::awaited() else {
        return Stopped(None);
    };
    // SAFETY: not null inside of `Crew::serve`, which borrows it.
    let place = unsafe { current::place_in_crew().as_ref() };
    let Some(place) = place.filter(|_| deadline_ns.is_none()) else {
        return Stopped(None);
    };
    *place.lock() = Some(Stop {
        awaited: executor,
        kind,
        thread: current::thread_number(),
        since_ns: clock::now_ns(),
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

/// A crew that stands still, seen from one that does: the stops of its threads.
pub(crate) struct Still {
    pub(crate) identity: usize,
    pub(crate) crew: Arc<Crew>,
    pub(crate) stops: Vec<Stop>,
}

/// The crews of which every thread waits for another of them, or for its own.
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
    let mut still: Vec<usize> = (0..all.len()).collect();
    // Twice: see the file's head.
    for _ in 0..2 {
        still.retain(|&index| {
            held[index].iter().all(|stop| {
                stop.is_some_and(|stop| {
                    // SAFETY: the place is locked, so the thread is in the frame.
                    unsafe { stop.waiter.as_ref() }.word.is_armed()
                })
            })
        });
    }
    loop {
        let known: Vec<usize> = still.iter().map(|&index| all[index].0).collect();
        let before = still.len();
        still.retain(|&index| {
            let mut stops = held[index].iter().flat_map(|stop| stop.as_ref());
            stops.all(|stop| known.contains(&stop.awaited))
        });
        if still.len() == before {
            break;
        }
    }
    let found = still.into_iter().map(|index| Still {
        identity: all[index].0,
        crew: all[index].1.clone(),
        stops: held[index].iter().filter_map(|stop| **stop).collect(),
    });
    found.collect()
}
