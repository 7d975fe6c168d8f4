//! Unit tests of `guard`.
#![expect(unsafe_code, reason = "exercises the unsafe parts of the module")]

use super::*;
use crate::stack::slab::map_pages;

/// Whether the kernel, and so this process, may read and write the page.
fn is_open(page: NonNull<u8>) -> bool {
    kernel_reads(page) == Ok(()) && kernel_writes(page) == Ok(())
}

fn is_closed(page: NonNull<u8>) -> bool {
    kernel_reads(page) == Err(libc::EFAULT) && kernel_writes(page) == Err(libc::EFAULT)
}

fn at_page(start: NonNull<u8>, index: usize) -> NonNull<u8> {
    // SAFETY: the tests map as many pages.
    unsafe { start.add(index * page_bytes()) }
}

fn assert_guards_middle_page(kind: GuardKind) {
    let page = page_bytes();
    let start = map_pages(3 * page).unwrap();
    // SAFETY: three pages of ours.
    unsafe { start.as_ptr().write_bytes(1, 2 * page) };
    // SAFETY: the page is ours.
    unsafe { install(kind, at_page(start, 1), page) }.unwrap();
    for _ in 0..2 {
        assert!(is_closed(at_page(start, 1)), "{kind:?}");
        // SAFETY: as above; what lies there is not read again.
        unsafe { libc::madvise(start.as_ptr().cast(), 3 * page, libc::MADV_DONTNEED) };
        // The set of signals that the kernel reads must stay empty, so only after the discard.
        assert!(
            is_open(at_page(start, 0)) && is_open(at_page(start, 2)),
            "{kind:?}"
        );
    }
    // SAFETY: mapped above.
    unsafe { libc::munmap(start.as_ptr().cast(), 3 * page) };
}

#[test]
fn both_kinds_close_exactly_their_pages_and_survive_a_discard() {
    assert_guards_middle_page(GuardKind::Protected);
    if chosen() == GuardKind::Marked {
        assert_guards_middle_page(GuardKind::Marked);
    } else {
        println!("skipped: this kernel has no MADV_GUARD_INSTALL");
    }
}

#[test]
fn locked_memory_gets_a_protected_guard() {
    if chosen() != GuardKind::Marked {
        println!("skipped: this kernel has no MADV_GUARD_INSTALL");
        return;
    }
    let page = page_bytes();
    let start = map_pages(2 * page).unwrap();
    // SAFETY: pages of ours.
    if unsafe { libc::mlock(start.as_ptr().cast(), 2 * page) } != 0 {
        println!("skipped: mlock is not permitted");
        return;
    }
    // SAFETY: the page is ours.
    unsafe { install(GuardKind::Marked, start, page) }.unwrap();
    assert!(is_closed(start));
    assert!(is_open(at_page(start, 1)));
    // SAFETY: mapped above.
    unsafe { libc::munmap(start.as_ptr().cast(), 2 * page) };
}

#[test]
fn the_proof_leaves_the_signal_mask_alone() {
    let mask = || {
        let mut words = [0_u64; 16];
        assert_eq!(
            rt_sigprocmask(ptr::null(), words.as_mut_ptr().cast()),
            Ok(())
        );
        words[0]
    };
    let before = mask();
    println!("marks hold: {}", marks_hold());
    assert_eq!(mask(), before);
}
