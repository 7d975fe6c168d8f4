//! The three parts of a TLS stream, each under a lock of its own: what has come, what is to go, and rustls between them.
//!
//! Owns: the bytes of both directions, and rustls's connection. Thread: any; a part is its lock holder's.
//!
//! Invariants
//! - I1. Nothing here waits: the lock of a [`Session`] is held for the length of a computation. (Callbacks of the configuration run under
//!   it, and may wait; the lock suspends who comes meanwhile.)
//! - I2. Bytes of the transport stay in [`Incoming`] or [`Outgoing`] until they are used up: a call that ends early loses none.

use std::io::{self, Read, Write};

use rustls::Connection;

use super::refused;

/// How much is read from the transport at once: about a record.
const INCOMING_BYTES: usize = 16 << 10;

/// From how many bytes on a buffer of outgoing bytes is given back when it is empty.
const OUTGOING_KEPT_BYTES: usize = 20 << 10;

/// What has come, and has not been given to rustls.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    /// Empty until the first read.
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Incoming {
    /// Whether all has been given.
    pub(super) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Reads more by `read`, which fills the front of a buffer; says how much. To be called when it is empty.
    pub(super) fn fill(
        &mut self,
        read: impl FnOnce(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        self.bytes.resize(INCOMING_BYTES, 0);
        let len = read(&mut self.bytes)?.min(INCOMING_BYTES);
        (self.start, self.end) = (0, len);
        Ok(len)
    }
}

/// What is to go, as it is on the wire.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    bytes: Vec<u8>,
    sent: usize,
    /// Whether the end was said: nothing more goes.
    pub(super) is_ended: bool,
}

impl Outgoing {
    /// Hands what there is to `write` until all has gone.
    pub(super) fn send(
        &mut self,
        mut write: impl FnMut(&[u8]) -> io::Result<usize>,
    ) -> io::Result<()> {
        while self.sent < self.bytes.len() {
            match write(&self.bytes[self.sent..])? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                len => self.sent += len,
            }
        }
        self.sent = 0;
        self.bytes.clear();
        self.bytes.shrink_to(OUTGOING_KEPT_BYTES);
        Ok(())
    }
}

/// rustls's state machine.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) connection: Connection,
    /// What the other side did wrong. What came before it can still be read.
    broken: Option<rustls::Error>,
}

impl Session {
    pub(super) fn new(connection: Connection) -> Self {
        Self {
            connection,
            broken: None,
        }
    }

    /// What there is to read by now; 0 bytes are the authentic end, `WouldBlock` says that more has to come first.
    pub(super) fn take(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.connection.reader().read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.check().and(Err(error)),
            result => result,
        }
    }

    /// Whether the other side has done nothing wrong so far.
    pub(super) fn check(&self) -> io::Result<()> {
        self.broken.clone().map_or(Ok(()), |why| Err(refused(why)))
    }

    /// Gives rustls what has come, until it has something to be read. Nothing is given while there is something already.
    pub(super) fn feed(&mut self, incoming: &mut Incoming) {
        if self.process() > 0 {
            return;
        }
        while !incoming.is_empty() && self.broken.is_none() {
            let mut rest = &incoming.bytes[incoming.start..incoming.end];
            match self.connection.read_tls(&mut rest) {
                // After its end the other side has nothing to say.
                Ok(0) => incoming.start = incoming.end,
                Ok(_) => incoming.start = incoming.end - rest.len(),
                Err(error) => {
                    self.broken = Some(rustls::Error::General(error.to_string()));
                    return;
                }
            }
            if self.process() > 0 {
                return;
            }
        }
    }

    /// The transport has come to its end.
    pub(super) fn feed_end(&mut self) {
        let _nothing = self.connection.read_tls(&mut io::empty());
        self.process();
    }

    /// Returns how many bytes there are to read.
    fn process(&mut self) -> usize {
        match self.connection.process_new_packets() {
            Ok(state) => state.plaintext_bytes_to_read(),
            Err(error) => {
                self.broken = Some(error);
                0
            }
        }
    }

    /// Puts into `outgoing` what rustls has to say; says whether that was anything.
    pub(super) fn collect(&mut self, outgoing: &mut Outgoing) -> io::Result<bool> {
        let any = self.connection.wants_write();
        while self.connection.wants_write() {
            self.connection.write_tls(&mut outgoing.bytes)?;
        }
        Ok(any)
    }

    /// Takes plaintext on to be sent; says how much.
    pub(super) fn put(&mut self, plaintext: &[u8]) -> io::Result<usize> {
        self.connection.writer().write(plaintext)
    }
}
