//! Ends of coroutines at awkward moments: what destructors, left-over wakes and refused starts must not break.

#![allow(unsafe_code, reason = "limits the address space of a child process")]

use std::panic::{catch_unwind, panic_any};
use std::process::Command;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use sinew::inspect::on_unhandled;
use sinew::{
    Builder, CancelToken, WaitError, confirm_cancel, current, go_local, park_timeout, run, scope,
    shield, sleep, spawn_local, yield_now,
};

/// Calls a closure when dropped.
struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Runs `f` on a thread of its own and fails if it takes longer than a minute.
fn in_time(f: impl FnOnce() + Send + 'static) {
    let (done, end) = mpsc::channel();
    let thread = thread::spawn(move || {
        f();
        let _gone = done.send(());
    });
    match end.recv_timeout(Duration::from_secs(60)) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("it hangs"),
        _ => thread.join().unwrap(),
    }
}

#[test]
fn a_permit_ends_with_its_coroutine() {
    run(|| {
        for _ in 0..10 {
            spawn_local(|| current().unwrap().unparker().unpark())
                .join()
                .unwrap();
            let parked = spawn_local(|| park_timeout(Duration::from_millis(1)));
            assert_eq!(parked.join().unwrap(), Err(WaitError::Timeout));
        }
    });
}

#[test]
fn a_main_that_confirms_a_cancel_returns_its_value() {
    let value = run(|| {
        current().unwrap().cancel_token().cancel("enough");
        confirm_cancel().unwrap();
        5
    });
    assert_eq!(value, 5);
}

#[test]
fn a_result_whose_drop_waits_is_cancelled_with_the_rest() {
    in_time(|| {
        let ended = catch_unwind(|| {
            run(|| {
                drop(spawn_local(|| {
                    OnDrop(|| {
                        let _refused = sleep(Duration::from_secs(3600));
                    })
                }));
                yield_now().unwrap();
                panic!("main");
            })
        });
        assert!(ended.is_err());
    });
}

#[test]
fn a_result_whose_drop_waits_for_ever_is_unwound_at_last() {
    in_time(|| {
        let ended = catch_unwind(|| {
            run(|| {
                drop(spawn_local(|| {
                    OnDrop(|| {
                        loop {
                            let _refused = sleep(Duration::from_secs(3600));
                        }
                    })
                }));
                yield_now().unwrap();
                panic!("main");
            })
        });
        assert_eq!(ended.unwrap_err().downcast_ref(), Some(&"main"));
    });
}

#[test]
fn a_stack_with_a_large_guard_is_not_given_to_another_coroutine() {
    run(|| {
        let guarded = Builder::new()
            .stack_size(120 * 1024)
            .guard_size(128 * 1024)
            .spawn_local(|| ())
            .unwrap();
        guarded.join().unwrap();
        let common = spawn_local(|| {
            yield_now().unwrap();
            let me = current().unwrap().id();
            sinew::inspect::find(me).unwrap().stack_bytes.unwrap()
        });
        assert!(common.join().unwrap() >= 248 * 1024);
    });
}

#[test]
fn a_forgotten_registration_goes_with_its_token() {
    let dropped = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&dropped);
    let guard = OnDrop(move || {
        count.fetch_add(1, Relaxed);
    });
    let token = CancelToken::new();
    token
        .on_cancel(move |_| {
            let _guard = &guard;
        })
        .forget();
    drop(token);
    assert_eq!(dropped.load(Relaxed), 1);
}

const CHILD: &str = "SINEW_ENDS_CHILD";

/// Runs the test of this name again as a child process, which has a minute; what it writes to standard error comes back.
fn in_child(test: &str) -> (std::process::ExitStatus, String) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status, text)
}

fn is_child() -> bool {
    let is_child = std::env::var_os(CHILD).is_some();
    if is_child {
        // SAFETY: no preconditions; the signal ends a child that hangs.
        unsafe { libc::alarm(60) };
    }
    is_child
}

/// Leaves the process so much more address space.
fn limit_address_space(more_bytes: u64) {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = status.split(' ').next().unwrap().parse().unwrap();
    let bytes = pages * 4096 + more_bytes;
    let limit = libc::rlimit {
        rlim_cur: bytes,
        rlim_max: bytes,
    };
    // SAFETY: `limit` is live.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
}

#[test]
fn a_scope_ends_though_children_got_no_stacks() {
    if !is_child() {
        let (status, text) = in_child("a_scope_ends_though_children_got_no_stacks");
        assert!(status.success(), "{status}\n{text}");
        return;
    }
    static FAILED: AtomicUsize = AtomicUsize::new(0);
    on_unhandled(Some(Box::new(|_| {
        FAILED.fetch_add(1, Relaxed);
    })));
    limit_address_space(256 << 20);
    let ran = AtomicUsize::new(0);
    let refused = AtomicUsize::new(0);
    run(|| {
        scope(|s| {
            let handles: Vec<_> = (0..4000)
                .map(|_| {
                    s.spawn(|| {
                        ran.fetch_add(1, Relaxed);
                        let _slept = sleep(Duration::from_millis(100));
                    })
                })
                .collect();
            for handle in handles {
                if handle.join().is_err_and(|error| error.is_no_memory()) {
                    refused.fetch_add(1, Relaxed);
                }
            }
        });
        // The last to end are some that never ran.
        scope(|s| {
            for _ in 0..4000 {
                s.spawn(|| sleep(Duration::from_millis(100)));
            }
            let _held = [(); 0];
        });
        for _ in 0..4000 {
            go_local(|| sleep(Duration::from_millis(100)));
        }
    });
    assert_eq!(ran.load(Relaxed) + refused.load(Relaxed), 4000);
    assert!(refused.load(Relaxed) > 0);
    assert!(
        FAILED.load(Relaxed) > 0,
        "those that nobody joins are told of"
    );
}

