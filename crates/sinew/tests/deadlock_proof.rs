//! Schedulers on which nothing can ever go on: what ends them, and all that must not be taken for it.
//!
//! Each of the hostile cases sleeps for several times as long as it takes until somebody looks, and is then woken in a way that no
//! look inside of the scheduler could foresee.

use std::cell::RefCell;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::{Arc, Barrier, Mutex as StdMutex, mpsc};
use std::thread;
use std::time::Duration;

use sinew::event::Event;
use sinew::inspect::{Deadlock, deadlocks};
use sinew::net::TcpListener;
use sinew::sync::channel::bounded;
use sinew::sync::{Mutex, MutexGuard, WaitGroup};
use sinew::{
    Builder, CancelToken, RunError, Scheduler, SchedulerHandle, WaitError, current, go_local, park,
    run, scope, shield, sleep, spawn_local, try_run, yield_now,
};

/// Longer than it takes until somebody looks, and until the second look.
const LONG: Duration = Duration::from_millis(150);

fn deadlock_of<T: std::fmt::Debug>(result: Result<T, RunError>) -> Box<Deadlock> {
    match result {
        Err(RunError::Deadlock(deadlock)) => deadlock,
        other => panic!("{other:?} instead of a deadlock"),
    }
}

/// Two coroutines that lock two mutexes in opposite orders.
fn embrace() -> (Rc<Mutex<()>>, Rc<Mutex<()>>) {
    let (left, right) = (Rc::new(Mutex::new(())), Rc::new(Mutex::new(())));
    for (first, second) in [(&left, &right), (&right, &left)] {
        let (first, second) = (first.clone(), second.clone());
        go_local(move || {
            let _first = first.lock()?;
            yield_now()?;
            second.lock().map(drop)
        });
    }
    (left, right)
}

/// What another thread does after a while, outside of anything a scheduler knows.
fn later(f: impl FnOnce() + Send + 'static) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        // Not to wait for anything: the time itself is what is tested.
        thread::park_timeout(LONG);
        f();
    })
}

// contract: S25
#[test]
fn a_cycle_ends_the_run_with_a_report_of_all_members() {
    let deadlock = deadlock_of(try_run(|| {
        let _mutexes = embrace();
        // Waits for one of them.
        let waiter = Builder::new().name("bystander").spawn_local(move || {
            let (left, _) = embrace();
            yield_now()?;
            yield_now()?;
            left.lock().map(drop)
        });
        drop(waiter);
    }));
    assert_eq!(deadlock.cycles().len(), 2, "{deadlock}");
    assert_eq!(deadlock.others().len(), 1, "{deadlock}");
    let text = deadlock.to_string();
    assert_eq!(text.matches("deadlock of 2:").count(), 2, "{text}");
    assert!(
        text.contains("\"bystander\" waits in mutex for #"),
        "{text}"
    );
    assert_eq!(text.matches("spawned at ").count(), 5, "{text}");
    assert_eq!(text.matches("deadlock_proof.rs").count(), 5, "{text}");
}

#[test]
fn the_first_coroutine_was_spawned_where_run_was_called() {
    let line = line!() + 1;
    let deadlock = deadlock_of(try_run(|| {
        let mutex = Mutex::new(());
        let _held = mutex.lock();
        drop(mutex.lock());
    }));
    let text = deadlock.to_string();
    assert!(
        text.contains(&format!("deadlock_proof.rs:{line}:")),
        "{text}"
    );
}

// contract: S25
#[test]
fn run_panics_with_the_report() {
    let payload = std::panic::catch_unwind(|| {
        run(|| {
            let _mutexes = embrace();
        });
    })
    .unwrap_err();
    let text = payload.downcast_ref::<String>().unwrap();
    assert!(text.contains("deadlock of 2:"), "{text}");
}

// contract: S25
#[test]
fn someone_that_nobody_can_unpark_ends_the_run() {
    let deadlock = deadlock_of(try_run(park));
    assert!(deadlock.cycles().is_empty());
    assert_eq!(deadlock.others().len(), 1);
    let text = deadlock.to_string();
    assert!(text.contains("waits in park"), "{text}");
    assert!(text.contains("nobody can unpark it"), "{text}");

    // With those who wait for it.
    let deadlock = deadlock_of(try_run(|| {
        let lock = Rc::new(Mutex::new(()));
        let held = lock.clone();
        go_local(move || {
            let _held = held.lock()?;
            park()
        });
        yield_now().unwrap();
        go_local(move || lock.lock().map(drop));
        spawn_local(park).join().unwrap().unwrap_err()
    }));
    assert_eq!(deadlock.others().len(), 4, "{deadlock}");
}

