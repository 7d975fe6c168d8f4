//! A callback at a point in time.
//!
//! Owns: the handle. Thread: the one that armed it.
#![expect(
    unsafe_code,
    reason = "owns a record of the scheduler's by its address"
)]

use std::fmt;
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use crate::scheduler::alarm::Alarm;
use crate::scheduler::current;
use crate::sys::clock;

/// A callback that runs once at a point in time, on the thread's scheduler: the cheapest way to have something done later, without a
/// coroutine. Dropping the timer cancels it.
///
/// The callback runs as a post does ([`SchedulerHandle::post`](crate::SchedulerHandle::post)): on the thread's plain stack, not in a
/// coroutine. In it every wait fails with `State`; it may spawn, wake, post and arm timers. Its panic is contained: it goes to the hook of
/// [`crate::inspect::on_unhandled`], with the id 0, or else is kept to be raised at the scheduler's end.
///
/// A timer keeps no scheduler going: one whose time has not come when everything else has ended never runs.
///
/// For something that is to happen again and again, a coroutine with a loop is plainer: its `sleep_until` keeps the pace however long a round
/// takes, and a cancel ends it.
///
/// ```
/// use std::time::Duration;
/// use sinew::time::{now, sleep_until};
///
/// sinew::run(|| {
///     let ticking = sinew::spawn_local(|| {
///         let mut next = now();
///         for number in 0.. {
///             next += Duration::from_millis(1);
///             if sleep_until(next).is_err() {
///                 return number;
///             }
///         }
///         unreachable!()
///     });
///     sinew::sleep(Duration::from_millis(20)).unwrap();
///     ticking.cancel("enough");
///     assert!(ticking.join().unwrap() > 0);
/// });
/// ```
///
/// It belongs to its thread:
///
/// ```compile_fail,E0277
/// # use std::time::Duration;
/// sinew::run(|| {
///     let timer = sinew::time::Timer::after(Duration::from_secs(1), || {});
///     std::thread::spawn(move || timer.cancel());
/// });
/// ```
///
/// # Examples
///
/// ```
/// use std::cell::Cell;
/// use std::rc::Rc;
/// use std::time::Duration;
/// use sinew::time::Timer;
///
/// sinew::run(|| {
///     let rung = Rc::new(Cell::new(0));
///     let timer = |ms, number| {
///         let rung = rung.clone();
///         Timer::after(Duration::from_millis(ms), move || rung.set(rung.get() + number))
///     };
///     let (short, long) = (timer(1, 1), timer(2, 10));
///     assert!(long.cancel());
///     sinew::sleep(Duration::from_millis(5)).unwrap();
///     assert_eq!(rung.get(), 1);
///     assert!(!short.is_armed());
/// });
/// ```
#[must_use = "a timer that is dropped is cancelled"]
pub struct Timer {
    alarm: NonNull<Alarm>,
}

impl Timer {
    /// Runs `f` on this thread's scheduler when `duration` is over.
    ///
    /// # Suspends
    ///
    /// Never.
    ///
    /// # Panics
    ///
    /// Outside of [`crate::run`]: there is no scheduler on this thread.
    #[track_caller]
    #[inline]
    pub fn after(duration: Duration, f: impl FnOnce() + 'static) -> Self {
        let now_ns = clock::now_ns();
        let deadline_ns = now_ns.saturating_add(clock::to_ns(duration));
        Self::arm(deadline_ns, || now_ns, f)
    }

    /// Runs `f` on this thread's scheduler at `deadline`, or at its next look at the clock if that has passed.
    ///
    /// # Suspends
    ///
    /// Never.
    ///
    /// # Panics
    ///
    /// As [`Timer::after`].
    #[track_caller]
    #[inline]
    pub fn at(deadline: Instant, f: impl FnOnce() + 'static) -> Self {
        Self::arm(clock::instant_ns(deadline), clock::now_ns, f)
    }

    #[track_caller]
    #[inline]
    fn arm(deadline_ns: u64, now_ns: impl FnOnce() -> u64, f: impl FnOnce() + 'static) -> Self {
        let armed = current::with_scheduler(|scheduler| {
            scheduler.tell_time(now_ns);
            Alarm::arm(scheduler, deadline_ns, f)
        });
        match armed {
            Some(alarm) => Self { alarm },
            None => panic!("a timer was armed outside of sinew::run: no scheduler on this thread"),
        }
    }

    /// Whether the callback has yet to run.
    #[must_use]
    pub fn is_armed(&self) -> bool {
        // SAFETY: the handle owns it.
        unsafe { Alarm::is_armed(self.alarm) }
    }

    /// Drops the callback, unless it runs or has run; says whether it was so. The same as dropping the timer.
    ///
    /// # Suspends
    ///
    /// Never.
    pub fn cancel(self) -> bool {
        self.is_armed()
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // SAFETY: the handle owns it, and goes.
        unsafe { Alarm::free(self.alarm) };
    }
}

impl fmt::Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timer")
            .field("is_armed", &self.is_armed())
            .finish_non_exhaustive()
    }
}