#[test]
fn a_deaf_coroutine_under_a_panic_is_reported_in_the_end() {
    if !is_child() {
        let (status, text) = in_child("a_deaf_coroutine_under_a_panic_is_reported_in_the_end");
        assert!(!status.success(), "{status}\n{text}");
        assert!(text.contains("scheduler is ending"), "{text}");
        return;
    }
    let _runs_in_a_panic = OnDrop(|| {
        let _ended = catch_unwind(|| {
            run(|| {
                go_local(|| {
                    loop {
                        let _refused = sleep(Duration::from_secs(3600));
                    }
                });
                yield_now().unwrap();
                panic!("main");
            })
        });
    });
    panic!("outer");
}

/// The thread panics while they wait in their destructors, one after another. That the others are refused meanwhile is not
/// their doing.
#[test]
fn neighbours_that_wait_in_destructors_do_not_count_as_swallowing() {
    if !is_child() {
        let (status, text) =
            in_child("neighbours_that_wait_in_destructors_do_not_count_as_swallowing");
        assert!(status.success(), "{status}\n{text}");
        return;
    }
    let ended = catch_unwind(|| {
        run(|| {
            for _ in 0..20 {
                go_local(|| {
                    let _waits = OnDrop(|| {
                        scope(|s| {
                            s.spawn(|| ());
                        });
                        shield(|| sleep(Duration::from_millis(5))).unwrap();
                    });
                    loop {
                        let _refused = sleep(Duration::from_secs(3600));
                    }
                });
            }
            yield_now().unwrap();
            panic!("main");
        })
    });
    assert_eq!(ended.unwrap_err().downcast_ref(), Some(&"main"));
}

/// Panics when dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("a destructor");
    }
}

#[test]
fn payloads_that_panic_when_dropped_end_nothing_else() {
    let ended = catch_unwind(|| {
        run(|| {
            for _ in 0..3 {
                drop(spawn_local(|| panic_any(Bomb)));
            }
            yield_now().unwrap();
            panic!("main");
        })
    });
    assert_eq!(ended.unwrap_err().downcast_ref(), Some(&"main"));

    let ended = catch_unwind(|| {
        run(|| {
            scope(|s| {
                drop(s.spawn(|| panic_any(Bomb)));
                yield_now().unwrap();
                panic!("main");
            })
        })
    });
    assert_eq!(ended.unwrap_err().downcast_ref(), Some(&"main"));
}

#[test]
fn a_payload_that_panics_when_dropped_does_not_stop_the_deadlines() {
    let first = CancelToken::with_timeout(Duration::from_millis(1));
    first.on_cancel(|_| panic_any(Bomb)).forget();
    first.wait().unwrap();
    in_time(|| {
        let second = CancelToken::with_timeout(Duration::from_millis(1));
        let (fired, told) = mpsc::channel();
        second.on_cancel(move |_| fired.send(()).unwrap()).forget();
        told.recv().unwrap();
    });
}

#[test]
fn a_hook_may_own_what_it_hears_of() {
    // In a child: the hook is the process's.
    if !is_child() {
        let (status, text) = in_child("a_hook_may_own_what_it_hears_of");
        assert!(status.success(), "{status}\n{text}");
        return;
    }
    in_time(|| {
        let panicked = run(|| {
            let handle = spawn_local(|| panic!("unheard"));
            handle.wait().unwrap();
            handle
        });
        let owned = std::sync::Mutex::new(Some(panicked));
        on_unhandled(Some(Box::new(move |_| {
            let _owned = owned.lock();
        })));
        on_unhandled(None);
    });
}

#[test]
fn what_a_token_owns_is_dropped_where_nothing_can_wait() {
    let waited = Arc::new(std::sync::Mutex::new(None));
    let seen = Arc::clone(&waited);
    run(move || {
        spawn_local(move || {
            let guard = OnDrop(move || {
                go_local(|| ());
                *seen.lock().unwrap() = Some(sleep(Duration::from_millis(1)));
            });
            let token = current().unwrap().cancel_token();
            token
                .on_cancel(move |_| {
                    let _guard = &guard;
                })
                .forget();
        });
    });
    assert_eq!(*waited.lock().unwrap(), Some(Err(WaitError::State)));

    let ended = catch_unwind(|| {
        run(|| {
            go_local(|| {
                let bomb = Bomb;
                let token = current().unwrap().cancel_token();
                token
                    .on_cancel(move |_| {
                        let _bomb = &bomb;
                    })
                    .forget();
            });
        })
    });
    assert_eq!(ended.unwrap_err().downcast_ref(), Some(&"a destructor"));
}
