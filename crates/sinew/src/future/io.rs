//! Our streams for async code that runs in a coroutine: hyper, and whatever else reads and writes by futures.
//!
//! Owns: the stream, and a wait for each direction. Thread: that of the scheduler on which it is polled.

use std::fmt;
use std::io;
use std::net::Shutdown;
use std::task::{Context, Poll, ready};

use crate::io::{Direction, Watch};
use crate::net::{Stream, TcpStream, UnixStream};

/// A stream that can be polled. Ours are, and with the feature `tls` so is TLS over one of them.
pub trait AsyncStream: sealed::Sealed {}

pub(crate) mod sealed {
    use std::io;
    use std::task::{Context, Poll};

    use crate::io::Watch;

    /// The calls that are polled. A watch is for one direction of the descriptor below.
    #[expect(private_interfaces, reason = "sealed: nobody else can name it")]
    pub trait Sealed {
        fn poll_read(
            &self,
            watch: &mut Watch,
            context: &Context<'_>,
            buffer: &mut [u8],
        ) -> Poll<io::Result<usize>>;

        fn poll_write(
            &self,
            watch: &mut Watch,
            context: &Context<'_>,
            buffer: &[u8],
        ) -> Poll<io::Result<usize>>;

        fn poll_flush(&self, watch: &mut Watch, context: &Context<'_>) -> Poll<io::Result<()>>;

        /// Ends the writing.
        fn poll_close(&self, watch: &mut Watch, context: &Context<'_>) -> Poll<io::Result<()>>;
    }
}

macro_rules! socket {
    ($($stream:ty),*) => {$(
        impl AsyncStream for $stream {}

        #[expect(private_interfaces, reason = "sealed: nobody else can name it")]
        impl sealed::Sealed for $stream {
            fn poll_read(
                &self,
                watch: &mut Watch,
                context: &Context<'_>,
                buffer: &mut [u8],
            ) -> Poll<io::Result<usize>> {
                self.stream().poll_read(watch, context, buffer)
            }

            fn poll_write(
                &self,
                watch: &mut Watch,
                context: &Context<'_>,
                buffer: &[u8],
            ) -> Poll<io::Result<usize>> {
                self.stream().poll_write(watch, context, buffer)
            }

            fn poll_flush(&self, _: &mut Watch, _: &Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(Ok(()))
            }

            fn poll_close(&self, _: &mut Watch, _: &Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(end_writing(self.stream()))
            }
        }
    )*};
}
socket!(TcpStream, UnixStream);

/// The other side reads an end. One that has ended already is no error.
fn end_writing(stream: &Stream) -> io::Result<()> {
    match stream.shutdown(Shutdown::Write) {
        Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
        result => result,
    }
}

/// A stream whose reads and writes are polled: what async libraries take, driven by [`block_on`](crate::block_on) in a coroutine.
///
/// The coroutine's own scheduler watches the descriptor; no other runtime is needed. It implements hyper's, tokio's and
/// futures-io's traits, each where the feature `hyper`, `tokio` or `futures-io` is on. Timeouts and deadlines of the stream are
/// not heeded: [`block_on_timeout`](crate::block_on_timeout) is for that. Where no scheduler runs on the thread, every poll fails
/// with an error that wraps [`WaitError::State`](crate::WaitError::State). It stays on its thread; for libraries that insist on `Send`
/// there is [`SendAsync`](crate::future::SendAsync).
pub struct Async<S> {
    // Goes before the stream: what is closed must not be watched any more.
    pub(super) read: Watch,
    pub(super) write: Watch,
    pub(super) stream: S,
}

impl<S: AsyncStream> Async<S> {
    /// Wraps a stream.
    pub const fn new(stream: S) -> Self {
        Self {
            read: Watch::new(Direction::Read),
            write: Watch::new(Direction::Write),
            stream,
        }
    }

    /// The stream.
    pub const fn get_ref(&self) -> &S {
        &self.stream
    }

    /// The stream back.
    pub fn into_inner(self) -> S {
        self.stream
    }

    /// Reads what is there; 0 bytes are the end.
    ///
    /// # Errors
    ///
    /// As std's `read`, never `WouldBlock`.
    pub fn poll_read(
        &mut self,
        context: &Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        ready!(super::take_turn(context));
        self.stream.poll_read(&mut self.read, context, buffer)
    }

