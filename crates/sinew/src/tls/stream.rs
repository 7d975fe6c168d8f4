//! The TLS stream.
//!
//! Owns: the transport, the parts in [`session`](super::session) and their locks, the limits. Thread: any.
//!
//! Locks: `incoming` by who reads from the transport, `outgoing` by who writes to it, both while they wait for it; `session` on top of either,
//! for as long as a computation takes. Nobody takes `incoming` and then waits for `outgoing`, but in the handshake, when nobody else
//! knows the stream.
//!
//! Invariants
//! - I1. What rustls has to say goes through `outgoing`, in the order in which it was collected under that lock.
//! - I2. Reading never waits for writing: an alert that does not go at once is left for the next call that writes.

mod polled;

use std::fmt;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use rustls::pki_types::CertificateDer;
use rustls::{Connection, ProtocolVersion};

use super::session::{Incoming, Outgoing, Session};
use super::{Transport, protocol_error, refused};
use crate::error::WaitError;
use crate::io::Limits;
use crate::net::{
    OwnedReadHalf, OwnedWriteHalf, ReadHalf, Split, WriteHalf, split_borrowed, split_owned,
};
use crate::sync::{Mutex, MutexGuard};
use crate::sys::clock;

/// A TLS connection over a transport. Made by a [`TlsConnector`](super::TlsConnector) or a [`TlsAcceptor`](super::TlsAcceptor).
///
/// It has std's traits, for `&TlsStream` too: one party may read while another writes, and several may do either. A call that
/// times out or is cancelled leaves the stream usable: nothing that has come is lost, and what a write has taken on is sent before
/// the next.
///
/// Dropping it closes the transport without a word, so that the other side reads an error and not an end. Call
/// [`TlsStream::shutdown`] when all was written. (A write half of [`TlsStream::into_split`] does so as far as it can without waiting.)
pub struct TlsStream<S> {
    transport: S,
    incoming: Mutex<Incoming>,
    outgoing: Mutex<Outgoing>,
    session: Mutex<Box<Session>>,
    /// Whether reading was shut down on this side.
    is_deaf: AtomicBool,
    read: Limits,
    write: Limits,
    agreed: Agreed,
}

/// What the handshake came to.
#[derive(Debug, Default)]
struct Agreed {
    version: Option<ProtocolVersion>,
    alpn: Option<Vec<u8>>,
    server_name: Option<String>,
    certificates: Option<Vec<CertificateDer<'static>>>,
}

impl Agreed {
    fn of(connection: &Connection) -> Self {
        Self {
            version: connection.protocol_version(),
            alpn: connection.alpn_protocol().map(<[u8]>::to_vec),
            server_name: match connection {
                Connection::Server(server) => server.server_name().map(str::to_owned),
                Connection::Client(_) => None,
            },
            certificates: connection
                .peer_certificates()
                .map(|chain| chain.iter().map(|one| one.clone().into_owned()).collect()),
        }
    }
}

/// A deadline that is over: do not wait.
fn at_once() -> Option<Instant> {
    Some(clock::to_instant(0))
}

/// Whether a call ended for want of time or because it may not wait, so that it can go on later.
fn is_early(error: &io::Error) -> bool {
    let waited = error.get_ref().is_some_and(|inner| inner.is::<WaitError>());
    let early = [
        io::ErrorKind::TimedOut,
        io::ErrorKind::WouldBlock,
        io::ErrorKind::Interrupted,
    ];
    waited || early.contains(&error.kind()) || crate::is_cancelled(error)
}

fn lock<T>(mutex: &Mutex<T>, until: Option<Instant>) -> io::Result<MutexGuard<'_, T>> {
    Ok(match until {
        Some(deadline) => mutex.lock_deadline(deadline)?,
        None => mutex.lock()?,
    })
}

/// The end of a call that begins now.
fn end(limits: &Limits) -> Option<Instant> {
    limits.deadline_ns().map(clock::to_instant)
}

