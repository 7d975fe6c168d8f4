//! Workers: tasks on the loop of a thread that runs a scheduler, now, after a delay and at an instant.

mod group_rig;

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use group_rig::{check, counted, rounds, settled, until};
use sinew::future::{PromiseState, SharedFuture, TaskError};
use sinew::task::{self, CancelOn, Outcome, TaskContext, TaskGroup, Worker};
use sinew::time::now;
use sinew::{CancelToken, Error, ErrorKind, WaitError, run, sleep, spawn_local, yield_now};

const HOUR: Duration = Duration::from_secs(3600);

fn kind_of<T>(future: &SharedFuture<T>) -> Option<ErrorKind> {
    match future.get()? {
        Err(TaskError::Failed(error)) => Some(error.kind()),
        _ => None,
    }
}

/// Keeps the worker's loop busy until it is opened or dropped.
fn gate(worker: &Worker) -> mpsc::Sender<()> {
    let (open, opened) = mpsc::channel();
    let (say, said) = mpsc::channel();
    worker
        .submit(move |_| {
            say.send(()).unwrap();
            let _opened = opened.recv();
        })
        .unwrap();
    said.recv().unwrap();
    open
}

// contract: T19
#[test]
fn a_task_runs_on_the_chosen_workers_plain_stack() {
    let workers = ["left", "right"].map(|name| Worker::builder().name(name).build().unwrap());
    for worker in &workers {
        let look = |context: &TaskContext<'_>| {
            assert!(!sinew::in_coroutine());
            assert_eq!(sinew::park(), Err(WaitError::State));
            assert_eq!(yield_now(), Err(WaitError::State));
            let local = context.worker().unwrap();
            assert_eq!(Some(local.handle().name()), thread::current().name());
            Outcome::Success(local.handle().name().to_owned())
        };
        for future in [
            worker.submit(look).unwrap(),
            worker.submit_after(Duration::ZERO, look).unwrap(),
            worker.submit_at(now(), look).unwrap(),
        ] {
            future.wait().unwrap();
            assert_eq!(future.get().unwrap().unwrap(), worker.name());
            assert_eq!(future.end().unwrap().has_started, Some(true));
        }
    }
    let elsewhere = task::Task::new(|context: &TaskContext<'_>| {
        assert!(context.worker().is_none());
    });
    elsewhere.0.run();
    assert_eq!(elsewhere.1.state(), PromiseState::Resolved);
}

// contract: T19
#[test]
fn a_buffer_is_used_again() {
    let worker = Worker::builder().buffer_size(100).build().unwrap();
    let first = worker
        .submit(|context: &TaskContext<'_>| {
            let local = context.worker().unwrap();
            assert_eq!(local.kept_buffers(), 0);
            let (mut one, two) = (local.buffer(), local.buffer());
            one[99] = 7;
            assert_eq!((one.len(), two.len()), (100, 100));
            let address = one.as_ptr().addr();
            drop(two);
            drop(one);
            assert_eq!(local.kept_buffers(), 2);
            Outcome::Success(address)
        })
        .unwrap();
    first.wait().unwrap();
    let second = worker
        .submit_after(Duration::ZERO, |context: &TaskContext<'_>| {
            let buffer = context.worker().unwrap().buffer();
            assert_eq!(buffer[99], 7, "nothing is cleared");
            Outcome::Success(buffer.as_ptr().addr())
        })
        .unwrap();
    second.wait().unwrap();
    assert_eq!(
        first.get().unwrap().unwrap(),
        second.get().unwrap().unwrap()
    );
    // It goes on in a coroutine of the worker, and comes back from there.
    let carried = worker
        .submit(|context: &TaskContext<'_>| {
            let local = context.worker().unwrap();
            let mut buffer = local.buffer();
            sinew::go_local(move || {
                yield_now()?;
                buffer[0] = 1;
                Ok::<_, WaitError>(())
            });
            Outcome::Success(local.kept_buffers())
        })
        .unwrap();
    carried.wait().unwrap();
    assert_eq!(carried.get().unwrap().unwrap(), &1);
    until(|| {
        let kept = worker.submit(|context: &TaskContext<'_>| {
            Outcome::Success(context.worker().unwrap().kept_buffers())
        });
        let kept = kept.unwrap();
        kept.wait().unwrap();
        kept.get().unwrap().unwrap() == &2
    });
}