// contract: S25
#[test]
fn the_panics_that_the_end_leads_to_give_way_to_the_report() {
    let deadlock = deadlock_of(try_run(|| {
        let _mutexes = embrace();
        go_local(|| -> () {
            spawn_local(park)
                .join()
                .unwrap()
                .expect("cancelled with the rest");
        });
    }));
    assert_eq!(deadlock.cycles().len(), 1);
}

// contract: S25
#[test]
fn a_cycle_over_two_threads_ends_one_of_the_runs_at_least() {
    let mutexes = Arc::new((Mutex::new(()), Mutex::new(())));
    let both = Arc::new(Barrier::new(2));
    let side = |swapped: bool| {
        let (mutexes, both) = (mutexes.clone(), both.clone());
        move || {
            try_run(move || {
                let (first, second) = match swapped {
                    false => (&mutexes.0, &mutexes.1),
                    true => (&mutexes.1, &mutexes.0),
                };
                let _first = first.lock().unwrap();
                both.wait();
                second.lock().map(drop)
            })
        }
    };
    let (one, other) = (thread::spawn(side(false)), thread::spawn(side(true)));
    let results = [one.join().unwrap(), other.join().unwrap()];
    let mut found = 0;
    for result in results {
        match result {
            Err(RunError::Deadlock(deadlock)) => {
                assert_eq!(deadlock.cycles()[0].members().len(), 2, "{deadlock}");
                found += 1;
            }
            // The other one's end gave it the mutex.
            other => assert!(matches!(other, Ok(Ok(()))), "{other:?}"),
        }
    }
    assert!(found >= 1);
}

// contract: S25
#[test]
fn a_cycle_through_mutexes_and_scopes_of_three_threads_is_seen_from_a_fourth() {
    let mutexes: Arc<Vec<Mutex<()>>> = Arc::new((0..3).map(|_| Mutex::new(())).collect());
    let all = Arc::new(Barrier::new(3));
    let (tell, told) = mpsc::channel();
    let threads: Vec<_> = (0..3)
        .map(|n| {
            let (mutexes, all, tell) = (mutexes.clone(), all.clone(), tell.clone());
            thread::spawn(move || {
                run(|| {
                    // Keeps the run from ending by itself.
                    let (_sender, receiver) = bounded::<()>(1);
                    go_local(move || receiver.recv().map_or(Ok(()), |()| Err(WaitError::State)));
                    let result = spawn_local(move || {
                        let _mine = mutexes[n].lock().unwrap();
                        all.wait();
                        let next = &mutexes[(n + 1) % 3];
                        scope(|s| {
                            let child = s.spawn(|| next.lock().map(drop));
                            tell.send(current().unwrap().cancel_token()).unwrap();
                            drop(child);
                        });
                    })
                    .join();
                    drop(_sender);
                    result.unwrap();
                });
            })
        })
        .collect();
    let tokens: Vec<CancelToken> = (0..3).map(|_| told.recv().unwrap()).collect();
    let cycle = loop {
        if let Some(cycle) = deadlocks()
            .into_iter()
            .find(|cycle| cycle.members().len() == 6)
        {
            break cycle;
        }
        thread::yield_now();
    };
    let kinds: Vec<_> = cycle
        .members()
        .iter()
        .map(|member| member.wait.what)
        .collect();
    assert_eq!(kinds.iter().filter(|kind| **kind == "mutex").count(), 3);
    assert_eq!(kinds.iter().filter(|kind| **kind == "scope").count(), 3);
    tokens[0].cancel("gives way");
    for thread in threads {
        thread.join().unwrap();
    }
}

// contract: S25
#[test]
fn an_unparker_on_a_plain_thread_keeps_the_report_away() {
    run(|| {
        let unparker = current().unwrap().unparker();
        let thread = later(move || unparker.unpark());
        assert_eq!(park(), Ok(()));
        thread.join().unwrap();
    });
}

