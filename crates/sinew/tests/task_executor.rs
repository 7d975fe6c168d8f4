//! The parts by themselves: a user's own executor that runs the task core, and foreign futures whose ends are shared and taken into
//! groups.

mod group_rig;

use std::collections::VecDeque;
use std::future::{Future, pending, poll_fn, ready};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

use group_rig::{Counted, counted, rounds, settled};
use sinew::future::{Promise, PromiseState, SharedFuture, TaskError, shared};
use sinew::task::{CancelOn, IntoOutcome, Outcome, Task, TaskContext, TaskEnd, TaskGroup};
use sinew::{CancelToken, Error, ErrorKind, block_on};

/// The tasks, and whether no more will come.
type Pile = (Vec<Task>, bool);

/// An executor of somebody's own: a stack of tasks, the newest first, before a few threads.
struct Stack {
    shared: Arc<(Mutex<Pile>, Condvar)>,
    stop: CancelToken,
    threads: Vec<thread::JoinHandle<[u64; 3]>>,
}

/// What its tasks find in their context.
struct Lane(usize);

impl Stack {
    fn new(threads: usize) -> Self {
        let shared = Arc::new((Mutex::new(Pile::default()), Condvar::new()));
        let stop = CancelToken::new();
        let work = |number| {
            let (shared, stop) = (shared.clone(), stop.clone());
            thread::spawn(move || {
                let (state, changed) = &*shared;
                let mut ends = [0; 3];
                loop {
                    let mut guard = state.lock().unwrap();
                    let task = loop {
                        match guard.0.pop() {
                            Some(task) => break task,
                            None if guard.1 => return ends,
                            None => guard = changed.wait(guard).unwrap(),
                        }
                    };
                    drop(guard);
                    match task.run_with(&Lane(number), Some(&stop)) {
                        TaskEnd::Success => ends[0] += 1,
                        TaskEnd::Failed => ends[1] += 1,
                        TaskEnd::Cancelled => ends[2] += 1,
                    }
                }
            })
        };
        let threads = (0..threads).map(work).collect();
        Self {
            shared,
            stop,
            threads,
        }
    }

    fn submit<F, R>(&self, body: F) -> SharedFuture<R::Value>
    where
        F: FnOnce(&TaskContext<'_>) -> R + Send + 'static,
        R: IntoOutcome + 'static,
        R::Value: Send,
    {
        let (task, future) = Task::new(body);
        self.shared.0.lock().unwrap().0.push(task);
        self.shared.1.notify_one();
        future
    }

    fn join(self) -> [u64; 3] {
        self.shared.0.lock().unwrap().1 = true;
        self.shared.1.notify_all();
        let mut ends = [0; 3];
        for thread in self.threads {
            for (sum, part) in ends.iter_mut().zip(thread.join().unwrap()) {
                *sum += part;
            }
        }
        ends
    }
}

// contract: T23
#[test]
fn an_executor_of_ones_own_runs_the_task_core() {
    let stack = Stack::new(3);
    let group = TaskGroup::new();
    let (mut drops, mut futures) = (Vec::new(), Vec::new());
    for n in 0..60_usize {
        let (data, count) = counted();
        drops.push(count);
        let started = group.start(|| {
            Ok::<_, Error>(stack.submit(move |context: &TaskContext<'_>| {
                let _data = data;
                assert!(context.extra::<Lane>().unwrap().0 < 3);
                assert!(context.extra::<u8>().is_none());
                assert_eq!(context.arena().alloc_str("temporary"), "temporary");
                match n % 3 {
                    0 => Outcome::Success(n),
                    1 => Outcome::failed(),
                    _ => Outcome::Cancelled,
                }
            }))
        });
        futures.push(started.ok().unwrap());
    }
    let stats = settled(&group);
    assert_eq!(
        (stats.succeeded, stats.failed, stats.cancelled),
        (20, 20, 20)
    );
    assert_eq!(stack.join(), [20, 20, 20]);
    for (n, future) in futures.iter().enumerate() {
        assert_eq!(future.end().unwrap().has_started, Some(true));
        if n % 3 == 0 {
            assert_eq!(future.get().unwrap().unwrap(), &n);
        }
    }
    assert!(drops.iter().all(|count| count.load(SeqCst) == 1));
}

