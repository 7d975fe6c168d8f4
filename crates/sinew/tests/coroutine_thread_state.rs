//! What of a thread's state is a coroutine's own: the error number always, the floating-point control words on request;
//! and what happens to those who change the words without asking.
#![expect(unsafe_code, reason = "changes errno and control registers")]

use std::arch::asm;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use sinew::coroutine::{Coroutine, Step, Suspender, anchor};

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap()
}

fn set_errno(number: i32) {
    // SAFETY: never null.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: the calling thread's own.
    unsafe { *place = number };
}

/// SSE's rounding mode and the x87 unit's, two bits each.
fn rounding() -> (u32, u16) {
    let (mut mxcsr, mut x87) = (0_u32, 0_u16);
    // SAFETY: stores two registers.
    unsafe { asm!("stmxcsr [{}]", "fnstcw [{}]", in(reg) &raw mut mxcsr, in(reg) &raw mut x87) };
    (mxcsr >> 13 & 3, x87 >> 10 & 3)
}

fn set_rounding(mode: u16) {
    let mxcsr = 0x1f80 | u32::from(mode) << 13;
    let x87 = 0x37f | mode << 10;
    // SAFETY: only defined bits; nothing here computes with floating-point numbers.
    unsafe { asm!("ldmxcsr [{}]", "fldcw [{}]", in(reg) &raw const mxcsr, in(reg) &raw const x87) };
}

// contract: C19
#[test]
fn errno_is_kept_across_waits() {
    sinew::run(|| {
        let workers: Vec<_> = (1..=20)
            .map(|n| {
                sinew::spawn_local(move || {
                    for round in 0..50 {
                        let number = n * 100 + round;
                        set_errno(number);
                        match round % 3 {
                            0 => sinew::yield_now().unwrap(),
                            1 => sinew::sleep(Duration::from_micros(50)).unwrap(),
                            _ => sinew::sleep(Duration::ZERO).unwrap(),
                        }
                        assert_eq!(errno(), number);
                    }
                })
            })
            .collect();
        for worker in workers {
            worker.join().unwrap();
        }
    });
}

// contract: C19
#[test]
fn errno_is_kept_across_suspends() {
    anchor(|a| {
        let mut inside = Coroutine::new(a, |s: &Suspender<i32, ()>, first: i32| {
            let mut number = first;
            while number != 0 {
                set_errno(number);
                let next = s.suspend(()).unwrap();
                assert_eq!(errno(), number);
                number = next;
            }
        });
        for number in 1..100 {
            set_errno(number + 1000);
            assert_eq!(inside.resume(number).unwrap(), Step::Suspended(()));
        }
        assert_eq!(inside.resume(0).unwrap(), Step::Done(()));
    });
}

// contract: C19
#[test]
fn a_coroutine_of_a_scheduler_keeps_its_control_words() {
    sinew::run(|| {
        let before = rounding();
        let keepers: Vec<_> = (0..4)
            .map(|mode| {
                let keeper = move || {
                    assert_eq!(rounding(), before);
                    set_rounding(mode);
                    for round in 0..30 {
                        if round % 5 == 0 {
                            sinew::sleep(Duration::from_micros(20)).unwrap();
                        } else {
                            sinew::yield_now().unwrap();
                        }
                        assert_eq!(rounding(), (u32::from(mode), mode));
                    }
                };
                sinew::Builder::new()
                    .fp_env(true)
                    .spawn_local(keeper)
                    .unwrap()
            })
            .collect();
        let plain = sinew::spawn_local(move || {
            for _ in 0..100 {
                sinew::yield_now().unwrap();
                assert_eq!(rounding(), before);
            }
        });
        for keeper in keepers {
            keeper.join().unwrap();
            assert_eq!(rounding(), before);
        }
        plain.join().unwrap();
        // One that starts on the stack, and after the end, of one that kept its own.
        sinew::spawn_local(move || assert_eq!(rounding(), before))
            .join()
            .unwrap();
    });
}

// contract: C19
#[test]
fn a_stand_alone_coroutine_keeps_its_control_words() {
    let before = rounding();
    anchor(|a| {
        let mut all: Vec<_> = (0..4)
            .map(|mode| {
                Coroutine::<(), (), ()>::builder(a)
                    .fp_env(true)
                    .build(move |s, ()| {
                        set_rounding(mode);
                        for _ in 0..10 {
                            s.suspend(()).unwrap();
                            assert_eq!(rounding(), (u32::from(mode), mode));
                        }
                    })
                    .unwrap()
            })
            .collect();
        for _ in 0..11 {
            for one in &mut all {
                one.resume(()).unwrap();
                assert_eq!(rounding(), before);
            }
        }
    });
}

