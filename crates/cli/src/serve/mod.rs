//! `sinew serve`: an HTTP/1.1 server of the files of a folder, one coroutine per connection.
//!
//! Owns: the listener, the accept loop and the order of stopping.
//!
//! ```text
//! accept loop ── roster: a seat, or 503 ──► coroutine: request ► path ► folder ► answer ► log
//! shutdown token ► stop accepting ► drain (idle connections end) ► grace ► cut
//! ```
//!
//! Over the limit of connections a client gets 503 and is closed; up to 64 at a
//! time politely, the others at once, so that a flood of them costs a bounded amount.
//!
//! Invariants:
//! - I1: [`Server::run`] returns only after every coroutine that it started for a client has ended,
//!   or, if its own coroutine is cancelled, after their sockets were shut down.
//! - I2: an error of `accept` never makes a busy loop: what goes away by itself is waited out.
//!
//! Not here: the protocol as bytes, which is `sinew-http`; TLS.

pub mod command;

mod answer;
mod connection;
mod files;
mod folder;
mod listing;
mod log;
mod path;
mod roster;
pub(crate) mod wire;

use std::cell::Cell;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::Duration;

use connection::Connection;
use files::{Files, SWEEP};
use folder::Folder;
pub use log::AccessLog;
use log::Log;
pub(crate) use path::encoded;
use roster::{Roster, Seat};
use sinew_http::{Date, Limits};

use crate::rt::{self, CancelToken, Shared, TcpListener, TcpStream, WaitError, WaitGroup};

/// How many clients over the limit are told so at a time.
const TURNED_AWAY_MAX: usize = 64;

/// The pause after `accept` found no descriptor or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Room for the smallest request that makes sense.
const HEADER_BYTES_MIN: usize = 128;

/// What to serve, where, and within which limits.
#[derive(Debug, Clone)]
pub struct Config {
    /// The folder whose files are served.
    pub folder: PathBuf,
    /// Where to listen; port 0 takes a free one.
    pub address: SocketAddr,
    /// How long a connection may wait between requests.
    pub idle_timeout: Duration,
    /// How long a request's head may take from its first byte to its last; its body as well.
    pub header_timeout: Duration,
    /// How long a client may take for each 64 KiB of an answer.
    pub write_timeout: Duration,
    /// The largest head of a request, in bytes, at least 128.
    pub header_bytes_max: usize,
    /// The most header lines of a request.
    pub headers_max: usize,
    /// The most connections at a time, at least one.
    pub connections_max: usize,
    /// How long requests in flight may take to end after the shutdown token fired.
    pub grace: Duration,
    /// Whether a folder without an index is answered with a list of its entries.
    pub listing: bool,
    /// Whether symbolic links may lead out of the folder.
    pub follow: bool,
    /// Where each answer is logged, if anywhere.
    pub access_log: Option<AccessLog>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            folder: PathBuf::from("."),
            address: SocketAddr::from(([127, 0, 0, 1], 8080)),
            idle_timeout: Duration::from_secs(30),
            header_timeout: Duration::from_secs(10),
            write_timeout: Duration::from_secs(30),
            header_bytes_max: 16 * 1024,
            headers_max: 100,
            connections_max: 1024,
            grace: Duration::from_secs(10),
            listing: false,
            follow: false,
            access_log: None,
        }
    }
}

/// What a server did in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// Connections that were served.
    pub connections: u64,
    /// Answers that were sent, of every status.
    pub answers: u64,
    /// Connections that were cut because they outlasted the grace.
    pub cut: usize,
    /// Connections whose coroutine panicked: bugs of the server.
    pub panics: u64,
    /// Answers that are not in the log, because it was too slow or failed.
    pub log_dropped: u64,
}

/// What the coroutines of a server share.
#[derive(Debug)]
struct Service {
    config: Config,
    files: Files,
    limits: Limits,
    log: Option<Log>,
    date: Date,
    roster: Shared<Roster>,
    live: WaitGroup,
    turned_away: Cell<usize>,
    connections: Cell<u64>,
    answers: Cell<u64>,
    panics: Cell<u64>,
}

