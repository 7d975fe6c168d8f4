//! The party that waits: the current coroutine, or the current thread where there is none.
//!
//! Owns: the way a party stops and goes on, for everything in the crate that waits.
//! Thread: the waiting one; a thread party's wake function runs on any.
//!
//! Invariants
//! - I1. A thread party stays in the frame of the wait until its wake, if one is owed, has been done.
#![expect(unsafe_code, reason = "lends the waiting frame to the wait protocol")]

use std::cell::{Cell, UnsafeCell};
use std::mem::{MaybeUninit, offset_of};
use std::ptr::NonNull;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::thread::{self, Thread};
use std::time::Duration;

use sinew_core::sharing::Sharing;
use sinew_core::wait::{Claim, Kind, Node, Reason, Record, Suspend, Waiter, Ways};

use crate::error::WaitError;
use crate::scheduler::block::{Block, flag};
use crate::scheduler::crew;
use crate::scheduler::current::{self, Place, place};
use crate::scheduler::limit::{self, Limit};
use crate::scheduler::linger::linger;
use crate::sys::clock;

/// A party about to wait, with its deadline.
pub(crate) struct Waiting<'a> {
    place: Place<'a>,
    deadline_ns: Option<u64>,
    /// Whether the party has stopped by this value.
    has_waited: Cell<bool>,
    /// Initialised when a plain thread first waits by this value.
    thread: UnsafeCell<MaybeUninit<ThreadParty>>,
}

/// A waiting thread.
struct ThreadParty {
    waiter: Waiter,
    node: Node,
    thread: Thread,
    woken: AtomicBool,
}

impl<'a> Waiting<'a> {
    /// The current party, without or with a deadline on the runtime's clock.
    ///
    /// Fails with `State` on a scheduler's own frame and in a callback, where nothing may wait.
    #[inline]
    #[track_caller]
    pub(crate) fn new(deadline_ns: Option<u64>) -> Result<Self, WaitError> {
        Self::made(deadline_ns, false)
    }

    /// As [`new`](Self::new), for a wait at a primitive of kind `K`.
    ///
    /// Fails with `Deadlock`, besides, for a plain thread without a deadline at one whose parties run on one thread: whoever
    /// could end the wait would have to run on the thread that waits.
    #[inline]
    #[track_caller]
    pub(crate) fn at<K: Sharing>(deadline_ns: Option<u64>) -> Result<Self, WaitError> {
        Self::made(deadline_ns, K::IS_LOCAL)
    }

    /// For a wait that blocks the thread, be its code a coroutine's, a frame's or a callback's: of what must not go on before.
    pub(crate) fn blocking() -> Self {
        Self {
            place: Place::Thread,
            deadline_ns: None,
            has_waited: Cell::new(false),
            thread: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }

    /// Built in one place, where it stays: it is too large to be moved for each wait.
    #[inline(always)]
    #[track_caller]
    fn made(deadline_ns: Option<u64>, is_local: bool) -> Result<Self, WaitError> {
        let place = place();
        if !place.may_wait() {
            return Err(WaitError::State);
        }
        match place {
            Place::Coroutine(scheduler, block) => scheduler.check_fp_env(block),
            Place::Thread | Place::Frame => {
                current::expect_no_spin_lock();
                let limit_ns = || limit::innermost(place).and_then(Limit::deadline_ns);
                if is_local && deadline_ns.or_else(limit_ns).is_none() {
                    return Err(WaitError::Deadlock);
                }
            }
        }
        Ok(Self {
            place,
            deadline_ns,
            has_waited: Cell::new(false),
            thread: UnsafeCell::new(MaybeUninit::uninit()),
        })
    }

    /// The block that waits, if it is a coroutine.
    pub(crate) fn block(&self) -> Option<&'a Block> {
        match self.place {
            Place::Coroutine(_, block) => Some(block),
            Place::Thread | Place::Frame => None,
        }
    }

    /// The id of the waiting coroutine; 0 for a thread.
    #[inline]
    pub(crate) fn id(&self) -> u64 {
        self.block().map_or(0, Block::id)
    }

    /// A call is over that could have waited: if it did not, it is a turn all the same, so that parties which never wait
    /// do not starve the rest.
    #[inline]
    pub(crate) fn take_turn(&self) {
        if let Place::Coroutine(scheduler, block) = self.place
            && !self.has_waited.get()
        {
            scheduler.take_turn(block);
        }
    }

