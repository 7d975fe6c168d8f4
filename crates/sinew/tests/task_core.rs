//! Tasks by themselves: an outcome decided once, a context of their own, and data dropped once, on the right side.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier};

use sinew::coroutine::{arena, error};
use sinew::future::{PromiseState, TaskError};
use sinew::task::{Outcome, Task, TaskContext, TaskEnd, TaskPool};
use sinew::{CancelToken, Error, ErrorKind, WaitError, go_local, run, spawn_local, yield_now};

/// Counts its drops.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

fn counted() -> (Counted, Arc<AtomicUsize>) {
    let drops = Arc::new(AtomicUsize::new(0));
    (Counted(drops.clone()), drops)
}

fn oops() -> Error {
    Error::new(ErrorKind::Invalid, "oops")
}

fn kind_of<T>(result: Option<Result<&T, &TaskError>>) -> Option<ErrorKind> {
    match result? {
        Err(TaskError::Failed(error)) => Some(error.kind()),
        _ => None,
    }
}

// contract: T2
#[test]
fn each_outcome_ends_the_future_so() {
    let (task, future) = Task::new(|_| Outcome::Success(7));
    assert_eq!(future.state(), PromiseState::Pending);
    assert_eq!(task.run(), TaskEnd::Success);
    assert_eq!(future.get().unwrap().unwrap(), &7);

    let (task, future) = Task::new(|_| Outcome::<u8>::Failed(oops()));
    assert_eq!(task.run(), TaskEnd::Failed);
    assert_eq!(kind_of(future.get()), Some(ErrorKind::Invalid));

    let (task, future) = Task::new(|_| Outcome::<u8>::Cancelled);
    assert_eq!(task.run(), TaskEnd::Cancelled);
    assert_eq!(future.state(), PromiseState::Cancelled);
    assert!(future.cause().is_none(), "nobody asked it to");

    let (task, future) = Task::new(|_| ());
    assert_eq!(task.run(), TaskEnd::Success);
    assert_eq!(future.state(), PromiseState::Resolved);
}

// contract: T2
#[test]
fn a_result_is_an_outcome_and_a_cancelled_wait_a_cancel() {
    let (task, future) = Task::new(|_| Ok::<_, Error>(3));
    task.run();
    assert_eq!(future.get().unwrap().unwrap(), &3);
    let (task, future) = Task::new(|_| Err::<u8, _>(WaitError::Timeout));
    assert_eq!(task.run(), TaskEnd::Failed);
    assert_eq!(kind_of(future.get()), Some(ErrorKind::Timeout));
    let (task, future) = Task::new(|_| Err::<u8, _>(WaitError::Cancelled));
    assert_eq!(task.run(), TaskEnd::Cancelled);
    assert_eq!(future.state(), PromiseState::Cancelled);
}

// contract: T2
#[test]
fn a_failure_without_an_error_is_internal() {
    let (task, future) = Task::new(|_| Outcome::<()>::failed());
    assert_eq!(task.run(), TaskEnd::Failed);
    assert_eq!(kind_of(future.get()), Some(ErrorKind::Internal));
    let (task, future) = Task::new(|_| {
        error::set(oops());
        Outcome::<()>::failed()
    });
    task.run();
    assert_eq!(kind_of(future.get()), Some(ErrorKind::Invalid));
}

// contract: T2
#[test]
fn a_panic_is_a_failure_that_tells_its_message() {
    let (data, drops) = counted();
    let (task, future) = Task::new(move |_| {
        let _data = data;
        panic_any("no such luck".to_owned());
        #[expect(unreachable_code, reason = "gives the closure its type")]
        Outcome::Success(())
    });
    assert_eq!(task.run(), TaskEnd::Failed);
    let Some(Err(TaskError::Failed(error))) = future.get() else {
        panic!("it failed")
    };
    assert_eq!(
        (error.kind(), error.message()),
        (ErrorKind::Panic, "no such luck")
    );
    assert_eq!(drops.load(SeqCst), 1);
}

