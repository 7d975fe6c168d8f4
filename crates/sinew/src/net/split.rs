//! The two directions of a stream as values of their own.
//!
//! Owns: nothing but counts. Thread: any.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;

/// A stream that can be split: only this crate's.
pub trait Split {
    /// Shuts the writing direction down.
    fn shut_down_writing(&self) -> io::Result<()>;
}

macro_rules! split {
    ($($stream:ty),*) => {$(
        impl Split for $stream {
            fn shut_down_writing(&self) -> io::Result<()> {
                self.shutdown(Shutdown::Write)
            }
        }
    )*};
}
split!(super::TcpStream, super::UnixStream);

/// The reading direction of a borrowed stream.
#[derive(Debug)]
pub struct ReadHalf<'a, S>(pub(super) &'a S);

/// The writing direction of a borrowed stream.
#[derive(Debug)]
pub struct WriteHalf<'a, S>(pub(super) &'a S);

/// The reading direction of a shared stream.
#[derive(Debug)]
pub struct OwnedReadHalf<S>(Arc<S>);

/// The writing direction of a shared stream. When it is dropped the direction is shut down, so that the other side
/// reads an end.
#[derive(Debug)]
pub struct OwnedWriteHalf<S: Split> {
    stream: Arc<S>,
    /// The stream goes on as a whole.
    reunited: bool,
}

/// The halves were of different streams; both come back.
#[derive(Debug)]
pub struct ReuniteError<S: Split>(pub OwnedReadHalf<S>, pub OwnedWriteHalf<S>);

impl<S: Split> fmt::Display for ReuniteError<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the halves are of different streams")
    }
}

impl<S: Split + fmt::Debug> std::error::Error for ReuniteError<S> {}

/// Makes halves that borrow a stream.
#[cfg(feature = "tls")]
pub(crate) fn split_borrowed<S>(stream: &S) -> (ReadHalf<'_, S>, WriteHalf<'_, S>) {
    (ReadHalf(stream), WriteHalf(stream))
}

/// Makes halves of a stream.
pub(crate) fn split_owned<S: Split>(stream: S) -> (OwnedReadHalf<S>, OwnedWriteHalf<S>) {
    let stream = Arc::new(stream);
    let write = OwnedWriteHalf {
        stream: Arc::clone(&stream),
        reunited: false,
    };
    (OwnedReadHalf(stream), write)
}

impl<S: Split> OwnedReadHalf<S> {
    /// Makes the stream whole again.
    ///
    /// # Errors
    ///
    /// If the halves were of different streams; both come back.
    pub fn reunite(self, mut write: OwnedWriteHalf<S>) -> Result<S, ReuniteError<S>> {
        if !Arc::ptr_eq(&self.0, &write.stream) {
            return Err(ReuniteError(self, write));
        }
        write.reunited = true;
        drop(write);
        match Arc::try_unwrap(self.0) {
            Ok(stream) => Ok(stream),
            // A stream has two halves, and both were here.
            Err(_) => unreachable!("a third half"),
        }
    }
}

impl<S> AsRef<S> for OwnedReadHalf<S> {
    /// The stream, for what is not a matter of one direction.
    fn as_ref(&self) -> &S {
        &self.0
    }
}

impl<S: Split> AsRef<S> for OwnedWriteHalf<S> {
    /// The stream, for what is not a matter of one direction.
    fn as_ref(&self) -> &S {
        &self.stream
    }
}

impl<S: Split> Drop for OwnedWriteHalf<S> {
    fn drop(&mut self) {
        if !self.reunited {
            // A connection that is gone has nothing to shut down.
            let _gone_already = self.stream.shut_down_writing().is_err();
        }
    }
}

impl<'a, S> ReadHalf<'a, S> {
    pub(crate) fn stream(&self) -> &'a S {
        self.0
    }
}

impl<'a, S> WriteHalf<'a, S> {
    pub(crate) fn stream(&self) -> &'a S {
        self.0
    }
}

impl<S> Read for ReadHalf<'_, S>
where
    for<'s> &'s S: Read,
{
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&mut &*self.0).read(buffer)
    }

    fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&mut &*self.0).read_vectored(buffers)
    }
}

impl<S> Read for OwnedReadHalf<S>
where
    for<'s> &'s S: Read,
{
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&mut &*self.0).read(buffer)
    }

    fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&mut &*self.0).read_vectored(buffers)
    }
}

impl<S> Write for WriteHalf<'_, S>
where
    for<'s> &'s S: Write,
{
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        (&mut &*self.0).write(buffer)
    }

    fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        (&mut &*self.0).write_vectored(buffers)
    }

    fn flush(&mut self) -> io::Result<()> {
        (&mut &*self.0).flush()
    }
}

impl<S: Split> Write for OwnedWriteHalf<S>
where
    for<'s> &'s S: Write,
{
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        (&mut &*self.stream).write(buffer)
    }

    fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        (&mut &*self.stream).write_vectored(buffers)
    }

    fn flush(&mut self) -> io::Result<()> {
        (&mut &*self.stream).flush()
    }
}
