//! Unit tests of `sys::pages`.
#![expect(unsafe_code, reason = "uses memory that was mapped")]

use super::*;

/// The flags of the mapping that begins at `start`, as the kernel prints them.
fn flags(start: usize) -> String {
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let head = format!("{start:x}-");
    smaps
        .lines()
        .skip_while(|line| !line.starts_with(&head))
        .find_map(|line| line.strip_prefix("VmFlags:"))
        .unwrap_or_default()
        .to_owned()
}

#[test]
fn what_is_reserved_is_aligned_zero_and_asks_for_huge_pages() {
    let bytes = 3 * HUGE_PAGE_BYTES;
    let start = reserve_huge(bytes).unwrap();
    assert_eq!(start.addr().get() % HUGE_PAGE_BYTES, 0);
    for offset in [0, 4096, HUGE_PAGE_BYTES, bytes - 1] {
        let place = start.as_ptr().wrapping_add(offset);
        // SAFETY: inside, and the test's alone.
        assert_eq!(unsafe { place.read() }, 0);
        // SAFETY: as above.
        unsafe { place.write(7) };
    }
    let flags = flags(start.addr().get());
    let has_huge_pages = std::fs::exists("/sys/kernel/mm/transparent_hugepage").unwrap();
    assert_eq!(flags.contains(" hg"), has_huge_pages, "{flags:?}");
}

#[test]
fn what_is_too_much_is_refused() {
    assert_eq!(reserve_huge(usize::MAX), None);
    assert_eq!(reserve_huge(1 << 60), None);
}
