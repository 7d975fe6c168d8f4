//! The one door between this crate and the runtime under it.
//!
//! Owns: the names that `serve` and `load` use for sockets, coroutines, clocks and waiting. No
//! other file of the crate names the runtime, a thread or a clock, so that moving to another
//! runtime is an edit of this file.
//!
//! Here every coroutine is a thread of the standard library.
//!
//! Invariants:
//! - I1: nothing outside this file blocks except through a name exported here (and reading
//!   regular files, which no readiness interface covers).
//! - I2: whoever waits in a loop leaves it when a wait reports that it was cancelled: such a wait
//!   returns at once, every time, without letting anyone else run.
//! - I3: a lock of `std::sync` taken by this crate is never held across one of these calls.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

pub use std::net::{Shutdown, TcpListener, TcpStream};
pub use std::os::unix::net::UnixStream;

/// A counted reference between coroutines of one scheduler.
pub type Shared<T> = Arc<T>;

/// A coroutine that was started and can be waited for.
#[derive(Debug)]
pub struct JoinHandle<T>(thread::JoinHandle<T>);

/// The waiting coroutine was asked to stop. No thread ever is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cancelled;

/// Why a wait for a [`WaitGroup`] has ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitError {
    /// The time is up.
    Timeout,
    /// The waiting coroutine was asked to stop.
    Cancelled,
}

/// The coroutine panicked instead of returning.
#[derive(Debug)]
pub struct JoinError;

impl<T> JoinHandle<T> {
    /// Waits for the end and takes what the coroutine returned.
    ///
    /// # Errors
    /// [`JoinError`] when the coroutine panicked.
    pub fn join(self) -> Result<T, JoinError> {
        self.0.join().map_err(|_panic| JoinError)
    }

    /// Asks the coroutine to end its waits early. A thread cannot be asked; it ends by itself.
    pub fn cancel(&self, _reason: &'static str) {}
}

/// Runs `f` with a scheduler on this thread and returns what it returns.
pub fn run<T>(f: impl FnOnce() -> T) -> T {
    f()
}

/// Starts a coroutine on this scheduler.
pub fn spawn_local<T, F>(f: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    JoinHandle(thread::spawn(f))
}

/// Starts a coroutine that nobody waits for.
pub fn go_local(f: impl FnOnce() + Send + 'static) {
    drop(thread::spawn(f));
}

/// Waits for `span`.
///
/// # Errors
/// [`Cancelled`] when this coroutine was asked to stop, now or before; then it has not waited.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the wait of the threaded stand-in"
)]
pub fn sleep(span: Duration) -> Result<(), Cancelled> {
    thread::sleep(span);
    Ok(())
}

/// Lets the other coroutines run.
///
/// # Errors
/// [`Cancelled`] when this coroutine was asked to stop.
pub fn yield_now() -> Result<(), Cancelled> {
    thread::yield_now();
    Ok(())
}

/// The monotonic clock.
#[must_use]
#[expect(
    clippy::disallowed_methods,
    reason = "the one place where this crate reads the clock"
)]
pub fn now() -> Instant {
    Instant::now()
}

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
/// # Errors
/// What `connect(2)` reports; `TimedOut` when the time is up.
pub fn connect(address: SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
    TcpStream::connect_timeout(&address, timeout)
}

/// The addresses of a host, as the system knows them. The thread waits for the answer, once per run
/// of the load generator and before its first request.
///
/// # Errors
/// What the resolver reports.
pub fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    Ok((host, port).to_socket_addrs()?.collect())
}

/// Ends every `accept` on `listener`, now and later, with an error; new connections are refused.
///
/// # Errors
/// What `shutdown(2)` reports.
pub fn stop_accepting(listener: &TcpListener) -> io::Result<()> {
    rustix::net::shutdown(listener.as_fd(), rustix::net::Shutdown::Both)?;
    Ok(())
}

/// A request to stop that several parties watch; fires once, from any thread.
#[derive(Debug, Clone, Default)]
pub struct CancelToken(Arc<(Mutex<bool>, Condvar)>);

impl CancelToken {
    /// A token that has not fired.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Fires the token and wakes whoever waits for it.
    pub fn cancel(&self, _reason: &'static str) {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.1.notify_all();
    }

    /// Whether the token has fired.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the token fires, or until the waiting coroutine itself is cancelled.
    pub fn wait(&self) {
        let fired = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.0.1.wait_while(fired, |fired| !*fired));
    }
}

/// Counts coroutines that are under way, so that one can wait for the last.
#[derive(Debug, Clone, Default)]
pub struct WaitGroup(Arc<(Mutex<usize>, Condvar)>);

/// One member of a [`WaitGroup`]; leaves when dropped.
#[derive(Debug)]
pub struct Member(WaitGroup);

impl WaitGroup {
    /// An empty group.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one member.
    #[must_use]
    pub fn enter(&self) -> Member {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        Member(self.clone())
    }

    /// Waits until the group is empty, for at most `timeout`.
    ///
    /// # Errors
    /// [`WaitError`] when it is not.
    pub fn wait_timeout(&self, timeout: Duration) -> Result<(), WaitError> {
        let (count, emptied) = &*self.0;
        let count = count.lock().unwrap_or_else(PoisonError::into_inner);
        let (count, _timed_out) = emptied
            .wait_timeout_while(count, timeout, |count| *count > 0)
            .unwrap_or_else(PoisonError::into_inner);
        if *count == 0 {
            Ok(())
        } else {
            Err(WaitError::Timeout)
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let (count, emptied) = &*self.0.0;
        *count.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        emptied.notify_all();
    }
}
