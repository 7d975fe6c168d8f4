//! No stack can be had. In a file of its own, because the limit on address space is the process's.
#![expect(unsafe_code, reason = "setrlimit")]

use std::rc::Rc;

use sinew::coroutine::{Coroutine, ResumeError, State, Step, Suspender, anchor};

fn set_address_space(bytes: libc::rlim_t) -> libc::rlim_t {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: fills a local.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_AS, &mut limit) }, 0);
    let before = std::mem::replace(&mut limit.rlim_cur, bytes);
    // SAFETY: reads a local.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
    before
}

// contract: C17
#[test]
fn without_a_stack_nothing_runs_and_the_value_comes_back() {
    anchor(|a| {
        let kept = Rc::new(5);
        let mut c = Coroutine::builder(a)
            .stack_size(1 << 30)
            .build(|_: &Suspender<Rc<i32>, ()>, first: Rc<i32>| *first)
            .unwrap();
        let before = set_address_space(1 << 29);
        let refused = c.resume(kept.clone());
        set_address_space(before);
        let Err(ResumeError::NoMemory(value)) = refused else {
            panic!("it has run: {refused:?}");
        };
        assert!(Rc::ptr_eq(&value, &kept));
        assert_eq!((c.state(), c.outcome()), (State::Ready, None));
        assert_eq!(c.resume(value).unwrap(), Step::Done(5));
        assert_eq!(Rc::strong_count(&kept), 1);
    });
}
