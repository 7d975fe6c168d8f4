//! Many timers at once: what they leave behind, and callbacks of every size that arm, cancel and panic among them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod memory_rig;

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::Duration;

use sinew::time::{Timer, now};
use sinew::{run, sleep};

const MANY: u64 = if cfg!(debug_assertions) {
    20_000
} else {
    1_000_000
};

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) % bound
    }
}

// contract: S16
#[test]
fn armed_and_cancelled_timers_leave_no_memory_behind() {
    run(|| {
        let arm = |n: u64| Timer::after(Duration::from_secs(3_600 + n % 3_600), || {});
        // The first one makes what all of them share, and a few more what many share.
        let mut few: Vec<_> = (0..1_000).map(arm).collect();
        few.clear();
        let before = memory_rig::live_bytes();
        for _ in 0..3 {
            let mut timers: Vec<_> = (0..MANY).map(arm).collect();
            // From the middle, so that neither the first nor the last ones of anything go last.
            while timers.len() > 1 {
                drop(timers.swap_remove(timers.len() / 2));
            }
        }
        let left = memory_rig::live_bytes() - before;
        assert!(left.abs() < 16 * 1024, "{left} bytes more");
    });
}

// contract: S16
#[test]
fn one_timer_at_a_time_among_many_takes_no_more_memory_however_often() {
    run(|| {
        let arm = |n: u64| Timer::after(Duration::from_millis(10_000 + n % 40_000), || {});
        let mut timers: Vec<_> = (0..1_000).map(arm).collect();
        let mut random = Random(7);
        let mut turn = |turns: u64| {
            for _ in 0..turns {
                let at = random.below(1_000) as usize;
                timers[at] = arm(random.below(40_000));
            }
        };
        turn(MANY);
        let before = memory_rig::live_bytes();
        turn(4 * MANY);
        let more = memory_rig::live_bytes() - before;
        // A quarter of a kilobyte for each is the most that there can be.
        assert!(more < 512 * 1024, "{more} bytes more");
    });
}

// contract: S16
#[test]
fn as_many_as_there_are_at_one_point_in_time_ring_once_each_in_order() {
    run(|| {
        let rung = Rc::new(Cell::new(0));
        let at = now() + Duration::from_millis(50);
        let timers: Vec<_> = (0..MANY)
            .map(|number| {
                let rung = rung.clone();
                Timer::at(at, move || {
                    assert_eq!(rung.get(), number, "in the order of arming");
                    rung.set(number + 1);
                })
            })
            .collect();
        // Those whose slack was another because time went by come in their order all the same.
        while rung.get() < MANY {
            sleep(Duration::from_millis(1)).unwrap();
        }
        assert!(timers.iter().all(|timer| !timer.is_armed()));
    });
}

/// Callbacks of this test; whatever they do, each runs once or never.
struct Crowd {
    timers: RefCell<Vec<Option<Timer>>>,
    random: RefCell<Random>,
    armed: Cell<u64>,
    rung: Cell<u64>,
    cancelled: Cell<u64>,
}

impl Crowd {
    fn draw(&self, bound: u64) -> u64 {
        self.random.borrow_mut().below(bound)
    }

    fn arm(self: &Rc<Self>, at: usize) {
        let crowd = self.clone();
        self.armed.set(self.armed.get() + 1);
        let delay = match self.draw(8) {
            0 => Duration::ZERO,
            1 => Duration::from_nanos(self.draw(3_000)),
            2 => Duration::from_secs(self.draw(1 << 40)),
            3 => Duration::MAX,
            _ => Duration::from_micros(self.draw(30_000)),
        };
        let ballast = [at as u64; 20];
        let timer = match self.draw(3) {
            0 => Timer::after(delay, move || crowd.ring()),
            1 => Timer::after(delay, move || {
                assert_eq!(ballast, [at as u64; 20]);
                crowd.ring();
            }),
            _ => Timer::after(delay, {
                #[repr(align(128))]
                struct Wide(u64);
                let wide = Wide(7);
                move || {
                    let wide = &wide;
                    assert!(std::ptr::from_ref(wide).addr().is_multiple_of(128));
                    assert_eq!(wide.0, 7);
                    crowd.ring();
                }
            }),
        };
        let before = self.timers.borrow_mut()[at].replace(timer);
        self.end(before);
    }

    fn end(&self, timer: Option<Timer>) {
        if timer.is_some_and(Timer::cancel) {
            self.cancelled.set(self.cancelled.get() + 1);
        }
    }

    fn ring(self: &Rc<Self>) {
        self.rung.set(self.rung.get() + 1);
        if self.armed.get() < 30_000 {
            for _ in 0..self.draw(4) {
                let at = self.draw(500) as usize;
                self.arm(at);
            }
        }
        let at = self.draw(500) as usize;
        let timer = self.timers.borrow_mut()[at].take();
        self.end(timer);
        if self.draw(16) == 0 {
            std::panic::resume_unwind(Box::new("of a callback"));
        }
    }
}

// contract: S16
#[test]
fn callbacks_that_arm_cancel_and_panic_at_random_ring_once_or_never() {
    for seed in 1..4 {
        let crowd = Rc::new(Crowd {
            timers: RefCell::new((0..500).map(|_| None).collect()),
            random: RefCell::new(Random(seed)),
            armed: Cell::new(0),
            rung: Cell::new(0),
            cancelled: Cell::new(0),
        });
        let inner = crowd.clone();
        let ran = catch_unwind(AssertUnwindSafe(move || {
            run(move || {
                (0..500).for_each(|at| inner.arm(at));
                let end = now() + Duration::from_secs(2);
                while inner.armed.get() < 30_000 && now() < end {
                    sleep(Duration::from_millis(1)).unwrap();
                    let at = inner.draw(500) as usize;
                    inner.arm(at);
                }
                sleep(Duration::from_millis(40)).unwrap();
            });
        }));
        assert!(ran.is_err(), "one has panicked");
        let left = crowd.timers.take();
        let armed = left.iter().flatten().filter(|timer| timer.is_armed());
        assert_eq!(armed.count(), 0, "with the scheduler they are given up");
        let never = left.iter().flatten();
        let given_up = never.count() as u64;
        let ended = crowd.rung.get() + crowd.cancelled.get();
        assert!(ended <= crowd.armed.get() && crowd.armed.get() <= ended + given_up);
        drop(left);
        assert_eq!(Rc::strong_count(&crowd), 1, "every callback is gone");
    }
}
