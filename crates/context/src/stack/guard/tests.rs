//! Unit tests of `guard`.
#![expect(unsafe_code, reason = "exercises the unsafe parts of the module")]

use super::*;
use crate::stack::StackConfig;
use crate::stack::depot::Depot;
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
fn pages_marked_in_one_call_are_closed_and_no_others() {
    if chosen() != GuardKind::Marked {
        println!("skipped: this kernel has no MADV_GUARD_INSTALL");
        return;
    }
    let page = page_bytes();
    let start = map_pages(5 * page).unwrap();
    // SAFETY: the pages are ours.
    let marked = unsafe { mark_all([at_page(start, 1), at_page(start, 3)], page) };
    bring_in_all([start, at_page(start, 2)], page);
    if marked {
        assert!(is_closed(at_page(start, 1)) && is_closed(at_page(start, 3)));
    } else {
        println!("skipped: this kernel does not take several ranges");
    }
    for open in [0, 2, 4] {
        assert!(is_open(at_page(start, open)), "{open}");
    }
    // SAFETY: mapped above.
    unsafe { libc::munmap(start.as_ptr().cast(), 5 * page) };
}

#[test]
fn each_of_many_fresh_stacks_has_its_guard() {
    for kind in [Some(GuardKind::Protected), None] {
        let depot = Box::leak(Box::new(Depot::new(kind)));
        let class = depot.class(StackConfig::new(0, 0).unwrap().layout());
        // Enough for slabs whose slots are prepared one by one, and for those where many are together.
        for number in 0..1_200 {
            let slot = class.take().unwrap();
            assert!(is_closed(slot.start()), "{number}, {kind:?}");
            assert!(is_open(slot.limit()), "{number}, {kind:?}");
        }
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
