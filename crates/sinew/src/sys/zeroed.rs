//! Memory of all zeros for the life of the process, which takes none until it is written to.
//!
//! Owns: the way to it. Not the allocator's: that writes the zeros itself where it gives out memory again, or aligns it.
#![expect(unsafe_code, reason = "maps memory")]

use std::ptr::{self, NonNull};

/// Zeroed memory of so many bytes, at the beginning of a page; `None` if the kernel has none. It is never given back.
pub(crate) fn pages(bytes: usize) -> Option<NonNull<u8>> {
    if cfg!(sinew_asan) {
        return allocated(bytes);
    }
    // SAFETY: a new mapping, where the kernel likes.
    let start = unsafe {
        libc::mmap(
            ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    NonNull::new(start.cast()).filter(|_| start != libc::MAP_FAILED)
}

/// The same from the allocator: the leak check of AddressSanitizer knows nothing of what is only reached from a mapping.
fn allocated(bytes: usize) -> Option<NonNull<u8>> {
    let layout = std::alloc::Layout::from_size_align(bytes, super::ahead::PAGE_BYTES).ok()?;
    // SAFETY: the layout is not empty: the one caller asks for more.
    NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) })
}

#[cfg(test)]
mod tests {
    use super::{allocated, pages};

    #[test]
    fn it_is_zero_aligned_and_refused_beyond_reason() {
        for get in [pages, allocated] {
            let start = get(12_288).unwrap();
            assert!(start.addr().get().is_multiple_of(4096));
            // SAFETY: what was given out, of which all is written.
            let bytes = unsafe { std::slice::from_raw_parts(start.as_ptr(), 12_288) };
            assert!(bytes.iter().all(|&byte| byte == 0));
        }
        assert!(pages(usize::MAX / 4).is_none());
    }
}
