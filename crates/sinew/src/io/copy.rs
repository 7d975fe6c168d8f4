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
/// What was read and not yet written is lost.
///
/// # Errors
///
/// Theirs. What was read before has been written, or the writer's error is what is returned.
pub fn copy<R: Read + ?Sized, W: Write + ?Sized>(
    reader: &mut R,
    writer: &mut W,
) -> io::Result<u64> {
    let mut buffer = vec![0; BUFFER.0];
    let mut total = 0;
    let mut may_move = true;
    loop {
        let len = match reader.read(&mut buffer) {
            Ok(0) => return Ok(total),
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        writer.write_all(&buffer[..len])?;
        total += len as u64;
        if len == buffer.len() && len < BUFFER.1 {
            buffer.resize(len * 2, 0);
        }
        if may_move && total >= BULK {
            may_move = false;
            if let Some(way) = Way::between(&*reader, &*writer) {
                let (moved, is_over) = way.go()?;
                total += moved;
                if is_over {
                    return Ok(total);
                }
            }
        }
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

    /// Moves all that comes; says how much that was, and whether the end was reached. If not, the kernel cannot do it.
    fn go(&self) -> io::Result<(u64, bool)> {
        let mut total = 0;
        loop {
            let step = match self {
                Self::Splice(from, to) => splice_between(*from, *to)?,
                Self::Through(from, (reader, writer), to) => {
                    let read = from.call(Direction::Read, |fd| splice_step(fd, writer, STEP))?;
                    if let Some(len) = read {
                        drain(reader, *to, len)?;
                    }
                    read
                }
                Self::Send(disk, to, fd) => send(disk, *to, fd)?,
            };
            match step {
                None => return Ok((total, false)),
                Some(0) => return Ok((total, true)),
                Some(len) => total += len as u64,
            }
        }
    }
}

/// Writes so many bytes that are in the pipe.
fn drain(pipe: &OwnedFd, to: End<'_>, mut left: usize) -> io::Result<()> {
    while left > 0 {
        match to.call(Direction::Write, |fd| splice_step(pipe, fd, left))? {
            Some(0) => return Err(io::ErrorKind::WriteZero.into()),
            Some(len) => left -= len,
            // Both ends are sockets, and those can be spliced to.
            None => return Err(Errno::INVAL.into()),
        }
    }
    Ok(())
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
