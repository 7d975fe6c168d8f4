//! What other threads tell a scheduler to do: start, stop and unpark coroutines that are named by a number, and how it is told what
//! became of a cancel.
#![expect(clippy::disallowed_methods, reason = "deadlines are points in time")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use sinew::event::Event;
use sinew::inspect::{Unhandled, find, for_each, on_unhandled};
use sinew::{
    JoinHandle, NotFound, Outcome, Scheduler, SchedulerHandle, WaitError, cancel_id,
    cancel_id_within, confirm_cancel, current, go_local, in_coroutine, park, run, shield, sleep,
    spawn_local, stopping, yield_now,
};

const HOUR: Duration = Duration::from_secs(3600);

fn rounds(n: usize) -> usize {
    n * std::env::var("SINEW_STRESS").map_or(1, |n| n.parse::<usize>().unwrap())
}

/// A scheduler on a thread of its own, which runs until it is told to end.
struct Elsewhere {
    handle: SchedulerHandle,
    end: Arc<Event>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Elsewhere {
    fn new() -> Self {
        let end = Arc::new(Event::manual());
        let (tell, told) = mpsc::channel();
        let thread = thread::spawn({
            let end = end.clone();
            move || {
                run(|| {
                    tell.send(SchedulerHandle::current().unwrap()).unwrap();
                    end.wait().unwrap();
                });
            }
        });
        Self {
            handle: told.recv().unwrap(),
            end,
            thread: Some(thread),
        }
    }

    fn thread_id(&self) -> thread::ThreadId {
        self.thread.as_ref().unwrap().thread().id()
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        self.end.set();
        let ended = self.thread.take().unwrap().join();
        assert!(ended.is_ok() || thread::panicking());
    }
}

/// Until it waits in `what`.
fn until_it_waits(id: u64, what: &str) {
    while find(id)
        .and_then(|info| info.wait)
        .is_none_or(|wait| wait.what != what)
    {
        thread::yield_now();
    }
}

// contract: S20
#[test]
fn a_coroutine_of_another_thread_is_stopped_by_its_number() {
    let elsewhere = Elsewhere::new();
    let parked = elsewhere.handle.spawn(park).unwrap();
    until_it_waits(parked.id(), "park");
    // From a plain thread.
    cancel_id(parked.id(), "by number").unwrap();
    assert_eq!(parked.join().unwrap(), Err(WaitError::Cancelled));

    let slept = elsewhere.handle.spawn(|| sleep(HOUR)).unwrap();
    // From a coroutine of another scheduler.
    run(|| {
        let me = current().unwrap().id();
        cancel_id(slept.id(), "by number, too").unwrap();
        slept.wait().unwrap();
        let record = slept.cancel_record().unwrap();
        assert_eq!(&*record.cause.reason, "by number, too");
        assert_eq!(record.cause.who, me);
    });
}

// contract: S20
#[test]
fn an_unknown_number_is_not_found_from_anywhere() {
    let elsewhere = Elsewhere::new();
    let ended = elsewhere.handle.spawn(|| ()).unwrap();
    ended.wait().unwrap();
    for id in [0, u64::MAX, ended.id()] {
        assert_eq!(cancel_id(id, "nobody"), Err(NotFound));
        assert_eq!(
            cancel_id_within(id, "nobody", Duration::ZERO),
            Err(NotFound)
        );
        assert_eq!(elsewhere.handle.unpark(id), Err(NotFound));
        run(|| {
            assert_eq!(cancel_id(id, "nobody"), Err(NotFound));
            assert_eq!(
                SchedulerHandle::current().unwrap().unpark(id),
                Err(NotFound)
            );
        });
    }
    // One of another scheduler is not this one's to unpark.
    let parked = elsewhere.handle.spawn(park).unwrap();
    run(|| {
        assert_eq!(
            SchedulerHandle::current().unwrap().unpark(parked.id()),
            Err(NotFound)
        )
    });
    elsewhere.handle.unpark(parked.id()).unwrap();
    assert_eq!(parked.join().unwrap(), Ok(()));
}

// contract: S20
#[test]
fn one_that_computes_hears_of_it_at_once() {
    let elsewhere = Elsewhere::new();
    let running = Arc::new(AtomicBool::new(false));
    let computing = elsewhere
        .handle
        .spawn({
            let running = running.clone();
            move || {
                running.store(true, Release);
                // Never gives its thread away.
                while !stopping() {
                    std::hint::spin_loop();
                }
                confirm_cancel().unwrap();
            }
        })
        .unwrap();
    while !running.load(Acquire) {
        thread::yield_now();
    }
    cancel_id(computing.id(), "stop computing").unwrap();
    computing.wait().unwrap();
    assert_eq!(computing.outcome(), Some(Outcome::Cancelled));
}

// contract: S20
#[test]
fn after_the_grace_one_that_ignores_the_cancel_is_unwound() {
    let elsewhere = Elsewhere::new();
    let refused = Arc::new(AtomicUsize::new(0));
    let deaf = elsewhere
        .handle
        .spawn({
            let refused = refused.clone();
            move || {
                loop {
                    if park().is_err() {
                        refused.fetch_add(1, Relaxed);
                    }
                }
            }
        })
        .unwrap();
    let deaf: JoinHandle<()> = deaf;
    until_it_waits(deaf.id(), "park");
    cancel_id_within(deaf.id(), "now", Duration::from_millis(20)).unwrap();
    assert!(deaf.join().unwrap_err().is_cancelled());
    assert!(refused.load(Relaxed) > 0, "it had a grace");
}

/// The hook is the process's.
static HOOK: Mutex<()> = Mutex::new(());

// contract: S20
#[test]
fn one_that_never_waits_or_swallows_every_unwind_is_reported() {
    let _alone = HOOK.lock();
    let (tell, told) = mpsc::channel();
    let tell = Mutex::new(tell);
    on_unhandled(Some(Box::new(move |failure| {
        if let Unhandled::Deaf { id, grace, .. } = failure {
            tell.lock().unwrap().send((*id, *grace)).unwrap();
        }
    })));
    let elsewhere = Elsewhere::new();
    let grace = Duration::from_millis(5);

    // It computes, and asks nothing.
    let enough = Arc::new(AtomicBool::new(false));
    let (begin, begun) = mpsc::channel();
    let computing = elsewhere
        .handle
        .spawn({
            let (enough, begin) = (enough.clone(), begin.clone());
            move || {
                begin.send(()).unwrap();
                while !enough.load(Relaxed) {
                    std::hint::spin_loop();
                }
                7
            }
        })
        .unwrap();
    begun.recv().unwrap();
    cancel_id_within(computing.id(), "stop", grace).unwrap();
    assert_eq!(told.recv().unwrap(), (computing.id(), grace));
    assert_eq!(computing.outcome(), None, "reported while it lives");
    enough.store(true, Relaxed);
    // A cancel is a wish: what returns has returned.
    assert_eq!(computing.join().unwrap(), 7);

    // It catches whatever is raised.
    let stubborn = elsewhere
        .handle
        .spawn({
            let enough = enough.clone();
            enough.store(false, Relaxed);
            move || {
                begin.send(()).unwrap();
                while !enough.load(Relaxed) {
                    drop(catch_unwind(AssertUnwindSafe(yield_now)));
                }
            }
        })
        .unwrap();
    begun.recv().unwrap();
    cancel_id_within(stubborn.id(), "stop", grace).unwrap();
    assert_eq!(told.recv().unwrap(), (stubborn.id(), grace));
    enough.store(true, Relaxed);
    drop(stubborn.join());

    // It waits behind a shield.
    let event = Arc::new(Event::manual());
    let shielded = elsewhere
        .handle
        .spawn({
            let event = event.clone();
            move || shield(|| event.wait())
        })
        .unwrap();
    until_it_waits(shielded.id(), "event");
    cancel_id_within(shielded.id(), "stop", grace).unwrap();
    assert_eq!(told.recv().unwrap(), (shielded.id(), grace));
    event.set();
    drop(shielded.join());

    // One that obeys is not.
    let obeys = elsewhere.handle.spawn(park).unwrap();
    cancel_id_within(obeys.id(), "stop", grace).unwrap();
    obeys.wait().unwrap();
    assert!(told.recv_timeout(grace * 8).is_err());
    on_unhandled(None);
}

// contract: S20
#[test]
fn stops_race_with_ends_and_never_hit_another() {
    let elsewhere = Elsewhere::new();
    let (sum, stopped) = (AtomicU64::new(0), AtomicU64::new(0));
    for _ in 0..rounds(300) {
        // Blocks are used again at once: a late order must not reach the next one.
        let innocent = elsewhere.handle.spawn(|| yield_now().is_ok()).unwrap();
        let victim = elsewhere.handle.spawn(|| ()).unwrap();
        let id = victim.id();
        let next = elsewhere.handle.spawn(|| yield_now().is_ok()).unwrap();
        match cancel_id(id, "race") {
            Ok(()) => stopped.fetch_add(1, Relaxed),
            Err(NotFound) => sum.fetch_add(1, Relaxed),
        };
        assert!(innocent.join().unwrap());
        assert!(next.join().unwrap());
        drop(victim.join());
    }
    assert_eq!(sum.into_inner() + stopped.into_inner(), rounds(300) as u64);
}

// contract: S2, S14
#[test]
fn a_coroutine_is_started_from_any_thread() {
    let elsewhere = Elsewhere::new();
    let thread = elsewhere.thread_id();
    let place = elsewhere
        .handle
        .spawn(|| {
            (
                in_coroutine(),
                thread::current().id(),
                current().unwrap().id(),
            )
        })
        .unwrap();
    let id = place.id();
    assert_eq!(place.join().unwrap(), (true, thread, id));

    // From a coroutine of another scheduler, which is its parent, and from one of its own.
    run(|| {
        let me = current().unwrap().id();
        let child = elsewhere.handle.spawn(park).unwrap();
        until_it_waits(child.id(), "park");
        assert_eq!(find(child.id()).unwrap().parent, Some(me));
        elsewhere.handle.unpark(child.id()).unwrap();
        child.join().unwrap().unwrap();
        let own = SchedulerHandle::current().unwrap().spawn(|| 5).unwrap();
        assert_eq!(own.join().unwrap(), 5);
    });

    // Large closures and results.
    let big = [7_u64; 100];
    let back = elsewhere.handle.spawn(move || big).unwrap().join().unwrap();
    assert_eq!(back, big);
    let panics = elsewhere
        .handle
        .spawn(|| -> () { panic!("over there") })
        .unwrap();
    assert!(panics.join().unwrap_err().is_panic());
}

/// Counts its drops.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Relaxed);
    }
}

