//! Waiting for several things at once, of which exactly one happens.
//!
//! Owns: the choice. The wait itself is `sinew_core`'s `wait_any`.
//!
//! [`select!`](crate::select!) is for a fixed set of things; [`Selector`] and the arms here are for a set that is made at run time.
//! An arm that did not happen has consumed nothing: no value, no signal, no place in any queue.
//!
//! Another kind of arm needs nothing of what is here but the two traits: `sinew_core`'s `Arm`, whose `settle` may answer that
//! the wake was a hint only and that all arms are to be waited for again, and `Sealed`. `select!` takes it as `v = arm(…)`.
//!
//! Which one it is, of several that could happen at once, rotates: none of them is put off for ever by the others.
#![expect(unsafe_code, reason = "lends arms to the wait protocol")]

mod arms;
mod macros;
mod polled;
mod polling;

use std::cell::Cell;
use std::fmt;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use sinew_core::wait::{Kind, Reason, Record, Turn, attempt_any, wait_any};

use crate::error::WaitError;
use crate::io::Interest;
use crate::scheduler::crew::AnyProgress;
use crate::scheduler::current;
use crate::scheduler::waiting::Waiting;
use crate::sys::clock;

use polling::Polling;

pub use crate::io::ReadyArm;
pub use arms::{
    BroadcastArm, ChangeArm, EndArm, EventArm, FutureArm, RecvArm, SendArm, TimeArm, TokenArm,
    WaitGroupArm,
};
#[doc(hidden)]
pub use macros::{sent, taken};
pub use polled::{PollArm, future};

/// One of the things that are waited for: made by `recv_arm`, `send_arm` and `wait_arm` of what is waited at, by [`after`],
/// [`at`], [`ready`] and [`future()`]. Implemented here only.
///
/// What happened is in the arm: each has a method `take`.
pub trait Arm: sealed::Sealed {}

pub(crate) mod sealed {
    use super::Common;
    use crate::io::ReadyArm;

    pub trait Sealed: sinew_core::wait::Arm {
        fn common(&self) -> &Common;

        /// When it happens by itself.
        fn deadline_ns(&self) -> Option<u64> {
            None
        }

        /// It has happened by itself.
        fn strike(&self) {}

        /// The executor without which it does not happen, as an identity; 0 if it may anyhow.
        fn executor(&self) -> usize {
            0
        }

        /// If it is a descriptor's.
        fn ready(&self) -> Option<&ReadyArm<'_>> {
            None
        }
    }
}

/// What every arm has.
#[derive(Debug)]
pub struct Common {
    /// Whether somebody waits for it.
    is_busy: Cell<bool>,
}

impl Common {
    pub(crate) const fn new() -> Self {
        Self {
            is_busy: Cell::new(false),
        }
    }
}

/// Takes effect when `timeout` is over, counted from this call.
#[must_use]
pub fn after(timeout: Duration) -> TimeArm {
    TimeArm::at_ns(clock::after_ns(timeout))
}

/// Takes effect at `deadline`.
#[must_use]
pub fn at(deadline: Instant) -> TimeArm {
    TimeArm::at_ns(clock::instant_ns(deadline))
}

/// Takes effect when the descriptor is ready, as by [`io::ready`](crate::io::ready()).
pub fn ready<Fd: AsFd + ?Sized>(fd: &Fd, interest: Interest) -> ReadyArm<'_> {
    ReadyArm::new(fd, interest)
}

/// Several things to wait for, of which one happens; the set is made at run time. For a fixed set see
/// [`select!`](crate::select!).
///
/// # Examples
///
/// ```
/// use sinew::sync::channel::bounded;
/// use sinew::sync::select::Selector;
///
/// sinew::run(|| {
///     let (senders, receivers): (Vec<_>, Vec<_>) = (0..3).map(|_| bounded::<u32>(1)).unzip();
///     senders[1].send(7).unwrap();
///     let arms: Vec<_> = receivers.iter().map(|receiver| receiver.recv_arm()).collect();
///     let mut selector: Selector = arms.iter().collect();
///     let chosen = selector.wait().unwrap();
///     assert_eq!(chosen, 1);
///     assert_eq!(arms[chosen].take(), Some(Ok(7)));
/// });
/// ```
#[derive(Default)]
pub struct Selector<'a> {
    arms: Vec<&'a dyn Arm>,
    /// The arm that is tried first: the one behind that which happened last.
    next: usize,
}

