//! A stream for async code that insists on sending it, although it stays where it is.
//!
//! Owns: the stream. Thread: the one where it was made; elsewhere it refuses.
//!
//! Invariants
//! - I1. The waits are touched on the thread where they were made only. On another one they are at most forgotten, which leaves the seats
//!   that queues may know of in place.
#![expect(
    unsafe_code,
    reason = "vouches for a stream whose waits belong to a thread"
)]

use std::fmt;
use std::io;
use std::mem::{self, ManuallyDrop};

use super::{Async, AsyncStream};
use crate::error::WaitError;
use crate::scheduler::current;

/// As [`Async`], for libraries whose streams have to be `Send`, because they would run on an executor of many threads if there was one.
///
/// It works on the thread where it was made. On another one, every poll fails with an error that wraps
/// [`WaitError::State`](crate::WaitError::State). It may be dropped anywhere; where that is not its own thread and it is being
/// waited for, the few bytes of the wait are not freed.
pub struct SendAsync<S: AsyncStream> {
    inner: ManuallyDrop<Async<S>>,
    thread: u64,
}

// SAFETY: I1. The stream itself may be sent.
unsafe impl<S: AsyncStream + Send> Send for SendAsync<S> {}

impl<S: AsyncStream> SendAsync<S> {
    /// Wraps a stream.
    pub fn new(stream: S) -> Self {
        Self {
            inner: ManuallyDrop::new(Async::new(stream)),
            thread: current::thread_number(),
        }
    }

    /// The stream.
    pub fn get_ref(&self) -> &S {
        self.inner.get_ref()
    }

    fn is_at_home(&self) -> bool {
        self.thread == current::thread_number()
    }

    /// The stream to be polled.
    ///
    /// # Errors
    ///
    /// One that wraps `State` on another thread than the one where it was made.
    pub fn get_mut(&mut self) -> io::Result<&mut Async<S>> {
        if !self.is_at_home() {
            return Err(WaitError::State.into());
        }
        Ok(&mut self.inner)
    }
}

impl<S: AsyncStream> Drop for SendAsync<S> {
    fn drop(&mut self) {
        let is_at_home = self.is_at_home();
        // SAFETY: it is not used again.
        let Async {
            read,
            write,
            stream,
        } = unsafe { ManuallyDrop::take(&mut self.inner) };
        for watch in [read, write] {
            if !is_at_home && watch.is_waiting() {
                mem::forget(watch);
            }
        }
        drop(stream);
    }
}

impl<S: AsyncStream + fmt::Debug> fmt::Debug for SendAsync<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendAsync")
            .field("stream", self.get_ref())
            .finish_non_exhaustive()
    }
}

/// Passes reading, or writing, of a trait on to the stream. The traits differ in names and in the buffer.
#[allow(unused_macros, reason = "used by the features")]
macro_rules! pass_on {
    ($read:path, $buffer:ty => $read_result:ty, $write:path, $close:ident) => {
        impl<S: AsyncStream + Unpin> $read for SendAsync<S> {
            fn poll_read(
                self: Pin<&mut Self>,
                context: &mut Context<'_>,
                buffer: $buffer,
            ) -> Poll<io::Result<$read_result>> {
                <Async<S> as $read>::poll_read(Pin::new(self.get_mut().get_mut()?), context, buffer)
            }
        }

        impl<S: AsyncStream + Unpin> $write for SendAsync<S> {
            fn poll_write(
                self: Pin<&mut Self>,
                context: &mut Context<'_>,
                buffer: &[u8],
            ) -> Poll<io::Result<usize>> {
                <Async<S> as $write>::poll_write(
                    Pin::new(self.get_mut().get_mut()?),
                    context,
                    buffer,
                )
            }

            fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
                <Async<S> as $write>::poll_flush(Pin::new(self.get_mut().get_mut()?), context)
            }

            fn $close(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
                <Async<S> as $write>::$close(Pin::new(self.get_mut().get_mut()?), context)
            }
        }
    };
}

#[cfg(feature = "futures-io")]
mod futures_io {
    use std::io;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use super::{Async, AsyncStream, SendAsync};

    pass_on!(futures_io::AsyncRead, &mut [u8] => usize, futures_io::AsyncWrite, poll_close);
}

#[cfg(feature = "tokio")]
mod tokio {
    use std::io;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use super::{Async, AsyncStream, SendAsync};

    pass_on!(tokio::io::AsyncRead, &mut tokio::io::ReadBuf<'_> => (), tokio::io::AsyncWrite, poll_shutdown);
}

#[cfg(feature = "hyper")]
mod hyper {
    use std::io;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use super::{Async, AsyncStream, SendAsync};

    pass_on!(hyper::rt::Read, hyper::rt::ReadBufCursor<'_> => (), hyper::rt::Write, poll_shutdown);
}