/// A server that is bound and not yet running.
#[derive(Debug)]
pub struct Server {
    listener: Shared<TcpListener>,
    service: Shared<Service>,
    address: SocketAddr,
}

impl Server {
    /// Opens the folder and the listening socket.
    ///
    /// # Errors
    /// The folder cannot be opened, the address cannot be bound, or a limit makes no sense; the
    /// message names which.
    pub fn bind(config: Config) -> io::Result<Self> {
        check(&config)?;
        let folder = Folder::open(&config.folder, config.follow).map_err(|error| {
            named(
                &error,
                &format!("cannot serve `{}`", config.folder.display()),
            )
        })?;
        let listener = TcpListener::bind(config.address)
            .map_err(|error| named(&error, &format!("cannot listen on {}", config.address)))?;
        let address = listener.local_addr()?;
        let log = config.access_log.as_ref().map(Log::open).transpose()?;
        let limits = Limits {
            head_bytes: config.header_bytes_max,
            headers: config.headers_max,
            ..Limits::default()
        };
        let service = Service {
            config,
            files: Files::new(folder),
            limits,
            log,
            date: Date::new(rt::wall_clock),
            roster: Shared::default(),
            live: WaitGroup::new(),
            turned_away: Cell::new(0),
            connections: Cell::new(0),
            answers: Cell::new(0),
            panics: Cell::new(0),
        };
        Ok(Self {
            listener: Shared::new(listener),
            service: Shared::new(service),
            address,
        })
    }

    /// The address that is listened on.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `shutdown` fires, then finishes what is in flight.
    ///
    /// # Suspends
    /// Always.
    ///
    /// # Cancellation
    /// Ends with an error that [`rt::is_cancelled`] recognises. No grace can be waited for then: all
    /// connections are cut, and their coroutines end soon after.
    ///
    /// # Errors
    /// The listening socket failed for good; what was in flight is finished before.
    pub fn run(self, shutdown: &CancelToken) -> io::Result<Summary> {
        let stopper = {
            let (listener, service) = (Shared::clone(&self.listener), Shared::clone(&self.service));
            let shutdown = shutdown.clone();
            rt::spawn_local(move || {
                // If it is told to stop itself, the accept loop has ended already.
                if shutdown.wait().is_err() {
                    return Ok(());
                }
                service.roster.drain();
                rt::stop_accepting(&listener)
            })
        };
        let sweeper = {
            let service = Shared::clone(&self.service);
            rt::spawn_local(
                move || while rt::sleep(SWEEP).is_ok() && service.files.sweep().is_ok() {},
            )
        };
        let accepted = self.accept_all();
        sweeper.cancel("the server has stopped accepting");
        stopper.cancel("the server has stopped accepting");
        // It has the listener too, and the port is to be free when this returns. Joining fails only if
        // this coroutine is cancelled; then the other one ends a moment later.
        let _ended = (stopper.join(), sweeper.join());
        let Self {
            listener, service, ..
        } = self;
        drop(listener);
        service.roster.drain();
        let cut = service.finish();
        let grace = service.config.grace;
        let log_dropped = service.log.as_ref().map_or(0, |log| log.finish(grace));
        accepted.map(|()| Summary {
            log_dropped,
            ..service.summary(cut)
        })
    }

    fn accept_all(&self) -> io::Result<()> {
        loop {
            let accepted = self.listener.accept();
            if self.service.roster.is_draining() {
                return Ok(());
            }
            match accepted {
                Ok((stream, peer)) => self.admit(stream, peer.ip()),
                // INVARIANT: I2.
                Err(error) if rt::is_cancelled(&error) => return Err(error),
                Err(error) => match Trouble::of(&error) {
                    Trouble::OneClient => {}
                    // If it is cancelled, so is the next `accept`, which ends the loop.
                    Trouble::Shortage => {
                        let _cancelled = self.service.files.forget();
                        let _cancelled = rt::sleep(ACCEPT_PAUSE);
                    }
                    Trouble::Listener => {
                        return Err(named(&error, &format!("cannot accept on {}", self.address)));
                    }
                },
            }
        }
    }

