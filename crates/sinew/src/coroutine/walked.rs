//! Backtraces of stand-alone coroutines.
//!
//! Owns: nothing. Thread: the anchor's. The walk is `inspect`'s.
#![expect(unsafe_code, reason = "vouches for the coroutine not to run")]

use crate::coroutine::{Coroutine, Generator, State};
use crate::inspect::{Backtrace, BacktraceError, walk_alone};

impl<'a, In: 'a, Out: 'a, Ret: 'a> Coroutine<'a, In, Out, Ret> {
    /// The calls that it is in while it is suspended, as [`inspect::backtrace`](crate::inspect::backtrace) has them of a
    /// scheduler's coroutine. Runs nothing of the body.
    ///
    /// # Suspends
    ///
    /// Never.
    ///
    /// # Errors
    ///
    /// `NotStarted` if it is Ready, `Running` if it runs or something that it resumed does, `NotFound` if it is Done.
    pub fn backtrace(&self) -> Result<Backtrace, BacktraceError> {
        match self.state() {
            State::Ready => Err(BacktraceError::NotStarted),
            State::Running => Err(BacktraceError::Running),
            State::Done => Err(BacktraceError::NotFound),
            State::Suspended => {
                let (context, stack) = self.control().suspended();
                // SAFETY: it is suspended, and this is the only thread that resumes it.
                Ok(unsafe { walk_alone(context, stack) })
            }
        }
    }
}

impl<'a, T: 'a> Generator<'a, T> {
    /// The calls that the body is in, as for [`Coroutine::backtrace`].
    ///
    /// # Errors
    ///
    /// As for [`Coroutine::backtrace`].
    pub fn backtrace(&self) -> Result<Backtrace, BacktraceError> {
        self.coroutine().backtrace()
    }
}
