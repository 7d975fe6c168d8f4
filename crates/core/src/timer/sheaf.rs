//! Sheaves: places for the nodes of a slot side by side, where many timers are armed.
//!
//! Owns: the memory of the sheaves, and which of them are free. Used by [`Wheel`](super::Wheel) only, on its thread. A *place* holds the
//! address of a node, or nothing: what was there has been removed, or popped.
//!
//! Nodes that are linked to each other are reached one after the other, each by a load that waits for the one before; the nodes of a sheaf are
//! known all at once and can be fetched ahead, and whoever joins or leaves touches no other node.
//!
//! - I1: a sheaf that is in a slot has at least one node, so there are never more of them than nodes, whatever has been removed; one that
//!   loses its last node is free at once.
//! - I2: `live` is the number of its places with a node; places below `first` are empty, places from `used` on have never been filled.
//! - I3: a sheaf lies at a multiple of its size, so that a place tells which one it is of.
//! - I4: the sheaves of a slot are a ring in order of insertion, by `next` and `prev`, named by the last one. Of a free one, `next` is the
//!   next free one.
//!
//! Not here: which slot a sheaf is in.

#![expect(
    unsafe_code,
    reason = "sheaves are linked by address and belong to their pool; `deref` is the one place that dereferences them"
)]

extern crate alloc;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cell::Cell;
use core::mem::{MaybeUninit, offset_of};
use core::ptr::NonNull;

use super::TimerNode;

/// How many nodes a sheaf has places for.
pub(super) const PLACES: usize = 29;
/// How many places ahead of the one that is served a node is fetched.
const AHEAD: usize = 8;
/// Sheaves in the first lot; each later one has twice as many, up to the most. 4 KiB, and 1 MiB.
const LOT_MIN: usize = 16;
const LOT_MAX: usize = 4096;

/// Where a sheaf has a node, or none.
pub(super) type Place = Cell<Option<NonNull<TimerNode>>>;

/// So many places; see the file's head.
#[repr(C, align(256))]
pub(super) struct Sheaf {
    next: Cell<Option<NonNull<Sheaf>>>,
    prev: Cell<Option<NonNull<Sheaf>>>,
    live: Cell<u32>,
    first: Cell<u16>,
    used: Cell<u16>,
    places: [Place; PLACES],
}

const _: () = assert!(size_of::<Sheaf>() == 256, "see I3");

impl Sheaf {
    /// How many nodes it has.
    #[inline]
    pub(super) fn live(&self) -> usize {
        self.live.get() as usize
    }

    /// The next one of the slot; after the last it is the first.
    #[inline]
    pub(super) fn next(&self) -> Option<NonNull<Sheaf>> {
        self.next.get()
    }

    #[inline]
    pub(super) fn is_full(&self) -> bool {
        usize::from(self.used.get()) == PLACES
    }

    /// Its nodes, in order.
    pub(super) fn nodes(&self) -> impl Iterator<Item = NonNull<TimerNode>> {
        let span = usize::from(self.first.get())..usize::from(self.used.get());
        self.places[span].iter().filter_map(Cell::get)
    }

    /// The node in a place, if there is one.
    #[inline]
    pub(super) fn node(&self, index: usize) -> Option<NonNull<TimerNode>> {
        if index < usize::from(self.used.get()) {
            self.places[index].get()
        } else {
            None
        }
    }

    /// Has the node in a place fetched, if there is one.
    #[inline]
    pub(super) fn fetch(&self, index: usize) {
        if let Some(node) = self.node(index) {
            prefetch(node.as_ptr().cast());
        }
    }

    /// Has the first nodes fetched.
    #[inline]
    pub(super) fn fetch_first(&self) {
        let first = usize::from(self.first.get());
        (first..first + AHEAD).for_each(|index| self.fetch(index));
    }

    /// Puts a node into the first place that has never been filled, of which there is one, and returns the place.
    #[inline]
    pub(super) fn push(this: NonNull<Self>, node: NonNull<TimerNode>) -> NonNull<Place> {
        // SAFETY: of a pool, which keeps it.
        let sheaf = unsafe { deref(this) };
        let index = usize::from(sheaf.used.get());
        sheaf.places[index].set(Some(node));
        sheaf.used.set(sheaf.used.get() + 1);
        sheaf.live.set(sheaf.live.get() + 1);
        let offset = offset_of!(Self, places) + index * size_of::<Place>();
        // SAFETY: inside of the sheaf: the line above has looked.
        unsafe { this.byte_add(offset) }.cast()
    }

    /// Takes the first node out, if it has any, and has one further on fetched.
    #[inline]
    pub(super) fn pop(&self) -> Option<NonNull<TimerNode>> {
        let span = usize::from(self.first.get())..usize::from(self.used.get());
        for index in span {
            if let Some(node) = self.places[index].take() {
                self.first.set(index as u16 + 1);
                self.live.set(self.live.get() - 1);
                self.fetch(index + AHEAD);
                return Some(node);
            }
        }
        None
    }

    /// Takes the node out of a place that has one, and returns the sheaf.
    ///
    /// # Safety
    ///
    /// A place that [`push`](Self::push) returned, of a pool that is alive.
    #[inline]
    pub(super) unsafe fn clear(place: NonNull<Place>) -> NonNull<Self> {
        // SAFETY: the caller's: the pool keeps it.
        unsafe { place.as_ref() }.set(None);
        let this = place
            .as_ptr()
            .cast::<Self>()
            .map_addr(|address| address & !(size_of::<Self>() - 1));
        // SAFETY: I3: not null, for the sheaf is there.
        let this = unsafe { NonNull::new_unchecked(this) };
        // SAFETY: as above.
        let sheaf = unsafe { deref(this) };
        sheaf.live.set(sheaf.live.get() - 1);
        this
    }
}

