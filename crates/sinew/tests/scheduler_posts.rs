//! Posts: order, limits, closing, where they run, and who hears of their panics.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use sinew::inspect::State;
use sinew::sync::channel;
use sinew::{Progress, Scheduler, SchedulerHandle, WaitError, go_local, spawn_local, yield_now};

/// What a panic said.
fn text(payload: &(dyn std::any::Any + Send)) -> String {
    payload
        .downcast_ref::<&str>()
        .map(ToString::to_string)
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_default()
}

/// Counts how often it is dropped.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

fn is_send_sync_clone<T: Send + Sync + Clone>(value: T) -> T {
    value
}

// contract: S4
#[test]
fn posts_run_in_the_order_of_acceptance() {
    let order = Scheduler::anchor(|s| {
        let order = Arc::new(Mutex::new(Vec::new()));
        for n in 0..200 {
            let order = order.clone();
            s.handle()
                .post(move || order.lock().unwrap().push(n))
                .unwrap();
        }
        assert_eq!(s.handle().queued_posts(), 200);
        assert_eq!(s.run(), Ok(Progress::Closed));
        order.lock().unwrap().clone()
    });
    assert_eq!(order, (0..200).collect::<Vec<_>>());
}

// contract: S1, S4
#[test]
fn posts_of_each_thread_stay_in_order_and_none_is_lost() {
    const THREADS: usize = 4;
    const POSTS: usize = 500;
    let seen = Scheduler::builder().unlimited_posts().anchor(|s| {
        let seen = Arc::new(Mutex::new(vec![Vec::new(); THREADS]));
        let (tx, rx) = channel::bounded::<()>(1);
        // Keeps the scheduler alive, mostly asleep, until the threads are done.
        let waiting = spawn_local(move || rx.recv().is_err());
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let handle = is_send_sync_clone(s.handle());
                let seen = seen.clone();
                let tx = tx.clone();
                thread::spawn(move || {
                    for n in 0..POSTS {
                        let seen = seen.clone();
                        handle
                            .post(move || seen.lock().unwrap()[thread].push(n))
                            .unwrap();
                        if n % 50 == 0 {
                            thread::yield_now();
                        }
                    }
                    drop(tx);
                })
            })
            .collect();
        drop(tx);
        assert_eq!(s.run(), Ok(Progress::Closed));
        for thread in threads {
            thread.join().unwrap();
        }
        assert!(waiting.join().unwrap());
        assert_eq!(s.run(), Ok(Progress::Closed));
        Arc::into_inner(seen).unwrap().into_inner().unwrap()
    });
    for one in seen {
        assert_eq!(one, (0..POSTS).collect::<Vec<_>>());
    }
}

// contract: S4
#[test]
fn an_accepted_post_is_dropped_once_and_a_refused_one_comes_back_whole() {
    let drops = Arc::new(AtomicUsize::new(0));
    Scheduler::builder().post_limit(1).anchor(|s| {
        let counted = Counted(drops.clone());
        let in_post = drops.clone();
        s.handle()
            .post(move || {
                let _counted = &counted;
                assert_eq!(in_post.load(SeqCst), 0, "dropped after it ran");
            })
            .unwrap();
        let counted = Counted(drops.clone());
        let refused = s
            .handle()
            .post(move || {
                let _counted = &counted;
                unreachable!("refused");
            })
            .unwrap_err();
        assert!(refused.is_again() && !refused.is_closed(), "{refused:?}");
        assert!(refused.to_string().contains("try again"), "{refused}");
        assert_eq!(drops.load(SeqCst), 0);
        assert_eq!(s.step(), Ok(Progress::Made));
        assert_eq!(drops.load(SeqCst), 1);
        drop(refused.into_inner());
        assert_eq!(drops.load(SeqCst), 2);
    });
    assert_eq!(drops.load(SeqCst), 2);
}

