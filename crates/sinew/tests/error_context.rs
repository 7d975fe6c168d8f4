//! The error context: each coroutine and each thread has its own, and nothing leaks.

use std::cell::{Cell, RefCell};
use std::error::Error as _;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use sinew::coroutine::error::{last, set, take, with_context};
use sinew::coroutine::{Coroutine, Step, Suspender, anchor};
use sinew::inspect::{Unhandled, on_unhandled};
use sinew::{
    Cancelled, Error, ErrorKind, Outcome, WaitError, go_local, run, spawn_local, yield_now,
};

fn invalid(message: &'static str) -> Error {
    Error::new(ErrorKind::Invalid, message)
}

fn message() -> Option<String> {
    last().map(|error| error.message().to_owned())
}

// contract: C13
#[test]
fn set_add_read_and_take() {
    assert!(last().is_none());
    assert!(take().is_none());
    assert!(!with_context(|| -> &str {
        panic!("there is no error to add to")
    }));
    set(invalid("first"));
    set(invalid("second").with_code(7));
    assert!(with_context(|| format!("attempt {}", 1)));
    let seen = last().unwrap();
    assert_eq!(seen.to_string(), "attempt 1");
    assert_eq!(format!("{seen:#}"), "attempt 1: second");
    assert_eq!((seen.kind(), seen.code()), (ErrorKind::Invalid, Some(7)));
    assert_eq!(seen.chain().count(), 2);
    assert_eq!(seen.location().file(), file!());
    assert_eq!(message().as_deref(), Some("attempt 1"), "reading leaves it");
    assert_eq!(take().unwrap().message(), "attempt 1");
    assert!(take().is_none());
}

// contract: C13
#[test]
fn each_coroutine_and_each_thread_has_its_own() {
    set(invalid("of the thread"));
    std::thread::spawn(|| assert!(last().is_none()))
        .join()
        .unwrap();
    run(|| {
        assert!(last().is_none(), "the thread's is not seen in a coroutine");
        set(invalid("of the first"));
        let other = spawn_local(|| {
            assert!(last().is_none());
            set(invalid("of the second"));
            yield_now().unwrap();
            assert_eq!(take().unwrap().message(), "of the second");
        });
        yield_now().unwrap();
        assert_eq!(message().as_deref(), Some("of the first"));
        anchor(|a| {
            let mut inner = Coroutine::new(a, |s: &Suspender<(), ()>, ()| {
                assert!(last().is_none());
                set(invalid("of the inner"));
                s.suspend(()).unwrap();
                assert_eq!(take().unwrap().message(), "of the inner");
                assert!(last().is_none());
            });
            inner.resume(()).unwrap();
            assert_eq!(message().as_deref(), Some("of the first"));
            set(invalid("changed"));
            inner.resume(()).unwrap();
            assert_eq!(inner.outcome(), Some(Outcome::Returned));
            assert_eq!(message().as_deref(), Some("changed"));
        });
        other.join().unwrap();
        assert!(take().is_some());
    });
    assert_eq!(take().unwrap().message(), "of the thread");
}

// contract: C13, C7
#[test]
fn nothing_leaks_to_the_next_one_on_the_same_stack() {
    run(|| {
        for round in 0..100 {
            let handle = spawn_local(move || {
                assert!(last().is_none(), "left by an earlier coroutine");
                if round % 3 == 0 {
                    set(invalid("left"));
                } else if round % 3 == 1 {
                    set(invalid("lost in a panic"));
                    std::panic::resume_unwind(Box::new(()));
                }
            });
            handle.wait().unwrap();
            let expected = if round % 3 == 2 {
                Outcome::Returned
            } else {
                Outcome::Error
            };
            assert_eq!(handle.outcome(), Some(expected));
            assert_eq!(handle.join().is_err(), round % 3 != 2);
            assert!(last().is_none());
        }
    });
    anchor(|a| {
        for _ in 0..100 {
            let mut c = Coroutine::new(a, |_: &Suspender<(), ()>, ()| {
                assert!(last().is_none(), "left by an earlier coroutine");
                set(invalid("left"));
            });
            assert_eq!(c.resume(()).unwrap(), Step::Done(()));
            assert_eq!(c.outcome(), Some(Outcome::Error));
            assert_eq!(c.error().unwrap().message(), "left");
            assert!(last().is_none());
        }
    });
}