/// The sheaves of a wheel.
pub(super) struct Sheaves {
    /// The last sheaf of each slot, level by level.
    pub(super) lasts: Box<[Option<NonNull<Sheaf>>]>,
    free: Option<NonNull<Sheaf>>,
    /// How many are in slots.
    out: usize,
    /// Of the newest lot so many have been in use.
    carved: usize,
    /// What was allocated: boxes, by their addresses.
    lots: Vec<NonNull<[MaybeUninit<Sheaf>]>>,
}

impl Sheaves {
    #[cold]
    pub(super) fn new(slots: usize) -> Self {
        Self {
            lasts: alloc::vec![None; slots].into_boxed_slice(),
            free: None,
            out: 0,
            carved: 0,
            lots: Vec::new(),
        }
    }

    /// Sees to it that the next [`take`](Self::take) has a sheaf to give.
    #[inline]
    pub(super) fn reserve(&mut self) {
        if self.free.is_none() && self.lots.last().is_none_or(|lot| self.carved == lot.len()) {
            self.grow();
        }
    }

    #[cold]
    fn grow(&mut self) {
        let len = self.lots.last().map_or(LOT_MIN, |lot| lot.len() * 2);
        self.lots.reserve(1);
        let lot = Box::into_raw(Box::new_uninit_slice(len.min(LOT_MAX)));
        // SAFETY: a box is somewhere.
        self.lots.push(unsafe { NonNull::new_unchecked(lot) });
        self.carved = 0;
    }

    /// An empty sheaf to go behind the last one of a slot, if there is one without allocating.
    #[inline]
    pub(super) fn add(&mut self, slot: usize) -> Option<NonNull<Sheaf>> {
        let this = match self.free {
            Some(free) => {
                // SAFETY: of this pool.
                self.free = unsafe { deref(free) }.next.get();
                free
            }
            None => self.carve()?,
        };
        self.out += 1;
        // SAFETY: of this pool.
        let sheaf = unsafe { deref(this) };
        sheaf.live.set(0);
        sheaf.first.set(0);
        sheaf.used.set(0);
        let before = self.lasts[slot].replace(this).unwrap_or(this);
        // SAFETY: of this pool: the last one of the slot, or the new one.
        let after = unsafe { deref(before) }.next.replace(Some(this));
        let after = after.filter(|_| before != this).unwrap_or(this);
        // SAFETY: of this pool: the first one of the slot, or the new one.
        unsafe { deref(after) }.prev.set(Some(this));
        sheaf.next.set(Some(after));
        sheaf.prev.set(Some(before));
        Some(this)
    }

    #[inline]
    fn carve(&mut self) -> Option<NonNull<Sheaf>> {
        let lot = *self.lots.last()?;
        if self.carved == lot.len() {
            return None;
        }
        // SAFETY: below the lot's length.
        let this = unsafe { lot.cast::<Sheaf>().add(self.carved) };
        self.carved += 1;
        // SAFETY: in the lot, aligned, and nobody's yet.
        unsafe {
            this.write(Sheaf {
                next: Cell::new(None),
                prev: Cell::new(None),
                live: Cell::new(0),
                first: Cell::new(0),
                used: Cell::new(0),
                places: [const { Cell::new(None) }; PLACES],
            });
        }
        Some(this)
    }

    /// Takes a sheaf that has no node any more out of its slot. Says whether it was the slot's only one.
    pub(super) fn drop_empty(&mut self, this: NonNull<Sheaf>, slot: usize) -> bool {
        // SAFETY: of this pool.
        let sheaf = unsafe { deref(this) };
        let (next, prev) = (sheaf.next.get(), sheaf.prev.get());
        let (Some(next), Some(prev)) = (next, prev) else {
            return false;
        };
        let is_only = next == this;
        // SAFETY: neighbours in the ring, of this pool.
        unsafe { deref(prev) }.next.set(Some(next));
        // SAFETY: as above.
        unsafe { deref(next) }.prev.set(Some(prev));
        if is_only {
            self.lasts[slot] = None;
        } else if self.lasts[slot] == Some(this) {
            self.lasts[slot] = Some(prev);
        }
        self.give_back(this);
        is_only
    }

    /// Takes back a sheaf that is in no slot. With the last of many the memory goes back, too.
    pub(super) fn give_back(&mut self, this: NonNull<Sheaf>) {
        // SAFETY: of this pool.
        unsafe { deref(this) }.next.set(self.free);
        self.free = Some(this);
        self.out -= 1;
        if self.out == 0 && self.lots.len() > 1 {
            self.shrink();
        }
    }

    /// Gives all lots back but the first. No sheaf is in use.
    #[cold]
    fn shrink(&mut self) {
        self.free = None;
        self.carved = 0;
        for lot in self.lots.drain(1..) {
            // SAFETY: a box made by `grow`, which nothing points into any more.
            drop(unsafe { Box::from_raw(lot.as_ptr()) });
        }
    }
}

impl Drop for Sheaves {
    fn drop(&mut self) {
        for lot in self.lots.drain(..) {
            // SAFETY: a box made by `grow`. Nodes that are linked still are not touched any more.
            drop(unsafe { Box::from_raw(lot.as_ptr()) });
        }
    }
}

/// Dereferences a sheaf. All access is by shared reference, so any number of these may live at once.
///
/// # Safety
///
/// It is of a pool that is alive, which has carved it.
#[inline]
pub(super) unsafe fn deref<'a>(sheaf: NonNull<Sheaf>) -> &'a Sheaf {
    // SAFETY: passed on to the caller.
    unsafe { sheaf.as_ref() }
}

/// Has the cache line at an address fetched. Nothing depends on it.
#[inline(always)]
pub(super) fn prefetch(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint, which does not fault.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}
