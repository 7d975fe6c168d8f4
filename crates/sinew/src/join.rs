//! The handle to a coroutine's end, and what it can find there.
//!
//! Owns: the right to the coroutine's result. The handle may go to another thread if the result may.
#![expect(unsafe_code, reason = "takes the typed result out of a control block")]

use std::any::Any;
use std::error::Error as StdError;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use std::{fmt, io, ptr};

use sinew_context::stack::StackError;
use sinew_core::life::Join;
use sinew_core::wait::{Kind, Record, wait_in};

use crate::cancel::{CancelRecord, CancelToken};
use crate::error::{Error, WaitError};
use crate::park::Unparker;
use crate::scheduler::block::{Block, BlockRef};
use crate::scheduler::body::{self, Payload};
use crate::scheduler::waiting::Waiting;
use crate::scheduler::{cycle, spawn, unhandled};
use crate::sync::select::EndArm;
use crate::sys::clock;

/// How a coroutine ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Outcome {
    /// It returned, whether or not it had been asked to stop.
    Returned = 1,
    /// It was cancelled before it started, confirmed a cancel, or was unwound by force.
    Cancelled = 2,
    /// It panicked, returned with an error in its context, or no stack could be had for it.
    Error = 3,
}

impl Outcome {
    fn from_u8(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Returned),
            2 => Some(Self::Cancelled),
            3 => Some(Self::Error),
            _ => None,
        }
    }
}

/// Why a join gave no value.
pub struct JoinError {
    repr: Repr,
}

enum Repr {
    Panic(Payload),
    Cancelled,
    NoStack(Box<StackError>),
    Left(Error),
    Wait(WaitError),
}

impl JoinError {
    pub(crate) fn panic(payload: Payload) -> Self {
        Self {
            repr: Repr::Panic(payload),
        }
    }

    pub(crate) fn cancelled() -> Self {
        Self {
            repr: Repr::Cancelled,
        }
    }

    pub(crate) fn no_stack(error: &StackError) -> Self {
        Self {
            repr: Repr::NoStack(Box::new(*error)),
        }
    }

    pub(crate) fn left(error: Error) -> Self {
        Self {
            repr: Repr::Left(error),
        }
    }

    fn wait(error: WaitError) -> Self {
        Self {
            repr: Repr::Wait(error),
        }
    }

    /// That no stack could be had, or the error that was left, as an I/O error for the unhandled hook.
    pub(crate) fn unhandled_error(&self) -> Option<io::Error> {
        match &self.repr {
            Repr::NoStack(error) => Some(io::Error::new(io::ErrorKind::OutOfMemory, **error)),
            Repr::Left(error) => Some(error.clone().into()),
            Repr::Panic(_) | Repr::Cancelled | Repr::Wait(_) => None,
        }
    }

    pub(crate) fn into_payload(self) -> Option<Payload> {
        match self.repr {
            Repr::Panic(payload) => Some(payload),
            Repr::Cancelled | Repr::NoStack(_) | Repr::Left(_) | Repr::Wait(_) => None,
        }
    }

    /// Whether the coroutine panicked.
    #[must_use]
    pub fn is_panic(&self) -> bool {
        matches!(self.repr, Repr::Panic(_))
    }

    /// The panic's payload, for [`std::panic::resume_unwind`].
    ///
    /// # Panics
    ///
    /// If the coroutine did not panic.
    #[must_use]
    #[track_caller]
    pub fn into_panic(self) -> Box<dyn Any + Send> {
        match self.into_payload() {
            Some(payload) => payload,
            None => panic!("into_panic called on an error that is not a panic"),
        }
    }

    /// Whether the coroutine ended as cancelled. (A join whose own wait was cancelled is a
    /// [`JoinError::wait_error`].)
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        matches!(self.repr, Repr::Cancelled)
    }

    /// Whether the join would have closed a cycle of joins, see [`JoinHandle::wait`].
    #[must_use]
    pub fn is_deadlock(&self) -> bool {
        matches!(self.repr, Repr::Wait(WaitError::Deadlock))
    }

    /// Why the join's own wait ended, if that is what happened: the coroutine lives on, detached.
    #[must_use]
    pub fn wait_error(&self) -> Option<WaitError> {
        match self.repr {
            Repr::Wait(error) => Some(error),
            _ => None,
        }
    }

    /// The error that the coroutine left in its context when it returned ([`crate::coroutine::error`]), if that is what
    /// happened. The value that it returned was dropped.
    #[must_use]
    pub fn error(&self) -> Option<&Error> {
        match &self.repr {
            Repr::Left(error) => Some(error),
            _ => None,
        }
    }

    /// The same, taken out.
    #[must_use]
    pub fn into_error(self) -> Option<Error> {
        match self.repr {
            Repr::Left(error) => Some(error),
            _ => None,
        }
    }

    /// Whether no stack could be had: nothing of the coroutine has run.
    #[must_use]
    pub fn is_no_memory(&self) -> bool {
        matches!(self.repr, Repr::NoStack(_))
    }
}