// contract: S25
#[test]
fn so_does_a_token_and_one_above_it() {
    run(|| {
        let token = current().unwrap().cancel_token();
        let thread = later(move || token.cancel("enough"));
        assert_eq!(park(), Err(WaitError::Cancelled));
        thread.join().unwrap();
    });
    let parent = CancelToken::new();
    let above = parent.clone();
    run(move || {
        let child = Builder::new()
            .cancel_parent(&parent)
            .spawn_local(park)
            .unwrap();
        drop(parent);
        let thread = later(move || above.cancel("enough"));
        assert_eq!(child.join().unwrap(), Err(WaitError::Cancelled));
        thread.join().unwrap();
    });
    // One that fires by itself.
    run(|| {
        let token = CancelToken::with_timeout(LONG);
        let child = Builder::new()
            .cancel_parent(&token)
            .spawn_local(park)
            .unwrap();
        assert_eq!(child.join().unwrap(), Err(WaitError::Cancelled));
    });
}

// contract: S25
#[test]
fn so_does_a_handle_of_the_one_who_is_parked() {
    run(|| {
        let (tell, told) = mpsc::channel();
        let child = spawn_local(park);
        let thread = later(move || {
            let child: sinew::JoinHandle<Result<(), WaitError>> = told.recv().unwrap();
            child.unparker().unpark();
            drop(child);
        });
        tell.send(child).unwrap();
        park_until_ended(thread);
    });
}

/// Parks until the thread has ended, which unparks when it has.
fn park_until_ended(thread: thread::JoinHandle<()>) {
    let unparker = current().unwrap().unparker();
    thread::spawn(move || {
        thread.join().unwrap();
        unparker.unpark();
    });
    park().unwrap();
}

// contract: S25
#[test]
fn so_does_a_post_that_is_about_to_arrive() {
    run(|| {
        let handle = SchedulerHandle::current().unwrap();
        let id = current().unwrap().id();
        let thread = later(move || {
            handle
                .post(move || sinew::cancel_id(id, "posted").unwrap())
                .unwrap()
        });
        assert_eq!(park(), Err(WaitError::Cancelled));
        thread.join().unwrap();
    });
}

// contract: S25
#[test]
fn so_do_a_timer_and_a_listener() {
    run(|| {
        let main = current().unwrap().unparker();
        go_local(move || {
            sleep(LONG)?;
            main.unpark();
            Ok::<(), WaitError>(())
        });
        assert_eq!(park(), Ok(()));
        // A cycle goes on beside it, and is reported, but ends nothing.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (one, other) = (Rc::new(Mutex::new(())), Rc::new(Mutex::new(())));
        let stuck: Vec<_> = [(&one, &other), (&other, &one)]
            .map(|(first, second)| {
                let (first, second) = (first.clone(), second.clone());
                spawn_local(move || {
                    let _first = first.lock()?;
                    yield_now()?;
                    second.lock().map(drop)
                })
            })
            .into();
        let thread = later(move || drop(std::net::TcpStream::connect(address).unwrap()));
        listener.accept().unwrap();
        thread.join().unwrap();
        assert_eq!(deadlocks_of(stuck[0].id()), 1);
        stuck[0].cancel("over");
    });
}

fn deadlocks_of(id: u64) -> usize {
    deadlocks()
        .iter()
        .filter(|cycle| cycle.members().iter().any(|member| member.id == id))
        .count()
}

// contract: S25
#[test]
fn so_do_events_channels_and_wait_groups_whoever_may_reach_them() {
    static EVENT: Event = Event::auto();
    let thread = later(|| EVENT.set());
    run(|| EVENT.wait().unwrap());
    thread.join().unwrap();

    let (sender, receiver) = bounded(1);
    let thread = later(move || sender.send(7).unwrap());
    assert_eq!(run(move || receiver.recv()), Ok(7));
    thread.join().unwrap();

    let group = Arc::new(WaitGroup::new());
    group.add(1);
    let other = group.clone();
    let thread = later(move || other.done());
    run(move || group.wait().unwrap());
    thread.join().unwrap();
}