// contract: C19
#[test]
fn a_keeper_inside_a_plain_coroutine_may_wait() {
    sinew::run(|| {
        let before = rounding();
        let other = sinew::spawn_local(move || {
            for _ in 0..20 {
                sinew::yield_now().unwrap();
                assert_eq!(rounding(), before);
            }
        });
        anchor(|a| {
            let mut keeper = Coroutine::<(), (), ()>::builder(a)
                .fp_env(true)
                .build(|_, ()| {
                    set_rounding(3);
                    for _ in 0..5 {
                        sinew::yield_now().unwrap();
                        assert_eq!(rounding(), (3, 3));
                    }
                })
                .unwrap();
            assert_eq!(keeper.resume(()).unwrap(), Step::Done(()));
        });
        assert_eq!(rounding(), before);
        other.join().unwrap();
    });
}

/// What a panic says.
fn message(payload: &(dyn std::any::Any + Send)) -> &str {
    payload.downcast_ref::<&str>().copied().unwrap_or_default()
}

// contract: C19
#[test]
fn changed_words_panic_at_the_switch_in_a_debug_build() {
    if !cfg!(debug_assertions) {
        println!("SKIPPED: not a debug build");
        return;
    }
    let before = rounding();
    sinew::run(|| {
        let deeds: [fn(); 3] = [
            || sinew::yield_now().unwrap(),
            || sinew::sleep(Duration::from_micros(1)).unwrap(),
            || {},
        ];
        for deed in deeds {
            let error = sinew::spawn_local(move || {
                set_rounding(1);
                deed();
            })
            .join()
            .unwrap_err();
            let payload = error.into_panic();
            assert!(message(&*payload).contains("fp_env(true)"));
            assert_eq!(rounding(), before, "they are put back");
        }
    });
    let deeds: [fn(&Suspender<(), ()>); 2] = [|s| s.suspend(()).unwrap(), |_| {}];
    for deed in deeds {
        anchor(|a| {
            let mut one = Coroutine::new(a, move |s: &Suspender<(), ()>, ()| {
                set_rounding(2);
                deed(s);
            });
            let result = catch_unwind(AssertUnwindSafe(|| one.resume(())));
            let payload = result.expect_err("a panic");
            assert!(message(&*payload).contains("fp_env(true)"));
            assert_eq!(rounding(), before, "they are put back");
        });
    }
}

// contract: C19
#[test]
fn words_that_are_put_back_in_time_are_nobodys_affair() {
    let before = rounding();
    sinew::run(|| {
        sinew::spawn_local(|| {
            for _ in 0..3 {
                set_rounding(1);
                set_rounding(0);
                sinew::yield_now().unwrap();
            }
        })
        .join()
        .unwrap();
    });
    assert_eq!(rounding(), before);
}

// contract: C19
#[test]
fn either_word_alone_is_found_out_and_put_back() {
    if !cfg!(debug_assertions) {
        println!("SKIPPED: not a debug build");
        return;
    }
    fn set_sse() {
        let mxcsr = 0x1f80_u32 | 1 << 13;
        // SAFETY: only defined bits; nothing here computes with floating-point numbers.
        unsafe { asm!("ldmxcsr [{}]", in(reg) &raw const mxcsr) };
    }
    fn set_x87() {
        let x87 = 0x37f_u16 | 1 << 10;
        // SAFETY: as above.
        unsafe { asm!("fldcw [{}]", in(reg) &raw const x87) };
    }
    let before = rounding();
    for set in [set_sse, set_x87] {
        for at_the_end in [false, true] {
            anchor(|a| {
                let mut one = Coroutine::new(a, move |s: &Suspender<(), ()>, ()| {
                    s.suspend(()).unwrap();
                    set();
                    if !at_the_end {
                        let _ = s.suspend(());
                    }
                });
                one.resume(()).unwrap();
                assert_eq!(rounding(), before);
                let result = catch_unwind(AssertUnwindSafe(|| one.resume(())));
                assert!(message(&*result.expect_err("a panic")).contains("fp_env(true)"));
                assert_eq!(rounding(), before);
            });
        }
    }
}

// contract: C19
#[test]
fn a_keeper_that_panics_or_is_unwound_leaves_nothing_behind() {
    let before = rounding();
    anchor(|a| {
        let make = |panics: bool| {
            Coroutine::<(), (), ()>::builder(a)
                .fp_env(true)
                .build(move |s, ()| {
                    set_rounding(3);
                    s.suspend(()).unwrap();
                    assert_eq!(rounding(), (3, 3));
                    if panics {
                        std::panic::panic_any("with words of its own");
                    }
                })
                .unwrap()
        };
        let mut panics = make(true);
        panics.resume(()).unwrap();
        catch_unwind(AssertUnwindSafe(|| panics.resume(()).map(drop))).unwrap_err();
        assert_eq!(rounding(), before);
        let mut returns = make(false);
        returns.resume(()).unwrap();
        returns.resume(()).unwrap();
        assert_eq!(rounding(), before);
        let mut dropped = make(false);
        dropped.resume(()).unwrap();
        drop(dropped);
        assert_eq!(rounding(), before);
        let mut forgotten = make(false);
        forgotten.resume(()).unwrap();
        std::mem::forget(forgotten);
    });
    assert_eq!(rounding(), before);
}
