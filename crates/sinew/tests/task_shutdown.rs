//! Pools, groups, schedulers and workers that are dropped in every order: all ends cleanly, every task ends once, and what it owned is dropped
//! once.

mod group_rig;
mod pool_rig;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use group_rig::Counted;
use sinew::Scheduler;
use sinew::future::{PromiseState, SharedFuture};
use sinew::task::{Outcome, TaskContext, TaskGroup, TaskPool, Worker};

const HOUR: Duration = Duration::from_secs(3600);

/// Every order of four.
fn orders() -> Vec<[usize; 4]> {
    let mut orders = Vec::new();
    for a in 0..4 {
        for b in 0..4 {
            for c in 0..4 {
                let order = [a, b, c, 6 - (a + b + c).min(6)];
                let is_order = (0..4).all(|n| order.contains(&n));
                if is_order {
                    orders.push(order);
                }
            }
        }
    }
    orders
}

/// One of each, with tasks of the group in all of them: one that runs, one that waits.
struct Everything {
    group: Option<TaskGroup>,
    pool: Option<TaskPool>,
    worker: Option<Worker>,
    futures: Vec<SharedFuture<()>>,
    created: Arc<AtomicUsize>,
    drops: Arc<AtomicUsize>,
}

impl Everything {
    fn new(scheduler: &sinew::SchedulerHandle) -> Self {
        let mut this = Self {
            group: Some(TaskGroup::new()),
            pool: Some(TaskPool::builder().threads(1).build().unwrap()),
            worker: Some(Worker::new().unwrap()),
            futures: Vec::new(),
            created: Arc::default(),
            drops: Arc::default(),
        };
        let (group, pool) = (this.group.take().unwrap(), this.pool.take().unwrap());
        let worker = this.worker.take().unwrap();
        for _ in 0..2 {
            // The first of the pool's runs until it is asked to stop, or for a moment.
            let futures = [
                group.submit(&pool, this.until_stopped()).unwrap(),
                group.spawn_on(scheduler, this.parked()).unwrap(),
                group.on_worker(&worker, this.short()).unwrap(),
                group.on_worker_after(&worker, HOUR, this.short()).unwrap(),
            ];
            this.futures.extend(futures);
        }
        (this.group, this.pool, this.worker) = (Some(group), Some(pool), Some(worker));
        this
    }

    fn data(&self) -> Counted {
        self.created.fetch_add(1, SeqCst);
        Counted(self.drops.clone())
    }

    fn short(&self) -> impl FnOnce(&TaskContext<'_>) -> Outcome<()> + Send + 'static {
        let data = self.data();
        move |_| {
            drop(data);
            Outcome::Success(())
        }
    }

    fn parked(&self) -> impl FnOnce(&TaskContext<'_>) -> Outcome<()> + Send + 'static {
        let data = self.data();
        move |_| {
            let _data = data;
            sinew::park().into()
        }
    }

    fn until_stopped(&self) -> impl FnOnce(&TaskContext<'_>) -> Outcome<()> + Send + 'static {
        let data = self.data();
        move |context| {
            let _data = data;
            let _asked = context
                .cancel_token()
                .wait_timeout(Duration::from_millis(3));
            Outcome::Success(())
        }
    }

    fn drop_one(&mut self, which: usize) {
        match which {
            0 => drop(self.group.take()),
            1 => drop(self.pool.take()),
            _ => drop(self.worker.take()),
        }
    }

    fn check(self, order: [usize; 4]) {
        for future in &self.futures {
            assert!(
                future.wait_timeout(Duration::from_secs(60)).is_ok(),
                "{order:?}"
            );
            assert_ne!(future.state(), PromiseState::Closed, "{order:?}");
            let end = future.end().unwrap();
            assert!(end.has_started.is_some());
        }
        assert_eq!(
            self.drops.load(SeqCst),
            self.created.load(SeqCst),
            "{order:?}"
        );
    }
}

// contract: T10, T14, T18, T19
#[test]
fn everything_ends_whatever_is_dropped_first() {
    let orders = orders();
    assert_eq!(orders.len(), 24);
    for order in orders {
        // The scheduler is the fourth: it goes with its anchor.
        let place = order.iter().position(|&which| which == 3).unwrap();
        let mut everything = Scheduler::anchor(|s| {
            let mut everything = Everything::new(&s.handle());
            let _some_ran = s.step();
            order[..place]
                .iter()
                .for_each(|&which| everything.drop_one(which));
            everything
        });
        order[place + 1..]
            .iter()
            .for_each(|&which| everything.drop_one(which));
        everything.check(order);
    }
}

// contract: T10, T14, T18, T19
#[test]
fn the_same_from_within_a_coroutine() {
    for order in [
        [0, 1, 2],
        [0, 2, 1],
        [1, 0, 2],
        [1, 2, 0],
        [2, 0, 1],
        [2, 1, 0],
    ] {
        let everything = sinew::run(|| {
            let handle = sinew::SchedulerHandle::current().unwrap();
            let mut everything = Everything::new(&handle);
            sinew::yield_now().unwrap();
            // The group is what asks the parked ones to stop; the rest goes meanwhile or after.
            order.iter().for_each(|&which| everything.drop_one(which));
            everything
        });
        let [a, b, c] = order;
        everything.check([a, b, c, 3]);
    }
}

// contract: T14
#[test]
fn what_a_pool_or_a_group_waits_for_can_be_asked() {
    let pool = pool_rig::pool(1, 4);
    let gate = pool_rig::Gate::new(&pool);
    let group = TaskGroup::new();
    let _queued = group.submit(&pool, |_| ()).unwrap();
    group.close();
    pool.close();
    assert!(pool.wait_timeout(Duration::ZERO).is_err());
    assert!(group.wait_timeout(Duration::ZERO).is_err());
    // It says what holds it.
    assert_eq!((pool.stats().running, pool.stats().queued), (1, 1));
    assert_eq!(group.stats().active, 1);
    gate.open();
    group_rig::settled(&group);
    pool_rig::settled(&pool);
}