// contract: T2, T23
#[test]
fn an_executor_stops_its_own_tasks_by_its_token() {
    let stack = Stack::new(1);
    let (say, said) = mpsc::channel();
    let running = stack.submit(move |context: &TaskContext<'_>| {
        say.send(()).unwrap();
        context.cancel_token().wait().unwrap();
        Outcome::<()>::Cancelled
    });
    said.recv().unwrap();
    let queued = stack.submit(|_| -> Outcome<()> { panic!("it runs") });
    stack.stop.cancel("closing time");
    for (future, has_started) in [(running, true), (queued, false)] {
        future.wait().unwrap();
        let end = future.end().unwrap();
        assert_eq!(end.state, PromiseState::Cancelled);
        assert_eq!(end.has_started, Some(has_started));
        let cause = end.cause.unwrap();
        assert_eq!(&*cause.reason, "closing time");
        assert!(cause.from.unwrap().file().ends_with("task_executor.rs"));
    }
    assert_eq!(stack.join(), [0, 0, 2]);
}

/// Yields so many times.
async fn yields(times: usize) {
    let mut left = times;
    poll_fn(move |context| {
        if left == 0 {
            return Poll::Ready(());
        }
        left -= 1;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// A foreign executor: one thread that polls what it was given.
fn spawn(future: impl Future<Output = ()> + Send + 'static) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        struct Unpark(thread::Thread);
        impl Wake for Unpark {
            fn wake(self: Arc<Self>) {
                self.0.unpark();
            }
        }
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut future = pin!(future);
        let mut context = Context::from_waker(&waker);
        while future.as_mut().poll(&mut context).is_pending() {
            thread::park();
        }
    })
}

// contract: T4, T23
#[test]
fn foreign_futures_are_in_a_group_beside_the_others() {
    let group = TaskGroup::builder().cancel_on(CancelOn::NEVER).build();
    let mut threads = Vec::new();
    for n in 0..8_usize {
        let started = group.start(|| {
            let (driven, future) = shared(async move {
                yields(n).await;
                n
            });
            threads.push(spawn(driven));
            Ok::<_, Error>(future)
        });
        assert!(started.is_ok());
    }
    let (promise, future) = Promise::<()>::new();
    group.add(&future).unwrap();
    promise.resolve(()).unwrap();
    assert_eq!(settled(&group).succeeded, 9);
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
}

// contract: T4, T23
#[test]
fn a_cancel_of_the_group_wakes_and_drops_a_foreign_future_before_its_end() {
    let group = TaskGroup::new();
    let (data, drops) = counted();
    let (driven, future) = shared(async move {
        let _data = data;
        pending::<()>().await;
    });
    group.add(&future).unwrap();
    let seen = drops.clone();
    let (say, said) = mpsc::channel();
    future.on_done(move |_| say.send(seen.load(SeqCst)).unwrap());
    let thread = spawn(driven);
    assert!(
        group
            .wait_timeout(std::time::Duration::from_millis(2))
            .is_err()
    );
    group.cancel("enough");
    thread.join().unwrap();
    assert_eq!(said.recv().unwrap(), 1, "the data went first");
    assert_eq!(settled(&group).cancelled, 1);
    assert_eq!(&*future.end().unwrap().cause.unwrap().reason, "enough");
}

// contract: T1, T23
#[test]
fn each_end_of_a_foreign_future_is_the_shared_one() {
    // Ready at once, with two who look.
    let (driven, future) = shared(ready(7));
    let other = future.clone();
    block_on(driven).unwrap();
    assert_eq!(
        future.get().unwrap().unwrap(),
        other.get().unwrap().unwrap()
    );
    // A panic.
    let (driven, future) = shared(async { panic!("no such luck") });
    let _: &SharedFuture<()> = &future;
    block_on(driven).unwrap();
    let Some(Err(TaskError::Failed(error))) = future.get() else {
        panic!("it failed")
    };
    assert_eq!(
        (error.kind(), error.message()),
        (ErrorKind::Panic, "no such luck")
    );
    // Cancelled before it is polled: it is not.
    let (driven, future) = shared(async { panic!("it is polled") });
    let _: &SharedFuture<()> = &future;
    future.cancel("before");
    block_on(driven).unwrap();
    assert_eq!(future.state(), PromiseState::Cancelled);
    // Dropped, asked for or not.
    for is_asked in [false, true] {
        let (value, drops) = counted();
        let (driven, future) = shared(async move {
            let _value = value;
            pending::<()>().await;
        });
        if is_asked {
            future.cancel("by a wish");
        }
        drop(driven);
        let state = match is_asked {
            false => PromiseState::Closed,
            true => PromiseState::Cancelled,
        };
        assert_eq!((future.state(), drops.load(SeqCst)), (state, 1));
    }
    // Polled after its end it stays ended.
    let (driven, _future) = shared(ready(()));
    let mut driven = pin!(driven);
    let mut context = Context::from_waker(Waker::noop());
    assert!(driven.as_mut().poll(&mut context).is_ready());
    assert!(driven.as_mut().poll(&mut context).is_ready());
}

// contract: T4
#[test]
fn a_cancel_at_the_same_time_as_a_poll_is_not_lost() {
    for round in 0..rounds(200) {
        let (value, drops) = counted();
        let (driven, future) = shared(async move {
            let _value: &Counted = &value;
            yields(round % 7).await;
            pending::<()>().await;
        });
        let thread = spawn(driven);
        for _ in 0..round % 5 * 10 {
            thread::yield_now();
        }
        future.cancel("at random");
        thread.join().unwrap();
        assert_eq!(future.state(), PromiseState::Cancelled);
        assert_eq!(drops.load(SeqCst), 1);
    }
}

// contract: T1
#[test]
fn who_reads_an_end_reads_the_same_whatever_comes_after() {
    let (promise, future) = Promise::new();
    promise.resolve(1).unwrap();
    let before = future.end().unwrap();
    assert!(before.cause.is_none() && before.has_started.is_none());
    future.cancel("too late");
    future.clone().cancel("too late");
    assert!(future.cause().is_none());
    assert!(future.end().unwrap().cause.is_none());
    // Both orders of a cancel and a completion; the token that the producer keeps fires later.
    let (promise, future) = Promise::new();
    let token = promise.cancel_token();
    promise.resolve(1).unwrap();
    token.cancel("too late");
    assert!(future.end().unwrap().cause.is_none());
    let (promise, future) = Promise::new();
    future.cancel("in time");
    promise.resolve(1).unwrap();
    let end = future.end().unwrap();
    assert_eq!(end.state, PromiseState::Resolved);
    let cause = end.cause.unwrap();
    assert_eq!((&*cause.reason, cause.who), ("in time", 0));
    assert_eq!(cause.from.unwrap().file(), file!());
}

// contract: T2
#[test]
fn the_origin_of_a_cancel_goes_with_it_from_the_group_to_the_leaf() {
    let canceller = sinew::run(|| {
        let parent = TaskGroup::new();
        let child = parent.child(&TaskGroup::builder()).unwrap();
        let (promise, leaf) = Promise::<()>::new();
        child.add(&leaf).unwrap();
        let coroutine = child.spawn(|_| sinew::park()).unwrap();
        sinew::yield_now().unwrap();
        let handle = sinew::spawn_local(move || {
            parent.cancel("all of it");
            (sinew::current().unwrap().id(), line!() - 1, parent)
        });
        let (id, line, parent) = handle.join().unwrap();
        promise.cancel();
        coroutine.wait().unwrap();
        for end in [leaf.end().unwrap(), coroutine.end().unwrap()] {
            let cause = end.cause.unwrap();
            assert_eq!((&*cause.reason, cause.who), ("all of it", id));
            assert_eq!(cause.from.unwrap().line(), line);
        }
        settled(&child);
        settled(&parent);
        id
    });
    assert_ne!(canceller, 0);
    // A deadline is nobody's line.
    let token = CancelToken::with_deadline(sinew::time::now());
    assert!(token.is_cancelled());
    assert!(token.cause().unwrap().from.is_none());
}

/// What an executor's queue may be made of.
fn is_task<T: Send>(_: &VecDeque<T>) {}

#[test]
fn a_task_goes_to_another_thread() {
    is_task(&VecDeque::<Task>::new());
    let polled = AtomicUsize::new(0);
    let (driven, _future) = shared(async { polled.fetch_add(1, SeqCst) });
    block_on(driven).unwrap();
    assert_eq!(polled.load(SeqCst), 1);
    let _: Option<Pin<Box<dyn Future<Output = ()> + Send>>> = Some(Box::pin(shared(ready(1)).0));
}
