//! The door between this crate and the runtime under it.
//!
//! Owns: the names that `serve` and `load` use for sockets, coroutines, clocks and waiting, and the
//! few things that they need and the runtime has in another shape. Apart from the tour, whose
//! subject the runtime is, no other file of the crate names the runtime, a thread or a clock.
//!
//! Invariants:
//! - I1: nothing in `serve` and `load` blocks except through a name exported here, once the server is bound.
//! - I2: whoever waits in a loop leaves it when a wait reports that it was cancelled: such a wait
//!   returns at once, every time.
//! - I3: a borrow of a cell is never held across one of these calls.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

pub use sinew::fs::File;
pub use sinew::net::{Shutdown, TcpListener, TcpStream, UnixStream};
pub use sinew::time::now;
pub use sinew::{
    CancelToken, Cancelled, JoinHandle, WaitError, go_local, is_cancelled, run, sleep, spawn_local,
    yield_now,
};

/// A counted reference between coroutines of one scheduler.
pub type Shared<T> = Rc<T>;

/// The clock on the wall, for the `Date` header.
#[must_use]
#[expect(
    clippy::disallowed_methods,
    reason = "the one place where this crate reads the clock"
)]
pub fn wall_clock() -> SystemTime {
    SystemTime::now()
}

/// Opens a connection, giving up after `timeout`.
///
/// # Suspends
/// Until the connection stands or has failed.
///
/// # Errors
/// What `connect(2)` reports; `TimedOut` when the time is up.
pub fn connect(address: SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
    TcpStream::connect_timeout(&address, timeout)
}

/// The addresses of a host, as the system knows them.
///
/// # Suspends
/// Until the system's resolver has answered, on a thread of its own.
///
/// # Errors
/// What the resolver reports.
pub fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    Ok(sinew::net::lookup_host((host, port))?.collect())
}

/// Does what may wait for a disk on a thread where that holds up nobody.
///
/// # Suspends
/// Until it is done.
///
/// # Errors
/// One that [`is_cancelled`] recognises if it was not begun; that there are no threads.
pub fn off_loop<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    sinew::fs::run_blocking(move || Ok(work()))
}

/// Starts a thread for work that may block, and that nobody here waits for.
///
/// # Errors
/// The system has no thread to give.
pub fn thread(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name(name.into()).spawn(work)?;
    Ok(())
}

/// Ends every `accept` on `listener`, now and later, with an error; new connections are refused.
///
/// # Errors
/// What `shutdown(2)` reports.
pub fn stop_accepting(listener: &TcpListener) -> io::Result<()> {
    rustix::net::shutdown(listener.as_fd(), rustix::net::Shutdown::Both)?;
    Ok(())
}

/// Counts coroutines that are under way, so that one can wait for the last.
#[derive(Debug, Clone, Default)]
pub struct WaitGroup(sinew::sync::WaitGroup);

/// One member of a [`WaitGroup`]; leaves when dropped.
#[derive(Debug)]
pub struct Member(sinew::sync::WaitGroup);

impl WaitGroup {
    /// An empty group.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one member.
    #[must_use]
    pub fn enter(&self) -> Member {
        self.0.add(1);
        Member(self.0.clone())
    }

    /// Waits until the group is empty, for at most `timeout`.
    ///
    /// # Suspends
    /// While it has members.
    ///
    /// # Errors
    /// `Timeout` when the time is up; `Cancelled` when the waiting coroutine was asked to stop.
    pub fn wait_timeout(&self, timeout: Duration) -> Result<(), WaitError> {
        self.0.wait_timeout(timeout)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.0.done();
    }
}