    /// Lets every other ready coroutine have its turn; on a plain thread, every other thread.
    pub(crate) fn yield_turn(&self) {
        self.has_waited.set(true);
        match self.place {
            Place::Coroutine(scheduler, block) => scheduler.yield_turn(block),
            Place::Thread | Place::Frame => thread::yield_now(),
        }
    }

    /// What a finished wait means for the caller. Raises the forced unwind where one is due.
    #[inline]
    pub(crate) fn result(&self, reason: Reason) -> Result<(), WaitError> {
        match reason {
            Reason::Woken => Ok(()),
            Reason::Timeout => Err(WaitError::Timeout),
            Reason::Closed => Err(WaitError::Closed),
            Reason::Cancelled => {
                if let Place::Coroutine(scheduler, block) = self.place {
                    scheduler.note_refusal(block);
                }
                Err(WaitError::Cancelled)
            }
        }
    }

    /// As [`result`](Self::result), of a wait that has failed.
    ///
    /// # Panics
    ///
    /// If it has not.
    #[cold]
    pub(crate) fn error(&self, reason: Reason) -> WaitError {
        match self.result(reason) {
            Ok(()) => unreachable!("who was woken got what it waited for"),
            Err(error) => error,
        }
    }

    /// When the wait ends at the latest: by its own deadline, or by a limit's.
    #[inline]
    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        match limit::innermost(self.place).and_then(Limit::deadline_ns) {
            Some(limit_ns) => Some(
                self.deadline_ns
                    .map_or(limit_ns, |own_ns| own_ns.min(limit_ns)),
            ),
            None => self.deadline_ns,
        }
    }

    /// Turns a timeout that is a limit's into a cancel.
    #[inline]
    pub(crate) fn blame(&self, reason: Reason) -> Reason {
        match limit::innermost(self.place) {
            Some(limit) if reason == Reason::Timeout => limit.blame(self.deadline_ns),
            _ => reason,
        }
    }

    /// Whether it is a plain thread that waits.
    pub(crate) fn is_thread(&self) -> bool {
        matches!(self.place, Place::Thread)
    }

    /// Waits for nothing but the deadline and a cancel.
    pub(crate) fn sleep(&self, record: Record) -> Reason {
        if let Some(reason) = self.refused() {
            return reason;
        }
        let (waiter, _) = self.party();
        // SAFETY: the party's own, and in place.
        unsafe { waiter.as_ref() }.word.arm();
        self.suspend(record)
    }

    /// Stops the calling thread, whose party is armed, for a thing of this kind.
    #[inline(never)]
    fn block_thread(&self, kind: Kind, deadline_ns: Option<u64>) -> Reason {
        let party = self.thread.get().cast::<ThreadParty>();
        // SAFETY: `party` initialised it for this wait.
        let party = unsafe { &*party };
        // A worker without work has looked for some already, nobody brings what a sleeper waits for, and a deadline is kept.
        let may_linger = deadline_ns.is_none() && !matches!(kind, Kind::Nothing | Kind::Sleep);
        // ORDERING: Acquire, as in `ThreadParty::wait`.
        let reason = if may_linger && linger(current::habit(), || party.woken.load(Acquire)) {
            party.waiter.word.finish()
        } else {
            let _stopped = crew::stop(&party.waiter, deadline_ns);
            party.wait(deadline_ns)
        };
        self.withdraw();
        reason
    }
}

