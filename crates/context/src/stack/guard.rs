//! Guards: the inaccessible pages below a stack.
//!
//! Any thread; everything here is a system call on pages that the caller owns.
//!
//! Two kinds. *Marked*: `MADV_GUARD_INSTALL` (Linux 6.13) writes markers into the page table and
//! splits no mapping, so that a million guards cost one mapping per slab. *Protected*:
//! `mprotect(PROT_NONE)`, which splits the slab's mapping twice per stack and meets
//! `vm.max_map_count` near 32,750 stacks at its usual value.
//!
//! Under Valgrind guards are protected, whatever the kernel can do: it knows nothing of markers, and dies of
//! reading one, as it does on behalf of a system call that is given its address.
//!
//! Invariants:
//! - I1: marked guards are used only after the kernel, asked to read and to write a marked page,
//!   has answered `EFAULT` to both, once per process. (The user-mode emulator of QEMU answers 0 to
//!   the `madvise` and installs nothing.)
//! - I2: after `install` returned `Ok`, no access to those pages succeeds until the mapping ends;
//!   discarding their memory with `MADV_DONTNEED` does not lift a guard of either kind.
//!
//! Not here: a stack without a guard.

#![expect(unsafe_code, reason = "mapping calls")]

#[cfg(test)]
mod tests;

use super::error::{Limit, StackError};
use super::page_bytes;
use crate::tools::valgrind;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// From the kernel's `asm-generic/mman-common.h`; libc does not name it on every target yet.
const MADV_GUARD_INSTALL: libc::c_int = 102;

/// How guards are made in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum GuardKind {
    /// Markers in the page table (`MADV_GUARD_INSTALL`): no mapping is split.
    Marked,
    /// Pages without access rights (`mprotect`): two more mappings for each stack.
    Protected,
}

static CHOSEN: OnceLock<GuardKind> = OnceLock::new();

/// The kind of this process, chosen by proof at the first call.
pub(super) fn chosen() -> GuardKind {
    *CHOSEN.get_or_init(|| {
        if !valgrind::is_here() && marks_hold() {
            GuardKind::Marked
        } else {
            GuardKind::Protected
        }
    })
}

/// Chooses protected guards for this process; says whether it came in time.
pub(super) fn choose_protected() -> bool {
    *CHOSEN.get_or_init(|| GuardKind::Protected) == GuardKind::Protected
}

/// Makes `bytes` at `start` inaccessible.
///
/// # Errors
///
/// `NoMemory` naming the mapping limit when the mapping cannot be split.
///
/// # Safety
///
/// The range is page-aligned, lies in one private anonymous mapping that the caller owns, and
/// holds nothing that anyone will read again.
pub(super) unsafe fn install(
    kind: GuardKind,
    start: NonNull<u8>,
    bytes: usize,
) -> Result<(), StackError> {
    if kind == GuardKind::Marked {
        // SAFETY: the caller gave the range up; a marker replaces its pages.
        let status = unsafe { libc::madvise(start.as_ptr().cast(), bytes, MADV_GUARD_INSTALL) };
        if status == 0 {
            return Ok(());
        }
        // Locked memory (mlockall) refuses markers: protect this stack instead.
    }
    // SAFETY: the caller gave the range up; nothing reads it again.
    let status = unsafe { libc::mprotect(start.as_ptr().cast(), bytes, libc::PROT_NONE) };
    if status == 0 {
        return Ok(());
    }
    let errno = super::errno();
    let limit = Limit::map_count();
    Err(StackError::NoMemory {
        call: "mprotect",
        bytes,
        errno,
        limit,
    })
}