// contract: S25
#[test]
fn so_does_a_mutex_that_a_thread_holds() {
    let mutex = Arc::new(Mutex::new(0));
    let (locked, is_locked) = mpsc::channel();
    let thread = thread::spawn({
        let mutex = mutex.clone();
        move || {
            let held = mutex.lock().unwrap();
            locked.send(()).unwrap();
            thread::park_timeout(LONG);
            drop(held);
        }
    });
    is_locked.recv().unwrap();
    run(|| drop(mutex.lock().unwrap()));
    thread.join().unwrap();
}

// contract: S25
#[test]
fn so_does_a_join_of_another_threads_coroutine_that_sleeps() {
    let (tell, told) = mpsc::channel();
    let thread = thread::spawn(move || {
        run(|| {
            tell.send(spawn_local(|| sleep(LONG))).unwrap();
        });
    });
    let other = told.recv().unwrap();
    run(|| other.join().unwrap().unwrap());
    thread.join().unwrap();
}

// contract: S25
#[test]
fn a_guard_that_was_given_to_another_coroutine_makes_no_deadlock() {
    run(|| {
        let (m, n): (&'static Mutex<()>, &'static Mutex<()>) =
            (Box::leak(Box::default()), Box::leak(Box::default()));
        let guard: Rc<RefCell<Option<MutexGuard<'static, ()>>>> = Rc::default();
        let unparker = Arc::new(StdMutex::new(None));
        // By the owners' ids these two wait for each other.
        let giver = spawn_local({
            let guard = guard.clone();
            move || {
                *guard.borrow_mut() = Some(m.lock().unwrap());
                yield_now().unwrap();
                n.lock().map(drop)
            }
        });
        let other = spawn_local(move || {
            let _held = n.lock().unwrap();
            yield_now().unwrap();
            m.lock().map(drop)
        });
        let keeper = spawn_local({
            let unparker = unparker.clone();
            move || {
                *unparker.lock().unwrap() = Some(current().unwrap().unparker());
                park().unwrap();
                drop(guard.take());
            }
        });
        let thread = later(move || unparker.lock().unwrap().take().unwrap().unpark());
        giver.join().unwrap().unwrap();
        other.join().unwrap().unwrap();
        keeper.join().unwrap();
        thread.join().unwrap();
    });
}

// contract: S25
#[test]
fn a_shielded_wait_and_one_with_a_deadline_are_told_apart() {
    // The deadline ends it; the one that is left behind is found then, and not before.
    let ended = std::cell::Cell::new(false);
    let deadlock = deadlock_of(try_run(|| {
        let child = sinew::timeout(LONG, || spawn_local(park).join().map(drop));
        ended.set(child.is_err());
    }));
    assert!(ended.get());
    assert_eq!(deadlock.others().len(), 1, "{deadlock}");
    assert!(deadlock.others()[0].waiting >= LONG, "{deadlock}");
    // A shield keeps nothing from ending that a reference could end.
    run(|| {
        let unparker = current().unwrap().unparker();
        let thread = later(move || unparker.unpark());
        shield(park).unwrap();
        thread.join().unwrap();
    });
}

// contract: S25
#[test]
fn a_scheduler_that_is_run_by_hand_goes_on_sleeping() {
    let (tell, told) = mpsc::channel::<SchedulerHandle>();
    let thread = thread::spawn(move || {
        let handle = told.recv().unwrap();
        thread::park_timeout(LONG);
        handle.stop();
    });
    Scheduler::anchor(|scheduler| {
        let child = spawn_local(park);
        tell.send(scheduler.handle()).unwrap();
        scheduler.run().unwrap();
        assert!(!child.is_finished(), "it can still be unparked from here");
        child.unparker().unpark();
        scheduler.run().unwrap();
        assert_eq!(child.join().unwrap(), Ok(()));
    });
    thread.join().unwrap();
}

// contract: S25
#[test]
fn wakes_at_every_moment_of_the_look_are_never_lost() {
    // The unparks come around the time at which the looks do.
    let stress = std::env::var("SINEW_STRESS").map_or(1, |n| n.parse::<u32>().unwrap());
    for round in 0..20 * stress {
        let result = try_run(|| {
            let unparker = current().unwrap().unparker();
            let thread = thread::spawn(move || {
                thread::park_timeout(Duration::from_micros(19_500 + u64::from(round % 20) * 60));
                unparker.unpark();
            });
            park().unwrap();
            thread.join().unwrap();
        });
        assert!(result.is_ok(), "{result:?}");
    }
}

