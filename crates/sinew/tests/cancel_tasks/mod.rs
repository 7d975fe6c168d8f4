//! The waits of pools and groups, for the table of cancels.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sinew::future::Promise;
use sinew::task::{TaskContext, TaskGroup, TaskPool};
use sinew::time::now;
use sinew::{CancelToken, ErrorKind};

use super::{End, HOUR, Operation, Row, Until};

pub(super) const ROWS: [Row; 5] = [
    ("pool submit", submitting),
    ("pool wait", draining),
    ("group wait", awaiting_group),
    ("group wait with a token", awaiting_group_with_a_token),
    ("future wait with a token", awaiting_future_with_a_token),
];

/// A pool of which everything ends with the operation.
struct Pool {
    pool: TaskPool,
    is_open: Arc<AtomicBool>,
}

impl Pool {
    /// One whose only worker is busy until the pool is opened or cancelled, and whose queue is full.
    fn full() -> Rc<Self> {
        let pool = TaskPool::builder().threads(1).queue_limit(1).build();
        let this = Self {
            pool: pool.unwrap(),
            is_open: Arc::default(),
        };
        let is_open = this.is_open.clone();
        this.pool
            .submit(move |context: &TaskContext<'_>| {
                while !context.is_cancelled() && !is_open.load(Ordering::Relaxed) {
                    std::thread::yield_now();
                }
            })
            .unwrap();
        while this.pool.stats().running == 0 {
            std::thread::yield_now();
        }
        this.pool.submit(|_| ()).unwrap();
        Rc::new(this)
    }

    /// Lets the worker do all that is there, and waits for that without a wait of the runtime's.
    fn open(&self) {
        self.is_open.store(true, Ordering::Relaxed);
        while self.pool.stats().completed < 2 {
            std::thread::yield_now();
        }
        // The last end is published when the worker has taken what comes next, or sleeps.
        while self.pool.stats().is_closed && !self.pool.is_drained() {
            std::thread::yield_now();
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.pool.cancel("the operation is over");
    }
}

fn submitting() -> Operation {
    let pool = Pool::full();
    let theirs = pool.clone();
    Operation::new(move |until| {
        let task = |_: &TaskContext<'_>| ();
        let submitted = match until {
            Until::Forever => theirs.pool.submit(task),
            Until::Hour => theirs.pool.submit_timeout(HOUR, task),
            Until::Zero => theirs.pool.submit_timeout(Duration::ZERO, task),
            Until::Past => theirs
                .pool
                .submit_deadline(now() - Duration::from_millis(1), task),
        };
        match submitted.map_err(|refused| refused.kind()) {
            Ok(_) => End::Done,
            Err(ErrorKind::Cancelled) => End::Cancelled,
            Err(ErrorKind::Timeout) => End::TimedOut,
            Err(other) => panic!("ended with {other:?}"),
        }
    })
    .by(move || pool.open())
}

fn draining() -> Operation {
    let pool = Pool::full();
    pool.pool.close();
    let theirs = pool.clone();
    Operation::new(move |until| call!(until, theirs.pool, wait, wait_timeout, wait_deadline).into())
        .by(move || pool.open())
}

fn awaiting_group() -> Operation {
    let group = TaskGroup::new();
    let (promise, future) = Promise::<()>::new();
    group.add(&future).unwrap();
    let promise = Cell::new(Some(promise));
    Operation::new(move |until| call!(until, group, wait, wait_timeout, wait_deadline).into())
        .by(move || promise.take().unwrap().resolve(()).unwrap())
}

/// A token in the place of a limit. One that has fired fails a wait just as a cancel of the waiting party does, so limits that are over are no
/// matter of these rows.
macro_rules! call_with_token {
    ($until:expr, $receiver:expr) => {
        match $until {
            Until::Forever => $receiver.wait_cancel(&CancelToken::new()),
            Until::Hour => $receiver.wait_cancel(&CancelToken::with_timeout(HOUR)),
            Until::Zero => $receiver.wait_timeout(Duration::ZERO),
            Until::Past => $receiver.wait_deadline(now() - Duration::from_millis(1)),
        }
    };
}

fn awaiting_group_with_a_token() -> Operation {
    let group = TaskGroup::new();
    let (promise, future) = Promise::<()>::new();
    group.add(&future).unwrap();
    let promise = Cell::new(Some(promise));
    Operation::new(move |until| call_with_token!(until, group).into())
        .by(move || promise.take().unwrap().resolve(()).unwrap())
}

fn awaiting_future_with_a_token() -> Operation {
    let (promise, future) = Promise::<()>::new();
    let promise = Cell::new(Some(promise));
    Operation::new(move |until| call_with_token!(until, future).into())
        .by(move || promise.take().unwrap().resolve(()).unwrap())
}
