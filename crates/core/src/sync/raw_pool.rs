//! The pool: a bounded queue of jobs, the workers that take them, and those who wait for room or for the end of all.
//!
//! Owns: the queue, the count of everything, and three queues of parties. Any thread may call anything here; a job is run, ended
//! and dropped outside of the lock, by whoever took it out.
//!
//! | where a job is | counted in | what it owes |
//! |---|---|---|
//! | its submitter has been given a place | `reserved` | [`fill`](RawPool::fill), exactly once |
//! | in the queue | the queue's length | a worker's look |
//! | taken by a worker | `running`, `busy`; when it has ended, the worker's slot | [`ended`](RawPool::ended), then publishing, then the worker's next [`next`](RawPool::next) |
//! | taken by who purges or cancels | `busy`, already completed | publishing, then [`published`](RawPool::published) |
//!
//! Invariants
//! - I1. The queue and the reserved places together are never more than the limit.
//! - I2. While there is room nobody waits for it: who frees a place hands it to the one who has waited longest, as a
//!   reservation, by the claim.
//! - I3. While a job or a finalizer is queued and a worker waits, another one is on its way to the queue: it searches, or was claimed. Who
//!   comes to the queue that way, takes something out, and leaves something there, claims the next.
//! - I4. submitted = queued + running + completed, whenever the lock is free.
//! - I5. Once closed, no place is reserved any more. Drained is: closed, nothing queued, nothing reserved, nobody busy. It stays so.
//! - I6. One worker at a time searches: it looks for a moment, without the lock, whether there is news, and then takes the lock and looks at
//!   the queue before it waits. So who brings news wakes nobody meanwhile.
//! - I7. A slot is written by its worker; it is emptied under the lock, with what it said being counted. So who has the lock sees each end in
//!   its slot or in the counts, and never in both.
//!
//! An end is said without the lock, because that is contended: a job that is short costs two locks, its submitter's and its taker's.
#![expect(unsafe_code, reason = "waits through the queue")]

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;
use core::mem;
use core::ptr;
use core::sync::atomic::Ordering::Relaxed;

use crate::facade::AtomicU8;
use crate::lock::{Guard, Lock};
use crate::wait::{Kind, Probe, Queue, QueueArm, Reason, Record, Suspend, WakeList, wait_in};

/// A bounded queue of jobs of type `J` and an unbounded one of finalizers of type `Z`, with their workers.
pub struct RawPool<J, Z> {
    state: Apart<Lock<State<J, Z>>>,
    /// For the worker that searches: there is news. A hint, set under the lock.
    has_news: Apart<AtomicU8>,
    /// How the last job of each worker has ended, until that is counted.
    slots: Box<[Apart<AtomicU8>]>,
}

/// In cache lines of its own.
#[repr(align(64))]
struct Apart<T>(T);

/// What is under a pool's lock. What each job needs comes first: the lines that it is in go from processor to processor.
#[repr(C)]
pub struct State<J, Z> {
    queue: VecDeque<J>,
    limit: usize,
    reserved: usize,
    /// Who has something to publish.
    busy: usize,
    is_leaving: bool,
    /// Whether a worker searches.
    is_searched: bool,
    idle: Queue,
    room: Queue,
    /// In the order of their coming.
    finalizers: Option<Box<Link<Z>>>,
    /// Those that came since, the newest first.
    new_finalizers: Option<Box<Link<Z>>>,
    figures: Figures,
    drain: Queue,
    /// What was passed to the last purge.
    purge_mark: u64,
}

/// How a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobEnd {
    /// It did what it was to do.
    Succeeded,
    /// It failed.
    Failed,
    /// It stopped because it was asked to, or did not begin.
    Cancelled,
}

impl JobEnd {
    /// As a slot has it, where 0 is nothing.
    fn to_u8(self) -> u8 {
        match self {
            Self::Succeeded => 1,
            Self::Failed => 2,
            Self::Cancelled => 3,
        }
    }