/// Marks `bytes` at each of these addresses, in one call (Linux 6.16). Says whether all were: if not, some may be.
///
/// # Safety
///
/// As for [`install`], for each.
pub(super) unsafe fn mark_all<const N: usize>(starts: [NonNull<u8>; N], bytes: usize) -> bool {
    static REFUSED: AtomicBool = AtomicBool::new(false);
    // ORDERING: relaxed, here and below; whoever does not see it asks once more.
    if REFUSED.load(Ordering::Relaxed) {
        return false;
    }
    // SAFETY: the caller gave the ranges up; markers replace their pages.
    let marked = unsafe { advise_all(starts, bytes, MADV_GUARD_INSTALL) };
    if !marked {
        // ORDERING: relaxed, as above.
        REFUSED.store(true, Ordering::Relaxed);
    }
    marked
}

/// Has the kernel bring in the memory of `bytes` at each of these addresses, in one call. Nothing depends on its doing so.
pub(super) fn bring_in_all<const N: usize>(starts: [NonNull<u8>; N], bytes: usize) {
    // SAFETY: the content of the memory stays as it is.
    let _brought_in = unsafe { advise_all(starts, bytes, libc::MADV_POPULATE_WRITE) };
}

/// Names the calling process to the system calls that take a `pidfd`, since Linux 6.14. In a child of a fork that is the child.
const PIDFD_SELF: libc::c_int = -10_000;

/// `process_madvise(2)` on memory of this process.
///
/// # Safety
///
/// What the advice does to the memory is the caller's to allow.
unsafe fn advise_all<const N: usize>(
    starts: [NonNull<u8>; N],
    bytes: usize,
    advice: libc::c_int,
) -> bool {
    let ranges = starts.map(|start| libc::iovec {
        iov_base: start.as_ptr().cast(),
        iov_len: bytes,
    });
    // SAFETY: the ranges are `N`; the kernel checks the addresses, and the caller vouches for the advice.
    let advised = unsafe {
        libc::syscall(
            libc::SYS_process_madvise,
            PIDFD_SELF,
            ranges.as_ptr(),
            N,
            advice,
            0_u32,
        )
    };
    usize::try_from(advised) == Ok(N * bytes)
}

/// Whether a marked page refuses the kernel's own reads and writes.
fn marks_hold() -> bool {
    let bytes = page_bytes();
    let Ok(page) = super::slab::map_pages(bytes) else {
        return false;
    };
    // The control: before the mark both must succeed, or an EFAULT would prove nothing.
    let open = kernel_reads(page) == Ok(()) && kernel_writes(page) == Ok(());
    // SAFETY: the page is ours alone.
    let marked = unsafe { libc::madvise(page.as_ptr().cast(), bytes, MADV_GUARD_INSTALL) } == 0;
    let closed =
        kernel_reads(page) == Err(libc::EFAULT) && kernel_writes(page) == Err(libc::EFAULT);
    // SAFETY: mapped above with this length, and referred to by nobody.
    unsafe { libc::munmap(page.as_ptr().cast(), bytes) };
    open && marked && closed
}

/// The size of the kernel's signal set, which differs from libc's.
const KERNEL_SIGSET_BYTES: usize = 8;

/// Has the kernel read from the page: blocks the signals of the set there. That changes nothing,
/// for the page holds zeroes, or the thread's own mask.
///
/// This call and the next need no descriptor, unlike a pipe, so that a process that has run out of
/// them proves its guards all the same.
fn kernel_reads(page: NonNull<u8>) -> Result<(), i32> {
    rt_sigprocmask(page.as_ptr(), ptr::null_mut())
}

/// Has the kernel write to the page: fetches the signal mask.
fn kernel_writes(page: NonNull<u8>) -> Result<(), i32> {
    rt_sigprocmask(ptr::null(), page.as_ptr())
}

fn rt_sigprocmask(set: *const u8, old: *mut u8) -> Result<(), i32> {
    // SAFETY: the kernel checks both pointers and answers EFAULT for a bad one; both lie in the
    // probe page or are null, so a good one harms nobody.
    let status = unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_BLOCK,
            set,
            old,
            KERNEL_SIGSET_BYTES,
        )
    };
    if status == 0 {
        Ok(())
    } else {
        Err(super::errno())
    }
}