impl<S: Transport> TlsStream<S> {
    /// Shakes hands.
    #[expect(
        clippy::large_stack_frames,
        reason = "rustls hands its connections out by value; once in a connection's life"
    )]
    pub(super) fn establish(
        connection: Connection,
        transport: S,
        deadline: Option<Instant>,
    ) -> io::Result<Self> {
        let mut stream = Self {
            transport,
            incoming: Mutex::default(),
            outgoing: Mutex::default(),
            session: Mutex::new(Box::new(Session::new(connection))),
            is_deaf: AtomicBool::new(false),
            read: Limits::new(),
            write: Limits::new(),
            agreed: Agreed::default(),
        };
        let shaken = stream.shake_hands(deadline);
        if let Err(error) = shaken {
            // The other side is told what is wrong with it, if that goes at once.
            stream.push();
            return Err(stream.explain(error));
        }
        stream.agreed = Agreed::of(&stream.session.get_mut().connection);
        Ok(stream)
    }

    fn shake_hands(&self, until: Option<Instant>) -> io::Result<()> {
        let mut incoming = lock(&self.incoming, until)?;
        let mut outgoing = lock(&self.outgoing, until)?;
        loop {
            let sent = self.drain(&mut outgoing, until);
            let mut session = lock(&self.session, until)?;
            if let Err(error) = sent {
                // A client that has said all it had to say may be gone by the time that the server's tickets for its next visit come.
                let is_over = !session.connection.is_handshaking();
                let is_server = matches!(session.connection, Connection::Server(_));
                return if is_over && is_server && !is_early(&error) {
                    Ok(())
                } else {
                    Err(error)
                };
            }
            if !session.connection.is_handshaking() && !session.connection.wants_write() {
                return Ok(());
            }
            session.feed(&mut incoming);
            session.check()?;
            if session.connection.wants_write() || !session.connection.is_handshaking() {
                continue;
            }
            drop(session);
            if incoming.fill(|buffer| self.transport.read_until(buffer, until))? == 0 {
                let what = "the connection ended during the TLS handshake";
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, what));
            }
        }
    }

    /// A connection that breaks down in the handshake: what the other side had said by then is the reason, if it was an alert.
    fn explain(&self, error: io::Error) -> io::Error {
        if protocol_error(&error).is_some() || is_early(&error) {
            return error;
        }
        let said = || {
            let mut incoming = self.incoming.try_lock()?;
            let read = |buffer: &mut [u8]| self.transport.read_until(buffer, at_once());
            incoming.fill(read).ok()?;
            let mut session = self.session.try_lock()?;
            session.feed(&mut incoming);
            session.check().err()
        };
        said().unwrap_or(error)
    }

    /// Sends all that there is to send.
    fn drain(&self, outgoing: &mut Outgoing, until: Option<Instant>) -> io::Result<()> {
        loop {
            outgoing.send(|bytes| self.transport.write_until(bytes, until))?;
            if !lock(&self.session, until)?.collect(outgoing)? {
                return Ok(());
            }
        }
    }

    /// Sends what there is to send as far as that goes without waiting.
    fn push(&self) {
        if let Some(mut outgoing) = self.outgoing.try_lock() {
            // What remains is for the next call that writes.
            let _some_remains = self.drain(&mut outgoing, at_once()).is_err();
        }
    }

    /// Lets go of the right to write, and makes up for who found it taken.
    fn let_go(&self, outgoing: MutexGuard<'_, Outgoing>) {
        drop(outgoing);
        let left_over = self
            .session
            .try_lock()
            .is_some_and(|session| session.connection.wants_write());
        if left_over {
            self.push();
        }
    }

    fn read_some(&self, buffer: &mut [u8], until: Option<Instant>) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        match lock(&self.session, until)?.take(buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            result => return result,
        }
        let mut incoming = lock(&self.incoming, until)?;
        loop {
            let mut session = lock(&self.session, until)?;
            // Another reader may have fed it meanwhile.
            session.feed(&mut incoming);
            let taken = session.take(buffer);
            let has_to_say = session.connection.wants_write();
            drop(session);
            if has_to_say {
                self.push();
            }
            match taken {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error)
                    if error.kind() == io::ErrorKind::UnexpectedEof
                        && self.is_deaf.load(Relaxed) =>
                {
                    return Ok(0);
                }
                result => return result,
            }
            if incoming.fill(|buffer| self.transport.read_until(buffer, until))? == 0 {
                lock(&self.session, until)?.feed_end();
            }
        }
    }

    fn write_some(&self, buffer: &[u8], until: Option<Instant>) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let mut outgoing = lock(&self.outgoing, until)?;
        if outgoing.is_ended {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        // What an earlier call has taken on goes first; only then there is room.
        self.drain(&mut outgoing, until)?;
        let mut session = lock(&self.session, until)?;
        session.check()?;
        let len = session.put(buffer)?;
        drop(session);
        let sent = self.drain(&mut outgoing, until);
        self.let_go(outgoing);
        match sent {
            // It is taken on: the call that comes next sends the rest, or says why it cannot.
            Err(error) if !is_early(&error) => Err(error),
            _ => Ok(len),
        }
    }

    fn flush_all(&self) -> io::Result<()> {
        let until = end(&self.write);
        let mut outgoing = lock(&self.outgoing, until)?;
        let sent = self.drain(&mut outgoing, until);
        self.let_go(outgoing);
        sent
    }

    /// Says that there is no more, and sends it.
    fn say_end(&self, until: Option<Instant>) -> io::Result<()> {
        let mut outgoing = lock(&self.outgoing, until)?;
        outgoing.is_ended = true;
        self.drain(&mut outgoing, until)?;
        lock(&self.session, until)?.connection.send_close_notify();
        self.drain(&mut outgoing, until)?;
        drop(outgoing);
        self.take_in();
        Ok(())
    }

    /// Takes in what has come, without waiting: a socket that is closed with bytes unread resets the connection, and the other side may lose
    /// what it was sent last. A server sends some after the handshake that a client which only writes never asks for.
    fn take_in(&self) {
        let take = || {
            let mut incoming = self.incoming.try_lock()?;
            // One who sends without end is not listened to for ever.
            for _ in 0..16 {
                let mut session = self.session.try_lock()?;
                session.feed(&mut incoming);
                if !incoming.is_empty() || !session.connection.wants_read() {
                    return Some(());
                }
                drop(session);
                let read = |buffer: &mut [u8]| self.transport.read_until(buffer, at_once());
                if incoming.fill(read).ok()? == 0 {
                    return Some(());
                }
            }
            Some(())
        };
        let _was_busy = take().is_none();
    }

    /// Shuts directions down.
    ///
    /// Writing: the other side is told that there is no more (`close_notify`), so that it reads an authentic end; then the transport's direction
    /// is shut down. What it sends can still be read, and should be: a socket that is dropped with bytes unread resets the
    /// connection, and what was written last may not arrive. Reading: nothing more is read from the transport, and reads return 0 bytes.
    ///
    /// # Suspends
    ///
    /// Writing: until what was written and the end have been sent, within the limits of writing. If that fails it can be called again.
    ///
    /// # Errors
    ///
    /// As a write; the transport's.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        if how != Shutdown::Write {
            self.is_deaf.store(true, Relaxed);
        }
        if how != Shutdown::Read {
            self.say_end(end(&self.write))?;
        }
        self.transport.shutdown(how)
    }

    /// Changes the keys that this side writes with, and asks the other side to change its own. (rustls does it by itself before
    /// keys are worn out.)
    ///
    /// # Suspends
    ///
    /// As a write.
    ///
    /// # Errors
    ///
    /// `InvalidData` if the version of TLS has no such thing; as a write.
    pub fn refresh_traffic_keys(&self) -> io::Result<()> {
        let mut session = lock(&self.session, end(&self.write))?;
        session.connection.refresh_traffic_keys().map_err(refused)?;
        drop(session);
        self.flush_all()
    }

    /// The two directions, borrowed.
    #[must_use]
    pub fn split(&self) -> (ReadHalf<'_, Self>, WriteHalf<'_, Self>) {
        split_borrowed(self)
    }

    /// The two directions, each of its own. When the write half is dropped the other side is told that there is no more, as far as that can be
    /// sent without waiting, and unless a panic drops it.
    #[must_use]
    pub fn into_split(self) -> (OwnedReadHalf<Self>, OwnedWriteHalf<Self>) {
        split_owned(self)
    }
}