// contract: T2
#[test]
fn one_cancelled_before_it_starts_never_runs() {
    for by_parent in [false, true] {
        let (data, drops) = counted();
        let parent = CancelToken::new();
        let (task, future) = Task::under(&parent, move |_| {
            let _data = &data;
            panic!("it runs");
            #[expect(unreachable_code, reason = "gives the closure its type")]
            Outcome::Success(())
        });
        if by_parent {
            parent.cancel("enough");
        } else {
            future.cancel("enough");
        }
        assert!(task.is_cancelled());
        assert_eq!(task.run(), TaskEnd::Cancelled);
        assert_eq!(future.state(), PromiseState::Cancelled);
        assert_eq!(&*future.cause().unwrap().reason, "enough");
        assert_eq!(drops.load(SeqCst), 1);
        assert_eq!(parent.is_cancelled(), by_parent, "a wish goes down only");
    }
}

// contract: T2
#[test]
fn one_that_saw_the_wish_may_succeed() {
    let both = Arc::new(Barrier::new(2));
    let theirs = both.clone();
    let (task, future) = Task::new(move |context: &TaskContext<'_>| {
        assert!(!context.is_cancelled() && context.cause().is_none());
        let token = context.cancel_token();
        theirs.wait();
        token.wait().unwrap();
        assert!(context.is_cancelled());
        assert_eq!(&*context.cause().unwrap().reason, "hurry");
        Outcome::Success("done")
    });
    let executor = std::thread::spawn(move || task.run());
    both.wait();
    future.cancel("hurry");
    assert_eq!(executor.join().unwrap(), TaskEnd::Success);
    assert_eq!(future.get().unwrap().unwrap(), &"done");
    future.cancel("too late");
    assert_eq!(future.state(), PromiseState::Resolved);
    assert_eq!(&*future.cause().unwrap().reason, "hurry");
}

// contract: T2, T3
#[test]
fn one_that_is_not_run_drops_its_data_once() {
    let make = || {
        let (data, drops) = counted();
        let (task, future) = Task::new(move |_| {
            let _data = &data;
            Outcome::Success(())
        });
        (task, future, drops)
    };
    let (task, future, drops) = make();
    drop(task);
    assert_eq!(future.state(), PromiseState::Closed);
    assert_eq!(drops.load(SeqCst), 1);
    let (task, future, drops) = make();
    task.cancel();
    assert_eq!(future.state(), PromiseState::Cancelled);
    assert_eq!(drops.load(SeqCst), 1);
    let (task, future, drops) = make();
    task.fail(oops());
    assert_eq!(kind_of(future.get()), Some(ErrorKind::Invalid));
    assert_eq!(drops.load(SeqCst), 1);
}

// contract: T2
#[test]
fn a_value_is_dropped_with_the_last_reference_on_either_side() {
    for future_goes_first in [false, true] {
        let (value, drops) = counted();
        let (task, future) = Task::new(move |_| Outcome::Success(value));
        if future_goes_first {
            drop(future);
            task.run();
        } else {
            task.run();
            assert_eq!(drops.load(SeqCst), 0);
            drop(future);
        }
        assert_eq!(drops.load(SeqCst), 1);
    }
}

/// Leaves an error behind when it is dropped, and says what it found.
struct Messy(Arc<AtomicUsize>);

impl Drop for Messy {
    fn drop(&mut self) {
        assert!(error::last().is_none());
        error::set(oops());
        arena::with(|a| _ = a.alloc(1_u64));
        self.0.fetch_add(1, SeqCst);
    }
}

