//! Copying from one stream to another, by the kernel alone where it is worth it.
//!
//! Owns: a buffer or a pipe, while it copies. Thread: the caller's; a file's part is sent by the pool's.
//!
//! Bytes go through a buffer at first, which grows while reads fill it. After [`BULK`] bytes a copy between two of the runtime's own
//! sockets and pipes goes on by splice(2), through a pipe of its own where neither is one; from a file to a socket by sendfile(2). Small
//! copies, of which there may be thousands at a time, thus have no further descriptors.
//!
//! PERF: of a gibibyte between two TCP connections of one machine the copying thread needs 0.25 s of a processor by splice, 0.45 s by the
//! buffer; from a cached file 0.05 s by sendfile, of which the pool's threads have the rest, 0.29 s by the buffer.
//!
//! Both calls raise `SIGPIPE` where the plain ones of this crate do not. So they are left alone in a program that has not got that ignored,
//! and so are descriptors that somebody has put into blocking mode.
#![expect(
    unsafe_code,
    reason = "finds out whether a reader is one of the runtime's types"
)]

use std::any::TypeId;
use std::io::{self, Read, Write};
use std::marker::PhantomData;
use std::mem;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::Arc;

use rustix::event::{PollFd, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::{SpliceFlags, fcntl_setpipe_size, splice};

use crate::fs::{Disk, File};
use crate::io::is_nonblocking;
use crate::io::pipe::{PipeEnd, PipeReader, PipeWriter, raw_pipe};
use crate::io::readiness::poll_flags;
use crate::io::source::Direction;
use crate::net::{
    OwnedReadHalf, OwnedWriteHalf, ReadHalf, Stream, TcpStream, UnixStream, WriteHalf,
};
use crate::sys::signal::is_ignored;

/// The buffer's size at first, and at most.
const BUFFER: (usize, usize) = (16 * 1024, 256 * 1024);
/// After how many bytes the kernel is asked to do it alone.
const BULK: u64 = 1 << 20;
/// How much is moved at once.
const STEP: usize = 1 << 20;

/// Copies from `reader` to `writer` until the reader's end, and returns how many bytes that were.
///
/// Unlike [`std::io::copy`] it never uses a system call that would block the thread, and its buffer is on the heap: a
/// coroutine's stack is small. Much that goes from one of [`crate::net`]'s streams or [`crate::fs::File`] to another stream is moved by the
/// kernel alone.
///
/// # Suspends
///
/// As the reader and the writer do.
///
/// # Cancellation
///
/// What was read and not yet written is lost, and how much was written is not known. A [`Transfer`] keeps the one and tells the other.
///
/// # Errors
///
/// Theirs; `WriteZero`. What was read before has been written, or the writer's error is what is returned.
pub fn copy<R: Read + ?Sized, W: Write + ?Sized>(
    reader: &mut R,
    writer: &mut W,
) -> io::Result<u64> {
    Transfer::new().run(reader, writer)
}

/// A [`copy`] that can be gone on with after an error, a timeout or a cancel: it counts what the writer has taken, and keeps what
/// was read and not yet written.
///
/// # Examples
///
/// ```
/// use std::io::{Read, Write};
/// use std::time::Duration;
/// use sinew::io::{Transfer, pipe};
///
/// sinew::run(|| {
///     let (mut from, mut source) = pipe()?;
///     let (mut peer, mut to) = pipe()?;
///     source.write_all(b"first, ")?;
///     from.set_timeout(Some(Duration::from_millis(1)))?;
///     let mut transfer = Transfer::new();
///     let error = transfer.run(&mut from, &mut to).unwrap_err();
///     assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
///     assert_eq!((transfer.copied(), transfer.unwritten()), (7, &b""[..]));
///
///     source.write_all(b"second")?;
///     drop(source);
///     assert_eq!(transfer.run(&mut from, &mut to)?, 13);
///     drop(to);
///     let mut text = String::new();
///     peer.read_to_string(&mut text)?;
///     assert_eq!(text, "first, second");
///     Ok::<(), std::io::Error>(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct Transfer {
    buffer: Vec<u8>,
    /// Where in the buffer is what was read and not yet written.
    kept: Range<usize>,
    /// The last read filled the buffer.
    was_filled: bool,
    copied: u64,
}

