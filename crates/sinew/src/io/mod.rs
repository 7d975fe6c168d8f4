//! Input and output on descriptors: a call that would block suspends the coroutine instead of the thread.
//!
//! The functions here work on any non-blocking descriptor. On a plain thread they wait by blocking it.
//! The sockets in [`crate::net`] stand on the same ground.
//!
//! Each call is tried first; only if the kernel has nothing, the coroutine waits for readiness and tries again. So a call whose
//! data is there succeeds even if a cancel was requested; otherwise it ends with an error that
//! [`crate::is_cancelled`] recognises. A timeout is [`std::io::ErrorKind::TimedOut`] and spans the whole call.

mod arm;
mod copy;
mod established;
mod named;
mod pipe;
mod raw;
mod readiness;
pub(crate) mod source;
mod stdin;
mod stdout;
mod thread_waits;
mod watch;
mod watched;

pub use arm::ReadyArm;
pub use copy::{Transfer, copy};
pub(crate) use established::is_established;
pub(crate) use named::named;
pub use pipe::{PipeReader, PipeWriter, pipe};
pub use raw::{
    Interest, accept, close, connect, is_nonblocking, read, ready, recvfrom, sendto,
    set_nonblocking, write,
};
pub(crate) use readiness::{poll_flags, take_turn};
pub(crate) use source::Direction;
pub use stdin::{Stdin, stdin};
pub use stdout::{Stderr, Stdout, stderr, stdout};
pub(crate) use watch::Watch;
pub(crate) use watched::{Limits, Watched};
