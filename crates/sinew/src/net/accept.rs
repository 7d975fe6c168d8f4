//! Accepting that outlives what is not the listener's fault.
//!
//! Owns: nothing. Thread: any.
//!
//! A connection that has ended before it was accepted is passed over. Where descriptors or memory are short, the connection
//! stays where it is and the kernel would say so again at once, so the call pauses; only when the shortage has lasted
//! for [`SHORTAGE`] it is reported. A loop around it thus neither spins nor ends by a short peak.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use crate::error::WaitError;
use crate::io::{Direction, Limits, Watched};
use crate::sys::clock;

#[cfg(test)]
mod tests;

/// How long a shortage is waited out.
const SHORTAGE: Duration = Duration::from_secs(1);
/// The first pause, and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(64));

/// The connection is gone, and taken out of the backlog; the next one may be well.
fn is_gone(error: &io::Error) -> bool {
    // Linux hands errors that the network has told a new connection to accept(2).
    matches!(
        error.raw_os_error(),
        Some(
            libc::ECONNABORTED
                | libc::EPROTO
                | libc::ENETDOWN
                | libc::ENETUNREACH
                | libc::EHOSTDOWN
                | libc::EHOSTUNREACH
                | libc::ENONET
        )
    )
}

fn is_shortage(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM)
    )
}

/// Makes the call, which accepts, until there is a connection; see the file's head.
pub(super) fn accept<T>(
    watched: &Watched,
    limits: &Limits,
    mut call: impl FnMut(BorrowedFd<'_>) -> io::Result<T>,
) -> io::Result<T> {
    // The same end for all tries.
    let limits = limits.fixed();
    let mut pause = PAUSE.0;
    let mut short_until_ns = None;
    loop {
        let error = match watched.call(Direction::Read, &limits, &mut call) {
            Err(error) if is_gone(&error) => continue,
            Err(error) if is_shortage(&error) => error,
            result => return result,
        };
        let mut until_ns = *short_until_ns.get_or_insert_with(|| clock::after_ns(SHORTAGE));
        if let Some(deadline_ns) = limits.deadline_ns() {
            until_ns = until_ns.min(deadline_ns);
        }
        let left = Duration::from_nanos(until_ns.saturating_sub(clock::now_ns()));
        if left.is_zero() {
            return Err(error);
        }
        match crate::time::sleep(pause.min(left)) {
            Ok(()) => {}
            // Where nothing can wait, the kernel's word is all there is.
            Err(WaitError::State) => return Err(error),
            Err(ended) => return Err(ended.into()),
        }
        pause = PAUSE.1.min(pause * 2);
    }
}
