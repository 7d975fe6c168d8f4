//! A panic hook cannot suspend. In a file of its own, because the hook is the process's.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use sinew::coroutine::{Coroutine, Step, SuspendError, Suspender, anchor};

thread_local! {
    static BODY: Cell<*const Suspender<(), ()>> = const { Cell::new(std::ptr::null()) };
    static REFUSED: Cell<u32> = const { Cell::new(0) };
}

#[test]
fn a_panic_hook_cannot_suspend() {
    #![expect(unsafe_code, reason = "the hook gets no argument of ours")]
    std::panic::set_hook(Box::new(|_| {
        // SAFETY: set by the body whose panic this is.
        if let Some(s) = unsafe { BODY.get().as_ref() }
            && let Err(SuspendError::State(())) = s.suspend(())
        {
            REFUSED.set(REFUSED.get() + 1);
        }
    }));
    anchor(|a| {
        let body = |s: &Suspender<(), ()>, ()| {
            for _ in 0..2 {
                BODY.set(s);
                let caught = catch_unwind(AssertUnwindSafe(|| panic!("to the hook")));
                BODY.set(std::ptr::null());
                assert!(caught.is_err());
                s.suspend(()).unwrap();
            }
        };
        let mut one = Coroutine::new(a, body);
        let mut two = Coroutine::new(a, body);
        for expected in [Step::Suspended(()), Step::Suspended(()), Step::Done(())] {
            assert_eq!(one.resume(()).unwrap(), expected);
            assert_eq!(two.resume(()).unwrap(), expected);
        }
    });
    drop(std::panic::take_hook());
    assert_eq!(REFUSED.get(), 4);
}