// contract: T19
#[test]
fn none_runs_before_its_time_and_all_run_in_the_order_of_their_times() {
    let worker = Worker::new().unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let open = gate(&worker);
    let begin = now();
    let at = move |millis: u64| begin + Duration::from_millis(millis);
    let futures = [9, 3, 6, 3].map(|millis| {
        let order = order.clone();
        worker
            .submit_at(at(millis), move |_| {
                assert!(now() >= at(millis), "early");
                order.lock().unwrap().push(millis);
            })
            .unwrap()
    });
    drop(open);
    for future in futures {
        future.wait().unwrap();
        assert_eq!(future.state(), PromiseState::Resolved);
    }
    assert_eq!(*order.lock().unwrap(), [3, 3, 6, 9]);
}

// contract: T19
#[test]
fn an_earlier_task_wakes_a_worker_that_sleeps_for_a_later_one() {
    let worker = Worker::new().unwrap();
    let late = worker.submit_after(HOUR, |_| ()).unwrap();
    // It sleeps by now, or is about to.
    yield_to(&worker);
    let soon = worker
        .submit_after(Duration::from_millis(1), |_| ())
        .unwrap();
    soon.wait().unwrap();
    assert_eq!(late.state(), PromiseState::Pending);
    assert_eq!(worker.stats().delayed, 1);
}

fn yield_to(worker: &Worker) {
    worker.submit(|_| ()).unwrap().wait().unwrap();
}

// contract: T19
#[test]
fn a_cancel_takes_the_timer_out_and_drops_the_data_on_the_worker_before_the_end() {
    let worker = Worker::builder().name("home").build().unwrap();
    let (say, said) = mpsc::channel();
    struct Home(mpsc::Sender<Option<String>>);
    impl Drop for Home {
        fn drop(&mut self) {
            let name = thread::current().name().map(str::to_owned);
            self.0.send(name).unwrap();
        }
    }
    let data = Home(say);
    let parent = CancelToken::new();
    let group = TaskGroup::new();
    let future = group
        .on_worker_after(&worker, HOUR, move |_| {
            let _data = &data;
            panic!("it runs");
            #[expect(unreachable_code, reason = "gives the closure its type")]
            Outcome::Success(())
        })
        .unwrap();
    let stats = worker.stats();
    assert_eq!(stats.delayed, 1);
    future.on_done(move |_| parent.cancel("ended"));
    future.cancel("not needed");
    future.wait().unwrap();
    assert_eq!(
        said.try_recv().unwrap().as_deref(),
        Some("home"),
        "the data was gone before the end"
    );
    assert_eq!(worker.stats().delayed, 0);
    let end = future.end().unwrap();
    assert_eq!(
        (end.state, end.has_started),
        (PromiseState::Cancelled, Some(false))
    );
    assert_eq!(&*end.cause.unwrap().reason, "not needed");
    assert_eq!(settled(&group).cancelled, 1);
}

// contract: T19
#[test]
fn one_cancelled_before_its_turn_never_runs() {
    let worker = Worker::new().unwrap();
    let open = gate(&worker);
    let (data, drops) = counted();
    let task = move |_: &TaskContext<'_>| -> Outcome<()> {
        let _data = &data;
        panic!("it runs")
    };
    let now_task = worker.submit(task).unwrap();
    // Due already, and cancelled while the worker is busy.
    let due = worker
        .submit_after(Duration::ZERO, |_| -> Outcome<()> { panic!("it runs") })
        .unwrap();
    now_task.cancel("before");
    due.cancel("before");
    assert_eq!(drops.load(SeqCst), 0, "the worker ends it");
    drop(open);
    for future in [now_task, due] {
        future.wait().unwrap();
        assert_eq!(future.state(), PromiseState::Cancelled);
        assert_eq!(future.end().unwrap().has_started, Some(false));
    }
    assert_eq!(drops.load(SeqCst), 1);
}

// contract: T19
#[test]
fn a_stop_lets_those_for_now_run_and_fails_those_for_later() {
    let worker = Worker::new().unwrap();
    let handle = worker.handle();
    let open = gate(&worker);
    let group = TaskGroup::new();
    let immediate: Vec<_> = (0..10_u32)
        .map(|n| {
            group
                .on_worker(&worker, move |_| Outcome::Success(n))
                .unwrap()
        })
        .collect();
    let (data, drops) = counted();
    let delayed = group
        .on_worker_after(&worker, HOUR, move |_| drop(data))
        .unwrap();
    let cancelled = group.on_worker_after(&worker, HOUR, |_| ()).unwrap();
    assert!(worker.stop());
    assert!(!worker.stop(), "once only");
    cancelled.cancel("as well");
    let (data, refused_drops) = counted();
    let task = move |_: &TaskContext<'_>| drop(data);
    let refused = handle.submit(task).unwrap_err();
    assert!(refused.is_closed());
    let refused = handle.submit_after(HOUR, refused.into_inner()).unwrap_err();
    assert!(refused.is_closed());
    let refused = handle.submit_at(now(), refused.into_inner()).unwrap_err();
    let refused = group.on_worker_at(&handle, now(), refused.into_inner());
    let refused = refused.unwrap_err();
    assert!(refused.is_closed());
    assert_eq!(refused_drops.load(SeqCst), 0, "the task came back");
    drop(open);
    worker.join().unwrap();
    for (future, n) in immediate.iter().zip(0..) {
        assert_eq!(future.get().unwrap().unwrap(), &n);
    }
    assert_eq!(kind_of(&delayed), Some(ErrorKind::Closed));
    assert_eq!(delayed.end().unwrap().has_started, Some(false));
    assert_eq!(cancelled.state(), PromiseState::Cancelled);
    assert_eq!(drops.load(SeqCst), 1);
    assert!(handle.submit(refused.into_inner()).unwrap_err().is_closed());
    let stats = settled(&group);
    assert_eq!(
        (
            stats.succeeded,
            stats.failed,
            stats.cancelled,
            stats.rejected
        ),
        (10, 1, 1, 1)
    );
}