// contract: S4, S8, S10
#[test]
fn a_closure_that_is_refused_comes_back_whole_and_an_accepted_one_ends_once() {
    let drops = Arc::new(AtomicUsize::new(0));
    let (handle, pending) = Scheduler::builder().post_limit(1).anchor(|scheduler| {
        let handle = scheduler.handle();
        // Takes the only place.
        let pending = {
            let counted = Counted(drops.clone());
            handle.spawn(move || drop(counted)).unwrap()
        };
        for size in [false, true] {
            let counted = Counted(drops.clone());
            let filler = [1_u8; 64];
            let refused = if size {
                handle
                    .spawn(move || {
                        drop(counted);
                        filler.len()
                    })
                    .map(drop)
                    .map_err(|error| {
                        assert!(error.is_again());
                        assert_eq!(drops.load(Relaxed), 0, "not dropped");
                        error.into_inner()();
                    })
            } else {
                handle
                    .spawn(move || drop(counted))
                    .map(drop)
                    .map_err(|error| error.into_inner()())
            };
            assert!(refused.is_err());
            assert_eq!(drops.swap(0, Relaxed), 1, "it came back and was run");
        }
        // The anchor ends with the post accepted and not run.
        (handle, pending)
    });
    assert_eq!(pending.outcome(), Some(Outcome::Cancelled));
    assert_eq!(drops.swap(0, Relaxed), 1, "dropped without being run");
    let counted = Counted(drops.clone());
    let error = handle.spawn(move || drop(counted)).unwrap_err();
    assert!(error.is_closed());
    assert_eq!(drops.load(Relaxed), 0);
    drop(error);
    assert_eq!(drops.load(Relaxed), 1);
    assert_eq!(handle.unpark(1), Err(NotFound));
}

