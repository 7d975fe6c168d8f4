//! Who is connected, and how the server stops.
//!
//! Owns: the list of live connections and the word that says the server is draining. A connection
//! enters before its coroutine starts and leaves when it ends.
//!
//! Invariants:
//! - I1: once draining, no connection waits for another request: one that is idle has its reading
//!   side shut down by [`Roster::drain`], one that becomes idle sees the word and closes.
//! - I2: a connection between the first byte of a request and the last of its answer is left alone
//!   until [`Roster::cut`].
//!
//! All of it is of one scheduler: nothing here suspends, so each method is one step to the others.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use crate::rt::{Shared, Shutdown, TcpStream};

/// One live connection.
#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    idle: Cell<bool>,
}

/// All live connections of a server.
#[derive(Debug, Default)]
pub(super) struct Roster {
    draining: Cell<bool>,
    next: Cell<u64>,
    live: RefCell<HashMap<u64, Shared<Connection>>>,
}

/// A connection's place in the roster; leaving is dropping.
#[derive(Debug)]
pub(super) struct Seat {
    roster: Shared<Roster>,
    number: u64,
    connection: Shared<Connection>,
}

impl Roster {
    /// Enters a connection, unless `limit` are live: then the stream comes back.
    pub(super) fn enter(
        self: &Shared<Self>,
        stream: TcpStream,
        limit: usize,
    ) -> Result<Seat, TcpStream> {
        let mut live = self.live.borrow_mut();
        if live.len() >= limit {
            return Err(stream);
        }
        let number = self.next.replace(self.next.get() + 1);
        let connection = Shared::new(Connection {
            stream,
            idle: Cell::new(false),
        });
        live.insert(number, Shared::clone(&connection));
        drop(live);
        Ok(Seat {
            roster: Shared::clone(self),
            number,
            connection,
        })
    }

    /// Whether the server is to stop.
    pub(super) fn is_draining(&self) -> bool {
        self.draining.get()
    }

    /// Begins to stop: idle connections end now, the others after the answer they are at.
    pub(super) fn drain(&self) {
        self.draining.set(true);
        for connection in self.live.borrow().values() {
            if connection.idle.get() {
                shut(&connection.stream, Shutdown::Read);
            }
        }
    }

    /// Ends every connection at once; returns how many there were.
    pub(super) fn cut(&self) -> usize {
        let live = self.live.borrow();
        for connection in live.values() {
            shut(&connection.stream, Shutdown::Both);
        }
        live.len()
    }
}

/// A socket that cannot be shut down is one whose client is gone, which is what was wanted.
fn shut(stream: &TcpStream, how: Shutdown) {
    match stream.shutdown(how) {
        Ok(()) | Err(_) => {}
    }
}

impl Seat {
    /// The socket.
    pub(super) fn stream(&self) -> &TcpStream {
        &self.connection.stream
    }

    /// Whether the server is to stop.
    pub(super) fn is_draining(&self) -> bool {
        self.roster.is_draining()
    }

    /// Says whether the connection is between requests; `false` means that it must close now.
    #[must_use]
    pub(super) fn set_idle(&self) -> bool {
        self.connection.idle.set(true);
        // INVARIANT: I1.
        !self.is_draining()
    }

    /// A request has begun to come.
    pub(super) fn set_busy(&self) {
        self.connection.idle.set(false);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.roster.live.borrow_mut().remove(&self.number);
    }
}