    fn from_u8(number: u8) -> Option<Self> {
        [Self::Succeeded, Self::Failed, Self::Cancelled]
            .into_iter()
            .find(|end| end.to_u8() == number)
    }
}

impl Figures {
    /// A job that ran has ended so.
    fn count(&mut self, end: JobEnd) {
        self.running -= 1;
        self.completed += 1;
        match end {
            JobEnd::Succeeded => self.succeeded += 1,
            JobEnd::Failed => self.failed += 1,
            JobEnd::Cancelled => self.cancelled += 1,
        }
    }
}

/// The counts of a pool, all of one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    /// Jobs that wait for a worker.
    pub queued: usize,
    /// Jobs that a worker has taken and that have not ended.
    pub running: usize,
    /// Jobs that were accepted.
    pub submitted: u64,
    /// Of those, the ones that have ended.
    pub completed: u64,
    /// Of those, the ones that succeeded.
    pub succeeded: u64,
    /// And those that failed.
    pub failed: u64,
    /// And those that were cancelled.
    pub cancelled: u64,
    /// Jobs that were not accepted.
    pub rejected: u64,
    /// Whether nothing is accepted any more.
    pub is_closed: bool,
    /// Whether all of it was cancelled.
    pub is_cancelled: bool,
}

/// Why a job was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    /// There is no room now.
    Full,
    /// Nothing is accepted any more.
    Closed,
}

/// What a worker is to do next.
#[derive(Debug)]
#[must_use = "what was taken out is the taker's to do"]
pub enum Next<J, Z> {
    /// To run this job, and to say that it has ended.
    Job(J),
    /// To run this finalizer.
    Finalizer(Box<Link<Z>>),
    /// To go: the pool is over.
    Leave,
}

/// A finalizer with its place in the queue: to hand it in allocates nothing.
pub struct Link<Z> {
    /// What is to be done.
    pub finalizer: Z,
    next: Option<Box<Link<Z>>>,
}

impl<Z> Link<Z> {
    /// A finalizer that is not queued.
    #[must_use]
    pub fn new(finalizer: Z) -> Box<Self> {
        Box::new(Self {
            finalizer,
            next: None,
        })
    }
}

impl<Z> fmt::Debug for Link<Z> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").finish_non_exhaustive()
    }
}

/// How an arm looks for room.
#[derive(Debug)]
pub struct RoomProbe;
/// How an arm looks for the end of all.
#[derive(Debug)]
pub struct DrainProbe;

/// Waits for room, as one of several things; [`Reason::Woken`] stands for a reserved place.
pub type RoomArm<'a, J, Z> = QueueArm<'a, State<J, Z>, RoomProbe>;
/// Waits for a pool to be drained, as one of several things.
pub type DrainArm<'a, J, Z> = QueueArm<'a, State<J, Z>, DrainProbe>;

// SAFETY: the one queue; who is claimed from it has a place reserved (I2), or the pool was closed.
unsafe impl<J, Z> Probe<State<J, Z>> for RoomProbe {
    fn take(&self, state: &mut State<J, Z>) -> Option<Reason> {
        if state.figures.is_closed {
            return Some(Reason::Closed);
        }
        state.reserve().then_some(Reason::Woken)
    }

    fn is_there(&self, state: &mut State<J, Z>) -> bool {
        state.figures.is_closed || state.has_room()
    }

    fn queue<'a>(&self, state: &'a mut State<J, Z>) -> &'a mut Queue {
        &mut state.room
    }
}

// SAFETY: the one queue; who is claimed from it was there when the pool was drained, which it stays.
unsafe impl<J, Z> Probe<State<J, Z>> for DrainProbe {
    fn take(&self, state: &mut State<J, Z>) -> Option<Reason> {
        state.is_drained().then_some(Reason::Woken)
    }

