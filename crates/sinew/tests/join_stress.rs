//! Joins of every kind against ends of every kind, on the coroutine's own thread and on others: each result is taken or dropped once, and
//! nothing of a coroutine stays.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod chance_rig;

use std::cell::RefCell;
use std::hint::spin_loop;
use std::panic::resume_unwind;
use std::rc::Rc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicI64, AtomicUsize};
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::Duration;

use chance_rig::Chance;
use sinew::sync::channel::{Sender, unbounded};
use sinew::sync::select::Selector;
use sinew::time::now;
use sinew::{
    Builder, JoinHandle, RunError, coroutine_local, run, sleep, spawn_local, try_run, yield_now,
};

/// Counted while it lives; its drop may wait, or panic.
struct Value {
    alive: Arc<AtomicI64>,
    deed: usize,
}

impl Value {
    fn new(alive: &Arc<AtomicI64>, deed: usize) -> Self {
        alive.fetch_add(1, SeqCst);
        Self {
            alive: alive.clone(),
            deed,
        }
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, SeqCst);
        match self.deed {
            1 => _ = yield_now(),
            2 => _ = sleep(Duration::from_micros(20)),
            3 if !thread::panicking() => resume_unwind(Box::new("in the drop")),
            _ => {}
        }
    }
}

coroutine_local! {
    /// Dropped at the coroutine's end, after its result is there; the drop may wait.
    static LATE: RefCell<Vec<Value>> = RefCell::new(Vec::new());
}

fn child(chance: &mut Chance, alive: &Arc<AtomicI64>) -> impl FnOnce() -> Value + Send + 'static {
    let (body, late, deed) = (chance.below(7), chance.below(6), chance.below(4));
    let pause = chance.moment();
    let value = Value::new(alive, deed);
    let alive = alive.clone();
    move || {
        if late < 4 {
            LATE.with(|values| values.borrow_mut().push(Value::new(&alive, late)));
        }
        match body {
            0 => {}
            1 => _ = yield_now(),
            2 => _ = sleep(pause),
            3 => (0..10).for_each(|_| _ = yield_now()),
            4 => _ = sinew::park_timeout(pause),
            5 => {
                let _ = yield_now();
                resume_unwind(Box::new("of the body"));
            }
            _ => drop(spawn_local(|| _ = yield_now()).join()),
        }
        value
    }
}

/// What is done with a handle on the coroutine's own thread or another.
fn finish(chance: &mut Chance, handle: JoinHandle<Value>) {
    match chance.below(40) % 12 {
        0 | 1 => drop(handle.join()),
        2 => drop(handle.join_timeout(chance.moment())),
        3 => drop(handle),
        4 => {
            let _ = handle.wait_timeout(chance.moment());
            drop(handle.join_timeout(chance.moment()));
        }
        5 => {
            handle.cancel("finish");
            drop(handle.join());
        }
        6 => {
            {
                let arm = handle.wait_arm();
                let mut selector = Selector::new();
                selector.add(&arm);
                let _ = selector.wait_timeout(chance.moment());
            }
            drop(handle.join());
        }
        7 => {
            let shared = Arc::new(handle);
            let other = shared.clone();
            let thread = thread::spawn(move || _ = other.wait_timeout(Duration::from_micros(50)));
            let _ = shared.wait_timeout(chance.moment());
            if !sinew::in_coroutine() {
                thread.join().unwrap();
            }
            if let Some(handle) = Arc::into_inner(shared) {
                drop(handle.join());
            }
        }
        _ => drop(handle.join()),
    }
}

fn caught(f: impl FnOnce()) {
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f));
}

type Sent = (JoinHandle<Value>, u64);

/// Reports of joiners that were left waiting: nobody here waits for what does not come.
static STUCK: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn serve(mut chance: Chance, alive: &Arc<AtomicI64>, others: &Sender<Sent>) -> Vec<Weak<str>> {
    let mut names = Vec::new();
    let until = now() + Duration::from_millis(700);
    while now() < until {
        caught(|| {
            let ended = try_run(|| {
                let pending = Rc::new(RefCell::new(Vec::new()));
                for _ in 0..chance.below(200) {
                    let child = child(&mut chance, alive);
                    let handle = Builder::new().name("it").spawn_local(child).unwrap();
                    names.extend(handle.name().map(|name| Arc::downgrade(&name)));
                    match chance.below(4) {
                        0 => drop(others.send((handle, chance.next()))),
                        1 => {
                            let mut chance = chance.fork();
                            let is_cancelled = chance.below(3) == 0;
                            let joiner =
                                spawn_local(move || caught(|| finish(&mut chance, handle)));
                            if is_cancelled {
                                joiner.cancel("joiner");
                            }
                            pending.borrow_mut().push(joiner);
                        }
                        _ => caught(|| finish(&mut chance, handle)),
                    }
                    if chance.below(20) == 0 {
                        pending
                            .take()
                            .into_iter()
                            .for_each(|joiner| drop(joiner.join()));
                    }
                }
                if chance.below(10) == 0 {
                    let _ = sinew::exit_all(1);
                }
            });
            if let Err(RunError::Deadlock(deadlock)) = ended {
                STUCK.lock().unwrap().push(deadlock.to_string());
            }
        });
    }
    names
}

