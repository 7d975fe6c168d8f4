//! What the tests of input and output share: a limit on how long a test may hang, sockets whose connects hang,
//! and descriptors with a chosen number.
#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(
    unsafe_code,
    reason = "descriptors are put at numbers of the test's choice"
)]
#![allow(
    clippy::print_stderr,
    reason = "says why the process ends, or that a kind was skipped"
)]

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::mpsc;
use std::time::Duration;

/// How many times as long stress tests run.
pub(crate) fn stress() -> usize {
    let factor = std::env::var("SINEW_STRESS").ok();
    factor.and_then(|factor| factor.parse().ok()).unwrap_or(1)
}

/// Ends the process if the test that holds it hangs: a lost wake-up is to fail, not to hold the suite.
pub(crate) struct Watchdog {
    alive: Option<mpsc::Sender<()>>,
}

pub(crate) fn watchdog() -> Watchdog {
    let (alive, ended) = mpsc::channel::<()>();
    let name = std::thread::current().name().unwrap_or("?").to_owned();
    std::thread::spawn(move || {
        let limit = Duration::from_secs(120 + 60 * stress() as u64);
        if ended.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout) {
            eprintln!("{name} hangs");
            std::process::abort();
        }
    });
    Watchdog { alive: Some(alive) }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.alive.take());
    }
}

/// Both ends of a new TCP connection, of the runtime's type.
pub(crate) fn tcp_pair() -> (sinew::net::TcpStream, sinew::net::TcpStream) {
    let (a, b) = std_pair();
    let adopt = |stream| sinew::net::TcpStream::from_std(stream).unwrap();
    (adopt(a), adopt(b))
}

/// Both ends of a new TCP connection, of std's type.
pub(crate) fn std_pair() -> (std::net::TcpStream, std::net::TcpStream) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let a = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (a, listener.accept().unwrap().0)
}

/// Both ends of a non-blocking Unix stream.
pub(crate) fn unix_pair() -> (OwnedFd, OwnedFd) {
    let (a, b) = sinew::net::UnixStream::pair().unwrap();
    (a.into(), b.into())
}

/// An address that is taken and at which nobody listens.
pub(crate) fn refusing() -> (SocketAddr, socket2::Socket) {
    let stream = socket2::Type::STREAM;
    let socket = socket2::Socket::new(socket2::Domain::IPV4, stream, None).unwrap();
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    socket.bind(&any.into()).unwrap();
    (socket.local_addr().unwrap().as_socket().unwrap(), socket)
}

/// An address at which a connect neither succeeds nor fails: its backlog is full.
pub(crate) struct Hanging {
    pub(crate) address: SocketAddr,
    pub(crate) listener: socket2::Socket,
    _filling: Vec<socket2::Socket>,
}

pub(crate) fn hanging() -> Hanging {
    let stream = socket2::Type::STREAM;
    let listener = socket2::Socket::new(socket2::Domain::IPV4, stream, None).unwrap();
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    listener.bind(&any.into()).unwrap();
    listener.listen(0).unwrap();
    let address = listener.local_addr().unwrap().as_socket().unwrap();
    let mut filling = Vec::new();
    for _ in 0..3 {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, stream.nonblocking(), None);
        let socket = socket.unwrap();
        // What fits into the backlog connects, the rest is in progress.
        let _in_progress = socket.connect(&address.into()).is_err();
        filling.push(socket);
    }
    Hanging {
        address,
        listener,
        _filling: filling,
    }
}

/// Writes until nothing more goes in; the stream has a write timeout. The kernel may find more room a little later.
pub(crate) fn fill(stream: impl Write) {
    let error = write_until_error(stream);
    assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
}

/// Writes until that fails.
pub(crate) fn write_until_error(mut stream: impl Write) -> io::Error {
    let chunk = vec![7; 1 << 16];
    loop {
        if let Err(error) = stream.write(&chunk) {
            return error;
        }
    }
}

/// Writes to a bare descriptor until nothing more goes in.
pub(crate) fn fill_fd(fd: BorrowedFd<'_>) {
    let chunk = vec![7; 1 << 16];
    while rustix::io::write(fd, &chunk).is_ok() {}
}

/// Reads exactly one byte.
pub(crate) fn read_byte(mut stream: impl Read) -> io::Result<u8> {
    let mut byte = [0];
    stream.read_exact(&mut byte)?;
    Ok(byte[0])
}

/// Moves a descriptor to this number, over what is there.
pub(crate) fn place_at(fd: impl Into<OwnedFd>, number: RawFd) -> OwnedFd {
    let fd = fd.into();
    // SAFETY: dup3 on numbers; what was at `number` is the caller's.
    let placed = unsafe { libc::dup3(fd.as_raw_fd(), number, libc::O_CLOEXEC) };
    assert_eq!(placed, number, "{}", io::Error::last_os_error());
    // SAFETY: just made.
    unsafe { OwnedFd::from_raw_fd(number) }
}

/// A descriptor number without an owner, as a careless program passes it around.
pub(crate) fn bare(number: RawFd) -> BorrowedFd<'static> {
    // SAFETY: not -1. Whether it is open is what the tests are about.
    unsafe { BorrowedFd::borrow_raw(number) }
}

/// Raises the limit of open descriptors as far as it goes, and returns it.
pub(crate) fn raise_descriptor_limit() -> u64 {
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current = limit.maximum;
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
    limit.current.unwrap_or(u64::MAX)
}

/// Says that a kind of test could not be made here.
pub(crate) fn skipped(what: &str, why: &str) {
    eprintln!("skipped: {what}: {why}");
}