// contract: T19
#[test]
fn a_full_worker_refuses_for_now_and_gives_the_task_back() {
    let worker = Worker::builder()
        .queue_limit(1)
        .delayed_limit(2)
        .build()
        .unwrap();
    let open = gate(&worker);
    let group = TaskGroup::new();
    let queued = group.on_worker(&worker, |_| ()).unwrap();
    let refused = group
        .on_worker(&worker, |_| Outcome::Success(1))
        .unwrap_err();
    assert!(refused.is_again());
    let one = worker.submit_after(HOUR, |_| ()).unwrap();
    let _two = worker.submit_after(HOUR, |_| ()).unwrap();
    let refused = group
        .on_worker_after(&worker, Duration::ZERO, refused.into_inner())
        .unwrap_err();
    assert!(refused.is_again());
    drop(open);
    queued.wait().unwrap();
    one.cancel("make room");
    one.wait().unwrap();
    let taken = group
        .on_worker_after(&worker, Duration::ZERO, refused.into_inner())
        .unwrap();
    taken.wait().unwrap();
    assert_eq!(taken.get().unwrap().unwrap(), &1);
    let stats = settled(&group);
    assert_eq!((stats.accepted, stats.rejected), (2, 2));
}

// contract: T19
#[test]
fn a_group_that_refuses_touches_neither_the_worker_nor_the_task() {
    let worker = Worker::new().unwrap();
    let group = TaskGroup::builder().limit(1).build();
    let held = group.on_worker_after(&worker, HOUR, |_| ()).unwrap();
    let (data, drops) = counted();
    let task = move |_: &TaskContext<'_>| drop(data);
    let refused = group.on_worker(&worker, task).unwrap_err();
    assert!(refused.is_again());
    group.close();
    let refused = group
        .on_worker_after(&worker, HOUR, refused.into_inner())
        .unwrap_err();
    assert!(refused.is_closed());
    assert_eq!((worker.stats().delayed, drops.load(SeqCst)), (1, 0));
    group.cancel("over");
    held.wait().unwrap();
    assert_eq!(worker.stats().delayed, 0);
    assert_eq!(settled(&group).cancelled, 1);
}

// contract: T19, T7
#[test]
fn a_groups_cancel_ends_its_timers() {
    let worker = Worker::new().unwrap();
    let group = TaskGroup::builder().cancel_on(CancelOn::FAILED).build();
    for _ in 0..100 {
        group.on_worker_after(&worker, HOUR, |_| ()).unwrap();
    }
    group
        .on_worker_after(&worker, Duration::from_millis(1), |_| {
            Err::<(), _>(Error::new(ErrorKind::Invalid, "oops"))
        })
        .unwrap();
    let stats = settled(&group);
    assert_eq!((stats.failed, stats.cancelled), (1, 100));
    assert_eq!(worker.stats().delayed, 0);
}

// contract: T19
#[test]
fn a_panic_of_a_task_is_its_failure_and_the_worker_goes_on() {
    let worker = Worker::new().unwrap();
    let panics = |_: &TaskContext<'_>| -> Outcome<()> { panic!("no such luck") };
    let one = worker.submit(panics).unwrap();
    let two = worker.submit_after(Duration::ZERO, panics).unwrap();
    for future in [one, two] {
        future.wait().unwrap();
        assert_eq!(kind_of(&future), Some(ErrorKind::Panic));
    }
    yield_to(&worker);
    worker.join().unwrap();
}