// contract: S14
#[test]
fn many_threads_start_and_join_and_nothing_is_lost() {
    let elsewhere = Elsewhere::new();
    let (ran, dropped) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let each = rounds(400);
    let threads: Vec<_> = (0..4)
        .map(|t| {
            let (handle, ran, dropped) = (elsewhere.handle.clone(), ran.clone(), dropped.clone());
            thread::spawn(move || {
                for n in 0..each {
                    let (ran, counted) = (ran.clone(), Counted(dropped.clone()));
                    let spawned = handle.spawn(move || {
                        ran.fetch_add(1, Relaxed);
                        (n, counted)
                    });
                    let spawned = match spawned {
                        Ok(spawned) => spawned,
                        Err(error) => {
                            assert!(error.is_again());
                            continue;
                        }
                    };
                    match (n + t) % 3 {
                        0 => assert_eq!(spawned.join().unwrap().0, n),
                        1 => drop(spawned),
                        _ => match spawned.join_timeout(Duration::from_micros(20)) {
                            Ok((value, _)) => assert_eq!(value, n),
                            Err(error) => assert_eq!(error.wait_error(), Some(WaitError::Timeout)),
                        },
                    }
                }
            })
        })
        .collect();
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    drop(elsewhere);
    let ran = ran.load(Relaxed);
    assert_eq!(
        ran,
        4 * each,
        "the queue was never full: each thread has one under way, or its posts have run"
    );
    assert_eq!(dropped.load(Relaxed), ran, "every result was dropped once");
}