/// Sets an error when it is dropped.
struct SetsOnDrop;

impl Drop for SetsOnDrop {
    fn drop(&mut self) {
        set(invalid("by a destructor"));
    }
}

// contract: C13
#[test]
fn what_a_late_destructor_sets_goes_nowhere() {
    run(|| {
        for _ in 0..10 {
            // The result has no taker, and is dropped when the coroutine has ended.
            drop(spawn_local(|| {
                assert!(last().is_none());
                SetsOnDrop
            }));
            yield_now().unwrap();
        }
        assert!(last().is_none());
    });
    anchor(|a| {
        // In the closure that is never run: it is dropped by whoever drops the coroutine.
        let held = SetsOnDrop;
        drop(Coroutine::new(a, move |_: &Suspender<(), ()>, ()| {
            drop(held)
        }));
    });
    assert_eq!(take().unwrap().message(), "by a destructor");
}

// contract: C7, C13
#[test]
fn join_gives_the_error_that_was_left() {
    run(|| {
        let handle = spawn_local(|| {
            set(io::Error::from_raw_os_error(2));
            with_context(|| "opening");
            5
        });
        let error = handle.join().unwrap_err();
        assert!(!error.is_panic() && !error.is_cancelled());
        let left = error.error().unwrap();
        assert_eq!((left.kind(), left.code()), (ErrorKind::NotFound, Some(2)));
        assert!(error.to_string().ends_with(": opening"));
        assert_eq!(
            error.source().unwrap().to_string(),
            io::Error::from_raw_os_error(2).to_string()
        );
        let whole = Error::from(error);
        assert_eq!(whole.kind(), ErrorKind::NotFound);
        assert_eq!(whole.chain().count(), 3);
        // Handled: it does not count.
        let handle = spawn_local(|| {
            set(invalid("handled"));
            drop(take());
            5
        });
        assert_eq!(handle.join().unwrap(), 5);
    });
}

// contract: C7, S3
#[test]
fn an_error_left_by_a_detached_coroutine_reaches_the_hook_once() {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let told = Arc::new(Mutex::new(Vec::new()));
    let teller = Arc::clone(&told);
    on_unhandled(Some(Box::new(move |failure| {
        if let Unhandled::Error { error, .. } = failure {
            teller.lock().unwrap().push(error.to_string());
        }
    })));
    run(|| {
        go_local(|| set(invalid("nobody joins")));
        go_local(|| {
            set(invalid("handled"));
            drop(take());
        });
    });
    on_unhandled(None);
    assert_eq!(*told.lock().unwrap(), ["nobody joins"]);
}

/// What happens in a coroutine, in this order.
#[derive(Debug, Clone, Copy)]
struct Case {
    requested: bool,
    confirmed: bool,
    error_set: bool,
    error_taken: bool,
    panics: bool,
}

impl Case {
    fn all() -> impl Iterator<Item = Self> {
        (0..32_u8).map(|bits| Self {
            requested: bits & 1 != 0,
            confirmed: bits & 2 != 0,
            error_set: bits & 4 != 0,
            error_taken: bits & 8 != 0,
            panics: bits & 16 != 0,
        })
    }

    /// The table of C7.
    fn expected(self) -> Outcome {
        if self.panics {
            Outcome::Error
        } else if self.requested && self.confirmed {
            Outcome::Cancelled
        } else if self.error_set && !self.error_taken {
            Outcome::Error
        } else {
            Outcome::Returned
        }
    }

    fn act(self, confirm: impl FnOnce() -> Result<(), WaitError>) -> u32 {
        if self.confirmed {
            let expected = if self.requested {
                Ok(())
            } else {
                Err(WaitError::State)
            };
            assert_eq!(confirm(), expected);
        }
        if self.error_set {
            set(invalid("left"));
        }
        if self.error_taken {
            assert_eq!(take().is_some(), self.error_set);
        }
        if self.panics {
            std::panic::resume_unwind(Box::new("the payload"));
        }
        9
    }
}

