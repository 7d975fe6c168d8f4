//! Memory that will be touched soon: brought in by the kernel, or into the cache.
//!
//! Owns: the two hints. Nothing depends on their being followed.
#![expect(unsafe_code, reason = "calls madvise, and prefetches")]

use std::ptr::NonNull;

/// Has the cache line at an address fetched, if there is memory. Nothing depends on it: any address will do.
#[inline(always)]
pub(crate) fn prefetch(address: *const u8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a hint, which does not fault.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
}

/// The alignment of what is brought in, and the least: one page, or a part of one.
pub(crate) const PAGE_BYTES: usize = 4096;

/// Has the kernel bring in the pages of allocated memory that are about to be written to, in one call where each would be a fault of its own. Kernels
/// before 5.14 refuse, and nothing depends on the answer.
pub(crate) fn bring_in(start: NonNull<u8>, bytes: usize) {
    // SAFETY: the content of the memory stays as it is, whoever owns it.
    unsafe { libc::madvise(start.as_ptr().cast(), bytes, libc::MADV_POPULATE_WRITE) };
}
