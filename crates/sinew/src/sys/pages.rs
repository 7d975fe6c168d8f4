//! Memory straight from the kernel, in pages of the largest size it likes.
//!
//! Owns: nothing; what is reserved is the caller's. Thread: any.
#![expect(unsafe_code, reason = "maps memory")]

#[cfg(test)]
mod tests;

use std::ptr::{self, NonNull};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// The size of a huge page on the architectures there are; elsewhere only an alignment.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Reserves `bytes` of zeroed memory, aligned to a huge page, and asks for huge pages there: each is committed whole by the first
/// touch of it. `None` if the kernel refuses the memory; that it has no huge pages is no failure.
pub(crate) fn reserve_huge(bytes: usize) -> Option<NonNull<u8>> {
    let padded = bytes.checked_add(HUGE_PAGE_BYTES)?;
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a fresh anonymous mapping, placed by the kernel, disturbs nobody.
    let start = unsafe { mmap_anonymous(ptr::null_mut(), padded, access, MapFlags::PRIVATE) };
    let start = start.ok()?.cast::<u8>();
    let before = start.addr().next_multiple_of(HUGE_PAGE_BYTES) - start.addr();
    let aligned = start.wrapping_add(before);
    let end = aligned.wrapping_add(bytes);
    // What is left over costs address space only, so it does not matter if it stays.
    for (from, bytes) in [(start, before), (end, HUGE_PAGE_BYTES - before)] {
        if bytes > 0 {
            // SAFETY: an end of the mapping made just now, which nobody knows of.
            let _stays = unsafe { munmap(from.cast(), bytes) };
        }
    }
    // SAFETY: advice about pages of the caller's that hold nothing.
    let _small_ones_do = unsafe { madvise(aligned.cast(), bytes, Advice::LinuxHugepage) };
    NonNull::new(aligned)
}
