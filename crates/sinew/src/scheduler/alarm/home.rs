//! Where alarms come from: memory for records of one size, in lots.
//!
//! Owns: the lots, and the chain of free records. Thread: the scheduler's.
//!
//! Invariants
//! - I1. A home lives as long as its scheduler or one of its alarms, which may outlive that; the last of them frees it.
//! - I2. A free record is in the chain, or one of the newest lot that has never been in use, from `fresh` to `end`.
//! - I3. With no alarm in use there is one lot at the most.
#![expect(
    unsafe_code,
    reason = "carves records out of raw memory, and frees itself"
)]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::{Cell, RefCell};
use std::ptr::{self, NonNull};

use super::Alarm;
use crate::scheduler::Scheduler;
use crate::sys::ahead::{self, PAGE_BYTES};

/// Records in the first lot; each later one has twice as many, up to the most: 4 KiB, and 1 MiB.
const LOT_MIN: usize = 64;
const LOT_MAX: usize = 16 * 1024;
/// In lots of at least this size memory is brought in ahead, so many bytes at a time.
const AHEAD_BYTES: usize = 64 * 1024;

/// The memory of a record; while it is free, the next free one.
type Next = *mut Alarm;

/// The alarms of one scheduler.
#[derive(Debug)]
pub(crate) struct Home {
    /// Null once it has ended.
    scheduler: Cell<*const Scheduler>,
    free: Cell<Next>,
    fresh: Cell<*mut Alarm>,
    /// Up to here the memory behind `fresh` has been brought in.
    near: Cell<*mut Alarm>,
    end: Cell<*mut Alarm>,
    live: Cell<usize>,
    lots: RefCell<Vec<(NonNull<Alarm>, Layout)>>,
}

/// A scheduler's share in its home, made when the first alarm is.
#[derive(Debug)]
pub(crate) struct Alarms(Cell<*mut Home>);

impl Alarms {
    pub(crate) const fn new() -> Self {
        Self(Cell::new(ptr::null_mut()))
    }

    /// The home of a scheduler, whose share this is.
    #[inline]
    pub(super) fn home(&self, scheduler: &Scheduler) -> NonNull<Home> {
        NonNull::new(self.0.get()).unwrap_or_else(|| self.make(scheduler))
    }

    #[cold]
    fn make(&self, scheduler: &Scheduler) -> NonNull<Home> {
        let home = Box::leak(Box::new(Home {
            scheduler: Cell::new(scheduler),
            free: Cell::new(ptr::null_mut()),
            fresh: Cell::new(ptr::null_mut()),
            near: Cell::new(ptr::null_mut()),
            end: Cell::new(ptr::null_mut()),
            live: Cell::new(0),
            lots: RefCell::new(Vec::new()),
        }));
        let home = NonNull::from(home);
        self.0.set(home.as_ptr());
        home
    }

    /// The scheduler has ended. No alarm of it is in its wheel any more.
    pub(super) fn give_up(&self) {
        let Some(home) = NonNull::new(self.0.replace(ptr::null_mut())) else {
            return;
        };
        // SAFETY: I1.
        let this = unsafe { home.as_ref() };
        this.scheduler.set(ptr::null());
        if this.live.get() == 0 {
            // SAFETY: I1: neither is there any more.
            unsafe { Home::free(home) };
        }
    }
}

impl Home {
    /// The scheduler; null once it has ended.
    #[inline]
    pub(super) fn scheduler(&self) -> *const Scheduler {
        self.scheduler.get()
    }

    /// Memory for an alarm, which is in use from here on.
    #[inline]
    pub(super) fn take(&self) -> NonNull<Alarm> {
        self.live.set(self.live.get() + 1);
        if let Some(free) = NonNull::new(self.free.get()) {
            // SAFETY: I2: nobody else's; it was written when it was freed.
            self.free.set(unsafe { free.cast::<Next>().read() });
            return free;
        }
        if self.fresh.get() == self.near.get() {
            self.bring_near();
        }
        let fresh = self.fresh.get();
        self.fresh.set(fresh.wrapping_add(1));
        NonNull::new(fresh).unwrap_or_else(|| unreachable!("a lot was added"))
    }

