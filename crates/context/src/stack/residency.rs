//! Which pages of a stack are committed: asked of the kernel, never tracked.
//!
//! Any thread; async-signal-safe: system calls on a small buffer.
//!
//! `mincore(2)` answers for private anonymous memory whether a page is resident. It says no for a
//! page that was swapped out, so while the system has anything in swap `/proc/self/pagemap` is
//! read instead, which tells "swapped" from "never touched".
//!
//! Invariants:
//! - I1: the mark errs upwards only: what the kernel does not tell counts as touched.

#![expect(unsafe_code, reason = "system calls about pages")]

use super::SlotRef;
use super::page_bytes;
use std::mem::MaybeUninit;

/// Pages asked about in one call.
const BATCH_PAGES: usize = 64;
/// `/proc/self/pagemap`: bit 63 is "present", bit 62 "swapped".
const PAGEMAP_COMMITTED: u64 = 0b11 << 62;

/// Bytes from the lowest committed page of the slot to its base; zero if there is none below.
pub(super) fn high_water_bytes(slot: SlotRef) -> usize {
    let base = slot.base().addr().get();
    let lowest = if swap_in_use() {
        lowest_by_pagemap(slot)
    } else {
        None
    };
    match lowest.unwrap_or_else(|| lowest_by_mincore(slot)) {
        // The page of the limit of a provided stack may begin below it.
        Some(lowest) => base.saturating_sub(lowest).min(slot.size_bytes()),
        None => 0,
    }
}

/// The usable pages of the slot, in batches from the lowest: (address, pages).
fn batches(slot: SlotRef) -> impl Iterator<Item = (usize, usize)> {
    let page = page_bytes();
    // Those of a provided stack need not begin and end with a page.
    let first = slot.limit().addr().get() / page * page;
    let end = slot.span().end.next_multiple_of(page);
    (first..end)
        .step_by(BATCH_PAGES * page)
        .map(move |start| (start, BATCH_PAGES.min((end - start) / page)))
}

/// Bytes of the slot's resident pages, the guard left out; zero for pages that the kernel does not
/// tell about.
pub(super) fn resident_bytes(slot: SlotRef) -> usize {
    let pages: usize = batches(slot)
        .filter_map(|(start, pages)| {
            let answers = ask(slot, start, pages)?;
            Some(
                answers[..pages]
                    .iter()
                    .filter(|answer| **answer & 1 == 1)
                    .count(),
            )
        })
        .sum();
    pages * page_bytes()
}

/// Which of a batch's pages are resident: the low bit of each answer.
fn ask(slot: SlotRef, start: usize, pages: usize) -> Option<[u8; BATCH_PAGES]> {
    let mut answers = [0; BATCH_PAGES];
    let place = slot.base().as_ptr().with_addr(start);
    let bytes = pages * page_bytes();
    // SAFETY: the kernel checks the pages, and `answers` has a byte for each.
    let status = unsafe { libc::mincore(place.cast(), bytes, answers.as_mut_ptr()) };
    (status == 0).then_some(answers)
}

/// The lowest resident page.
fn lowest_by_mincore(slot: SlotRef) -> Option<usize> {
    for (start, pages) in batches(slot) {
        // I1: what the kernel does not tell counts as touched.
        let Some(answers) = ask(slot, start, pages) else {
            return Some(start);
        };
        if let Some(first) = answers[..pages].iter().position(|answer| answer & 1 == 1) {
            return Some(start + first * page_bytes());
        }
    }
    None
}

/// The lowest committed page, resident or swapped; the outer `None` if the file cannot be read.
#[expect(
    clippy::option_option,
    reason = "unreadable and untouched are different answers"
)]
fn lowest_by_pagemap(slot: SlotRef) -> Option<Option<usize>> {
    // SAFETY: the path is a C string.
    let file = unsafe {
        libc::open(
            c"/proc/self/pagemap".as_ptr(),
            libc::O_RDONLY | libc::O_CLOEXEC,
        )
    };
    if file < 0 {
        return None;
    }
    let lowest = read_lowest(file, slot);
    // SAFETY: opened above, used by nobody else.
    unsafe { libc::close(file) };
    lowest
}

#[expect(
    clippy::option_option,
    reason = "unreadable and untouched are different answers"
)]
fn read_lowest(file: libc::c_int, slot: SlotRef) -> Option<Option<usize>> {
    let page = page_bytes();
    for (start, pages) in batches(slot) {
        let mut entries = [0_u64; BATCH_PAGES];
        let bytes = pages * size_of::<u64>();
        let offset = i64::try_from(start / page * size_of::<u64>()).ok()?;
        // SAFETY: `entries` has room for `bytes`.
        let read = unsafe { libc::pread64(file, entries.as_mut_ptr().cast(), bytes, offset) };
        if usize::try_from(read) != Ok(bytes) {
            return None;
        }
        if let Some(first) = entries[..pages]
            .iter()
            .position(|e| e & PAGEMAP_COMMITTED != 0)
        {
            return Some(Some(start + first * page));
        }
    }
    Some(None)
}

/// Whether the system has anything in swap.
fn swap_in_use() -> bool {
    let mut info = MaybeUninit::<libc::sysinfo>::zeroed();
    // SAFETY: `info` is writable and of the right size.
    let status = unsafe { libc::sysinfo(info.as_mut_ptr()) };
    // SAFETY: zeroed, then filled in by the kernel; integers only.
    let info = unsafe { info.assume_init() };
    status == 0 && info.freeswap < info.totalswap
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::{Stack, StackConfig};

    #[test]
    fn both_sources_agree_on_touched_pages() {
        let stack = Stack::new(&StackConfig::default()).unwrap();
        for depth in [1, 4096, 5000, 100_000, 240_000] {
            let place = stack.base().as_ptr().wrapping_sub(depth);
            // SAFETY: inside the usable range, owned by the test.
            unsafe { place.write_volatile(1) };
            let by_mincore = lowest_by_mincore(stack.slot.place());
            assert_eq!(by_mincore, Some(place.addr() / page_bytes() * page_bytes()));
            assert_eq!(lowest_by_pagemap(stack.slot.place()), Some(by_mincore));
        }
    }
}