impl<S> TlsStream<S> {
    /// The transport, for its addresses and options. Bytes that are read from it or written to it break the connection.
    pub const fn get_ref(&self) -> &S {
        &self.transport
    }

    /// The transport alone. What TLS has taken from it and not given out is lost, as is what it was still to send.
    pub fn into_inner(self) -> S {
        self.transport
    }

    /// The version of TLS.
    pub const fn protocol_version(&self) -> Option<ProtocolVersion> {
        self.agreed.version
    }

    /// The protocol that was agreed on inside TLS (ALPN), if any.
    pub fn alpn_protocol(&self) -> Option<&[u8]> {
        self.agreed.alpn.as_deref()
    }

    /// Of a server's stream: the name that the client asked for (SNI), if any.
    pub fn server_name(&self) -> Option<&str> {
        self.agreed.server_name.as_deref()
    }

    /// The certificates that the other side has shown, its own first. They have been verified as the configuration says.
    pub fn peer_certificates(&self) -> Option<&[CertificateDer<'static>]> {
        self.agreed.certificates.as_deref()
    }

    /// Calls `f` with rustls's connection, for what has no method here.
    ///
    /// # Errors
    ///
    /// `Cancelled`, `State`: rarely, if another thread uses the connection at the same time.
    pub fn with_connection<R>(&self, f: impl FnOnce(&Connection) -> R) -> Result<R, WaitError> {
        Ok(f(&self.session.lock()?.connection))
    }