    #[cold]
    fn bring_near(&self) {
        if self.fresh.get() == self.end.get() {
            self.add_lot();
        }
        let (fresh, end) = (self.fresh.get(), self.end.get());
        let bytes = (end.addr() - fresh.addr()).min(AHEAD_BYTES);
        self.near.set(fresh.wrapping_byte_add(bytes));
        // Not worth a call for less.
        if bytes < AHEAD_BYTES {
            return;
        }
        let start = fresh.cast::<u8>();
        let start = start.wrapping_add(start.align_offset(PAGE_BYTES));
        if let Some(start) = NonNull::new(start) {
            let span = self.near.get().addr() - start.addr().get();
            ahead::bring_in(start, span - span % PAGE_BYTES);
        }
    }

    fn add_lot(&self) {
        let mut lots = self.lots.borrow_mut();
        let len = lots.last().map_or(LOT_MIN, |(_, layout)| {
            (layout.size() / size_of::<Alarm>() * 2).min(LOT_MAX)
        });
        let layout =
            Layout::array::<Alarm>(len).unwrap_or_else(|_| unreachable!("a megabyte at most"));
        // SAFETY: it is not empty.
        let memory = unsafe { alloc(layout) };
        let Some(lot) = NonNull::new(memory.cast::<Alarm>()) else {
            handle_alloc_error(layout)
        };
        lots.push((lot, layout));
        self.open(lot, layout);
    }

    /// The records of a lot are fresh.
    fn open(&self, lot: NonNull<Alarm>, layout: Layout) {
        self.fresh.set(lot.as_ptr());
        self.near.set(lot.as_ptr());
        self.end.set(lot.as_ptr().wrapping_byte_add(layout.size()));
    }

    /// Takes the memory of an alarm back. The home may go with it.
    ///
    /// # Safety
    ///
    /// It is of this home, which is alive, and nobody uses it any more.
    #[inline]
    pub(super) unsafe fn give_back(home: NonNull<Self>, alarm: NonNull<Alarm>) {
        // SAFETY: I1: the alarm is one of it.
        let this = unsafe { home.as_ref() };
        // SAFETY: the caller's: it is nobody's now, and large enough.
        unsafe { alarm.cast::<Next>().write(this.free.get()) };
        this.free.set(alarm.as_ptr());
        this.live.set(this.live.get() - 1);
        if this.live.get() == 0 {
            // SAFETY: passed on.
            unsafe { Self::emptied(home) };
        }
    }

    /// The last alarm in use has gone.
    unsafe fn emptied(home: NonNull<Self>) {
        // SAFETY: it was alive until now.
        let this = unsafe { home.as_ref() };
        if this.scheduler.get().is_null() {
            // SAFETY: I1: neither is there any more.
            unsafe { Self::free(home) };
            return;
        }
        let mut lots = this.lots.borrow_mut();
        if lots.len() > 1 {
            this.free.set(ptr::null_mut());
            for (lot, layout) in lots.drain(1..) {
                // SAFETY: allocated with this layout; nothing in it is in use.
                unsafe { dealloc(lot.as_ptr().cast(), layout) };
            }
            let (lot, layout) = lots[0];
            this.open(lot, layout);
        }
    }

    #[cold]
    unsafe fn free(home: NonNull<Self>) {
        // SAFETY: made by a box; the caller's word that nobody uses it any more.
        let home = unsafe { Box::from_raw(home.as_ptr()) };
        for (lot, layout) in home.lots.borrow_mut().drain(..) {
            // SAFETY: allocated with this layout; nothing in it is in use.
            unsafe { dealloc(lot.as_ptr().cast(), layout) };
        }
    }
}