    fn is_there(&self, state: &mut State<J, Z>) -> bool {
        state.is_drained()
    }

    fn queue<'a>(&self, state: &'a mut State<J, Z>) -> &'a mut Queue {
        &mut state.drain
    }
}

impl<J, Z> State<J, Z> {
    fn has_room(&self) -> bool {
        self.queue.len() + self.reserved < self.limit
    }

    fn reserve(&mut self) -> bool {
        let has_room = self.has_room();
        self.reserved += usize::from(has_room);
        has_room
    }

    fn is_drained(&self) -> bool {
        self.figures.is_closed && self.queue.is_empty() && self.reserved == 0 && self.busy == 0
    }

    /// INVARIANT: I2, after places became free.
    fn hand_over_room(&mut self, wakes: &mut WakeList) {
        while self.has_room() {
            let Some(claimed) = self.room.claim_front(Reason::Woken) else {
                break;
            };
            self.reserved += 1;
            wakes.push(claimed);
        }
    }

    fn enqueue(&mut self, job: J, is_unwanted: bool) {
        self.queue.push_back(job);
        if is_unwanted {
            // A purge with the same mark may have been before.
            self.purge_mark = 0;
        }
    }

    /// Wakes a worker that waits, if there is one.
    fn call_worker(&mut self, wakes: &mut WakeList) {
        if let Some(claimed) = self.idle.claim_front(Reason::Woken) {
            wakes.push(claimed);
        }
    }

    /// INVARIANT: I3, by a worker that came from a search or a wait and has taken something.
    fn call_next(&mut self, wakes: &mut WakeList) {
        let is_empty =
            self.queue.is_empty() && self.finalizers.is_none() && self.new_finalizers.is_none();
        if !is_empty && !self.is_searched {
            self.call_worker(wakes);
        }
    }

    fn tell_if_drained(&mut self, wakes: &mut WakeList) {
        if self.is_drained() {
            wakes.append(self.drain.claim_all(Reason::Woken));
        }
    }

    /// Wakes the workers that may leave, if so.
    fn let_go(&mut self, wakes: &mut WakeList) {
        if self.is_leaving && self.reserved == 0 {
            wakes.append(self.idle.claim_all(Reason::Woken));
        }
    }

    fn close(&mut self, wakes: &mut WakeList) -> bool {
        let is_first = !mem::replace(&mut self.figures.is_closed, true);
        wakes.append(self.room.claim_all(Reason::Closed));
        self.tell_if_drained(wakes);
        is_first
    }

    /// Something to do, if there is any. `has_come`: for a worker from a search or a wait.
    fn take(&mut self, has_come: bool, wakes: &mut WakeList) -> Option<Next<J, Z>> {
        let next = if let Some(link) = self.pop_finalizer() {
            Next::Finalizer(link)
        } else if let Some(job) = self.queue.pop_front() {
            self.busy += 1;
            self.figures.running += 1;
            self.hand_over_room(wakes);
            Next::Job(job)
        } else {
            return (self.is_leaving && self.reserved == 0).then_some(Next::Leave);
        };
        if has_come {
            self.call_next(wakes);
        }
        Some(next)
    }

    /// The oldest finalizer.
    fn pop_finalizer(&mut self) -> Option<Box<Link<Z>>> {
        if self.finalizers.is_none() {
            // Each is turned around once.
            while let Some(mut link) = self.new_finalizers.take() {
                self.new_finalizers = mem::replace(&mut link.next, self.finalizers.take());
                self.finalizers = Some(link);
            }
        }
        let mut first = self.finalizers.take()?;
        self.finalizers = first.next.take();
        Some(first)
    }
}

