//! Every system call of the runtime is in this folder or goes through rustix from the driver and the I/O types.

pub(crate) mod ahead;
pub(crate) mod clock;
pub(crate) mod epoll;
#[cfg(feature = "backtrace")]
pub(crate) mod memory;
pub(crate) mod signal;
pub(crate) mod zeroed;