impl fmt::Debug for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.repr {
            Repr::Panic(payload) => f.debug_tuple("Panic").field(&message(&**payload)).finish(),
            Repr::Cancelled => f.write_str("Cancelled"),
            Repr::NoStack(error) => f.debug_tuple("NoStack").field(error).finish(),
            Repr::Left(error) => f.debug_tuple("Left").field(error).finish(),
            Repr::Wait(error) => f.debug_tuple("Wait").field(error).finish(),
        }
    }
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.repr {
            Repr::Panic(payload) => write!(f, "the coroutine panicked: {}", message(&**payload)),
            Repr::Cancelled => f.write_str("the coroutine was cancelled"),
            Repr::NoStack(error) => write!(f, "the coroutine got no stack: {error}"),
            Repr::Left(error) => {
                write!(
                    f,
                    "the coroutine ended with an error in its context: {error}"
                )
            }
            Repr::Wait(error) => write!(f, "the join did not wait to the end: {error}"),
        }
    }
}

impl StdError for JoinError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.error().and_then(StdError::source)
    }
}

/// A panic's message, if it is text.
pub(crate) fn message(payload: &(dyn Any + Send)) -> &str {
    if let Some(text) = payload.downcast_ref::<&str>() {
        text
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text
    } else {
        "a payload that is not text"
    }
}

/// A handle to a coroutine: its end, its value, and the way to ask it to stop.
///
/// Dropping it detaches the coroutine; a panic that nobody joins goes to the unhandled hook.
/// It is `Send` if the value is, and may be joined from any thread then.
pub struct JoinHandle<T> {
    block: BlockRef,
    value: PhantomData<T>,
}

// SAFETY: the handle hands the value over to whoever joins; everything else is atomic.
unsafe impl<T: Send> Send for JoinHandle<T> {}
// SAFETY: by reference one can wait and cancel, not reach the value.
unsafe impl<T: Send> Sync for JoinHandle<T> {}

impl<T> JoinHandle<T> {
    pub(crate) fn block(&self) -> &Block {
        &self.block
    }

    /// Takes on a count and the HANDLE bit of a block.
    ///
    /// # Safety
    ///
    /// The block's body returns `T`, and the caller gives away the count and the bit.
    #[inline]
    pub(crate) unsafe fn new(block: NonNull<Block>) -> Self {
        // SAFETY: passed on to the caller.
        let block = unsafe { spawn::handle_ref(block) };
        Self {
            block,
            value: PhantomData,
        }
    }

    /// Waits for the end and takes the value.
    ///
    /// # Suspends
    ///
    /// Until the coroutine has ended; on a plain thread it blocks the thread.
    ///
    /// # Cancellation
    ///
    /// Ends early if the caller is cancelled; the coroutine then lives on, detached. Use [`JoinHandle::wait`]
    /// to keep the handle.
    ///
    /// # Errors
    ///
    /// What the coroutine ended with if not a value, or why the wait ended early, see [`JoinError`].
    pub fn join(self) -> Result<T, JoinError> {
        self.join_until(None)
    }

    /// As [`JoinHandle::join`], for at most `timeout`.
    ///
    /// # Errors
    ///
    /// As [`JoinHandle::join`]; [`WaitError::Timeout`] when the time is up.
    pub fn join_timeout(self, timeout: Duration) -> Result<T, JoinError> {
        self.join_until(Some(clock::after_ns(timeout)))
    }

    /// As [`JoinHandle::join`], until `deadline`.
    ///
    /// # Errors
    ///
    /// As [`JoinHandle::join`]; [`WaitError::Timeout`] at the deadline.
    pub fn join_deadline(self, deadline: Instant) -> Result<T, JoinError> {
        self.join_until(Some(clock::instant_ns(deadline)))
    }

    fn join_until(self, deadline_ns: Option<u64>) -> Result<T, JoinError> {
        // Nobody can use the handle meanwhile.
        wait_for_end(&self.block, deadline_ns, true).map_err(JoinError::wait)?;
        let this = ManuallyDrop::new(self);
        // SAFETY: moved out once: the handle's own drop, which would see to the result, does not run.
        let block = unsafe { ptr::read(&raw const this.block) };
        // SAFETY: it has ended, and `this` was the handle.
        let result = unsafe { body::take_result(&block) };
        block.part();
        result
    }

    /// Waits for the end; the value stays. Any number of parties may wait.
    ///
    /// # Suspends
    ///
    /// Until the coroutine has ended; on a plain thread it blocks the thread.
    ///
    /// # Cancellation
    ///
    /// Ends early; nothing is changed.
    ///
    /// # Errors
    ///
    /// - `Cancelled`.
    /// - `Deadlock` if the coroutine's end waits for the caller's: the caller is the coroutine itself, or the coroutine joins one
    ///   that joins … the caller, all on one scheduler. That is said at once, whether this wait has a deadline or not. A wait
    ///   of one of the others that has a deadline ends by itself, so it closes no cycle.
    /// - `State` on a scheduler's own frame.
    pub fn wait(&self) -> Result<(), WaitError> {
        self.wait_until(None)
    }

