//! Signals that only wake somebody.
//!
//! Owns: the handler, and which signals it has been installed for. Any thread.
//!
//! Invariants
//! - I1. The handler sets a bit, writes to a descriptor that is never closed, and leaves `errno` as it was. It is the same
//!   on whatever stack it comes: it asks for the alternate one, since a coroutine's may have little left.
//! - I2. A signal has one taker at a time. What the signal did before is put back by the taker's drop.
#![expect(unsafe_code, reason = "installs signal handlers")]

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release};
use std::sync::atomic::{AtomicI32, AtomicU64};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::{io, ptr};

use libc::c_int;
use rustix::event::{EventfdFlags, eventfd};
use sinew_context::Errno;

/// One more than the greatest number of a signal.
const SIGNALS: c_int = 65;

/// Those that a handler of this kind would not survive: the code that raised them would be repeated, or the process ends.
const FAULTS: [c_int; 7] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGILL,
    libc::SIGFPE,
    libc::SIGTRAP,
    libc::SIGABRT,
    libc::SIGSYS,
];

/// The descriptor that the handler writes to.
static KNOCK: AtomicI32 = AtomicI32::new(-1);
/// Which signals have come since they were last fetched: signal `n` is bit `n - 1`.
static CAME: AtomicU64 = AtomicU64::new(0);
/// Which signals have a taker.
static TAKEN: Mutex<u64> = Mutex::new(0);

/// A signal that was taken.
pub(crate) struct Taken {
    signal: c_int,
    before: libc::sigaction,
}

/// Takes a signal: until the drop of what is returned, [`fetch`] tells of it.
///
/// # Errors
///
/// `InvalidInput` if it is no signal, one of a fault, or one that cannot be handled; `AlreadyExists` if it has been taken;
/// what the kernel says about a descriptor.
pub(crate) fn take(signal: c_int) -> io::Result<Taken> {
    if !(1..SIGNALS).contains(&signal) || FAULTS.contains(&signal) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    KNOCK.store(knock()?.as_raw_fd(), Relaxed);
    let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    if *taken & bit(signal) != 0 {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    let handler: extern "C" fn(c_int) = handle;
    // SAFETY: all of its fields may be zero.
    let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    action.sa_sigaction = handler as libc::sighandler_t;
    action.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
    let before = exchange(signal, &action)?;
    *taken |= bit(signal);
    Ok(Taken { signal, before })
}

/// The descriptor, made at the first use and never closed.
fn knock() -> io::Result<&'static OwnedFd> {
    static MADE: OnceLock<OwnedFd> = OnceLock::new();
    if MADE.get().is_none() {
        // If two are made at once the second one is closed: nobody has heard of it.
        let _is_second = MADE.set(eventfd(0, EventfdFlags::CLOEXEC)?).is_err();
    }
    Ok(MADE.get().unwrap_or_else(|| unreachable!("just made")))
}

fn bit(signal: c_int) -> u64 {
    1 << (signal - 1)
}

fn exchange(signal: c_int, action: *const libc::sigaction) -> io::Result<libc::sigaction> {
    let mut before = MaybeUninit::uninit();
    // SAFETY: `action` is null or valid, and `before` writable.
    if unsafe { libc::sigaction(signal, action, before.as_mut_ptr()) } != 0 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: written, as the call has not failed.
    Ok(unsafe { before.assume_init() })
}

/// The handler. I1.
extern "C" fn handle(signal: c_int) {
    let errno = Errno::of_this_thread();
    let saved = errno.get();
    // ORDERING: Release, so that the one who fetches the bit has seen what came before; pairs with the swap in `fetch`.
    CAME.fetch_or(bit(signal), Release);
    let one = 1_u64.to_ne_bytes();
    // It fails only if the count is full, and then whoever waits is awake.
    // SAFETY: eight bytes; the descriptor is never closed.
    let _count_is_full =
        unsafe { libc::write(KNOCK.load(Relaxed), one.as_ptr().cast(), one.len()) };
    errno.set(saved);
}

/// Waits until a signal that was taken may have come; see [`fetch`]. One party at a time.
///
/// # Errors
///
/// If there is no descriptor, as before the first [`take`], and none can be made.
pub(crate) fn wait() -> io::Result<()> {
    let knock = knock()?;
    let mut count = [0; 8];
    loop {
        match rustix::io::read(knock, &mut count) {
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// The signals that have come and that nobody has fetched yet.
pub(crate) fn fetch() -> impl Iterator<Item = c_int> {
    // ORDERING: Acquire; pairs with the handler's.
    let came = CAME.swap(0, AcqRel);
    (1..SIGNALS).filter(move |signal| came & bit(*signal) != 0)
}

/// Whether this signal has come and nobody has fetched it yet.
pub(crate) fn fetch_one(signal: c_int) -> bool {
    // ORDERING: as above.
    CAME.fetch_and(!bit(signal), AcqRel) & bit(signal) != 0
}

impl Drop for Taken {
    fn drop(&mut self) {
        let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        *taken &= !bit(self.signal);
        let handler: extern "C" fn(c_int) = handle;
        let is_ours = exchange(self.signal, ptr::null())
            .is_ok_and(|now| now.sa_sigaction == handler as libc::sighandler_t);
        // Who has taken it since may call what was there: this handler, which stays harmless.
        if is_ours {
            let _cannot_fail = exchange(self.signal, &self.before).is_err();
        }
    }
}

/// Whether the process ignores the signal.
pub(crate) fn is_ignored(signal: c_int) -> bool {
    // SAFETY: all of its fields may be zero.
    let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    // SAFETY: only asks.
    let asked = unsafe { libc::sigaction(signal, ptr::null(), &raw mut action) };
    asked == 0 && action.sa_sigaction == libc::SIG_IGN
}
