//! Which bare descriptor numbers a scheduler has ever watched, for those who close one on another thread.
//!
//! Owns: one byte per number, in chunks that are allocated when first needed. The owner of the door marks; any thread looks. Sockets
//! are not marked: a call that waits for one borrows it, so nobody can close it meanwhile.
//!
//! Invariants
//! - I1. A number is marked before the kernel is told to watch it, and the mark stays. So who closes a number and looks afterwards sees the
//!   mark of every scheduler that may watch what was closed: if the kernel took the registration it was before the close, and the mark
//!   before that.
#![expect(
    unsafe_code,
    reason = "follows pointers to chunks that are never freed"
)]

use std::os::fd::RawFd;
use std::ptr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicPtr, fence};

/// Numbers in a chunk, and chunks in the table: what lies beyond is taken for watched.
const CHUNK: usize = 2_048;
const CHUNKS: usize = 128;

type Chunk = [AtomicBool; CHUNK];

/// Whether anybody has ever waited for a bare number: if not, a close need not look who.
static ANY: AtomicBool = AtomicBool::new(false);

/// Somebody is about to wait for a bare number, on a scheduler or a plain thread.
pub(crate) fn note_bare() {
    if !ANY.load(Relaxed) {
        ANY.store(true, Relaxed);
        // ORDERING: as in `mark`.
        fence(SeqCst);
    }
}

/// Whether anybody may wait for a bare number. After a close.
pub(crate) fn is_any_bare() -> bool {
    // ORDERING: as in `has`.
    fence(SeqCst);
    ANY.load(Relaxed)
}

/// See the file's head.
#[derive(Debug)]
pub(crate) struct Seen {
    chunks: [AtomicPtr<Chunk>; CHUNKS],
}

impl Seen {
    pub(super) const fn new() -> Self {
        Self {
            chunks: [const { AtomicPtr::new(ptr::null_mut()) }; CHUNKS],
        }
    }

    /// Marks a number. Owner thread.
    pub(super) fn mark(&self, fd: RawFd) {
        note_bare();
        let Ok(number) = usize::try_from(fd) else {
            return;
        };
        let Some(place) = self.chunks.get(number / CHUNK) else {
            return;
        };
        let mut chunk = place.load(Relaxed);
        if chunk.is_null() {
            chunk = Box::into_raw(Box::new([const { AtomicBool::new(false) }; CHUNK]));
            // ORDERING: Release publishes the chunk to `has`.
            place.store(chunk, Release);
        }
        // SAFETY: made above or before, and never freed: doors are not.
        let mark = &unsafe { &*chunk }[number % CHUNK];
        if !mark.load(Relaxed) {
            mark.store(true, Relaxed);
            // ORDERING: the mark is before the registration, as the close is before the look: pairs with the fence in `has`. (Both
            // system calls take locks of the kernel's, too.)
            fence(SeqCst);
        }
    }

    /// Whether the number may be watched. Any thread, after it was closed.
    pub(super) fn has(&self, fd: RawFd) -> bool {
        // ORDERING: see `mark`.
        fence(SeqCst);
        let Ok(number) = usize::try_from(fd) else {
            return false;
        };
        let Some(place) = self.chunks.get(number / CHUNK) else {
            return true;
        };
        // SAFETY: null, or published by `mark` and never freed.
        let chunk = unsafe { place.load(Acquire).as_ref() };
        chunk.is_some_and(|chunk| chunk[number % CHUNK].load(Relaxed))
    }
}