// contract: T19
#[test]
fn a_coroutine_of_a_worker_runs_between_its_tasks() {
    let worker = Worker::new().unwrap();
    let slept = task::spawn_on(worker.scheduler(), |_| {
        sleep(Duration::from_millis(2))?;
        Ok::<_, Error>(thread::current().id())
    })
    .unwrap();
    let ids: Vec<_> = (0..50)
        .map(|n| {
            worker
                .submit_after(Duration::from_micros(n * 100), |_| {
                    Outcome::Success(thread::current().id())
                })
                .unwrap()
        })
        .collect();
    slept.wait().unwrap();
    let home = *slept.get().unwrap().unwrap();
    for id in ids {
        id.wait().unwrap();
        assert_eq!(id.get().unwrap().unwrap(), &home);
    }
    assert_ne!(home, thread::current().id());
}

// contract: T19
#[test]
fn a_task_hands_its_own_worker_the_next_one_and_may_stop_it() {
    let worker = Worker::new().unwrap();
    let (say, said) = mpsc::channel();
    worker
        .submit(move |context: &TaskContext<'_>| {
            let handle = context.worker().unwrap().handle().clone();
            let ours = handle.clone();
            handle
                .submit_after(Duration::from_millis(1), move |_| {
                    ours.stop();
                    say.send("both ran").unwrap();
                })
                .unwrap();
        })
        .unwrap();
    assert_eq!(said.recv().unwrap(), "both ran");
    until(|| worker.stats().is_stopped);
    worker.join().unwrap();
}

// contract: T19
#[test]
fn a_worker_dropped_on_its_own_thread_ends_by_itself() {
    let worker = Worker::builder().name("orphan").build().unwrap();
    let handle = worker.handle();
    let (give, given) = mpsc::channel::<Worker>();
    let dropper = worker.submit(move |_| drop(given.recv().unwrap())).unwrap();
    give.send(worker).unwrap();
    dropper.wait().unwrap();
    until(|| handle.submit(|_| ()).is_err());
    assert!(handle.submit_after(HOUR, |_| ()).unwrap_err().is_closed());
}

// contract: T19
#[test]
fn a_worker_is_joined_in_a_coroutine_while_others_go_on() {
    let worker = Worker::new().unwrap();
    let open = gate(&worker);
    run(|| {
        let joiner = spawn_local(move || worker.join().unwrap());
        yield_now().unwrap();
        assert!(!joiner.is_finished());
        drop(open);
        joiner.join().unwrap();
    });
}

// contract: T19
#[test]
fn what_is_out_of_range_is_refused() {
    for builder in [
        Worker::builder().name("nul\0"),
        Worker::builder().buffer_size((1 << 30) + 1),
    ] {
        assert_eq!(builder.build().unwrap_err().kind(), ErrorKind::Invalid);
    }
    let vain = Worker::builder().stack_size(1 << 46).build().unwrap_err();
    assert_eq!(vain.message(), "starting the thread of a worker");
}

// contract: T19, T9
#[test]
fn every_task_ends_once_whatever_comes_at_the_same_time() {
    for round in 0..rounds(30) {
        let worker = Worker::builder().delayed_limit(40).build().unwrap();
        let group = Arc::new(TaskGroup::builder().limit(50).build());
        let (created, drops) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let submitters: Vec<_> = (0..3_usize)
            .map(|who| {
                let (handle, group) = (worker.handle(), group.clone());
                let (created, drops) = (created.clone(), drops.clone());
                thread::spawn(move || {
                    let mut taken = 0_u64;
                    for n in 0..60_usize {
                        let data = group_rig::Counted(drops.clone());
                        created.fetch_add(1, SeqCst);
                        let task = move |_: &TaskContext<'_>| drop(data);
                        let delay = Duration::from_micros(((n * 7 + who) % 5 * 200) as u64);
                        let submitted = match n % 3 {
                            0 => group.on_worker(&handle, task),
                            1 => group.on_worker_after(&handle, delay, task),
                            _ => group.on_worker_at(&handle, now() + delay, task),
                        };
                        if let Ok(future) = submitted {
                            taken += 1;
                            if (n + round) % 4 == 0 {
                                future.cancel("at random");
                            }
                        }
                        check(group.stats());
                    }
                    taken
                })
            })
            .collect();
        if round % 3 == 0 {
            // So many are always taken: the places of the group are more.
            until(|| group.stats().accepted > round as u64 % 30);
            worker.stop();
        }
        if round % 5 == 0 {
            group.cancel("over");
        }
        let taken: u64 = submitters.into_iter().map(|s| s.join().unwrap()).sum();
        worker.stop();
        let stats = settled(&group);
        worker.join().unwrap();
        assert_eq!(stats.accepted, taken);
        assert_eq!(stats.closed, 0);
        assert_eq!(drops.load(SeqCst), created.load(SeqCst));
    }
}