// contract: S5
#[test]
fn every_wait_in_a_post_fails_with_state() {
    Scheduler::anchor(|s| {
        let (tx, rx) = mpsc::channel();
        let event = Arc::new(sinew::event::Event::auto());
        s.handle()
            .post(move || {
                let moment = Duration::from_millis(1);
                tx.send((
                    sinew::in_coroutine(),
                    [
                        yield_now(),
                        sinew::park(),
                        sinew::park_timeout(moment),
                        sinew::sleep(moment),
                        event.wait(),
                        sinew::CancelToken::new().wait(),
                        spawn_local(|| ()).wait(),
                    ],
                ))
                .unwrap();
            })
            .unwrap();
        s.run().unwrap();
        let (in_coroutine, results) = rx.recv().unwrap();
        assert!(!in_coroutine);
        assert_eq!(results, [Err(WaitError::State); 7]);
    });
}

// contract: S7
#[test]
fn run_drains_posts_and_what_they_create() {
    let done = Arc::new(AtomicUsize::new(0));
    let inside = done.clone();
    sinew::run(move || {
        let handle = SchedulerHandle::current().unwrap();
        handle
            .clone()
            .post(move || {
                let done = inside.clone();
                handle
                    .post(move || {
                        go_local(move || {
                            yield_now().unwrap();
                            inside.fetch_add(1, Relaxed);
                        });
                    })
                    .unwrap();
                done.fetch_add(1, Relaxed);
            })
            .unwrap();
    });
    assert_eq!(done.load(Relaxed), 2);
}

// contract: S10
#[test]
fn the_limit_is_1024_and_a_post_frees_its_place_before_it_runs() {
    Scheduler::anchor(|s| {
        let handle = s.handle();
        for _ in 0..1_024 {
            handle.post(|| ()).unwrap();
        }
        assert!(handle.post(|| ()).unwrap_err().is_again());
        s.run().unwrap();
        assert_eq!(handle.queued_posts(), 0);
    });
    Scheduler::builder().post_limit(1).anchor(|s| {
        let (tx, rx) = mpsc::channel();
        let handle = s.handle();
        s.handle()
            .post(move || tx.send(handle.post(|| ()).is_ok()).unwrap())
            .unwrap();
        s.run().unwrap();
        assert!(rx.recv().unwrap(), "a post may post");
    });
}

// contract: S10
#[test]
fn limits_of_zero_and_of_none() {
    Scheduler::builder().post_limit(0).anchor(|s| {
        assert!(s.handle().post(|| ()).unwrap_err().is_again());
    });
    let ran = Arc::new(AtomicUsize::new(0));
    Scheduler::builder().unlimited_posts().anchor(|s| {
        for _ in 0..5_000 {
            let ran = ran.clone();
            s.handle()
                .post(move || {
                    ran.fetch_add(1, Relaxed);
                })
                .unwrap();
        }
    });
    // The anchor's end has run them.
    assert_eq!(ran.load(Relaxed), 5_000);
}

// contract: S11
#[test]
fn wake_ups_are_not_limited_by_posts() {
    const COROUTINES: usize = 3_000;
    Scheduler::builder().post_limit(0).anchor(|s| {
        let parked: Vec<_> = (0..COROUTINES).map(|_| spawn_local(sinew::park)).collect();
        let unparkers: Vec<_> = parked.iter().map(sinew::JoinHandle::unparker).collect();
        assert!(s.handle().post(|| ()).unwrap_err().is_again());
        // All are parked.
        for _ in 0..COROUTINES {
            assert_eq!(s.step(), Ok(Progress::Made));
        }
        assert_eq!(s.step(), Ok(Progress::Timeout));
        let thread = thread::spawn(move || {
            for unparker in unparkers {
                unparker.unpark();
            }
        });
        assert_eq!(s.run(), Ok(Progress::Closed));
        thread.join().unwrap();
        for parked in parked {
            assert_eq!(parked.join().unwrap(), Ok(()));
        }
    });
}

