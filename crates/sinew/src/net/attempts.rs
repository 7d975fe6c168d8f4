//! Connecting to whichever of several addresses answers first.
//!
//! Owns: the sockets of the attempts. Thread: the caller's.
//!
//! The addresses are tried in the resolver's order, but the versions of the protocol in turn. The next attempt begins when one
//! fails, or when none has come to an end for [`STAGGER`]; the first connection wins, and the other attempts are closed.
//!
//! Source: RFC 8305, sections 4 and 5. Not here: waiting for the answers of two lookups; the system's resolver gives one.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::error::WaitError;
use crate::io::{Interest, is_established, named};
use crate::net::tcp::new_socket;
use crate::sync::select::{self, Selector};
use crate::time::now;

#[cfg(test)]
mod tests;

/// How long an attempt has before the next one begins beside it.
const STAGGER: Duration = Duration::from_millis(250);

/// A connect that is under way.
struct Attempt {
    address: SocketAddr,
    /// There until the attempt ends.
    socket: Option<OwnedFd>,
}

/// What became of an attempt's begin.
enum Begun {
    Connected(OwnedFd),
    Waits(Attempt),
}

impl Attempt {
    fn begin(address: SocketAddr) -> io::Result<Begun> {
        let socket = new_socket(&address)?;
        match rustix::net::connect(&socket, &address) {
            Ok(()) => Ok(Begun::Connected(socket)),
            // An interrupted connect goes on like one in progress.
            Err(Errno::INPROGRESS | Errno::INTR) => Ok(Begun::Waits(Self {
                address,
                socket: Some(socket),
            })),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether it has connected; false if it goes on.
    fn has_connected(&self) -> io::Result<bool> {
        match &self.socket {
            Some(socket) => is_established(socket.as_fd()),
            None => Ok(false),
        }
    }

    fn into_socket(mut self) -> Option<OwnedFd> {
        self.socket.take()
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if let Some(socket) = self.socket.take() {
            // The scheduler watches the bare number: it is to hear of the end.
            let _given_up = crate::io::close(socket).is_err();
        }
    }
}

/// The addresses in the order of the attempts: of the two versions in turn, that of the first address first.
fn in_turn(addresses: Vec<SocketAddr>) -> VecDeque<SocketAddr> {
    let first_is_v6 = addresses.first().is_some_and(SocketAddr::is_ipv6);
    let (one, other): (Vec<_>, Vec<_>) = addresses
        .into_iter()
        .partition(|address| address.is_ipv6() == first_is_v6);
    let (mut one, mut other) = (one.into_iter(), other.into_iter());
    let mut order = VecDeque::new();
    loop {
        let pair = (one.next(), other.next());
        order.extend(pair.0);
        order.extend(pair.1);
        if pair == (None, None) {
            return order;
        }
    }
}

/// Waits until an attempt is worth a look, and says which, or that it cannot be waited for; `None` at `next`, when it is time
/// for the next one to begin.
fn wait(
    attempts: &[Attempt],
    next: Option<Instant>,
) -> Result<Option<(usize, io::Result<()>)>, WaitError> {
    let sockets = attempts
        .iter()
        .filter_map(|attempt| attempt.socket.as_ref());
    let arms: Vec<_> = sockets
        .map(|socket| select::ready(socket, Interest::Write))
        .collect();
    let mut selector: Selector<'_> = arms.iter().collect();
    let next = next.map(select::at);
    if let Some(next) = &next {
        selector.add(next);
    }
    let chosen = selector.wait()?;
    Ok(arms
        .get(chosen)
        .map(|arm| (chosen, arm.take().unwrap_or(Ok(())))))
}

/// A connected socket, and to which of the addresses, of which there must be one.
pub(super) fn connect(addresses: Vec<SocketAddr>) -> io::Result<OwnedFd> {
    let mut waiting = in_turn(addresses);
    let mut attempts: Vec<Attempt> = Vec::new();
    let mut failed = None;
    let mut fails = |error: io::Error, address| {
        failed = Some(named(error, || format!("connecting to {address}")));
    };
    'next: while let Some(address) = waiting.pop_front() {
        match Attempt::begin(address) {
            Ok(Begun::Connected(socket)) => return Ok(socket),
            Ok(Begun::Waits(attempt)) => attempts.push(attempt),
            Err(error) => {
                fails(error, address);
                continue;
            }
        }
        let next = (!waiting.is_empty()).then(|| now() + STAGGER);
        while !attempts.is_empty() {
            let Some((index, outcome)) = wait(&attempts, next)? else {
                continue 'next;
            };
            match outcome.and_then(|()| attempts[index].has_connected()) {
                Ok(false) => {}
                Ok(true) => {
                    let socket = attempts.swap_remove(index).into_socket();
                    return socket.ok_or_else(|| Errno::NOTCONN.into());
                }
                Err(error) => {
                    let attempt = attempts.swap_remove(index);
                    fails(error, attempt.address);
                    if !waiting.is_empty() {
                        continue 'next;
                    }
                }
            }
        }
    }
    let nothing = || io::Error::new(io::ErrorKind::InvalidInput, "no address to try");
    Err(failed.unwrap_or_else(nothing))
}