// contract: T3, C12, C13
#[test]
fn nothing_leaks_into_a_task_or_out_of_it() {
    let drops = Arc::new(AtomicUsize::new(0));
    error::set(Error::new(ErrorKind::Exists, "the thread's own"));
    let check = || {
        assert_eq!(error::last().unwrap().message(), "the thread's own");
    };
    for _ in 0..3 {
        let (task, future) = Task::new(|context: &TaskContext<'_>| {
            assert!(error::last().is_none());
            assert_eq!(context.arena().allocated_bytes(), 0);
            error::set(oops());
            let text = context.arena().alloc_str("temporary");
            assert_eq!(
                arena::with(|a| a.allocated_bytes()),
                context.arena().allocated_bytes()
            );
            Outcome::Success(text.len())
        });
        assert_eq!(
            task.run(),
            TaskEnd::Success,
            "what is left in the context decides nothing"
        );
        assert_eq!(future.get().unwrap().unwrap(), &9);
        check();
        // Its data, whether it runs or not.
        let messy = Messy(drops.clone());
        let (task, _future) = Task::new(move |_| drop(messy));
        task.run();
        check();
        let messy = Messy(drops.clone());
        let (task, _future) = Task::new(move |_| drop(messy));
        task.cancel();
        check();
        let messy = Messy(drops.clone());
        let (task, _future) = Task::new(move |_| drop(messy));
        drop(task);
        check();
    }
    assert_eq!(drops.load(SeqCst), 9);
    drop(error::take());
}

// contract: T3, C12, C13
#[test]
fn a_task_within_a_task_has_its_own() {
    let (outer, _future) = Task::new(|_| {
        error::set(oops());
        let (inner, future) = Task::new(|_| {
            assert!(error::last().is_none());
            error::set(Error::new(ErrorKind::Exists, "inner"));
            Outcome::<()>::failed()
        });
        inner.run();
        assert_eq!(kind_of(future.get()), Some(ErrorKind::Exists));
        assert_eq!(error::take().unwrap().kind(), ErrorKind::Invalid);
    });
    assert_eq!(outer.run(), TaskEnd::Success);
}

// contract: T3, C12, C13
#[test]
fn tasks_in_coroutines_of_one_thread_do_not_mix() {
    run(|| {
        let begun = |name: &'static str, turns: u32| {
            spawn_local(move || {
                error::set(Error::new(ErrorKind::Exists, "the coroutine's"));
                let (task, future) = Task::new(move |context: &TaskContext<'_>| {
                    assert!(error::last().is_none());
                    error::set(Error::new(ErrorKind::Invalid, name));
                    let text = context.arena().alloc_str(name);
                    for _ in 0..turns {
                        yield_now().unwrap();
                        assert_eq!(error::last().unwrap().message(), name);
                        assert_eq!(text, name);
                    }
                    Outcome::<()>::failed()
                });
                task.run();
                assert_eq!(error::take().unwrap().message(), "the coroutine's");
                let Some(Err(TaskError::Failed(error))) = future.get() else {
                    panic!("it failed")
                };
                assert_eq!(error.message(), name);
            })
        };
        // The first begins first and ends last, the second ends first, and the third is nobody's task.
        let one = begun("one", 6);
        let two = begun("two", 2);
        let three = spawn_local(|| {
            for _ in 0..4 {
                yield_now().unwrap();
                assert!(error::last().is_none());
            }
        });
        one.join().unwrap();
        two.join().unwrap();
        three.join().unwrap();
    });
}

thread_local! {
    static ORDER: RefCell<Vec<&'static str>> = const { RefCell::new(Vec::new()) };
}

// contract: T3
#[test]
fn what_a_task_deferred_runs_at_its_end_and_its_panic_fails_it() {
    let (task, future) = Task::new(|_| {
        sinew::defer(|| ORDER.with_borrow_mut(|order| order.push("deferred")));
        ORDER.with_borrow_mut(|order| order.push("body"));
        Outcome::Success(())
    });
    future.on_done(|_| ORDER.with_borrow_mut(|order| order.push("published")));
    task.run();
    assert_eq!(ORDER.take(), ["body", "deferred", "published"]);

    let (value, drops) = counted();
    let (task, future) = Task::new(|_| {
        sinew::defer(|| panic!("in a cleanup"));
        Outcome::Success(value)
    });
    assert_eq!(task.run(), TaskEnd::Failed);
    assert_eq!(kind_of(future.get()), Some(ErrorKind::Panic));
    assert_eq!(drops.load(SeqCst), 1);
}