impl Transfer {
    /// One that has not begun.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            buffer: Vec::new(),
            kept: 0..0,
            was_filled: false,
            copied: 0,
        }
    }

    /// How many bytes the writer has taken, in all runs.
    #[must_use]
    pub const fn copied(&self) -> u64 {
        self.copied
    }

    /// What was read and the writer has not taken: the next run begins with it. So many bytes more than [`copied`](Self::copied) says have been
    /// taken from the reader.
    #[must_use]
    pub fn unwritten(&self) -> &[u8] {
        &self.buffer[self.kept.clone()]
    }

    /// Writes what was kept, then copies until the reader's end, as [`copy`] does. Returns [`copied`](Self::copied).
    ///
    /// # Suspends
    ///
    /// As the reader and the writer do.
    ///
    /// # Cancellation
    ///
    /// What was read and not yet written is kept. A coroutine that is unwound by force loses it with the `Transfer`, unless somebody else owns
    /// that.
    ///
    /// # Errors
    ///
    /// Theirs; `WriteZero`. Everything stays counted or kept; it can be run again, also with another reader or writer.
    pub fn run<R: Read + ?Sized, W: Write + ?Sized>(
        &mut self,
        reader: &mut R,
        writer: &mut W,
    ) -> io::Result<u64> {
        let mut may_move = true;
        loop {
            self.write_out(writer)?;
            if may_move && self.copied >= BULK {
                may_move = false;
                if let Some(way) = Way::between(&*reader, &*writer)
                    && self.go(&way)?
                {
                    return Ok(self.copied);
                }
            } else if !self.refill(reader)? {
                return Ok(self.copied);
            }
        }
    }

    /// Writes what is kept.
    fn write_out<W: Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        while !self.kept.is_empty() {
            match writer.write(&self.buffer[self.kept.clone()]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(len) => {
                    self.kept.start += len;
                    self.copied += len as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads into the buffer, of which everything was written; false at the end.
    fn refill<R: Read + ?Sized>(&mut self, reader: &mut R) -> io::Result<bool> {
        let len = self.buffer.len();
        if len < BUFFER.0 {
            self.buffer.resize(BUFFER.0, 0);
        } else if mem::take(&mut self.was_filled) && len < BUFFER.1 {
            self.buffer.resize(len * 2, 0);
        }
        loop {
            match reader.read(&mut self.buffer) {
                Ok(len) => {
                    self.kept = 0..len;
                    self.was_filled = len == self.buffer.len();
                    return Ok(len > 0);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Has the kernel move all that comes; says whether the end was reached. If not, the kernel cannot do it, or not any more.
    fn go(&mut self, way: &Way<'_>) -> io::Result<bool> {
        loop {
            let step = match way {
                Way::Splice(from, to) => splice_between(*from, *to)?,
                Way::Through(from, pipe, to) => {
                    let read = from.call(Direction::Read, |fd| splice_step(fd, &pipe.1, STEP))?;
                    match read {
                        Some(len) if len > 0 => match self.drain(&pipe.0, *to, len)? {
                            // It was counted there.
                            true => continue,
                            false => None,
                        },
                        read => read,
                    }
                }
                Way::Send(disk, to, fd) => send(disk, *to, fd)?,
            };
            match step {
                None => return Ok(false),
                Some(0) => return Ok(true),
                Some(len) => self.copied += len as u64,
            }
        }
    }

    /// Writes so many bytes that are in the pipe; false if the kernel does not do that. What it does not write is kept.
    fn drain(&mut self, pipe: &OwnedFd, to: End<'_>, mut left: usize) -> io::Result<bool> {
        while left > 0 {
            match to.call(Direction::Write, |fd| splice_step(pipe, fd, left)) {
                Ok(Some(len)) if len > 0 => {
                    left -= len;
                    self.copied += len as u64;
                }
                stopped => {
                    self.keep(pipe, left)?;
                    return stopped.and_then(|moved| match moved {
                        Some(_nothing) => Err(io::ErrorKind::WriteZero.into()),
                        None => Ok(false),
                    });
                }
            }
        }
        Ok(true)
    }

    /// Takes back so many bytes that are in the pipe.
    #[cold]
    fn keep(&mut self, pipe: &OwnedFd, len: usize) -> io::Result<()> {
        self.buffer.resize(self.buffer.len().max(len), 0);
        self.kept = 0..0;
        while self.kept.end < len {
            // They are there: this neither waits nor finds an end.
            match rustix::io::read(pipe, &mut self.buffer[self.kept.end..len]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.kept.end += count,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// An end of a copy that the kernel can move bytes from or to.
#[derive(Clone, Copy)]
enum End<'a> {
    Stream(&'a Stream),
    Pipe(&'a PipeEnd),
    Disk(&'a Arc<Disk>),
}

/// A type's identity, whatever it borrows: lifetimes are not part of it.
fn type_id<T: ?Sized>() -> TypeId {
    trait Typed {
        fn id(&self) -> TypeId
        where
            Self: 'static;
    }
    impl<T: ?Sized> Typed for PhantomData<T> {
        fn id(&self) -> TypeId
        where
            Self: 'static,
        {
            TypeId::of::<T>()
        }
    }
    let typed: &dyn Typed = &PhantomData::<T>;
    // SAFETY: the vtable is the same for all lifetimes, and the method looks at nothing that could be borrowed.
    let typed = unsafe { mem::transmute::<&dyn Typed, &(dyn Typed + 'static)>(typed) };
    typed.id()
}

/// Looks whether a value is of one of the types, or a reference to one; then what it has of an [`End`].
macro_rules! look_for {
    ($value:ident: $($kind:ty, $shared:ty => |$found:ident| $end:expr;)*) => {
        $(
            if type_id_of($value) == TypeId::of::<$kind>() {
                // SAFETY: it is of that type, up to the lifetime of what it borrows itself, which outlives the value.
                let $found = unsafe { ptr::from_ref($value).cast::<$shared>().as_ref() };
                return $found.and_then(|$found| $end);
            }
        )*
    };
}

fn type_id_of<T: ?Sized>(_value: &T) -> TypeId {
    type_id::<T>()
}

/// What of the value the kernel can move bytes from or to, if it is of one of the runtime's types.
fn end_of<'a, T: ?Sized>(value: &'a T) -> Option<End<'a>> {
    look_for! { value:
        TcpStream, TcpStream => |it| Some(End::Stream(it.stream()));
        &'static TcpStream, &'a TcpStream => |it| Some(End::Stream(it.stream()));
        ReadHalf<'static, TcpStream>, ReadHalf<'a, TcpStream> => |it| Some(End::Stream(it.stream().stream()));
        WriteHalf<'static, TcpStream>, WriteHalf<'a, TcpStream> => |it| Some(End::Stream(it.stream().stream()));
        OwnedReadHalf<TcpStream>, OwnedReadHalf<TcpStream> => |it| Some(End::Stream(it.as_ref().stream()));
        OwnedWriteHalf<TcpStream>, OwnedWriteHalf<TcpStream> => |it| Some(End::Stream(it.as_ref().stream()));
        UnixStream, UnixStream => |it| Some(End::Stream(it.stream()));
        &'static UnixStream, &'a UnixStream => |it| Some(End::Stream(it.stream()));
        ReadHalf<'static, UnixStream>, ReadHalf<'a, UnixStream> => |it| Some(End::Stream(it.stream().stream()));
        WriteHalf<'static, UnixStream>, WriteHalf<'a, UnixStream> => |it| Some(End::Stream(it.stream().stream()));
        OwnedReadHalf<UnixStream>, OwnedReadHalf<UnixStream> => |it| Some(End::Stream(it.as_ref().stream()));
        OwnedWriteHalf<UnixStream>, OwnedWriteHalf<UnixStream> => |it| Some(End::Stream(it.as_ref().stream()));
        PipeReader, PipeReader => |it| Some(End::Pipe(it.end()));
        &'static PipeReader, &'a PipeReader => |it| Some(End::Pipe(it.end()));
        PipeWriter, PipeWriter => |it| Some(End::Pipe(it.end()));
        &'static PipeWriter, &'a PipeWriter => |it| Some(End::Pipe(it.end()));
        File, File => |it| it.disk().map(End::Disk);
        &'static File, &'a File => |it| it.disk().map(End::Disk);
    }
    None
}

impl End<'_> {
    fn call<T>(
        self,
        direction: Direction,
        call: impl FnMut(BorrowedFd<'_>) -> io::Result<T>,
    ) -> io::Result<T> {
        match self {
            End::Stream(stream) => stream.call(direction, call),
            End::Pipe(end) => end.call(direction, call),
            End::Disk(_) => Err(Errno::INVAL.into()),
        }
    }

    fn is_nonblocking(self) -> bool {
        match self {
            End::Stream(stream) => is_nonblocking(stream),
            End::Pipe(end) => is_nonblocking(end),
            End::Disk(_) => Ok(true),
        }
        .unwrap_or(false)
    }
}

/// How the kernel does it alone.
enum Way<'a> {
    /// Between two of which one is a pipe.
    Splice(End<'a>, End<'a>),
    /// Between two sockets, by a pipe.
    Through(End<'a>, (OwnedFd, OwnedFd), End<'a>),
    /// From a file, to a socket, with a descriptor for the pool.
    Send(&'a Arc<Disk>, End<'a>, Arc<OwnedFd>),
}

/// What one call has moved; `None` if the kernel does not do it for these two.
fn moved(result: rustix::io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(len) => Ok(Some(len)),
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn splice_step(from: impl AsFd, to: impl AsFd, len: usize) -> io::Result<Option<usize>> {
    let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
    moved(splice(from, None, to, None, len, flags))
}

impl<'a> Way<'a> {
    fn between<R: ?Sized, W: ?Sized>(reader: &'a R, writer: &'a W) -> Option<Self> {
        let (from, to) = (end_of(reader)?, end_of(writer)?);
        if !from.is_nonblocking() || !to.is_nonblocking() || !is_ignored(libc::SIGPIPE) {
            return None;
        }
        match (from, to) {
            (_, End::Disk(_)) => None,
            (End::Disk(disk), End::Stream(stream)) => {
                let fd = stream.as_fd().try_clone_to_owned().ok()?;
                Some(Self::Send(disk, to, Arc::new(fd)))
            }
            (End::Disk(_), End::Pipe(_)) => None,
            (End::Stream(_), End::Stream(_)) => {
                let pipe = raw_pipe().ok()?;
                // It may be that there are too many large ones.
                let _smaller = fcntl_setpipe_size(&pipe.1, STEP).is_err();
                Some(Self::Through(from, pipe, to))
            }
            _ => Some(Self::Splice(from, to)),
        }
    }
}

/// One of the two is a pipe, and the call may find nothing at either end.
fn splice_between(from: End<'_>, to: End<'_>) -> io::Result<Option<usize>> {
    loop {
        wait_until_ready(from, Direction::Read)?;
        wait_until_ready(to, Direction::Write)?;
        match splice_step(from, to, STEP) {
            // Somebody else was faster.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

fn wait_until_ready(end: End<'_>, direction: Direction) -> io::Result<()> {
    end.call(direction, |fd| {
        if is_ready(fd, direction) {
            return Ok(());
        }
        Err(Errno::AGAIN.into())
    })
}

/// Sends a step of a file; the pool's thread waits for the disk, the coroutine for the socket.
fn send(disk: &Arc<Disk>, to: End<'_>, fd: &Arc<OwnedFd>) -> io::Result<Option<usize>> {
    loop {
        match disk.send(fd, STEP) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => return Ok(None),
            result => return result.map(Some),
        }
        wait_until_ready(to, Direction::Write)?;
    }
}

fn is_ready(fd: BorrowedFd<'_>, direction: Direction) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(fd, poll_flags(direction))];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0)
}

impl AsFd for End<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Stream(stream) => stream.as_fd(),
            Self::Pipe(end) => end.as_fd(),
            Self::Disk(disk) => disk.as_fd(),
        }
    }
}