    /// As [`JoinHandle::wait`], for at most `timeout`.
    ///
    /// # Errors
    ///
    /// As [`JoinHandle::wait`]; `Timeout` when the time is up.
    pub fn wait_timeout(&self, timeout: Duration) -> Result<(), WaitError> {
        self.wait_until(Some(clock::after_ns(timeout)))
    }

    /// As [`JoinHandle::wait`], until `deadline`.
    ///
    /// # Errors
    ///
    /// As [`JoinHandle::wait`]; `Timeout` at the deadline.
    pub fn wait_deadline(&self, deadline: Instant) -> Result<(), WaitError> {
        self.wait_until(Some(clock::instant_ns(deadline)))
    }

    /// To wait for the end as one of several things of which one happens: an arm of a [`select`](crate::sync::select).
    /// A coroutine that waits for its own end so is not refused: another arm may end the wait.
    #[must_use]
    pub fn wait_arm(&self) -> EndArm<'_> {
        EndArm::new(&self.block)
    }

    fn wait_until(&self, deadline_ns: Option<u64>) -> Result<(), WaitError> {
        wait_for_end(&self.block, deadline_ns, false)
    }

    /// Whether the coroutine has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.block.is_done()
    }

    /// How the coroutine ended; `None` while it lives.
    #[must_use]
    pub fn outcome(&self) -> Option<Outcome> {
        self.block
            .is_done()
            .then(|| self.block.outcome.load(Relaxed))
            .and_then(Outcome::from_u8)
    }

    /// Asks the coroutine to stop: its waits end with `Cancelled`, and if it has not started it never runs. It may
    /// go on and return all the same.
    ///
    /// From any thread; what the first call gave as the reason stands.
    #[track_caller]
    pub fn cancel(&self, reason: impl Into<String>) {
        self.cancel_token().cancel(reason);
    }

    /// The coroutine's cancel token.
    #[must_use]
    pub fn cancel_token(&self) -> CancelToken {
        CancelToken::attach(&self.block, None)
    }

    /// Who asked the coroutine to stop, why and when, and how long it took to obey; `None` if nobody did. The first cancel
    /// counts.
    #[must_use]
    pub fn cancel_record(&self) -> Option<CancelRecord> {
        self.block.cancel_record()
    }

    /// The coroutine's id: unique in the process.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.block.id()
    }

    /// The name that the coroutine was given.
    #[must_use]
    pub fn name(&self) -> Option<Arc<str>> {
        self.block.name()
    }

    /// A reference by which the coroutine's `park` can be ended, from any thread, also after its end.
    #[must_use]
    pub fn unparker(&self) -> Unparker {
        Unparker::new(self.block.clone())
    }
}

/// Waits for the end of a coroutine. `is_sole` says that its handle is the wait's alone.
pub(crate) fn wait_for_end(
    block: &BlockRef,
    deadline_ns: Option<u64>,
    is_sole: bool,
) -> Result<(), WaitError> {
    if block.is_done() {
        return Ok(());
    }
    let waiting = Waiting::new(deadline_ns)?;
    if waiting
        .block()
        .is_some_and(|me| cycle::is_closed_by(me, block))
    {
        return Err(WaitError::Deadlock);
    }
    let joiners = &block.joiners;
    let is_here = is_sole
        && waiting
            .block()
            .is_some_and(|me| ptr::eq(me.door.load(Relaxed), block.door.load(Relaxed)))
        && !block.life.is_away();
    let (guard, join) = if is_here {
        // SAFETY: who consumes the handle is the last to join by it, and the coroutine ends on this thread.
        (unsafe { joiners.lock_alone() }, block.life.join_here())
    } else {
        (joiners.lock(), block.life.join(is_sole))
    };
    if join == Join::Ended {
        return Ok(());
    }
    let record = Record {
        kind: Kind::Join,
        // Exposed for `cycle`.
        object: ptr::from_ref(&**block).expose_provenance(),
        owner: block.id(),
    };
    // SAFETY: always the same queue; joiners' slots are not used.
    let reason = unsafe {
        wait_in(
            joiners,
            guard,
            |queue| queue,
            ptr::null_mut(),
            &waiting,
            record,
        )
    };
    waiting.result(reason)
}

impl<T> JoinHandle<T> {
    /// Gives the handle up; hands out a panic that nobody joined instead of reporting it.
    pub(crate) fn abandon(self) -> Option<Payload> {
        let this = ManuallyDrop::new(self);
        // SAFETY: this is the handle's end.
        let payload = unsafe { body::abandon(NonNull::from(&*this.block)) };
        // SAFETY: the reference is given up once: the handle's own drop does not run.
        unsafe { ptr::read(&raw const this.block) }.part();
        payload
    }
}

impl<T> Drop for JoinHandle<T> {
    fn drop(&mut self) {
        let id = self.block.id();
        let _left = self.block.left();
        // SAFETY: this is the handle's end.
        if let Some(payload) = unsafe { body::abandon(NonNull::from(&*self.block)) } {
            unhandled::report(id, payload);
        }
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle")
            .field("id", &self.id())
            .field("outcome", &self.outcome())
            .finish_non_exhaustive()
    }
}