    fn admit(&self, stream: TcpStream, peer: IpAddr) {
        // Answers leave in whole buffers; waiting for more would only delay them.
        if stream.set_nodelay(true).is_err() {
            return;
        }
        let service = Shared::clone(&self.service);
        let member = service.live.enter();
        match service.roster.enter(stream, service.config.connections_max) {
            Ok(seat) => {
                service.connections.update(|count| count + 1);
                rt::go_local(move || {
                    serve_one(&service, seat, peer);
                    drop(member);
                });
            }
            Err(stream) => {
                if service.turned_away.get() >= TURNED_AWAY_MAX {
                    return;
                }
                service.turned_away.update(|count| count + 1);
                rt::go_local(move || {
                    connection::turn_away(&service, &stream, peer);
                    service.turned_away.update(|count| count - 1);
                    drop(member);
                });
            }
        }
    }
}

/// Serves one client; a panic ends this connection and no other.
fn serve_one(service: &Service, seat: Seat, peer: IpAddr) {
    let serve = || Connection::new(service, &seat, peer).serve();
    let served = catch_unwind(AssertUnwindSafe(serve));
    if served.is_err() {
        service.panics.update(|count| count + 1);
    }
    drop(seat);
}

impl Service {
    /// Lets what is in flight end, within the grace; returns how many connections were cut.
    fn finish(&self) -> usize {
        if self.live.wait_timeout(self.config.grace).is_ok() {
            return 0;
        }
        let cut = self.roster.cut();
        // Nothing waits on a socket that is shut down; this only lets the coroutines end.
        while self.live.wait_timeout(self.config.grace) == Err(WaitError::Timeout) {}
        cut
    }

    fn count_answer(&self) {
        self.answers.update(|count| count + 1);
    }

    fn summary(&self, cut: usize) -> Summary {
        Summary {
            connections: self.connections.get(),
            answers: self.answers.get(),
            cut,
            panics: self.panics.get(),
            log_dropped: 0,
        }
    }
}

/// What an error of `accept` is about.
#[derive(Debug, PartialEq, Eq)]
enum Trouble {
    /// A client that went away, or its network: the next one may be fine.
    OneClient,
    /// No descriptors or memory: pause.
    Shortage,
    /// The listening socket itself.
    Listener,
}

impl Trouble {
    fn of(error: &io::Error) -> Self {
        use rustix::io::Errno;
        match Errno::from_io_error(error) {
            Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => Self::Shortage,
            Some(
                Errno::CONNABORTED
                | Errno::INTR
                | Errno::AGAIN
                | Errno::PROTO
                | Errno::PERM
                | Errno::NETDOWN
                | Errno::NETUNREACH
                | Errno::HOSTDOWN
                | Errno::HOSTUNREACH
                | Errno::NOPROTOOPT
                | Errno::NONET,
            ) => Self::OneClient,
            _ => Self::Listener,
        }
    }
}

fn check(config: &Config) -> io::Result<()> {
    let refuse = |what: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    if config.connections_max == 0 {
        return refuse("the limit of connections is zero");
    }
    if config.header_bytes_max < HEADER_BYTES_MIN {
        return refuse("the limit of header bytes is below 128");
    }
    let spans = [
        config.idle_timeout,
        config.header_timeout,
        config.write_timeout,
    ];
    if spans.iter().any(Duration::is_zero) {
        return refuse("a timeout is zero");
    }
    Ok(())
}

fn named(error: &io::Error, what: &str) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accept_errors_are_told_apart() {
        let table = [
            (rustix::io::Errno::MFILE, Trouble::Shortage),
            (rustix::io::Errno::NOMEM, Trouble::Shortage),
            (rustix::io::Errno::CONNABORTED, Trouble::OneClient),
            (rustix::io::Errno::INTR, Trouble::OneClient),
            (rustix::io::Errno::BADF, Trouble::Listener),
            (rustix::io::Errno::INVAL, Trouble::Listener),
        ];
        for (errno, trouble) in table {
            assert_eq!(Trouble::of(&errno.into()), trouble, "{errno:?}");
        }
        assert_eq!(Trouble::of(&io::ErrorKind::Other.into()), Trouble::Listener);
    }
}