// SAFETY: a coroutine's waiter and node are in its block, a thread's in `self`, which is borrowed; both are idle and
// unlinked whenever user code runs, as `wait_in` sees to. `suspend` goes on only after the claimer's wake, or
// after its own won claim.
unsafe impl Suspend for Waiting<'_> {
    #[inline]
    fn party(&self) -> (NonNull<Waiter>, NonNull<Node>) {
        if let Place::Coroutine(_, block) = self.place {
            return (NonNull::from(&block.waiter), NonNull::from(&block.node));
        }
        let party = ThreadParty {
            waiter: Waiter::new(&WAYS),
            node: Node::new(),
            thread: thread::current(),
            woken: AtomicBool::new(false),
        };
        // SAFETY: `self` is not shared, and no earlier party in the cell is in use: its wait is over. (One that
        // was there keeps a count of its thread; `Drop` sees to the last.)
        let cell = unsafe { &mut *self.thread.get() };
        let party = cell.write(party);
        (NonNull::from(&party.waiter), NonNull::from(&party.node))
    }

    #[inline]
    fn refused(&self) -> Option<Reason> {
        match self.place {
            Place::Coroutine(_, block) if block.is_refused() => Some(Reason::Cancelled),
            Place::Thread => limit::innermost(self.place)
                .and_then(|limit| limit.refuses(false).then_some(Reason::Cancelled)),
            _ => None,
        }
    }

    fn expired(&self) -> Option<Reason> {
        let is_over = self
            .deadline_ns()
            .is_some_and(|deadline_ns| deadline_ns <= clock::now_ns());
        is_over.then(|| self.blame(Reason::Timeout))
    }

    #[inline(always)]
    fn suspend(&self, record: Record) -> Reason {
        self.has_waited.set(true);
        match self.place {
            Place::Coroutine(scheduler, block) => {
                let reason = scheduler.wait(block, record, self.deadline_ns());
                self.blame(reason)
            }
            Place::Thread | Place::Frame => {
                self.blame(self.block_thread(record.kind, self.deadline_ns()))
            }
        }
    }

    #[inline]
    fn withdraw(&self) {
        if let Place::Thread | Place::Frame = self.place {
            let party = self.thread.get().cast::<ThreadParty>();
            // SAFETY: `party` initialised it for this wait.
            let party = unsafe { &*party };
            // SAFETY: the count of the thread's handle is given back here, once per `party`; the rest of
            // the party needs no drop and stays readable for the unlinking.
            drop(unsafe { std::ptr::read(&raw const party.thread) });
        }
    }
}

/// The party of a wait, where it must get what it waits for: no deadline and no cancel ends a wait by this.
#[derive(Clone, Copy)]
pub(crate) struct Deaf<'a, 'b>(pub(crate) &'b Waiting<'a>);

// SAFETY: as for `Waiting`, whose waiter and node these are.
unsafe impl Suspend for Deaf<'_, '_> {
    fn party(&self) -> (NonNull<Waiter>, NonNull<Node>) {
        self.0.party()
    }

    fn refused(&self) -> Option<Reason> {
        None
    }

    fn suspend(&self, record: Record) -> Reason {
        self.0.has_waited.set(true);
        match self.0.place {
            Place::Coroutine(scheduler, block) => {
                block.set(flag::DEAF);
                let reason = scheduler.wait(block, record, None);
                block.clear(flag::DEAF);
                reason
            }
            Place::Thread | Place::Frame => self.0.block_thread(record.kind, None),
        }
    }

    fn withdraw(&self) {
        self.0.withdraw();
    }
}

impl ThreadParty {
    fn wait(&self, deadline_ns: Option<u64>) -> Reason {
        // ORDERING: Acquire pairs with the Release in `wake_thread`: what was handed over is seen.
        while !self.woken.load(Acquire) {
            let Some(deadline_ns) = deadline_ns else {
                thread::park();
                continue;
            };
            let left_ns = deadline_ns.saturating_sub(clock::now_ns());
            if left_ns == 0 {
                if self.waiter.word.claim(Reason::Timeout) == Claim::Won {
                    break;
                }
                // Someone was faster, and owes the wake.
                thread::park();
            } else {
                thread::park_timeout(Duration::from_nanos(left_ns));
            }
        }
        self.waiter.word.finish()
    }
}

/// How a waiting thread is made runnable.
static WAYS: Ways = Ways {
    wake: wake_thread,
    is_here: is_never_here,
};

/// A thread that waits does not run, so whoever asks is another one; the waiting thread's own timeout may claim at
/// the same time.
unsafe fn is_never_here(_: NonNull<Waiter>) -> bool {
    false
}

/// Wakes a waiting thread. The party may be gone as soon as `woken` is set, so the handle is
/// counted up before.
unsafe fn wake_thread(waiter: NonNull<Waiter>) {
    // SAFETY: this function is only given to thread parties' waiters.
    let party = unsafe { waiter.byte_sub(offset_of!(ThreadParty, waiter)) }.cast::<ThreadParty>();
    // SAFETY: I1.
    let party = unsafe { party.as_ref() };
    let thread = party.thread.clone();
    // ORDERING: Release pairs with the Acquire in `wait`.
    party.woken.store(true, Release);
    thread.unpark();
}