// contract: T2
#[test]
fn an_exit_in_a_task_is_its_end_and_not_the_coroutines() {
    run(|| {
        let handle = spawn_local(|| {
            let (task, future) =
                Task::new(|_| -> Outcome<u32> { sinew::exit(Outcome::Success(9_u32)) });
            task.run();
            *future.get().unwrap().unwrap()
        });
        assert_eq!(handle.join().unwrap(), 9);
    });
}

// contract: T2
#[test]
fn an_unwind_by_force_cancels_the_task_and_goes_on() {
    let (data, drops) = counted();
    let futures = Arc::new(std::sync::Mutex::new(None));
    let theirs = futures.clone();
    let ended = catch_unwind(AssertUnwindSafe(|| {
        run(|| {
            go_local(move || {
                let (task, future) = Task::new(move |_| -> Outcome<()> {
                    let _data = data;
                    // Deaf to every cancel.
                    loop {
                        let _deaf = yield_now();
                    }
                });
                *theirs.lock().unwrap() = Some(future);
                task.run();
                unreachable!("the unwind goes on");
            });
            yield_now().unwrap();
            panic!("main ends");
        });
    }));
    assert!(ended.is_err());
    assert_eq!(drops.load(SeqCst), 1);
    let future = futures.lock().unwrap().take().unwrap();
    assert_eq!(future.state(), PromiseState::Cancelled);
}

/// Counts its drops, beside something that makes a closure large, or asks for its alignment.
struct Ballast<T>(Arc<AtomicUsize>, T);

impl<T> Drop for Ballast<T> {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

#[repr(align(64))]
#[derive(Clone, Copy)]
struct Aligned(u8);

fn ends_of_closures_with<T: Copy + Send + 'static>(
    ballast: T,
    number: impl Fn(&T) -> usize + Copy + Send + 'static,
) {
    let drops = Arc::new(AtomicUsize::new(0));
    let make = || {
        let carried = Ballast(drops.clone(), ballast);
        Task::new(move |_| {
            let carried = &carried;
            let place = (&raw const carried.1).addr();
            assert_eq!(place % align_of::<T>(), 0, "it is aligned");
            Outcome::Success(number(&carried.1))
        })
    };
    let (task, future) = make();
    assert_eq!(drops.load(SeqCst), 0);
    task.run();
    assert_eq!(drops.load(SeqCst), 1, "gone before its future");
    assert_eq!(future.get().unwrap().unwrap(), &7);
    let (task, future) = make();
    task.cancel();
    assert_eq!(
        (drops.load(SeqCst), future.state()),
        (2, PromiseState::Cancelled)
    );
    let (task, future) = make();
    drop(task);
    assert_eq!(
        (drops.load(SeqCst), future.state()),
        (3, PromiseState::Closed)
    );
    // The future goes first.
    let (task, future) = make();
    drop(future);
    std::thread::spawn(move || task.run()).join().unwrap();
    assert_eq!(drops.load(SeqCst), 4);
    // One that is refused comes back whole.
    let pool = TaskPool::builder().threads(1).build().unwrap();
    pool.close();
    let carried = Ballast(drops.clone(), ballast);
    let refused = pool.submit(move |_| {
        let carried = &carried;
        Outcome::Success(number(&carried.1))
    });
    let body = refused.unwrap_err().into_inner();
    assert_eq!(drops.load(SeqCst), 4);
    drop(body);
    assert_eq!(drops.load(SeqCst), 5);
}

#[test]
fn closures_of_all_sizes_are_called_and_dropped_once() {
    ends_of_closures_with((), |()| 7);
    ends_of_closures_with([7_usize; 1], |all| all[0]);
    // With the pointer to the counter just what lies beside the promise, and more.
    ends_of_closures_with([7_usize; 15], |all| all[14]);
    ends_of_closures_with([7_usize; 16], |all| all[15]);
    ends_of_closures_with([7_usize; 1_000], |all| all[999]);
    ends_of_closures_with(Aligned(7), |aligned| usize::from(aligned.0));
}
