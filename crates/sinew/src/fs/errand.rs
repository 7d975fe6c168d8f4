//! Work for another thread, and the wait for its answer.
//!
//! Owns: the work until it is begun, then the answer until it is taken. Thread: any; the work runs on one of the pool's.
//!
//! Invariants
//! - I1. The work runs at most once, and does not begin after its wait has ended: who gives the wait up, or is unwound, takes the work
//!   back, and it is dropped right there; who finds it begun waits for its end.
//! - I2. Nothing of the asker's is lent to the work: what it needs it owns. So a coroutine that is unwound by force, the one party that
//!   does not wait for the end, leaves nothing dangling; the answer is dropped where it comes about.
//! - I3. Each errand that was accepted is answered, also if the work panics or is dropped.
#![expect(unsafe_code, reason = "waits in an errand's queue")]

use std::sync::Arc;
use std::{io, mem, ptr};

use sinew_core::lock::Lock;
use sinew_core::wait::{Kind, Queue, Reason, Record, Suspend, wait_in};

use crate::cancel::shield;
use crate::error::{ErrorKind, WaitError};
use crate::fs::pool;
use crate::scheduler::current::{Place, place};
use crate::scheduler::waiting::Waiting;

/// What has become of an errand.
enum Phase<T, F> {
    Queued(F),
    Begun,
    /// `None` if the work has panicked or was dropped.
    Over(Option<T>),
    /// Taken back, or the answer was fetched.
    Gone,
}

struct State<T, F> {
    phase: Phase<T, F>,
    /// The one who asked.
    asker: Queue,
}

/// See the file's head.
struct Errand<T, F> {
    state: Lock<State<T, F>>,
}

/// The pool's side: answers, come what may.
struct Performer<T, F>(Arc<Errand<T, F>>);

/// The side of the one who asked: takes the work back when it goes.
struct Asker<T, F>(Arc<Errand<T, F>>);

/// Whether work is done right here: on a plain thread, which may block, and for as long as it takes. One of the pool's own does not wait for
/// another.
pub(super) fn is_direct() -> bool {
    let has_limit = || Waiting::new(None).is_ok_and(|waiting| waiting.deadline_ns().is_some());
    matches!(place(), Place::Thread) && (!has_limit() || pool::is_own_worker())
}

/// Runs `f`, which may block, on a thread of the pool; on a plain thread without a limit, and on one of the pool's own, here.
///
/// # Suspends
///
/// Until it has returned.
///
/// # Cancellation
///
/// Takes it back, if it was not begun; otherwise the call ends with it, and tells what it has come to.
///
/// # Errors
///
/// Those of `f`; `State` where nothing may wait; a cancel's and a timeout's.
pub(crate) fn run<T, F>(f: F) -> io::Result<T>
where
    T: Send + 'static,
    F: FnOnce() -> io::Result<T> + Send + 'static,
{
    match place() {
        Place::Frame => Err(WaitError::State.into()),
        Place::Thread if is_direct() => f(),
        // Of all the pool's threads this may be the one that is left.
        Place::Coroutine(..) if pool::is_own_worker() => {
            let waiting = Waiting::new(None)?;
            if let Some(reason) = waiting.refused() {
                waiting.result(reason)?;
            }
            f()
        }
        Place::Thread | Place::Coroutine(..) => send(f)?
            .wait()?
            .unwrap_or_else(|| Err(WaitError::Closed.into())),
    }
}

fn send<T, F>(f: F) -> io::Result<Asker<io::Result<T>, F>>
where
    T: Send + 'static,
    F: FnOnce() -> io::Result<T> + Send + 'static,
{
    let waiting = Waiting::new(None)?;
    if let Some(reason) = waiting.refused() {
        waiting.result(reason)?;
    }
    let errand = Arc::new(Errand {
        state: Lock::new(State {
            phase: Phase::Queued(f),
            asker: Queue::new(),
        }),
    });
    let performer = Performer(Arc::clone(&errand));
    let asker = Asker(errand);
    let pool = pool::get()?;
    // Its future is not needed: the errand has the answer.
    match pool.submit(move |_| performer.perform()) {
        Ok(_future) => Ok(asker),
        Err(refused) => Err(match refused.kind() {
            ErrorKind::Timeout => WaitError::Timeout,
            ErrorKind::Cancelled => WaitError::Cancelled,
            ErrorKind::Closed => WaitError::Closed,
            _ => WaitError::State,
        }
        .into()),
    }
}

impl<T, F: FnOnce() -> T> Performer<T, F> {
    fn perform(self) {
        let mut state = self.0.state.lock();
        let work = match mem::replace(&mut state.phase, Phase::Begun) {
            Phase::Queued(work) => work,
            phase => {
                // It was taken back.
                state.phase = phase;
                return;
            }
        };
        drop(state);
        // What the work owns is gone when the asker hears of it.
        let answer = work();
        self.0.answer(Some(answer));
    }
}

impl<T, F> Drop for Performer<T, F> {
    fn drop(&mut self) {
        let state = self.0.state.lock();
        let is_open = matches!(state.phase, Phase::Queued(_) | Phase::Begun);
        drop(state);
        if is_open {
            self.0.answer(None);
        }
    }
}

impl<T, F> Errand<T, F> {
    fn answer(&self, answer: Option<T>) {
        let mut state = self.state.lock();
        let was = mem::replace(&mut state.phase, Phase::Over(answer));
        let asker = state.asker.claim_front(Reason::Woken);
        drop(state);
        drop(was);
        if let Some(asker) = asker {
            asker.wake();
        }
    }

    /// Waits until it is over. What ended the wait before that, if so.
    fn stop(&self, waiting: &Waiting<'_>) -> Option<Reason> {
        let guard = self.state.lock();
        if matches!(guard.phase, Phase::Over(_)) {
            return None;
        }
        let record = Record {
            kind: Kind::Errand,
            object: 0,
            owner: 0,
        };
        // SAFETY: always the same queue; the asker's slot is not used.
        let reason = unsafe {
            wait_in(
                &self.state,
                guard,
                |state| &mut state.asker,
                ptr::null_mut(),
                waiting,
                record,
            )
        };
        (reason != Reason::Woken).then_some(reason)
    }
}

impl<T, F> Asker<T, F> {
    /// The answer; `None` if there is none.
    fn wait(self) -> io::Result<Option<T>> {
        let waiting = Waiting::new(None)?;
        if let Some(reason) = self.0.stop(&waiting) {
            // The wait was ended: by what, matters only if the work can be taken back.
            if self.take_back() {
                waiting.result(reason)?;
                return Err(WaitError::Cancelled.into());
            }
            shield(|| Waiting::new(None).map(|waiting| self.0.stop(&waiting)))?;
        }
        let mut state = self.0.state.lock();
        match mem::replace(&mut state.phase, Phase::Gone) {
            Phase::Over(answer) => Ok(answer),
            phase => {
                state.phase = phase;
                Err(WaitError::State.into())
            }
        }
    }

    /// Whether it was not begun; it will not be.
    fn take_back(&self) -> bool {
        let mut state = self.0.state.lock();
        if !matches!(state.phase, Phase::Queued(_)) {
            return false;
        }
        let work = mem::replace(&mut state.phase, Phase::Gone);
        drop(state);
        drop(work);
        true
    }
}

impl<T, F> Drop for Asker<T, F> {
    fn drop(&mut self) {
        self.take_back();
    }
}
