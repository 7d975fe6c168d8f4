//! Unit tests of `slab`.
#![expect(unsafe_code, reason = "exercises the unsafe parts of the module")]

use super::*;
use crate::stack::page_bytes;
use crate::stack::{Stack, StackConfig};

#[test]
fn look_up_finds_every_part_of_a_slot_and_nothing_else() {
    let stack = Stack::new(&StackConfig::new(40_000, 10_000).unwrap()).unwrap();
    let slot = stack.slot;
    let span = slot.place().span();
    for addr in [
        span.start,
        slot.limit().addr().get(),
        slot.base().addr().get(),
        span.end - 1,
    ] {
        assert_eq!(lookup(addr), Some(slot), "{addr:#x}");
    }
    assert_ne!(lookup(span.start - 1), Some(slot));
    assert_ne!(lookup(span.end), Some(slot));
    let local = 0_u8;
    for addr in [
        0,
        usize::MAX,
        (&raw const local).addr(),
        look_up_finds_every_part_of_a_slot_and_nothing_else as *const () as usize,
    ] {
        assert_eq!(lookup(addr), None, "{addr:#x}");
    }
}

#[test]
fn geometry_holds_for_all_colours() {
    let config = StackConfig::new(32 * 1024, 0).unwrap();
    let stacks: Vec<_> = (0..3 * COLOURS)
        .map(|_| Stack::new(&config).unwrap())
        .collect();
    let mut colours = std::collections::BTreeSet::new();
    for stack in &stacks {
        let slot = stack.slot;
        let span = slot.place().span();
        let (limit, base) = (slot.limit().addr().get(), slot.base().addr().get());
        assert_eq!(slot.guard(), span.start..limit);
        assert_eq!((limit - span.start) % page_bytes(), 0);
        assert_eq!(base % LINE_BYTES, 0);
        assert_eq!(slot.size_bytes(), base - limit);
        assert!(slot.size_bytes() >= 32 * 1024);
        assert!(base + LINE_BYTES <= span.end);
        // Header and base share a page, so that a stack of one frame commits one page.
        assert_eq!(base / page_bytes(), (span.end - 1) / page_bytes());
        colours.insert((span.end - base) / LINE_BYTES);
    }
    assert_eq!(colours, (1..=COLOURS).collect());
}

#[test]
fn a_discard_reaches_exactly_the_slots_given() {
    let config = StackConfig::new(50_000, 0).unwrap();
    let stacks: Vec<_> = (0..12).map(|_| Stack::new(&config).unwrap()).collect();
    let touch = |stack: &Stack| {
        for place in [
            stack.limit().as_ptr(),
            stack.base().as_ptr().wrapping_sub(1),
        ] {
            // SAFETY: usable bytes of a stack of ours.
            unsafe { place.write_volatile(1) };
        }
    };
    stacks.iter().for_each(touch);
    let chosen = |n: usize| [7, 3, 4, 0, 11, 5].contains(&n);
    let mut slots: Vec<_> = [7, 3, 4, 0, 11, 5]
        .iter()
        .map(|&n| stacks[n].slot)
        .collect();
    // SAFETY: stacks of ours, not read again but for this test.
    unsafe { discard(&mut slots) };
    for (n, stack) in stacks.iter().enumerate() {
        // SAFETY: as above.
        let low = unsafe { stack.limit().as_ptr().read_volatile() };
        assert_eq!(low == 0, chosen(n), "stack {n}");
    }
    // No slots is not an error.
    // SAFETY: nothing is discarded.
    unsafe { discard(&mut []) };
}

#[test]
fn resident_bytes_leave_guards_out() {
    let config = StackConfig::new(70_000, 9 * 4096).unwrap();
    let stack = Stack::new(&config).unwrap();
    let slab = stack.slot.slab;
    let before = slab.resident_bytes();
    // SAFETY: usable bytes of a stack of ours.
    unsafe { stack.limit().as_ptr().write_volatile(1) };
    assert_eq!(slab.resident_bytes(), before + page_bytes());
}
