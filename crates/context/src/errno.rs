//! The thread's error number, by its address.
//!
//! Owns: the address. The C library keeps one number for each thread; who switches on a thread keeps one for each flow by
//! reading it before and writing it after. With the address at hand that is a load and a store.
#![expect(unsafe_code, reason = "reads and writes the C library's variable")]

use core::ptr::NonNull;

/// Where the calling thread's `errno` is. Belongs to that thread: neither `Send` nor `Sync`.
#[derive(Debug, Clone, Copy)]
pub struct Errno {
    place: NonNull<i32>,
}

impl Errno {
    /// The calling thread's.
    #[must_use]
    pub fn of_this_thread() -> Self {
        // SAFETY: no preconditions.
        let place = unsafe { libc::__errno_location() };
        // SAFETY: never null.
        let place = unsafe { NonNull::new_unchecked(place) };
        Self { place }
    }

    /// The number.
    #[must_use]
    #[inline(always)]
    pub fn get(self) -> i32 {
        // SAFETY: good as long as the thread lives, which alone has this value.
        unsafe { self.place.as_ptr().read() }
    }

    /// Sets the number, if it is another one.
    ///
    /// PERF: a store that the next `get` reads would tie the switches together, each to the one before; the comparison is predicted.
    #[inline(always)]
    pub fn set(self, number: i32) {
        if self.get() != number {
            self.set_slow(number);
        }
    }

    #[cold]
    #[inline(always)]
    fn set_slow(self, number: i32) {
        // SAFETY: as in `get`.
        unsafe { self.place.as_ptr().write(number) }
    }
}