impl<'a> Selector<'a> {
    /// A selector without arms.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            arms: Vec::new(),
            next: 0,
        }
    }

    /// Adds an arm; returns its number, counted from 0.
    pub fn add(&mut self, arm: &'a dyn Arm) -> usize {
        self.arms.push(arm);
        self.arms.len() - 1
    }

    /// How many arms there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.arms.len()
    }

    /// Whether there is no arm: a wait ends by a deadline or a cancel only, then.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.arms.is_empty()
    }

    /// Waits until one arm takes effect; returns its number. An arm whose outcome was not taken since has taken effect.
    ///
    /// Of several that can, those come first that follow the one of the last wait.
    ///
    /// # Suspends
    ///
    /// Until an arm can take effect. If one can at once, only to let others have their turn now and then.
    ///
    /// # Cancellation
    ///
    /// Ends early; no arm has taken effect. An arm that can take effect at once wins.
    ///
    /// # Errors
    ///
    /// `Cancelled`; `State` on a scheduler's own frame or in a callback, if no arm can take effect at once.
    ///
    /// # Panics
    ///
    /// If an arm is in the selector twice, or somebody else waits for it.
    #[track_caller]
    pub fn wait(&mut self) -> Result<usize, WaitError> {
        self.wait_until(None)
    }

    /// As [`Selector::wait`], for at most `timeout`.
    ///
    /// # Errors
    ///
    /// As [`Selector::wait`]; `Timeout` when the time is up.
    ///
    /// # Panics
    ///
    /// As [`Selector::wait`].
    #[track_caller]
    pub fn wait_timeout(&mut self, timeout: Duration) -> Result<usize, WaitError> {
        self.wait_until(Some(clock::after_ns(timeout)))
    }

    /// As [`Selector::wait`], until `deadline`.
    ///
    /// # Errors
    ///
    /// As [`Selector::wait`]; `Timeout` at the deadline.
    ///
    /// # Panics
    ///
    /// As [`Selector::wait`].
    #[track_caller]
    pub fn wait_deadline(&mut self, deadline: Instant) -> Result<usize, WaitError> {
        self.wait_until(Some(clock::instant_ns(deadline)))
    }

    /// Lets one arm take effect if that is possible at once; returns its number. Never waits.
    ///
    /// # Panics
    ///
    /// As [`Selector::wait`].
    #[track_caller]
    pub fn try_wait(&mut self) -> Option<usize> {
        let busy = Busy::mark(&self.arms);
        let chosen = attempt_any(&self.arms, Turn::from_arm(self.next));
        drop(busy);
        self.rotate(chosen);
        chosen
    }

    #[track_caller]
    fn wait_until(&mut self, deadline_ns: Option<u64>) -> Result<usize, WaitError> {
        let result = wait(&self.arms, Turn::from_arm(self.next), deadline_ns);
        self.rotate(result.ok());
        result
    }

    fn rotate(&mut self, chosen: Option<usize>) {
        if let Some(chosen) = chosen {
            self.next = (chosen + 1) % self.arms.len();
        }
    }
}

impl<'a, A: Arm> FromIterator<&'a A> for Selector<'a> {
    fn from_iter<I: IntoIterator<Item = &'a A>>(arms: I) -> Self {
        let mut this = Self::new();
        this.extend(arms);
        this
    }
}

impl<'a, A: Arm> Extend<&'a A> for Selector<'a> {
    fn extend<I: IntoIterator<Item = &'a A>>(&mut self, arms: I) {
        for arm in arms {
            self.add(arm);
        }
    }
}

impl fmt::Debug for Selector<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Selector")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

/// Keeps arms from being waited for twice at the same time.
struct Busy<'a>(&'a [&'a dyn Arm]);

impl<'a> Busy<'a> {
    #[track_caller]
    fn mark(arms: &'a [&'a dyn Arm]) -> Self {
        for (index, arm) in arms.iter().enumerate() {
            if arm.common().is_busy.replace(true) {
                drop(Self(&arms[..index]));
                panic!("the arm {index} is being waited for already: it is in a select twice");
            }
        }
        Self(arms)
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        for arm in self.0 {
            arm.common().is_busy.set(false);
        }
    }
}