impl<J, Z> RawPool<J, Z> {
    /// A pool of so many workers, whose queue is as long as `queue` has capacity, which is empty; no more than `limit`.
    #[must_use]
    pub fn new(queue: VecDeque<J>, limit: usize, workers: usize) -> Self {
        debug_assert!(queue.is_empty() && queue.capacity() >= limit);
        Self {
            state: Apart(Lock::new(State {
                queue,
                limit,
                reserved: 0,
                busy: 0,
                is_leaving: false,
                is_searched: false,
                purge_mark: 0,
                figures: Figures::default(),
                idle: Queue::new(),
                room: Queue::new(),
                drain: Queue::new(),
                finalizers: None,
                new_finalizers: None,
            })),
            has_news: Apart(AtomicU8::new(0)),
            slots: (0..workers).map(|_| Apart(AtomicU8::new(0))).collect(),
        }
    }

    /// Queues a job if there is room. `wrap` makes it what is queued, and says whether it is unwanted already, see
    /// [`purge`](Self::purge); it is called under the lock.
    ///
    /// # Errors
    ///
    /// The job comes back.
    pub fn offer<K>(&self, job: K, wrap: impl FnOnce(K) -> (J, bool)) -> Result<(), (Full, K)> {
        let mut wakes = WakeList::new();
        let mut state = self.state.0.lock();
        if state.figures.is_closed {
            return Err((Full::Closed, job));
        }
        if !state.has_room() {
            return Err((Full::Full, job));
        }
        let (job, is_unwanted) = wrap(job);
        state.enqueue(job, is_unwanted);
        self.bring(&mut state, &mut wakes);
        state.figures.submitted += 1;
        drop(state);
        wakes.wake_all();
        Ok(())
    }

