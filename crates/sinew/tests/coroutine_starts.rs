//! Coroutines that start on the stacks of others that have just ended, from the stacks of others that stop: of several sizes, clean and unclean,
//! with panics, forced unwinds and control words of their own in between. Each has its stack for itself, from its start to its end.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod chance_rig;

use std::cell::Cell;
use std::hint::black_box;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use chance_rig::Chance;
use sinew::coroutine::{Coroutine, Suspender, anchor};
use sinew::{Builder, run, sleep, spawn_local, yield_now};

/// What everybody has of the test.
#[derive(Clone)]
struct Common {
    alive: Rc<Cell<i32>>,
    seed: Rc<Cell<u64>>,
}

impl Common {
    fn chance(&self) -> Chance {
        self.seed.set(self.seed.get() + 1);
        Chance::of(self.seed.get())
    }
}

struct Alive(Common, [u64; 32], u64);

impl Alive {
    fn new(common: &Common, mark: u64) -> Self {
        common.alive.set(common.alive.get() + 1);
        Self(common.clone(), black_box([mark; 32]), mark)
    }

    fn check(&self) {
        assert!(
            black_box(&self.1).iter().all(|word| *word == self.2),
            "somebody else's"
        );
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.check();
        self.0.alive.set(self.0.alive.get() - 1);
        if self.2.is_multiple_of(7) {
            let _ = yield_now();
            self.check();
        }
    }
}

fn live(common: &Common, depth: u32) {
    let mut chance = common.chance();
    let mark = chance.next();
    let here = Alive::new(common, mark);
    let other = Arc::from(format!("{mark}"));
    let name: Arc<str> = other;
    for _ in 0..chance.below(6) {
        match chance.below(12) {
            0..=4 => _ = yield_now(),
            5 => _ = sleep(chance.moment()),
            6 | 7 if depth < 4 => drop(begin(common, depth + 1)),
            8 if depth < 4 => drop(begin(common, depth + 1).join()),
            9 => {
                let child = begin(common, depth + 5);
                child.cancel("");
            }
            10 => anchor(|a| {
                let mut inner = Coroutine::new(a, |s: &Suspender<(), ()>, ()| {
                    let _here = Alive::new(common, mark + 1);
                    _ = yield_now();
                    _ = s.suspend(());
                    _ = yield_now();
                    _ = s.suspend(());
                });
                (0..chance.below(4)).for_each(|_| _ = inner.resume(()));
            }),
            11 if chance.below(8) == 0 => resume_unwind(Box::new(mark)),
            _ => {
                let child = begin(common, depth + 5);
                let _ = sinew::cancel_id_within(child.id(), "", Duration::ZERO);
            }
        }
        here.check();
        assert_eq!(&*name, format!("{mark}"));
    }
}

fn begin(common: &Common, depth: u32) -> sinew::JoinHandle<()> {
    let mut chance = common.chance();
    let mut builder = Builder::new();
    match chance.below(8) {
        0 => builder = builder.stack_size(64 * 1024),
        1 => builder = builder.stack_size(512 * 1024).pooled(false),
        2 => builder = builder.clean_stack(true),
        3 => builder = builder.fp_env(true),
        4 => builder = builder.name("it"),
        _ => {
            let common = common.clone();
            return spawn_local(move || live(&common, depth));
        }
    }
    let inside = common.clone();
    builder
        .spawn_local(move || live(&inside, depth))
        .unwrap_or_else(|_| spawn_local(|| ()))
}

#[test]
fn everybody_has_a_stack_for_himself() {
    sinew::inspect::on_unhandled(Some(Box::new(|_| {})));
    let mut chance = Chance::new();
    for round in 0..60 {
        let common = Common {
            alive: Rc::default(),
            seed: Rc::new(Cell::new(chance.next())),
        };
        let inside = common.clone();
        let _ended = catch_unwind(AssertUnwindSafe(|| {
            sinew::try_run(|| {
                for _ in 0..100 {
                    drop(begin(&inside, 0));
                    if round % 3 == 0 {
                        let _ = yield_now();
                    }
                }
                if round % 4 == 1 {
                    (0..round).for_each(|_| _ = yield_now());
                    let _ = sinew::exit_all(1);
                }
                if round % 4 == 2 {
                    (0..round).for_each(|_| _ = yield_now());
                    resume_unwind(Box::new("first"));
                }
            })
        }));
        assert_eq!(common.alive.get(), 0, "{round}");
    }
    run(|| ());
}