// contract: S14
#[test]
fn results_go_once_whoever_joins_how() {
    sinew::inspect::on_unhandled(Some(Box::new(|_| {})));
    let alive = Arc::new(AtomicI64::new(0));
    let mut chance = Chance::new();
    let (sender, receiver) = unbounded::<Sent>();
    let names = thread::scope(|scope| {
        let servers = [(); 2].map(|()| {
            let (chance, alive, sender) = (chance.fork(), &alive, sender.clone());
            scope.spawn(move || serve(chance, alive, &sender))
        });
        drop(sender);
        // One plain thread, and one scheduler.
        let other = receiver.clone();
        scope.spawn(move || {
            while let Ok((handle, seed)) = other.recv() {
                caught(|| finish(&mut Chance::of(seed), handle));
            }
        });
        scope.spawn(move || {
            caught(|| {
                run(|| {
                    while let Ok((handle, seed)) = receiver.recv() {
                        drop(spawn_local(move || {
                            caught(|| finish(&mut Chance::of(seed), handle))
                        }));
                    }
                });
            });
        });
        servers.map(|server| server.join().unwrap())
    });
    assert_eq!(*STUCK.lock().unwrap(), [""; 0]);
    assert_eq!(alive.load(SeqCst), 0);
    // A name goes with the last reference to its coroutine.
    let is_left = |name: &&Weak<str>| name.strong_count() > 0;
    assert_eq!(names.iter().flatten().filter(is_left).count(), 0);
}

/// How often the two meet.
const MEETINGS: usize = 50_000;

/// Waits for another thread, which may have to run on this processor; gives up where the other never comes.
fn meet(is_there: impl Fn() -> bool) {
    let until = now() + Duration::from_secs(30);
    let mut looks = 0_u32;
    while !is_there() {
        looks += 1;
        if looks.is_multiple_of(200) {
            thread::yield_now();
            assert!(now() < until, "the other side is stuck");
        }
        spin_loop();
    }
}

fn pause(pauses: usize) {
    (0..pauses).for_each(|_| spin_loop());
}

/// The ends of one thread's coroutines against what another thread does with their handles, at the same moment, give or take a few
/// instructions.
// contract: S14
#[test]
fn what_ends_is_joined_waited_for_and_dropped_at_the_same_moment() {
    let alive = Arc::new(AtomicI64::new(0));
    let (sender, receiver) = std::sync::mpsc::sync_channel::<(JoinHandle<Value>, [usize; 3])>(1);
    let (begun, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let other = {
        let (begun, done) = (begun.clone(), done.clone());
        move || {
            for (meeting, (handle, [what, mine, theirs])) in (1..).zip(receiver) {
                // The coroutine is there already, and goes on at this.
                meet(|| begun.load(SeqCst) == 2 * meeting - 1);
                begun.store(2 * meeting, SeqCst);
                pause(mine + theirs % 2);
                match what {
                    0 => drop(handle),
                    1 => assert!(handle.join().is_ok()),
                    _ => {
                        handle.wait().unwrap();
                        drop(handle);
                    }
                }
                done.store(meeting, SeqCst);
            }
        }
    };
    let mut chance = Chance::new();
    let thread = thread::spawn(other);
    run(|| {
        for meeting in 1..=MEETINGS {
            let [what, mine, theirs] = [3, 12, 12].map(|below| chance.below(below));
            let (value, begun) = (Value::new(&alive, 0), begun.clone());
            let handle = spawn_local(move || {
                begun.store(2 * meeting - 1, SeqCst);
                meet(|| begun.load(SeqCst) == 2 * meeting);
                pause(theirs);
                value
            });
            sender.send((handle, [what, mine, theirs])).unwrap();
            yield_now().unwrap();
            meet(|| done.load(SeqCst) == meeting);
        }
        drop(sender);
    });
    thread.join().unwrap();
    assert_eq!(
        alive.load(SeqCst),
        0,
        "results that are left, or dropped twice"
    );
}