// contract: S14
#[test]
fn any_number_of_parties_of_all_kinds_wait_for_one_end() {
    let elsewhere = Elsewhere::new();
    let gate = Arc::new(Event::manual());
    let target = Arc::new(
        elsewhere
            .handle
            .spawn({
                let gate = gate.clone();
                move || gate.wait()
            })
            .unwrap(),
    );
    let (tell, told) = mpsc::channel();
    // Plain threads; coroutines of its own scheduler, and of another one.
    let threads: Vec<_> = (0..3)
        .map(|_| thread::spawn(waiter(target.clone(), tell.clone())))
        .collect();
    let own: Vec<_> = (0..20)
        .map(|_| {
            elsewhere
                .handle
                .spawn(waiter(target.clone(), tell.clone()))
                .unwrap()
        })
        .collect();
    let other = thread::spawn({
        let (target, tell) = (target.clone(), tell.clone());
        move || run(|| wait_with_deadlines_and_cancels(&target, &tell))
    });
    // A thread's deadline.
    assert_eq!(
        target.wait_timeout(Duration::from_millis(1)),
        Err(WaitError::Timeout)
    );
    assert_eq!(
        told.recv().unwrap(),
        Ok(()),
        "the one with deadlines and cancels is through"
    );
    gate.set();
    for _ in 0..43 {
        assert_eq!(told.recv().unwrap(), Ok(()));
    }
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    own.into_iter().for_each(|one| one.join().unwrap());
    other.join().unwrap();
    // The result is still there, for the one who takes it.
    assert_eq!(Arc::into_inner(target).unwrap().join().unwrap(), Ok(()));
}

type Ended = Result<(), WaitError>;

fn waiter(
    target: Arc<JoinHandle<Ended>>,
    tell: mpsc::Sender<Ended>,
) -> impl FnOnce() + Send + 'static {
    move || tell.send(JoinHandle::wait(&target)).unwrap()
}

/// Twenty that wait to the end, and some that do not.
fn wait_with_deadlines_and_cancels(target: &Arc<JoinHandle<Ended>>, tell: &mpsc::Sender<Ended>) {
    for _ in 0..20 {
        go_local(waiter(target.clone(), tell.clone()));
    }
    assert_eq!(
        target.wait_timeout(Duration::from_millis(1)),
        Err(WaitError::Timeout)
    );
    assert_eq!(
        target.wait_deadline(std::time::Instant::now()),
        Err(WaitError::Timeout)
    );
    let cancelled = spawn_local({
        let target = target.clone();
        move || target.wait()
    });
    until_it_waits_here(cancelled.id());
    cancelled.cancel("not any more");
    assert_eq!(cancelled.join().unwrap(), Err(WaitError::Cancelled));
    tell.send(Ok(())).unwrap();
}

