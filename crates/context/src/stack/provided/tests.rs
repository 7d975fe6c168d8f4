//! Unit tests of `provided`.
#![expect(unsafe_code, reason = "provides memory")]

use super::*;
use crate::stack::{lookup as lookup_any, owner_of};
use std::cell::Cell;
use std::fmt::Write;
use std::sync::OnceLock;

/// Addresses, of memory that the tests do not touch unless it is theirs.
struct Claimed<'a> {
    start: usize,
    size_bytes: usize,
    guard_bytes: usize,
    dropped: Option<&'a Cell<u32>>,
}

// SAFETY: nothing runs there.
unsafe impl Stack for Claimed<'_> {
    fn base(&self) -> NonNull<u8> {
        let base = ptr::without_provenance_mut(self.start + self.guard_bytes + self.size_bytes);
        NonNull::new(base).unwrap()
    }

    fn limit(&self) -> NonNull<u8> {
        let limit = ptr::without_provenance_mut(self.start + self.guard_bytes);
        NonNull::new(limit).unwrap()
    }

    fn guard_bytes(&self) -> usize {
        self.guard_bytes
    }
}

impl Drop for Claimed<'_> {
    fn drop(&mut self) {
        if let Some(dropped) = self.dropped {
            dropped.set(dropped.get() + 1);
        }
    }
}

unsafe fn describe(_: *const (), out: &mut dyn Write) {
    let _ = out.write_str("somebody");
}

/// A stack in use, and what is to be found.
fn enter(claimed: Claimed<'static>) -> (Provided<'static>, SlotRef) {
    let mut stack = Provided::new(claimed).unwrap();
    // SAFETY: `describe` does not look at it; the tests drop it.
    unsafe { stack.set_owner(ptr::dangling(), describe) };
    let record = stack.inner.entry.as_ref().unwrap().record;
    (stack, record.read().unwrap())
}

/// Where a region of addresses begins that cannot be accessed and is nobody's; one for each test, so that tests that run at the
/// same time do not meet.
fn nowhere(region: usize) -> usize {
    const REGION_BYTES: usize = 8 << 30;
    static START: OnceLock<usize> = OnceLock::new();
    let start = START.get_or_init(|| {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let bytes = 8 * REGION_BYTES;
        // SAFETY: a fresh mapping.
        let start = unsafe { libc::mmap(ptr::null_mut(), bytes, libc::PROT_NONE, flags, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED);
        start.addr()
    });
    assert!(region < 8);
    start + region * REGION_BYTES
}

fn claim(start: usize, size_bytes: usize, guard_bytes: usize) -> Claimed<'static> {
    Claimed {
        start,
        size_bytes,
        guard_bytes,
        dropped: None,
    }
}

#[test]
fn every_address_is_found_and_none_afterwards() {
    let sizes = [32_768, 40_000, 65_536, 1 << 20, (3 << 20) + 4096];
    let mut start = nowhere(1) + 0x1234_0000;
    let mut stacks = Vec::new();
    for round in 0..200 {
        let size_bytes = sizes[round % sizes.len()];
        let guard_bytes = 4096 * (round % 3);
        start += 64 * (round % 7);
        let (stack, place) = enter(claim(start, size_bytes, guard_bytes));
        stacks.push((start, stack, place));
        start += size_bytes + guard_bytes + 4096;
    }
    for (start, stack, place) in &stacks {
        let (limit, base) = (stack.limit().addr().get(), stack.base().addr().get());
        for addr in [*start, limit, (limit + base) / 2, base - 1] {
            let found = lookup_any(addr).unwrap();
            assert_eq!(found, *place, "{addr:#x}");
            assert!(found.is_provided());
            assert_eq!(found.guard(), *start..limit);
        }
        for addr in [*start - 1, base + 128] {
            assert_ne!(lookup_any(addr), Some(*place), "{addr:#x}");
        }
    }
    let (gone, kept): (Vec<_>, Vec<_>) = stacks
        .into_iter()
        .enumerate()
        .partition(|(n, _)| n % 3 == 0);
    let gone: Vec<usize> = gone.into_iter().map(|(_, (start, ..))| start).collect();
    for start in gone {
        assert_eq!(lookup_any(start + 20_000), None, "{start:#x}");
    }
    for (_, (start, _stack, place)) in kept {
        assert_eq!(lookup_any(start + 20_000), Some(place));
    }
}

#[test]
fn records_and_nodes_are_used_again() {
    let count = || {
        let nodes = TABLE.iter().map(|bucket| nodes(bucket).count());
        nodes.sum::<usize>()
    };
    // Far from the other tests' addresses, so that what they do at the same time is small against it.
    for round in 0..10_000 {
        drop(enter(claim(nowhere(2) + (round << 16), 1 << 16, 0)));
    }
    let nodes = count();
    assert!(
        nodes <= BUCKETS + 1000,
        "{nodes} nodes for one stack at a time"
    );
    assert!(lock().len() < 1000, "{} records", lock().len());
}

#[test]
fn the_owner_is_known_until_the_end() {
    let mut stack = Provided::new(claim(nowhere(3), 1 << 16, 4096)).unwrap();
    assert_eq!(lookup_any(nowhere(3)), None, "not in use yet");
    for owner in [5_u32, 6] {
        let owner = (&raw const owner).cast();
        // SAFETY: `describe` does not look at it.
        unsafe { stack.set_owner(owner, describe) };
        let place = lookup_any(nowhere(3)).unwrap();
        assert_eq!(owner_of(place).map(|(owner, _)| owner), Some(owner));
    }
    let place = lookup_any(nowhere(3)).unwrap();
    drop(stack);
    assert!(owner_of(place).is_none());
    assert_eq!(lookup_any(nowhere(3)), None);
}

// contract: C17
#[test]
fn what_is_out_of_range_comes_back() {
    let dropped = Cell::new(0);
    let with = |start, size_bytes, guard_bytes| Claimed {
        start,
        size_bytes,
        guard_bytes,
        dropped: Some(&dropped),
    };
    for (claimed, what) in [
        (with(nowhere(1), SIZE_BYTES_MIN - 1024, 0), "size"),
        (with(nowhere(1), SIZE_BYTES_MAX + 4096, 0), "size"),
        (with(nowhere(1), 1 << 16, GUARD_BYTES_MAX + 1), "guard size"),
    ] {
        let refused = Provided::new(claimed).unwrap_err();
        assert!(refused.to_string().contains(what), "{refused}");
        let back = refused.into_inner();
        assert_eq!(back.start, nowhere(1));
        let before = dropped.get();
        drop(back);
        assert_eq!(dropped.get(), before + 1);
    }
    let stack = Provided::new(with(nowhere(4), 1 << 16, 0)).unwrap();
    assert_eq!(dropped.get(), 3);
    drop(stack);
    assert_eq!(dropped.get(), 4);
}

/// One thread looks up its own stack while others come and go in the same buckets.
#[test]
fn a_stack_is_always_found_by_its_own_thread() {
    let rounds = 3000;
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                for round in 0..rounds {
                    let start = nowhere(5) + thread * (1 << 30) + (round % 16) * (1 << 17);
                    let (_stack, place) = enter(claim(start, 1 << 16, 4096));
                    for addr in [start, start + 5000, start + 60_000] {
                        assert_eq!(lookup_any(addr), Some(place));
                    }
                }
            });
        }
    });
}
