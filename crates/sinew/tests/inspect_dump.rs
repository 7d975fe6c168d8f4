//! Dumps as text and JSON, and deadlocks: what is reported, and what must not be.

use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use sinew::inspect::{State, deadlocks, dump, find};
use sinew::sync::Mutex;
use sinew::{Builder, CancelToken, JoinHandle, WaitError, run, scope, spawn_local, yield_now};

#[path = "inspect_json/mod.rs"]
mod json;

const HOUR: Duration = Duration::from_secs(3600);

fn settle() {
    for _ in 0..10 {
        yield_now().unwrap();
    }
}

// contract: O5
#[test]
fn alike_waits_are_folded_and_counted() {
    run(|| {
        let mutex = Rc::new(Mutex::new(()));
        let held = mutex.lock().unwrap();
        let me = sinew::current().unwrap().id();
        let lockers: Vec<_> = (0..40)
            .map(|_| {
                let mutex = mutex.clone();
                spawn_local(move || mutex.lock().map(drop))
            })
            .collect();
        let sleeper = Builder::new()
            .name("the \"quoted\"\n\u{1}\\ one")
            .spawn_local(|| sinew::sleep(HOUR))
            .unwrap();
        settle();
        let dump = dump();
        let of = |id: u64| {
            let group = dump
                .groups()
                .iter()
                .find(|group| group.members().iter().any(|info| info.id == id));
            group.unwrap()
        };
        assert_eq!(of(lockers[0].id()).members().len(), 40);
        assert_eq!(of(sleeper.id()).members().len(), 1);
        assert_eq!(of(me).members()[0].state, State::Running);

        let text = dump.to_string();
        assert!(
            text.contains("40 coroutines suspended in mutex 0x"),
            "{text}"
        );
        assert!(text.contains(&format!("#{}", sleeper.id())), "{text}");
        assert!(
            text.contains(&format!("held by #{me} when that began")),
            "{text}"
        );
        let (first, last) = (lockers[0].id(), lockers[39].id());
        assert!(
            text.contains(&format!("  #{first} to #{last}, child of #{me}, for ")),
            "{text}"
        );
        assert!(text.contains("inspect_dump.rs:"), "{text}");
        assert!(text.contains(", until in 3"), "{text}");
        assert!(text.contains(r#""the \"quoted\"\n\u{1}\\ one""#), "{text}");

        let json = dump.to_json();
        assert_eq!(json::check(&json), Ok(""), "{json}");
        assert!(json.contains(r#""name":"the \"quoted\"\n\u0001\\ one""#));
        assert!(json.contains("\"count\":40,\"state\":\"suspended\""));
        assert!(json.contains(&format!("\"owner\":{me}")));
        for handle in &lockers {
            assert!(json.contains(&format!("\"id\":{},", handle.id())));
        }
        sleeper.cancel("end");
        drop(held);
    });
}

// contract: O5
#[test]
fn a_dump_is_taken_from_another_thread_of_one_that_never_yields() {
    static STOP: AtomicBool = AtomicBool::new(false);
    let (tell, told) = mpsc::channel();
    let busy = std::thread::spawn(move || {
        run(move || {
            let parked: Vec<_> = (0..10).map(|_| spawn_local(sinew::park)).collect();
            settle();
            tell.send(sinew::current().unwrap().id()).unwrap();
            while !STOP.load(Relaxed) {
                std::hint::spin_loop();
            }
            for one in parked {
                one.cancel("end");
            }
        });
    });
    let spinner = told.recv().unwrap();
    let dump = dump();
    STOP.store(true, Relaxed);
    let mut groups = dump.groups().iter();
    let found = groups.find(|group| group.members().iter().any(|info| info.id == spinner));
    assert_eq!(found.unwrap().members()[0].state, State::Running);
    assert!(
        dump.groups()
            .iter()
            .any(|group| group.members().len() == 10 && group.members()[0].parent == Some(spinner))
    );
    assert_eq!(json::check(&dump.to_json()), Ok(""));
    busy.join().unwrap();
}

/// Locks `first`, then, when all are that far, `second`.
fn philosopher(
    name: &str,
    first: &Rc<Mutex<()>>,
    second: &Rc<Mutex<()>>,
    lock: impl FnOnce(&Mutex<()>) -> Result<(), WaitError> + 'static,
) -> JoinHandle<Result<(), WaitError>> {
    let (first, second) = (first.clone(), second.clone());
    let body = move || {
        let _first = first.lock()?;
        yield_now()?;
        lock(&second)
    };
    Builder::new().name(name).spawn_local(body).unwrap()
}

/// Deadlocks are looked for in the whole process, so those tests run one at a time.
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    ALONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// A way to take a lock and give it back.
type Lock = fn(&Mutex<()>) -> Result<(), WaitError>;

fn plainly(mutex: &Mutex<()>) -> Result<(), WaitError> {
    mutex.lock().map(drop)
}

// contract: S25
#[test]
fn a_cycle_of_mutexes_is_reported_with_each_member_while_others_go_on() {
    let _alone = alone();
    run(|| {
        let listener = sinew::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let accepting = spawn_local(move || listener.accept().map(drop));
        let timer = spawn_local(|| sinew::sleep(HOUR));
        let forks: Vec<_> = (0..5).map(|_| Rc::new(Mutex::new(()))).collect();
        let table: Vec<_> = (0..5)
            .map(|n| philosopher(&format!("p{n}"), &forks[n], &forks[(n + 1) % 5], plainly))
            .collect();
        settle();
        let cycles = deadlocks();
        assert_eq!(cycles.len(), 1, "{cycles:?}");
        let members = cycles[0].members();
        assert_eq!(members.len(), 5);
        for (n, member) in members.iter().enumerate() {
            assert_eq!(member.wait.what, "mutex");
            assert_eq!(member.wait.owner, Some(members[(n + 1) % 5].id));
            assert!(member.spawned_at.file().ends_with("inspect_dump.rs"));
        }
        let text = cycles[0].to_string();
        for handle in &table {
            assert!(text.contains(&format!("#{} ", handle.id())), "{text}");
        }
        assert!(dump().to_string().contains("deadlock of 5:"));
        assert_eq!(json::check(&dump().to_json()), Ok(""));

        table[2].cancel("gives way");
        settle();
        assert!(deadlocks().is_empty(), "it is over");
        accepting.cancel("end");
        timer.cancel("end");
    });
}

// contract: S25
#[test]
fn a_cycle_through_mutex_join_and_scope_is_reported() {
    let _alone = alone();
    run(|| {
        let mutex = Rc::new(Mutex::new(()));
        // The holder waits for its scope, the child for a third one's end, the third one for the mutex.
        let third = Rc::new(spawn_local({
            let mutex = mutex.clone();
            move || {
                yield_now()?;
                plainly(&mutex)
            }
        }));
        let holder = spawn_local({
            let (mutex, third) = (mutex.clone(), third.clone());
            move || {
                let _held = mutex.lock().unwrap();
                scope(|s| {
                    drop(s.spawn(|| ()));
                    drop(s.spawn(|| third.wait()));
                });
            }
        });
        settle();
        let cycles = deadlocks();
        assert_eq!(cycles.len(), 1, "{cycles:?}");
        let mut kinds: Vec<_> = cycles[0].members().iter().map(|m| m.wait.what).collect();
        kinds.sort_unstable();
        assert_eq!(kinds, ["join", "mutex", "scope"]);
        third.cancel("gives way");
        holder.join().unwrap();
        assert!(deadlocks().is_empty());
    });
}

// contract: S25
#[test]
fn another_thread_asks_a_scheduler_whose_coroutines_all_wait() {
    let _alone = alone();
    let (tell, told) = mpsc::channel();
    let stuck = std::thread::spawn(move || {
        sinew::Scheduler::anchor(|scheduler| {
            let (left, right) = (Rc::new(Mutex::new(())), Rc::new(Mutex::new(())));
            let one = philosopher("one", &left, &right, plainly);
            let other = philosopher("other", &right, &left, plainly);
            tell.send((scheduler.handle(), one.cancel_token())).unwrap();
            assert!(scheduler.run().is_ok());
            assert_eq!(one.join().unwrap(), Err(WaitError::Cancelled));
            other.join().unwrap().unwrap();
        });
    });
    let (scheduler, token) = told.recv().unwrap();
    let found = loop {
        let (answer, answered) = mpsc::channel();
        let ask = move || answer.send(deadlocks()).unwrap();
        scheduler.post(ask).unwrap();
        let found = answered.recv().unwrap();
        if !found.is_empty() {
            break found;
        }
    };
    assert_eq!(found[0].members().len(), 2);
    token.cancel("gives way");
    stuck.join().unwrap();
}

// contract: S25
#[test]
fn a_wait_with_a_deadline_is_in_no_cycle() {
    let _alone = alone();
    run(|| {
        let (left, right) = (Rc::new(Mutex::new(())), Rc::new(Mutex::new(())));
        let escapes: [Lock; 2] = [
            |mutex| mutex.lock_timeout(HOUR).map(drop),
            |mutex| sinew::timeout(HOUR, || plainly(mutex)).unwrap_or(Ok(())),
        ];
        for escape in escapes {
            let one = philosopher("one", &left, &right, plainly);
            let other = philosopher("other", &right, &left, escape);
            settle();
            assert_eq!(find(other.id()).unwrap().wait.unwrap().what, "mutex");
            assert!(deadlocks().is_empty());
            other.cancel("end");
            one.join().unwrap().unwrap();
        }
        // A token with a deadline is one, too.
        let token = CancelToken::with_timeout(HOUR);
        let one = philosopher("one", &left, &right, plainly);
        let other = Builder::new()
            .cancel_parent(&token.child())
            .spawn_local({
                let (left, right) = (left.clone(), right.clone());
                move || {
                    let _right = right.lock()?;
                    yield_now()?;
                    plainly(&left)
                }
            })
            .unwrap();
        settle();
        assert_eq!(find(other.id()).unwrap().wait.unwrap().what, "mutex");
        assert!(deadlocks().is_empty());
        token.cancel("end");
        one.join().unwrap().unwrap();
    });
}

// contract: S25
#[test]
#[cfg(not(sinew_shuffle))] // It is about who comes first.
fn a_mutex_that_has_changed_hands_makes_no_cycle() {
    let _alone = alone();
    run(|| {
        let (m, n) = (Rc::new(Mutex::new(())), Rc::new(Mutex::new(())));
        let first_owner = spawn_local({
            let (m, n) = (m.clone(), n.clone());
            move || {
                let held = m.lock().unwrap();
                yield_now().unwrap();
                yield_now().unwrap();
                drop(held);
                plainly(&n)
            }
        });
        let next_owner = spawn_local({
            let m = m.clone();
            move || {
                let _held = m.lock().unwrap();
                sinew::park()
            }
        });
        let waiter = spawn_local({
            let (m, n) = (m.clone(), n.clone());
            move || {
                let _held = n.lock().unwrap();
                plainly(&m)
            }
        });
        settle();
        // By the records alone the two wait for each other.
        let wait = |id| find(id).unwrap().wait.unwrap();
        assert_eq!(wait(waiter.id()).owner, Some(first_owner.id()));
        assert_eq!(wait(first_owner.id()).owner, Some(waiter.id()));
        assert_eq!(wait(next_owner.id()).what, "park");
        assert!(deadlocks().is_empty());
        next_owner.unparker().unpark();
        waiter.join().unwrap().unwrap();
        first_owner.join().unwrap().unwrap();
    });
}

// contract: S25
#[test]
fn nothing_is_reported_in_a_storm_without_a_deadlock() {
    let _alone = alone();
    let mutexes: Arc<Vec<Mutex<u64>>> = Arc::new((0..4).map(Mutex::new).collect());
    let storm = |mutexes: Arc<Vec<Mutex<u64>>>| {
        move || {
            run(|| {
                let mutexes = &mutexes;
                scope(|s| {
                    for n in 0..8 {
                        s.spawn(move || {
                            for round in 0..200 {
                                // Always in the same order.
                                let low = mutexes[(n + round) % 3].lock().unwrap();
                                if round % 3 == 0 {
                                    yield_now().unwrap();
                                }
                                let high = mutexes[(n + round) % 3 + 1].lock().unwrap();
                                spawn_local(|| ()).join().unwrap();
                                drop(low);
                                drop(high);
                            }
                        });
                    }
                    s.spawn(|| {
                        for _ in 0..500 {
                            let found = deadlocks();
                            assert!(found.is_empty(), "{found:?}");
                            yield_now().unwrap();
                        }
                    });
                });
            });
        }
    };
    let threads = [
        std::thread::spawn(storm(mutexes.clone())),
        std::thread::spawn(storm(mutexes)),
    ];
    while threads.iter().any(|thread| !thread.is_finished()) {
        let found = deadlocks();
        assert!(found.is_empty(), "{found:?}");
    }
    for thread in threads {
        thread.join().unwrap();
    }
}
