//! Workers that end in odd ways: owned by their own tasks, dropped by what they drop, stopped while others hand tasks over.

mod io_rig;

use std::panic::panic_any;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use io_rig::watchdog;
use sinew::future::PromiseState;
use sinew::task::{Outcome, TaskContext, Worker, WorkerHandle};
use sinew::{go_local, park, spawn_local, yield_now};

const LONG: Duration = Duration::from_secs(3_600);

/// Tells when it is dropped.
struct Tell(mpsc::Sender<()>);

impl Drop for Tell {
    fn drop(&mut self) {
        let _nobody = self.0.send(());
    }
}

struct PanicsOnDrop;

impl Drop for PanicsOnDrop {
    fn drop(&mut self) {
        panic!("a destructor");
    }
}

/// A worker that is in a task of its own, for now, for later, in one that panics, in a coroutine on it, in the value of a task.
// contract: T19
#[test]
fn a_worker_that_its_own_task_owns_ends() {
    let _watchdog = watchdog();
    let (tell, told) = mpsc::channel();
    for way in 0..6 {
        let worker = Worker::new().unwrap();
        let handle = worker.handle();
        let tell = Tell(tell.clone());
        let keeps = move |_: &TaskContext<'_>| drop((worker, tell));
        match way {
            0 => drop(handle.submit(keeps).unwrap()),
            1 => drop(
                handle
                    .submit_after(Duration::from_millis(1), keeps)
                    .unwrap(),
            ),
            2 => {
                // Never runs: it is dropped at the stop.
                let future = handle.submit_after(LONG, keeps).unwrap();
                assert!(handle.stop());
                future.wait().unwrap();
                assert_eq!(future.state(), PromiseState::Failed);
            }
            3 => {
                let future = handle.submit_after(LONG, keeps).unwrap();
                future.cancel("not needed");
                future.wait().unwrap();
                assert_eq!(future.state(), PromiseState::Cancelled);
            }
            4 => {
                let task = move |_: &TaskContext<'_>| -> Outcome<()> {
                    let _keeps = keeps;
                    panic_any(PanicsOnDrop)
                };
                let future = handle.submit(task).unwrap();
                future.wait().unwrap();
                assert_eq!(future.state(), PromiseState::Failed);
            }
            _ => {
                let task = move |context: &TaskContext<'_>| {
                    let worker = context.worker().map(|local| local.handle().clone());
                    go_local(move || {
                        let _keeps = keeps;
                        yield_now().unwrap();
                        drop(worker);
                    });
                };
                drop(handle.submit(task).unwrap());
            }
        }
        told.recv().unwrap();
        while handle.submit(|_| ()).is_ok() {
            thread::yield_now();
        }
    }
}

/// A coroutine of a worker joins that same worker: it is told that its thread cannot, and ends with it.
#[test]
fn a_worker_that_is_joined_by_its_own_coroutine_ends() {
    let _watchdog = watchdog();
    let worker = Worker::new().unwrap();
    let (handle, ended) = (worker.handle(), worker.handle());
    let (tell, told) = mpsc::channel();
    let start = move |_: &TaskContext<'_>| {
        go_local(move || {
            let joined = worker.join().is_ok();
            let parked = park();
            tell.send((joined, parked.is_err())).unwrap();
        });
    };
    drop(handle.submit(start).unwrap());
    assert_eq!(told.recv().unwrap(), (true, true));
    assert!(ended.submit(|_| ()).unwrap_err().is_closed());
}

/// What a refused or ended task drops hands the worker another, and so on; callbacks too. Each that was accepted ends once.
// contract: T19
#[test]
fn tasks_that_come_from_drops_and_callbacks_end_once() {
    struct Again(WorkerHandle, u32, Arc<AtomicUsize>, Arc<AtomicUsize>);
    impl Drop for Again {
        fn drop(&mut self) {
            let Some(left) = self.1.checked_sub(1) else {
                return;
            };
            let (accepted, ended) = (self.2.clone(), self.3.clone());
            let next = Again(self.0.clone(), left, accepted.clone(), ended.clone());
            let task = move |_: &TaskContext<'_>| drop(next);
            let submitted = match left % 3 {
                0 => self.0.submit(task),
                1 => self.0.submit_after(LONG, task),
                _ => self.0.submit_after(Duration::ZERO, task),
            };
            // A refused one comes back, and is dropped here.
            if let Ok(future) = submitted {
                accepted.fetch_add(1, SeqCst);
                future.on_done(move |_| _ = ended.fetch_add(1, SeqCst));
                if left % 5 == 1 {
                    future.cancel("at random");
                }
            }
        }
    }
    let _watchdog = watchdog();
    for round in 0..40 {
        let worker = Worker::builder()
            .delayed_limit(16)
            .queue_limit(16)
            .build()
            .unwrap();
        let (accepted, ended) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let first = Again(worker.handle(), 30, accepted.clone(), ended.clone());
                thread::spawn(move || drop(first))
            })
            .collect();
        if round % 2 == 0 {
            thread::yield_now();
            worker.stop();
        }
        for thread in threads {
            thread.join().unwrap();
        }
        worker.join().unwrap();
        assert_eq!(accepted.load(SeqCst), ended.load(SeqCst));
    }
}

/// A task that blocks its worker holds up the others, not the stop; those that had their turn coming run.
#[test]
fn a_worker_that_is_blocked_is_stopped_when_it_goes_on() {
    let _watchdog = watchdog();
    let worker = Worker::new().unwrap();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let blocking = worker.submit(move |_| _ = may_go_on.recv()).unwrap();
    let after = worker.submit(|_| Outcome::Success(7)).unwrap();
    let later = worker.submit_after(Duration::ZERO, |_| ()).unwrap();
    assert!(worker.stop() && !worker.stop());
    sinew::run(|| {
        let joining = spawn_local(move || worker.join().is_ok());
        yield_now().unwrap();
        assert!(!joining.is_finished(), "others go on meanwhile");
        drop(go_on);
        assert!(joining.join().unwrap());
    });
    assert_eq!(blocking.state(), PromiseState::Resolved);
    assert_eq!(after.get().unwrap().unwrap(), &7);
    assert!(later.is_done());
}