// contract: S8
#[test]
fn close_refuses_the_new_cancels_the_alive_and_runs_the_accepted() {
    Scheduler::anchor(|s| {
        let (tx, rx) = mpsc::channel();
        let parked = spawn_local(sinew::park);
        assert_eq!(s.step(), Ok(Progress::Made));
        let unstarted = spawn_local(|| ());
        for n in 0..3 {
            let tx = tx.clone();
            s.handle().post(move || tx.send(n).unwrap()).unwrap();
        }
        assert!(!s.is_closed());
        s.close();
        assert!(s.is_closed());
        let (back, came_back) = mpsc::channel();
        let refused = s.handle().post(move || back.send(7).unwrap()).unwrap_err();
        assert!(refused.is_closed() && !refused.is_again(), "{refused:?}");
        assert!(refused.to_string().contains("closed"), "{refused}");
        refused.into_inner()();
        assert_eq!(came_back.recv(), Ok(7));
        let refused = sinew::Builder::new().spawn_local(|| 8).unwrap_err();
        assert!(refused.is_closed(), "{refused:?}");
        assert!(refused.to_string().contains("closed"), "{refused}");
        assert_eq!(refused.into_inner()(), 8);
        assert!(
            sinew::Builder::new()
                .go_local(|| ())
                .unwrap_err()
                .is_closed()
        );
        let born_cancelled = spawn_local(|| unreachable!("born cancelled"));
        assert_eq!(s.run(), Ok(Progress::Closed));
        assert_eq!(rx.try_iter().collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(parked.join().unwrap(), Err(WaitError::Cancelled));
        assert!(unstarted.join().unwrap_err().is_cancelled());
        assert!(born_cancelled.join().unwrap_err().is_cancelled());
        // And once more changes nothing.
        s.close();
        assert_eq!(s.run(), Ok(Progress::Closed));
    });
}

/// Every way to run it after a close: at once, after it has been left with nothing, and after it was destroyed. What was accepted runs, what
/// lives ends, nothing new begins, and then there is nothing left, however often it is asked.
// contract: S7, S8
#[test]
fn a_closed_scheduler_runs_what_is_left_and_then_says_closed() {
    let soon = || sinew::time::now() + Duration::from_millis(1);
    type Run<'a> = &'a dyn Fn(&Scheduler) -> Progress;
    let ways: [(&str, Run<'_>); 4] = [
        ("run", &|s| s.run().unwrap()),
        ("run_until", &|s| s.run_until(soon()).unwrap()),
        ("step", &|s| s.step().unwrap()),
        ("poll", &|s| s.poll(soon()).unwrap()),
    ];
    for (name, way) in ways {
        Scheduler::anchor(|s| {
            let ran = Rc::new(Cell::new(0));
            let ended = ran.clone();
            let sleeper = spawn_local(move || {
                let slept = sinew::sleep(Duration::from_secs(3_600));
                ended.set(ended.get() + 1);
                slept
            });
            let deaf = ran.clone();
            sinew::go_local(move || {
                // Works on after the request, and stops when it is done.
                for _ in 0..5 {
                    let _ = sinew::yield_now();
                }
                deaf.set(deaf.get() + 1);
            });
            assert_eq!(s.step(), Ok(Progress::Made));
            assert_eq!(s.step(), Ok(Progress::Made));
            let posted = Arc::new(AtomicUsize::new(0));
            let (by_post, again) = (posted.clone(), s.handle());
            let post = move || {
                // What a post wants to begin after the close does not.
                assert!(again.post(|| ()).unwrap_err().is_closed());
                sinew::go_local(|| unreachable!("born cancelled"));
                by_post.fetch_add(1, SeqCst);
            };
            s.handle().post(post).unwrap();
            s.close();
            assert_eq!(
                (ran.get(), posted.load(SeqCst)),
                (0, 0),
                "close runs nothing"
            );
            let turns = (0..1_000).find(|_| way(s) == Progress::Closed);
            assert!(turns.is_some(), "{name} does not come to an end");
            assert_eq!((ran.get(), posted.load(SeqCst)), (2, 1), "{name}");
            assert_eq!(sleeper.join().unwrap(), Err(WaitError::Cancelled));
            for (_, way) in ways {
                assert_eq!(way(s), Progress::Closed);
            }
            assert_eq!(s.try_destroy(), Ok(()));
            for (_, way) in ways {
                assert_eq!(way(s), Progress::Closed);
            }
            assert!(s.is_closed() && s.is_idle());
        });
    }
}

// contract: S9
#[test]
fn destroying_is_refused_while_something_would_be_lost() {
    Scheduler::anchor(|s| {
        s.handle().post(|| ()).unwrap();
        assert_eq!(s.try_destroy(), Err(sinew::StateError));
        s.run().unwrap();
        let coroutine = spawn_local(|| ());
        assert_eq!(s.try_destroy(), Err(sinew::StateError));
        assert!(!s.is_closed(), "a refusal changes nothing");
        s.run().unwrap();
        coroutine.join().unwrap();
        assert_eq!(s.try_destroy(), Ok(()));
        assert!(s.handle().post(|| ()).unwrap_err().is_closed());
        assert_eq!(s.try_destroy(), Ok(()));
    });
}

// contract: S9
#[test]
#[cfg(not(sinew_shuffle))] // It is about who comes first.
fn the_end_of_an_anchor_loses_nothing() {
    struct Note(Rc<RefCell<Vec<&'static str>>>, &'static str);
    impl Drop for Note {
        fn drop(&mut self) {
            self.0.borrow_mut().push(self.1);
        }
    }
    let notes = Rc::new(RefCell::new(Vec::new()));
    let posted = Arc::new(AtomicUsize::new(0));
    let (handle, parked) = Scheduler::anchor(|s| {
        let note = Note(notes.clone(), "parked");
        let parked = spawn_local(move || {
            let _note = note;
            sinew::park()
        });
        let note = Note(notes.clone(), "deaf");
        go_local(move || {
            let _note = note;
            // Never gives in: it is unwound.
            loop {
                let _again = sinew::park();
            }
        });
        s.step().unwrap();
        s.step().unwrap();
        let note = Note(notes.clone(), "unstarted");
        go_local(move || {
            let _note = &note;
            unreachable!("cancelled before it started");
        });
        let in_post = posted.clone();
        s.handle()
            .post(move || {
                in_post.fetch_add(1, Relaxed);
            })
            .unwrap();
        (s.handle(), parked)
    });
    assert_eq!(posted.load(Relaxed), 1);
    // In the order of their turns: the unstarted one was ready before the others were woken.
    assert_eq!(*notes.borrow(), ["unstarted", "parked", "deaf"]);
    assert_eq!(parked.join().unwrap(), Err(WaitError::Cancelled));
    // The handle is safe after the end.
    assert!(handle.post(|| ()).unwrap_err().is_closed());
    handle.stop();
    assert_eq!(handle.stats(), None);
    // Nor does a late call disturb the next scheduler, which may have the same door.
    assert_eq!(sinew::run(|| spawn_local(|| 3).join().unwrap()), 3);
}

// contract: S9
#[test]
fn an_anchor_whose_closure_panics_ends_in_the_same_way() {
    let posted = Arc::new(AtomicUsize::new(0));
    let in_post = posted.clone();
    let parked = RefCell::new(None);
    let payload = catch_unwind(AssertUnwindSafe(|| {
        Scheduler::anchor(|s| {
            *parked.borrow_mut() = Some(spawn_local(sinew::park));
            s.step().unwrap();
            s.handle()
                .post(move || {
                    in_post.fetch_add(1, Relaxed);
                })
                .unwrap();
            panic!("the closure")
        })
    }))
    .unwrap_err();
    assert_eq!(text(&*payload), "the closure");
    assert_eq!(posted.load(Relaxed), 1);
    let parked = parked.into_inner().unwrap();
    assert_eq!(parked.join().unwrap(), Err(WaitError::Cancelled));
}

// contract: S4
#[test]
fn a_panic_in_a_post_is_contained_and_raised_by_run() {
    Scheduler::anchor(|s| {
        let after = Arc::new(AtomicUsize::new(0));
        s.handle().post(|| panic!("in a post")).unwrap();
        let in_post = after.clone();
        s.handle()
            .post(move || {
                in_post.fetch_add(1, Relaxed);
            })
            .unwrap();
        let coroutine = spawn_local(|| 5);
        let payload = catch_unwind(AssertUnwindSafe(|| s.run())).unwrap_err();
        assert_eq!(text(&*payload), "in a post");
        // The others were not harmed, and the scheduler goes on.
        assert_eq!(after.load(Relaxed), 1);
        assert_eq!(coroutine.join().unwrap(), 5);
        assert_eq!(s.run(), Ok(Progress::Closed));
    });
    let payload = catch_unwind(|| {
        sinew::run(|| {
            let handle = SchedulerHandle::current().unwrap();
            handle.post(|| panic!("in a post of run")).unwrap();
        });
    })
    .unwrap_err();
    assert_eq!(text(&*payload), "in a post of run");
}

// contract: S17
#[test]
fn posts_have_their_turn_among_coroutines_that_yield_and_spawn_for_ever() {
    /// Spawns its successor, for ever.
    fn chain(turns: Rc<Cell<u64>>) {
        if !sinew::stopping() {
            turns.set(turns.get() + 1);
            go_local(move || chain(turns));
        }
    }
    for _ in 0..20 {
        Scheduler::anchor(|s| {
            let turns = Rc::new(Cell::new(0_u64));
            for _ in 0..3 {
                let turns = turns.clone();
                go_local(move || {
                    while yield_now().is_ok() {
                        turns.set(turns.get() + 1);
                    }
                });
            }
            let chained = turns.clone();
            go_local(move || chain(chained));
            let waited = Rc::new(Cell::new(0));
            let in_poster = waited.clone();
            let inside = turns.clone();
            go_local(move || {
                let ran = Arc::new(AtomicUsize::new(0));
                let in_post = ran.clone();
                let posted_at = inside.get();
                SchedulerHandle::current()
                    .unwrap()
                    .post(move || {
                        in_post.fetch_add(1, Relaxed);
                    })
                    .unwrap();
                while ran.load(Relaxed) == 0 {
                    yield_now().unwrap();
                }
                in_poster.set(inside.get() - posted_at);
                sinew::stop().unwrap();
            });
            assert_eq!(s.run(), Ok(Progress::Made));
            // A budget of 64 switches, and one more round of the five.
            assert!(waited.get() <= 64 + 5, "waited {} turns", waited.get());
        });
    }
}

// contract: S17
#[test]
fn a_timer_and_a_descriptor_have_their_turn_among_coroutines_that_yield_and_spawn_for_ever() {
    /// Spawns two successors of which one ends at once, for ever.
    fn chain(turns: Rc<Cell<u64>>) {
        if !sinew::stopping() {
            turns.set(turns.get() + 1);
            go_local(|| ());
            go_local(move || chain(turns));
        }
    }
    Scheduler::anchor(|s| {
        let turns = Rc::new(Cell::new(0_u64));
        for _ in 0..3 {
            let turns = turns.clone();
            go_local(move || {
                while yield_now().is_ok() {
                    turns.set(turns.get() + 1);
                }
            });
        }
        let chained = turns.clone();
        go_local(move || chain(chained));
        let (timed, read) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        let (most_timed, most_read) = (timed.clone(), read.clone());
        go_local(move || {
            for _ in 0..200 {
                let before = turns.get();
                sinew::sleep(Duration::from_nanos(1)).unwrap();
                most_timed.set(most_timed.get().max(turns.get() - before));
            }
            let (reader, writer) = sinew::io::pipe().unwrap();
            for _ in 0..200 {
                let writer = writer.try_clone().unwrap();
                let before = Rc::new(Cell::new(0));
                let (written_at, turns_then) = (before.clone(), turns.clone());
                go_local(move || {
                    written_at.set(turns_then.get());
                    sinew::io::write(&writer, b"x", None).unwrap();
                });
                sinew::io::read(&reader, &mut [0], None).unwrap();
                most_read.set(most_read.get().max(turns.get() - before.get()));
            }
            sinew::stop().unwrap();
        });
        assert_eq!(s.run(), Ok(Progress::Made));
        // A budget of 64 switches until somebody looks, and one more round of all that is ready.
        assert!(
            timed.get() <= 64 + 8,
            "a due timer waited {} turns",
            timed.get()
        );
        assert!(
            read.get() <= 64 + 8,
            "a ready descriptor waited {} turns",
            read.get()
        );
    });
}

// contract: S17
#[test]
fn posts_that_post_for_ever_starve_neither_coroutines_nor_timers() {
    fn again(handle: SchedulerHandle, posts: Arc<AtomicUsize>) {
        posts.fetch_add(1, Relaxed);
        // Refused once the scheduler is closing.
        let _closed = handle.clone().post(move || again(handle, posts)).is_err();
    }
    Scheduler::anchor(|s| {
        let posts = Arc::new(AtomicUsize::new(0));
        let handle = s.handle();
        let inside = posts.clone();
        s.handle().post(move || again(handle, inside)).unwrap();
        let sleeper = spawn_local(|| sinew::sleep(Duration::from_millis(2)));
        let inside = posts.clone();
        let most = Rc::new(Cell::new(0));
        let most_inside = most.clone();
        let counted = spawn_local(move || {
            for _ in 0..100 {
                let before = inside.load(Relaxed);
                yield_now().unwrap();
                most_inside.set(most_inside.get().max(inside.load(Relaxed) - before));
            }
        });
        go_local(move || {
            sleeper.join().unwrap().unwrap();
            // Where all is slow, under a sanitizer, these turns may take longer than that sleep.
            counted.join().unwrap();
            sinew::stop().unwrap();
        });
        assert_eq!(s.run(), Ok(Progress::Made));
        let most = most.get();
        assert!(most <= 2 * 64, "{most} posts between two turns");
        assert!(posts.load(Relaxed) > 0);
    });
}

// contract: S26
#[test]
fn a_post_wakes_a_scheduler_that_sleeps() {
    for _ in 0..50 {
        Scheduler::anchor(|s| {
            let parked = spawn_local(sinew::park);
            let unparker = parked.unparker();
            let handle = s.handle();
            let thread = thread::spawn(move || {
                // The scheduler is on its way to sleep, or asleep.
                let suspended = |info: sinew::inspect::Info| info.state == State::Suspended;
                while !sinew::inspect::find(unparker.id()).is_some_and(suspended) {
                    thread::yield_now();
                }
                handle.post(move || unparker.unpark()).unwrap();
            });
            assert_eq!(s.run(), Ok(Progress::Closed));
            assert_eq!(parked.join().unwrap(), Ok(()));
            thread.join().unwrap();
        });
    }
}

// contract: O1
#[test]
fn posts_are_in_the_figures() {
    Scheduler::anchor(|s| {
        let handle = s.handle();
        let seen = Arc::new(AtomicUsize::new(usize::MAX));
        let inside = (handle.clone(), seen.clone());
        handle
            .post(move || {
                let (handle, seen) = inside;
                let posts = handle
                    .stats()
                    .map_or(usize::MAX, |stats| stats.posts as usize);
                seen.store(posts, Relaxed);
            })
            .unwrap();
        handle.post(|| ()).unwrap();
        assert_eq!(handle.stats().unwrap().posts, 2);
        s.run().unwrap();
        assert_eq!(
            seen.load(Relaxed),
            1,
            "the one that runs has left its place"
        );
        assert_eq!(handle.stats().unwrap().posts, 0);
    });
}