    /// An arm that waits for room.
    #[must_use]
    pub fn room_arm(&self) -> RoomArm<'_, J, Z> {
        QueueArm::new(&self.state.0, RoomProbe)
    }

    /// An arm that waits until the pool is drained.
    #[must_use]
    pub fn drain_arm(&self) -> DrainArm<'_, J, Z> {
        QueueArm::new(&self.state.0, DrainProbe)
    }

    /// Reserves a place if there is one.
    ///
    /// # Errors
    ///
    /// Why there is none.
    pub fn reserve(&self) -> Result<(), Full> {
        let mut state = self.state.0.lock();
        if state.figures.is_closed {
            Err(Full::Closed)
        } else if state.reserve() {
            Ok(())
        } else {
            Err(Full::Full)
        }
    }

    /// Queues a job in a reserved place, though the pool may have been closed since. `is_unwanted` is called under the lock.
    ///
    /// # Errors
    ///
    /// If the pool was cancelled since, the job comes back, accepted and counted as cancelled: the caller ends it so,
    /// publishes that and says [`published`](Self::published).
    pub fn fill(&self, job: J, is_unwanted: impl FnOnce(&J) -> bool) -> Result<(), J> {
        let mut wakes = WakeList::new();
        let mut state = self.state.0.lock();
        debug_assert!(state.reserved > 0, "a place was reserved");
        state.reserved -= 1;
        state.figures.submitted += 1;
        if state.figures.is_cancelled {
            state.figures.completed += 1;
            state.figures.cancelled += 1;
            state.busy += 1;
            state.let_go(&mut wakes);
            drop(state);
            wakes.wake_all();
            return Err(job);
        }
        let is_unwanted = is_unwanted(&job);
        state.enqueue(job, is_unwanted);
        self.bring(&mut state, &mut wakes);
        drop(state);
        wakes.wake_all();
        Ok(())
    }

    /// INVARIANT: I3, after something was queued.
    fn bring(&self, state: &mut State<J, Z>, wakes: &mut WakeList) {
        if state.is_searched {
            self.has_news.0.store(1, Relaxed);
        } else {
            state.call_worker(wakes);
        }
    }

    /// Gives a reserved place back.
    pub fn release(&self) {
        let mut wakes = WakeList::new();
        let mut state = self.state.0.lock();
        debug_assert!(state.reserved > 0, "a place was reserved");
        state.reserved -= 1;
        state.hand_over_room(&mut wakes);
        state.tell_if_drained(&mut wakes);
        state.let_go(&mut wakes);
        drop(state);
        wakes.wake_all();
    }

    /// Counts a job that was not accepted.
    pub fn reject(&self) {
        self.state.0.lock().figures.rejected += 1;
    }

    /// What the worker with this number is to do, which calls; waits while there is nothing. `was_busy`: it has published what it did last.
    ///
    /// Before it waits, `linger` may look for a moment whether what it is given says that there is news (I6).
    pub fn next<S: Suspend>(
        &self,
        worker: usize,
        party: &S,
        was_busy: bool,
        linger: impl Fn(&dyn Fn() -> bool),
    ) -> Next<J, Z> {
        let mut wakes = WakeList::new();
        let mut state = self.state.0.lock();
        if was_busy {
            state.busy -= 1;
            // INVARIANT: I7.
            let slot = &self.slots[worker].0;
            if let Some(end) = JobEnd::from_u8(slot.load(Relaxed)) {
                state.figures.count(end);
                slot.store(0, Relaxed);
            }
            state.tell_if_drained(&mut wakes);
        }
        let mut has_searched = false;
        // Whether it comes from a search or a wait.
        let mut has_come = false;
        loop {
            if let Some(next) = state.take(has_come, &mut wakes) {
                drop(state);
                wakes.wake_all();
                return next;
            }
            if !wakes.is_empty() {
                // Nobody is kept waiting while this worker lingers or sleeps.
                drop(state);
                mem::take(&mut wakes).wake_all();
                state = self.state.0.lock();
                continue;
            }
            has_come = true;
            if !has_searched && !state.is_searched {
                has_searched = true;
                state.is_searched = true;
                self.has_news.0.store(0, Relaxed);
                drop(state);
                linger(&|| self.has_news.0.load(Relaxed) != 0);
                state = self.state.0.lock();
                state.is_searched = false;
                continue;
            }
            self.sleep(state, party);
            has_searched = false;
            state = self.state.0.lock();
        }
    }

    /// Waits until somebody calls a worker.
    fn sleep<S: Suspend>(&self, state: Guard<'_, State<J, Z>>, party: &S) {
        let record = Record {
            kind: Kind::Nothing,
            object: ptr::from_ref(self).addr(),
            owner: 0,
        };
        // SAFETY: the same queue, and nothing is handed over through the slot. However it ends, the worker looks again.
        let _reason = unsafe {
            wait_in(
                &self.state.0,
                state,
                |state| &mut state.idle,
                ptr::null_mut(),
                party,
                record,
            )
        };
    }

    /// The job that the worker with this number took, which calls, has ended so; to be published now.
    pub fn ended(&self, worker: usize, end: JobEnd) {
        // ORDERING: Relaxed: who is told of the end by what is published next finds it here, or counted, by that.
        self.slots[worker].0.store(end.to_u8(), Relaxed);
    }

    /// Who took jobs out by a purge or by a cancel, or got one back from [`fill`](Self::fill), has published their ends.
    pub fn published(&self) {
        let mut wakes = WakeList::new();
        let mut state = self.state.0.lock();
        state.busy -= 1;
        state.tell_if_drained(&mut wakes);
        drop(state);
        wakes.wake_all();
    }

    /// Takes the jobs out of the queue that are `unwanted`, unless that was done already for this `mark`, which is not 0. They are counted as
    /// cancelled; if there are any, the caller ends and publishes them and says [`published`](Self::published).
    ///
    /// `unwanted` is called under the lock, twice for each job at most.
    #[must_use = "what was taken out is the taker's to end"]
    pub fn purge(&self, mark: u64, mut unwanted: impl FnMut(&J) -> bool) -> Vec<J> {
        let count = {
            let mut state = self.state.0.lock();
            if mem::replace(&mut state.purge_mark, mark) == mark {
                return Vec::new();
            }
            state.queue.iter().filter(|job| unwanted(job)).count()
        };
        if count == 0 {
            return Vec::new();
        }
        // Without the lock, which is a short one.
        let mut purged = Vec::with_capacity(count);
        let mut wakes = WakeList::new();
        let mut state = self.state.0.lock();
        for _ in 0..state.queue.len() {
            let Some(job) = state.queue.pop_front() else {
                break;
            };
            if purged.len() < count && unwanted(&job) {
                purged.push(job);
            } else {
                state.queue.push_back(job);
            }
        }
        if !purged.is_empty() {
            state.busy += 1;
            state.figures.completed += purged.len() as u64;
            state.figures.cancelled += purged.len() as u64;
            state.hand_over_room(&mut wakes);
        }
        drop(state);
        wakes.wake_all();
        purged
    }

    /// Accepts nothing any more; what was accepted is done. False if that was so already.
    pub fn close(&self) -> bool {
        let mut wakes = WakeList::new();
        let mut state = self.state.0.lock();
        let is_first = state.close(&mut wakes);
        drop(state);
        wakes.wake_all();
        is_first
    }

    /// Closes the pool and takes every queued job out. They are counted as cancelled: the caller ends and publishes them and
    /// says [`published`](Self::published), in any case. `None` if the pool was cancelled already.
    #[must_use = "what was taken out is the taker's to end"]
    pub fn cancel(&self) -> Option<VecDeque<J>> {
        let mut wakes = WakeList::new();
        let mut state = self.state.0.lock();
        if mem::replace(&mut state.figures.is_cancelled, true) {
            return None;
        }
        state.busy += 1;
        state.close(&mut wakes);
        // An empty one takes no memory; nothing will be queued any more.
        let jobs = mem::take(&mut state.queue);
        state.figures.completed += jobs.len() as u64;
        state.figures.cancelled += jobs.len() as u64;
        drop(state);
        wakes.wake_all();
        Some(jobs)
    }

    /// Hands a finalizer in, whatever state the pool is in.
    ///
    /// # Errors
    ///
    /// It comes back if the workers may have gone.
    pub fn finalize(&self, mut link: Box<Link<Z>>) -> Result<(), Box<Link<Z>>> {
        let mut wakes = WakeList::new();
        let mut state = self.state.0.lock();
        if state.is_leaving {
            return Err(link);
        }
        link.next = state.new_finalizers.take();
        state.new_finalizers = Some(link);
        self.bring(&mut state, &mut wakes);
        drop(state);
        wakes.wake_all();
        Ok(())
    }

    /// Closes the pool and lets the workers go when everything is done that was accepted.
    pub fn leave(&self) {
        let mut wakes = WakeList::new();
        let mut state = self.state.0.lock();
        state.close(&mut wakes);
        state.is_leaving = true;
        state.let_go(&mut wakes);
        drop(state);
        wakes.wake_all();
    }

    /// Whether it is closed, and everything that was accepted is done and published.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.state.0.lock().is_drained()
    }

    /// All counts, of one moment.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let state = self.state.0.lock();
        let mut figures = state.figures;
        figures.queued = state.queue.len();
        // Under the lock: I7.
        for slot in &self.slots {
            if let Some(end) = JobEnd::from_u8(slot.0.load(Relaxed)) {
                figures.count(end);
            }
        }
        figures
    }

    /// How many jobs may be queued.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.state.0.lock().limit
    }
}

impl<J, Z> Drop for State<J, Z> {
    /// One after the other: a long list needs no deep stack.
    fn drop(&mut self) {
        while self.pop_finalizer().is_some() {}
    }
}

impl<J, Z> fmt::Debug for RawPool<J, Z> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawPool")
            .field("figures", &self.figures())
            .finish_non_exhaustive()
    }
}

impl<J, Z> fmt::Debug for State<J, Z> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").finish_non_exhaustive()
    }
}