// contract: S25
#[test]
fn a_descriptor_waited_for_keeps_the_report_away() {
    let (reader, writer) = sinew::io::pipe().unwrap();
    let thread = later(move || {
        assert_eq!(sinew::io::write(&writer, b"x", None).unwrap(), 1);
    });
    run(|| {
        let mut byte = [0];
        assert_eq!(sinew::io::read(reader.as_fd(), &mut byte, None).unwrap(), 1);
    });
    thread.join().unwrap();
}

// contract: S25
#[test]
fn a_guard_that_was_given_away_on_another_thread_makes_no_deadlock_either() {
    let (m, n): (&'static Mutex<()>, &'static Mutex<()>) =
        (Box::leak(Box::default()), Box::leak(Box::default()));
    let (given, is_given) = mpsc::channel();
    let (hold, is_held) = mpsc::channel::<()>();
    let there = thread::spawn(move || {
        run(|| {
            let guard: Rc<RefCell<Option<MutexGuard<'static, ()>>>> = Rc::default();
            let (kept, unparker) = (guard.clone(), current().unwrap().unparker());
            let giver = spawn_local(move || {
                *kept.borrow_mut() = Some(m.lock().unwrap());
                given.send(()).unwrap();
                is_held.recv().unwrap();
                n.lock().map(drop)
            });
            // This one keeps the guard, and another thread wakes it.
            let waker = later(move || unparker.unpark());
            park().unwrap();
            drop(guard.take());
            giver.join().unwrap().unwrap();
            waker.join().unwrap();
        });
    });
    is_given.recv().unwrap();
    // By the owners' ids this one and the giver wait for each other, and nobody else is on this thread.
    run(|| {
        let _held = n.lock().unwrap();
        hold.send(()).unwrap();
        drop(m.lock().unwrap());
    });
    there.join().unwrap();
}

thread_local! {
    /// Where a coroutine of this thread leaves a guard for whatever else runs on it.
    static KEPT: RefCell<Option<MutexGuard<'static, ()>>> = const { RefCell::new(None) };
}

fn leak() -> &'static Mutex<()> {
    Box::leak(Box::default())
}

// contract: S25
#[test]
fn a_post_that_drops_a_guard_makes_no_deadlock() {
    let (tell, told) = mpsc::channel::<SchedulerHandle>();
    let thread = thread::spawn(move || {
        let handle = told.recv().unwrap();
        thread::park_timeout(LONG);
        handle.post(|| drop(KEPT.take())).unwrap();
    });
    run(|| {
        let (m, n) = (leak(), leak());
        // By the owners' ids these two wait for each other, and nobody else is here.
        let giver = spawn_local(move || {
            KEPT.set(Some(m.lock().unwrap()));
            yield_now().unwrap();
            n.lock().map(drop)
        });
        let other = spawn_local(move || {
            let _held = n.lock().unwrap();
            yield_now().unwrap();
            m.lock().map(drop)
        });
        tell.send(SchedulerHandle::current().unwrap()).unwrap();
        other.join().unwrap().unwrap();
        giver.join().unwrap().unwrap();
    });
    thread.join().unwrap();
}

// contract: S25
#[test]
fn what_runs_a_scheduler_by_hand_can_drop_a_guard_too() {
    let (m, n) = (leak(), leak());
    let (given, is_given) = mpsc::channel();
    let (hold, is_held) = mpsc::channel::<()>();
    let there = thread::spawn(move || {
        Scheduler::anchor(|scheduler| {
            let giver = spawn_local(move || {
                KEPT.set(Some(m.lock().unwrap()));
                given.send(()).unwrap();
                is_held.recv().unwrap();
                n.lock().map(drop)
            });
            scheduler.step().unwrap();
            thread::park_timeout(LONG);
            drop(KEPT.take());
            scheduler.run().unwrap();
            giver.join().unwrap().unwrap();
        });
    });
    is_given.recv().unwrap();
    run(|| {
        let _held = n.lock().unwrap();
        hold.send(()).unwrap();
        drop(m.lock().unwrap());
    });
    there.join().unwrap();
}