    /// Writes what there is room for.
    ///
    /// # Errors
    ///
    /// As std's `write`, never `WouldBlock`.
    pub fn poll_write(&mut self, context: &Context<'_>, buffer: &[u8]) -> Poll<io::Result<usize>> {
        ready!(super::take_turn(context));
        self.stream.poll_write(&mut self.write, context, buffer)
    }

    /// Sends what writes have taken on and not sent: a socket sends at once, TLS may hold a part of a record back.
    ///
    /// # Errors
    ///
    /// As std's `flush`, never `WouldBlock`.
    pub fn poll_flush(&mut self, context: &Context<'_>) -> Poll<io::Result<()>> {
        self.stream.poll_flush(&mut self.write, context)
    }

    /// Ends the writing, after what was taken on: the other side reads an end.
    ///
    /// # Errors
    ///
    /// As std's `shutdown`; one that the other side has ended already is no error.
    pub fn poll_close(&mut self, context: &Context<'_>) -> Poll<io::Result<()>> {
        self.stream.poll_close(&mut self.write, context)
    }
}

impl<S: fmt::Debug> fmt::Debug for Async<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Async")
            .field("stream", &self.stream)
            .finish_non_exhaustive()
    }
}

#[cfg(feature = "futures-io")]
mod futures_io {
    use std::io;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use super::{Async, AsyncStream};

    impl<S: AsyncStream + Unpin> futures_io::AsyncRead for Async<S> {
        fn poll_read(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            buffer: &mut [u8],
        ) -> Poll<io::Result<usize>> {
            Async::poll_read(&mut self, context, buffer)
        }
    }

    impl<S: AsyncStream + Unpin> futures_io::AsyncWrite for Async<S> {
        fn poll_write(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            buffer: &[u8],
        ) -> Poll<io::Result<usize>> {
            Async::poll_write(&mut self, context, buffer)
        }

        fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            Async::poll_flush(&mut self, context)
        }

        fn poll_close(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            Async::poll_close(&mut self, context)
        }
    }
}

#[cfg(feature = "tokio")]
mod tokio {
    use std::io;
    use std::pin::Pin;
    use std::task::{Context, Poll, ready};

    use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

    use super::{Async, AsyncStream};

    impl<S: AsyncStream + Unpin> AsyncRead for Async<S> {
        fn poll_read(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            let place = buffer.initialize_unfilled();
            let len = ready!(Async::poll_read(&mut self, context, place))?;
            buffer.advance(len);
            Poll::Ready(Ok(()))
        }
    }

    impl<S: AsyncStream + Unpin> AsyncWrite for Async<S> {
        fn poll_write(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            buffer: &[u8],
        ) -> Poll<io::Result<usize>> {
            Async::poll_write(&mut self, context, buffer)
        }

        fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            Async::poll_flush(&mut self, context)
        }

        fn poll_shutdown(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<io::Result<()>> {
            Async::poll_close(&mut self, context)
        }
    }
}

#[cfg(feature = "hyper")]
mod hyper {
    #![expect(unsafe_code, reason = "fills a buffer that may be uninitialised")]

    use std::io;
    use std::pin::Pin;
    use std::task::{Context, Poll, ready};

    use hyper::rt::{Read, ReadBufCursor, Write};

    use super::{Async, AsyncStream};

    impl<S: AsyncStream + Unpin> Read for Async<S> {
        fn poll_read(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            mut buffer: ReadBufCursor<'_>,
        ) -> Poll<io::Result<()>> {
            // SAFETY: only initialised bytes are put there.
            let place = unsafe { buffer.as_mut() };
            place.fill(std::mem::MaybeUninit::new(0));
            // SAFETY: initialised just now, all of them.
            let place = unsafe { place.assume_init_mut() };
            let len = ready!(Async::poll_read(&mut self, context, place))?;
            // SAFETY: so many bytes were read into its front.
            unsafe { buffer.advance(len) };
            Poll::Ready(Ok(()))
        }
    }

    impl<S: AsyncStream + Unpin> Write for Async<S> {
        fn poll_write(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            buffer: &[u8],
        ) -> Poll<io::Result<usize>> {
            Async::poll_write(&mut self, context, buffer)
        }

        fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            Async::poll_flush(&mut self, context)
        }

        fn poll_shutdown(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<io::Result<()>> {
            Async::poll_close(&mut self, context)
        }
    }
}