// contract: C7, C8
#[test]
fn every_combination_ends_as_the_table_says_under_a_scheduler() {
    run(|| {
        for case in Case::all() {
            let handle = spawn_local(move || {
                if case.requested {
                    sinew::current().unwrap().cancel_token().cancel("asked");
                }
                case.act(sinew::confirm_cancel)
            });
            handle.wait().unwrap();
            assert_eq!(handle.outcome(), Some(case.expected()), "{case:?}");
            let result = handle.join();
            match case.expected() {
                Outcome::Returned => assert_eq!(result.unwrap(), 9),
                Outcome::Cancelled => assert!(result.unwrap_err().is_cancelled(), "{case:?}"),
                Outcome::Error if case.panics => {
                    let payload = result.unwrap_err().into_panic();
                    assert_eq!(*payload.downcast::<&str>().unwrap(), "the payload");
                }
                Outcome::Error => {
                    assert_eq!(result.unwrap_err().error().unwrap().message(), "left");
                }
            }
        }
    });
}

// contract: C7, C8
#[test]
fn every_combination_ends_as_the_table_says_standing_alone() {
    anchor(|a| {
        for case in Case::all() {
            let mut c = Coroutine::new(a, move |s: &Suspender<(), ()>, ()| {
                let _ = s.suspend(());
                case.act(|| s.confirm_cancel())
            });
            c.resume(()).unwrap();
            if case.requested {
                c.cancel();
            }
            let result = catch_unwind(AssertUnwindSafe(|| c.resume(())));
            assert_eq!(c.outcome(), Some(case.expected()), "{case:?}");
            match result {
                // The value is handed over, whatever the outcome.
                Ok(step) => assert_eq!(step.unwrap(), Step::Done(9)),
                Err(payload) => {
                    assert!(case.panics);
                    assert_eq!(*payload.downcast::<&str>().unwrap(), "the payload");
                }
            }
            let left = case.error_set && !case.error_taken;
            assert_eq!(c.error().is_some(), left, "{case:?}");
        }
    });
}

// contract: C8
#[test]
fn a_thread_has_no_cancel_to_confirm() {
    assert_eq!(sinew::confirm_cancel(), Err(WaitError::State));
}

// contract: C13
#[test]
fn a_value_that_is_not_returned_is_dropped_once() {
    struct Noted(Rc<Cell<u32>>);
    impl Drop for Noted {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }
    let drops = Rc::new(Cell::new(0));
    let noted = Noted(Rc::clone(&drops));
    run(move || {
        let handle = spawn_local(move || {
            set(invalid("left"));
            noted
        });
        assert!(handle.join().is_err());
    });
    assert_eq!(drops.get(), 1);
}

// contract: C13
#[test]
fn replacing_an_error_whose_destructor_uses_the_context() {
    #[derive(Debug)]
    struct Nosy(Rc<RefCell<Vec<Option<String>>>>);
    // SAFETY-free: it is only ever dropped on this thread, in a closure that asks the context.
    #[derive(Debug)]
    struct Asks;
    impl std::fmt::Display for Asks {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("asks")
        }
    }
    impl std::error::Error for Asks {}
    impl Drop for Asks {
        fn drop(&mut self) {
            SEEN.with_borrow_mut(|seen| seen.0.borrow_mut().push(message()));
        }
    }
    thread_local! {
        static SEEN: RefCell<Nosy> = RefCell::new(Nosy(Rc::default()));
    }
    let seen = SEEN.with_borrow(|seen| Rc::clone(&seen.0));
    set(Error::caused_by(ErrorKind::Io, "first", Asks));
    set(invalid("second"));
    assert_eq!(*seen.borrow(), [Some("second".to_owned())]);
    drop(take());
}

fn convert() -> Result<(), Error> {
    Err(WaitError::Timeout)?;
    Ok(())
}

