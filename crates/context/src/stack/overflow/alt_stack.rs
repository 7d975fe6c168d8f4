//! The alternate signal stack that the overflow handler runs on.
//!
//! Each thread that runs coroutines owns one, through an `AltStack` that stays on that thread.
//! std's own is too small for symbolising a backtrace.
//!
//! Invariants:
//! - I1: while an `AltStack` lives, the thread's alternate stack has at least `ROOM_BYTES` beyond
//!   what the kernel's signal frame takes, unless someone replaced it.
//! - I2: memory that the kernel may still be told to use is never unmapped.

#![expect(unsafe_code, reason = "sigaltstack, mapping calls")]

#[cfg(test)]
mod tests;

use crate::stack::error::StackError;
use crate::stack::guard::{self, GuardKind};
use crate::stack::shadow;
use crate::stack::{errno, page_bytes, slab};
use std::marker::PhantomData;
use std::ptr::{self, NonNull};

/// An alternate stack that is there already is kept if it has this much room. The report uses 12 KiB
/// of it for addresses and 28 KiB for names (measured on x86-64, the signal frame included).
const ROOM_BYTES_MIN: usize = 64 * 1024;
/// The room of ours. Untouched pages cost nothing.
const ROOM_BYTES: usize = 256 * 1024;

/// Makes sure that the calling thread can run the overflow handler, for as long as it lives.
///
/// Dropping it restores the alternate stack that was there before. Nested ones must be dropped in
/// reverse order; one that is dropped out of order leaves its memory mapped. It stays on its
/// thread:
///
/// ```compile_fail,E0277
/// fn assert_send<T: Send>() {}
/// assert_send::<sinew_context::stack::overflow::AltStack>();
/// ```
#[derive(Debug)]
#[must_use = "the alternate stack is removed when this is dropped"]
pub struct AltStack {
    /// Nothing if the thread had a large enough one.
    own: Option<Own>,
    /// The kernel keeps one alternate stack per thread.
    thread: PhantomData<*mut ()>,
}

#[derive(Debug)]
struct Own {
    start: NonNull<u8>,
    bytes: usize,
    before: libc::stack_t,
}

impl AltStack {
    /// Gives the thread a sufficient alternate stack, unless it has one.
    ///
    /// # Errors
    ///
    /// `NoMemory` if none can be mapped; `System` if the kernel refuses it, as it does in a signal
    /// handler that runs on the present one; `ShadowStack` if the thread has one, so that it could not run coroutines at all.
    pub fn ensure() -> Result<AltStack, StackError> {
        shadow::refuse()?;
        let frame_bytes = signal_frame_bytes();
        let before = exchange(None)?;
        let enough = before.ss_size >= ROOM_BYTES_MIN + frame_bytes;
        if before.ss_flags & libc::SS_DISABLE == 0 && enough {
            return Ok(AltStack {
                own: None,
                thread: PhantomData,
            });
        }
        Self::install(before)
    }

    /// Gives the thread an alternate stack of this value's own, whatever it has: for one that may live longer than
    /// whoever made the present one.
    ///
    /// # Errors
    ///
    /// As for [`AltStack::ensure`].
    pub fn ensure_own() -> Result<AltStack, StackError> {
        Self::install(exchange(None)?)
    }

    fn install(before: libc::stack_t) -> Result<AltStack, StackError> {
        let frame_bytes = signal_frame_bytes();
        let guard_bytes = page_bytes();
        let room = (ROOM_BYTES + frame_bytes).next_multiple_of(guard_bytes);
        let bytes = guard_bytes + room;
        let start = slab::map_pages(bytes).map_err(|errno| StackError::of_mapping(bytes, errno))?;
        let own = Own {
            start,
            bytes,
            before,
        };
        let made = own.protect(guard_bytes).and_then(|()| {
            let ss_sp = start.as_ptr().wrapping_add(guard_bytes).cast();
            exchange(Some(&libc::stack_t {
                ss_sp,
                ss_flags: 0,
                ss_size: room,
            }))
        });
        if let Err(error) = made {
            own.unmap();
            return Err(error);
        }
        Ok(AltStack {
            own: Some(own),
            thread: PhantomData,
        })
    }
}

impl Own {
    fn protect(&self, guard_bytes: usize) -> Result<(), StackError> {
        // SAFETY: the low end of a mapping made just now, not in use yet.
        unsafe { guard::install(GuardKind::Protected, self.start, guard_bytes) }
    }

    fn unmap(&self) {
        // SAFETY: our own mapping; the kernel does not use it (or does no longer).
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }

    fn is_current(&self) -> bool {
        let range = self.start.addr().get()..self.start.addr().get() + self.bytes;
        exchange(None).is_ok_and(|now| {
            now.ss_flags & libc::SS_DISABLE == 0 && range.contains(&now.ss_sp.addr())
        })
    }
}

impl Drop for AltStack {
    fn drop(&mut self) {
        let Some(own) = &self.own else { return };
        // I2: if another one replaced ours it may restore ours later, so the memory must stay.
        if !own.is_current() {
            return;
        }
        let mut before = own.before;
        // Only SS_DISABLE is ours to give; SS_ONSTACK is the kernel's.
        before.ss_flags &= libc::SS_DISABLE;
        if exchange(Some(&before)).is_ok() {
            own.unmap();
        }
    }
}

/// Sets the thread's alternate stack, or only asks for it; gives the one before.
fn exchange(new: Option<&libc::stack_t>) -> Result<libc::stack_t, StackError> {
    let mut old = libc::stack_t {
        ss_sp: ptr::null_mut(),
        ss_flags: 0,
        ss_size: 0,
    };
    let new = new.map_or(ptr::null(), ptr::from_ref);
    // SAFETY: both are null or live; memory named by `new` outlives its use (I2).
    let status = unsafe { libc::sigaltstack(new, &raw mut old) };
    if status == 0 {
        Ok(old)
    } else {
        Err(StackError::System {
            call: "sigaltstack",
            errno: errno(),
        })
    }
}

/// What the kernel's signal frame takes at most on this processor; vector state makes it large. Async-signal-safe.
pub(super) fn signal_frame_bytes() -> usize {
    // SAFETY: no preconditions; zero means that the kernel does not tell.
    let told = unsafe { libc::getauxval(libc::AT_MINSIGSTKSZ) };
    usize::try_from(told).unwrap_or(0).max(libc::MINSIGSTKSZ)
}