fn until_it_waits_here(id: u64) {
    while find(id).and_then(|info| info.wait).is_none() {
        yield_now().unwrap();
    }
}

// contract: S20, C9
#[test]
fn a_cancel_tells_who_why_when_and_how_long_it_took() {
    run(|| {
        let started = spawn_local(|| {
            assert!(park().is_err());
            // Takes its time.
            for _ in 0..5 {
                let _refused = yield_now();
            }
        });
        yield_now().unwrap();
        assert!(started.cancel_record().is_none());
        started.cancel("first");
        started.cancel("second");
        let listed = find(started.id()).unwrap().cancel.unwrap();
        assert_eq!(&*listed.cause.reason, "first");
        let record = started.cancel_record().unwrap();
        assert_eq!(&*record.cause.reason, "first");
        assert_eq!(record.cause.who, current().unwrap().id());
        assert_eq!((record.noticed_after, record.ended_after), (None, None));
        started.wait().unwrap();
        let record = started.cancel_record().unwrap();
        assert!(record.noticed_after.unwrap() <= record.ended_after.unwrap());

        // One that never runs ends without being told.
        let unstarted = spawn_local(|| ());
        unstarted.cancel("too early");
        unstarted.wait().unwrap();
        let record = unstarted.cancel_record().unwrap();
        assert_eq!(record.noticed_after, None);
        assert!(record.ended_after.is_some());

        // One that had ended before.
        let ended = spawn_local(|| ());
        ended.wait().unwrap();
        ended.cancel("too late");
        assert!(
            ended
                .cancel_record()
                .is_none_or(|record| record.ended_after.is_none())
        );
    });
    // A thread's cancel, and a scheduler's own.
    let elsewhere = Elsewhere::new();
    let parked = elsewhere.handle.spawn(park).unwrap();
    until_it_waits(parked.id(), "park");
    parked.cancel("from a thread");
    parked.wait().unwrap();
    let record = parked.cancel_record().unwrap();
    assert_eq!(
        (record.cause.who, &*record.cause.reason),
        (0, "from a thread")
    );
    assert!(record.ended_after.is_some());
    let left = Scheduler::anchor(|scheduler| {
        let left = spawn_local(park);
        scheduler.step().unwrap();
        left
    });
    let record = left.cancel_record().unwrap();
    assert_eq!(&*record.cause.reason, "the scheduler is closing");
    assert!(record.ended_after.is_some());
}

// contract: S20
#[test]
fn one_that_is_still_on_its_way_is_stopped_by_its_number() {
    sinew::Scheduler::anchor(|scheduler| {
        for from_here in [true, false] {
            // Nothing else lives here.
            let coroutine = scheduler.handle().spawn(|| "has run").unwrap();
            let id = coroutine.id();
            if from_here {
                sinew::cancel_id(id, "before it arrives").unwrap();
            } else {
                thread::spawn(move || sinew::cancel_id(id, "before it arrives").unwrap())
                    .join()
                    .unwrap();
            }
            scheduler.run().unwrap();
            assert!(coroutine.join().unwrap_err().is_cancelled());
        }
    });
}

// contract: S9
#[test]
fn a_start_that_is_refused_while_everything_is_cancelled_leaves_nothing() {
    let line = Scheduler::anchor(|scheduler| {
        // Somebody whom the cancels do not end, so that there is something to cancel.
        let deaf = spawn_local(|| shield(park));
        scheduler.step().unwrap();
        scheduler.close();
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let handle = scheduler.handle();
                thread::spawn(move || {
                    for _ in 0..rounds(3_000) {
                        assert!(handle.spawn(|| ()).unwrap_err().is_closed());
                    }
                    // Where they were to be started.
                    line!() - 3
                })
            })
            .collect();
        while !threads.iter().all(thread::JoinHandle::is_finished) {
            scheduler.close();
        }
        deaf.unparker().unpark();
        let lines: Vec<u32> = threads.into_iter().map(|t| t.join().unwrap()).collect();
        lines[0]
    });
    for_each(|info| {
        let place = (info.spawned_at.file(), info.spawned_at.line());
        assert_ne!(place, (file!(), line), "#{} never ends", info.id);
    });
}