/// What `select!` calls without a `default`.
#[doc(hidden)]
#[track_caller]
pub fn wait_for(arms: &[&dyn Arm]) -> Result<usize, WaitError> {
    wait(arms, Turn::of(current::next_select(), arms.len()), None)
}

/// What `select!` calls with a `default`.
#[doc(hidden)]
#[track_caller]
pub fn try_for(arms: &[&dyn Arm]) -> Option<usize> {
    let _busy = Busy::mark(arms);
    attempt_any(arms, Turn::of(current::next_select(), arms.len()))
}

#[track_caller]
fn wait(arms: &[&dyn Arm], turn: Turn, own_ns: Option<u64>) -> Result<usize, WaitError> {
    let busy = Busy::mark(arms);
    let arms_ns = arms.iter().filter_map(|arm| arm.deadline_ns()).min();
    let deadline_ns = match (own_ns, arms_ns) {
        (Some(own_ns), Some(arms_ns)) => Some(own_ns.min(arms_ns)),
        (one, other) => one.or(other),
    };
    let waiting = match Waiting::new(deadline_ns) {
        Ok(waiting) => waiting,
        Err(error) => return attempt_any(arms, turn).ok_or(error),
    };
    if is_for_caller(arms) {
        // What was asked to stop can be ended here.
        current::purge_own_jobs();
        return attempt_any(arms, turn).ok_or(WaitError::State);
    }
    let result = match executors(arms) {
        Some(need) => {
            current::awaiting(Kind::Select, &need, || wait_in_place(arms, turn, &waiting))
        }
        None => wait_in_place(arms, turn, &waiting),
    };
    drop(busy);
    match result {
        Ok(chosen) => {
            waiting.take_turn();
            Ok(chosen)
        }
        Err(reason) => {
            let mut timers = arms.iter().map(|arm| arm.deadline_ns());
            let chosen = timers.position(|arm_ns| arm_ns.is_some() && arm_ns == deadline_ns);
            if let (Reason::Timeout, Some(chosen)) = (reason, chosen) {
                arms[chosen].strike();
                return Ok(chosen);
            }
            // Only a wake could be `Ok`, and that names an arm.
            Err(waiting.result(reason).err().unwrap_or(WaitError::Cancelled))
        }
    }
}

/// Whether each of the arms is for the caller to bring about: for the only worker of a pool, which would wait.
fn is_for_caller(arms: &[&dyn Arm]) -> bool {
    let is_own = |arm: &&dyn Arm| current::is_sole_worker_of(arm.executor());
    arms.first().is_some_and(is_own) && arms.iter().all(is_own)
}

/// If the caller is a thread of a pool, and executors are to bring about each of the arms: these.
fn executors(arms: &[&dyn Arm]) -> Option<AnyProgress> {
    if !current::is_in_crew() || arms.is_empty() || arms.iter().any(|arm| arm.executor() == 0) {
        return None;
    }
    Some(AnyProgress(arms.iter().map(|arm| arm.executor()).collect()))
}

fn wait_in_place(arms: &[&dyn Arm], turn: Turn, waiting: &Waiting<'_>) -> Result<usize, Reason> {
    let record = Record {
        kind: Kind::Select,
        object: arms.as_ptr().addr(),
        owner: 0,
    };
    let mut descriptors = arms.iter().enumerate();
    if waiting.is_thread()
        && let Some((index, first)) =
            descriptors.find_map(|(index, arm)| Some((index, arm.ready()?)))
    {
        if let Some(chosen) = attempt_any(arms, turn) {
            return Ok(chosen);
        }
        return match Polling::new(waiting, arms) {
            // SAFETY: `Busy` has seen that they are different and that nobody else waits for them.
            Ok(polling) => unsafe { wait_any(arms, turn, &polling, record) },
            Err(error) => {
                first.fail(error);
                Ok(index)
            }
        };
    }
    // SAFETY: as above.
    unsafe { wait_any(arms, turn, waiting, record) }
}