// contract: C13
#[test]
fn conversions_keep_kind_code_and_place() {
    let error = convert().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert_eq!(
        error.location().file(),
        file!(),
        "the place is that of the `?`"
    );
    for (wait, kind) in [
        (WaitError::Timeout, ErrorKind::Timeout),
        (WaitError::Cancelled, ErrorKind::Cancelled),
        (WaitError::Closed, ErrorKind::Closed),
        (WaitError::Deadlock, ErrorKind::Deadlock),
        (WaitError::State, ErrorKind::State),
    ] {
        let error = Error::from(wait);
        assert_eq!((error.kind(), error.to_string()), (kind, wait.to_string()));
        // By way of an I/O error too.
        assert_eq!(Error::from(io::Error::from(wait)).kind(), kind);
        assert_eq!(
            io::Error::from(error).kind() == io::ErrorKind::TimedOut,
            kind == ErrorKind::Timeout
        );
    }
    let cancelled = io::Error::from(Error::from(Cancelled));
    assert!(sinew::is_cancelled(&cancelled));
    assert_ne!(cancelled.kind(), io::ErrorKind::Interrupted);
    let there_and_back = Error::from(io::Error::from(invalid("kept").with_code(3)));
    assert_eq!(
        (there_and_back.message(), there_and_back.code()),
        ("kept", Some(3))
    );
    let refused = Error::from(io::Error::from_raw_os_error(111));
    assert_eq!((refused.kind(), refused.code()), (ErrorKind::Io, Some(111)));
}

// contract: C13
#[test]
fn functions_of_io_end_by_the_errors_of_coroutines() {
    fn refused() -> io::Result<()> {
        sinew::Builder::new().go_local(|| ())?;
        Ok(())
    }
    fn joined(cancelled: bool) -> io::Result<()> {
        let handle = spawn_local(|| panic!("oh"));
        if cancelled {
            handle.cancel("before it runs");
        }
        handle.join()?;
        Ok(())
    }
    let state = Error::from(refused().unwrap_err());
    assert_eq!(state.kind(), ErrorKind::State);
    run(|| {
        let panicked = Error::from(joined(false).unwrap_err());
        assert_eq!(panicked.kind(), ErrorKind::Panic);
        assert!(sinew::is_cancelled(&joined(true).unwrap_err()));
        let (sender, receiver) = sinew::sync::channel::bounded(1);
        drop(receiver);
        let send = || -> io::Result<()> { Ok(sender.send(1)?) };
        assert_eq!(send().unwrap_err().kind(), io::ErrorKind::NotConnected);
        let late =
            io::Error::from(sinew::timeout(std::time::Duration::ZERO, sinew::park).unwrap_err());
        assert_eq!(late.kind(), io::ErrorKind::TimedOut);
        assert_eq!(
            io::Error::from(sinew::Closed).kind(),
            io::ErrorKind::NotConnected
        );
    });
}

#[test]
fn a_code_on_a_shared_error_leaves_the_other_copy() {
    let error = Error::caused_by(ErrorKind::Io, "outer", io::Error::other("inner"));
    let copy = error.clone();
    let coded = error.with_code(5);
    assert_eq!((copy.code(), coded.code()), (None, Some(5)));
    assert_eq!(coded.location(), copy.location());
    assert!(format!("{coded:#}").ends_with("inner"));
    assert!(format!("{coded:?}").contains("code: 5"));
}

// contract: C13
#[test]
fn messages_are_plain() {
    use ErrorKind as Kind;
    for kind in [
        Kind::State,
        Kind::Invalid,
        Kind::Again,
        Kind::Timeout,
        Kind::Cancelled,
        Kind::Closed,
        Kind::Deadlock,
        Kind::NoMemory,
        Kind::NotFound,
        Kind::Exists,
        Kind::Io,
        Kind::Panic,
        Kind::Internal,
    ] {
        let text = kind.to_string();
        assert!(
            !text.ends_with('.') && text == text.to_lowercase(),
            "{text}"
        );
    }
}