    /// Limits how long each read may take; `None`: for ever. The limits of the transport hold as well.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a timeout of zero, as in std.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.read.set_timeout(timeout)
    }

    /// Limits how long each write may take; `None`: for ever. The limits of the transport hold as well.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a timeout of zero, as in std.
    pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.write.set_timeout(timeout)
    }

    /// How long each read may take.
    ///
    /// # Errors
    ///
    /// Never: the signature is std's.
    pub fn read_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(self.read.timeout())
    }

    /// How long each write may take.
    ///
    /// # Errors
    ///
    /// Never: the signature is std's.
    pub fn write_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(self.write.timeout())
    }

    /// Ends all reads that wait at `deadline`, with `TimedOut`.
    pub fn set_read_deadline(&self, deadline: Option<Instant>) {
        self.read.set_deadline(deadline);
    }

    /// Ends all writes that wait at `deadline`, with `TimedOut`.
    pub fn set_write_deadline(&self, deadline: Option<Instant>) {
        self.write.set_deadline(deadline);
    }
}

impl<S: fmt::Debug> fmt::Debug for TlsStream<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsStream")
            .field("transport", &self.transport)
            .field("agreed", &self.agreed)
            .finish_non_exhaustive()
    }
}

impl<S: Transport> Read for &TlsStream<S> {
    /// # Suspends
    ///
    /// Until there is something to read.
    ///
    /// # Cancellation
    ///
    /// Nothing has been read; the stream is as it was.
    ///
    /// # Errors
    ///
    /// `UnexpectedEof` if the connection ended and the other side has not said so; `InvalidData` for what it did; `TimedOut`; a cancel's;
    /// the transport's.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read_some(buffer, end(&self.read))
    }
}

impl<S: Transport> Read for TlsStream<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read_some(buffer, end(&self.read))
    }
}

impl<S: Transport> Write for &TlsStream<S> {
    /// # Suspends
    ///
    /// Until what it takes on has been sent.
    ///
    /// # Cancellation
    ///
    /// If it returns an error nothing of `buffer` was taken on. A call that was to end when a part of it was on its way returns how much it
    /// has taken on; the next call that writes sends the rest first.
    ///
    /// # Errors
    ///
    /// `TimedOut`; a cancel's; `BrokenPipe` after a shutdown; the transport's.
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.write_some(buffer, end(&self.write))
    }

    /// Sends what earlier calls have left.
    fn flush(&mut self) -> io::Result<()> {
        self.flush_all()
    }
}

impl<S: Transport> Write for TlsStream<S> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.write_some(buffer, end(&self.write))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.flush_all()
    }
}

impl<S: Transport> Split for TlsStream<S> {
    fn shut_down_writing(&self) -> io::Result<()> {
        // What is dropped by a panic was not completed, and an end would say that it was.
        if !std::thread::panicking() {
            self.say_end(at_once())?;
        }
        self.transport.shutdown(Shutdown::Write)
    }
}

/// TLS inside of TLS.
impl<S: Transport> Transport for TlsStream<S> {
    fn read_until(&self, buffer: &mut [u8], deadline: Option<Instant>) -> io::Result<usize> {
        self.read_some(buffer, earlier(end(&self.read), deadline))
    }

    fn write_until(&self, buffer: &[u8], deadline: Option<Instant>) -> io::Result<usize> {
        self.write_some(buffer, earlier(end(&self.write), deadline))
    }

    fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.shutdown(how)
    }
}

fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    one.into_iter().chain(other).min()
}
