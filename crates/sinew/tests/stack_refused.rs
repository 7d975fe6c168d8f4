//! No stack can be had: nothing runs, the value comes back, the join says why. Each test runs itself again as a child,
//! because what is used up is the process's.
#![expect(unsafe_code, reason = "installs a filter of system calls")]

use std::cell::Cell;
use std::process::Command;
use std::rc::Rc;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sinew::coroutine::{Coroutine, ResumeError, State, Step, Suspender, anchor};
use sinew::{Builder, CancelToken, Outcome, run, spawn_local};
use sinew_context::stack::{GuardKind, guard_kind, refuse_stacks, use_protected_guards};

const CHILD: &str = "SINEW_CHILD";

/// In the parent: runs the test of this name again as a child, and gives what that printed. In the child: nothing.
fn output_of_child(test: &str) -> Option<String> {
    if std::env::var_os(CHILD).is_some() {
        return None;
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{:?}\n{text}{errors}",
        output.status
    );
    Some(text)
}

/// Counts its drops.
struct Counted<'a>(&'a Cell<u32>);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

// contract: C17
#[test]
fn a_refusal_leaves_a_coroutine_of_a_scheduler_unrun() {
    if output_of_child("a_refusal_leaves_a_coroutine_of_a_scheduler_unrun").is_some() {
        return;
    }
    run(|| {
        // The scheduler's only stack is this one's: the next has to come from the depot.
        let kept = Rc::new(());
        refuse_stacks(true);
        let inside = kept.clone();
        let refused = spawn_local(move || drop(inside));
        let error = refused.join().unwrap_err();
        assert!(error.is_no_memory() && !error.is_panic(), "{error}");
        assert!(error.to_string().contains("no stack"), "{error}");
        assert_eq!(Rc::strong_count(&kept), 1, "the closure was dropped, once");
        let detached = kept.clone();
        sinew::go_local(move || drop(detached));
        sinew::yield_now().unwrap();
        assert_eq!(Rc::strong_count(&kept), 1);
        let waited = spawn_local(|| ());
        waited.wait().unwrap();
        assert_eq!(waited.outcome(), Some(Outcome::Error));
        refuse_stacks(false);
        assert_eq!(spawn_local(|| 5).join().unwrap(), 5);
        // One that is warm needs nobody's leave.
        refuse_stacks(true);
        assert_eq!(spawn_local(|| 6).join().unwrap(), 6);
    });
}

// contract: C10, C17
#[test]
fn one_that_was_cancelled_ends_cancelled_without_a_stack_too() {
    if output_of_child("one_that_was_cancelled_ends_cancelled_without_a_stack_too").is_some() {
        return;
    }
    run(|| {
        refuse_stacks(true);
        let kept = Rc::new(());
        let parent = CancelToken::new();
        let by_handle = spawn_local({
            let kept = kept.clone();
            move || drop(kept)
        });
        let by_token = Builder::new()
            .cancel_parent(&parent)
            .spawn_local({
                let kept = kept.clone();
                move || drop(kept)
            })
            .unwrap();
        by_handle.cancel("no more");
        parent.cancel("enough");
        for handle in [by_handle, by_token] {
            handle.wait().unwrap();
            assert_eq!(handle.outcome(), Some(Outcome::Cancelled));
            let error = handle.join().unwrap_err();
            assert!(error.is_cancelled() && !error.is_no_memory(), "{error}");
        }
        assert_eq!(Rc::strong_count(&kept), 1, "the closures were dropped");
        // What panics in the drop of the closure is the end all the same.
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("in the drop");
            }
        }
        let bomb = Bomb;
        let handle = spawn_local(move || drop(bomb));
        handle.cancel("no more");
        assert!(handle.join().unwrap_err().is_panic());
        // A stand-alone one asks for none.
        anchor(|a| {
            let mut c = Coroutine::new(a, |_: &Suspender<(), ()>, ()| ());
            c.cancel();
            assert!(matches!(c.resume(()), Err(ResumeError::Cancelled(()))));
            assert_eq!(c.outcome(), Some(Outcome::Cancelled));
        });
    });
}

// contract: C17
#[test]
fn a_refusal_gives_the_value_of_a_resume_back() {
    if output_of_child("a_refusal_gives_the_value_of_a_resume_back").is_some() {
        return;
    }
    let drops = Cell::new(0);
    anchor(|a| {
        let mut c = Coroutine::new(a, |_: &Suspender<Counted<'_>, ()>, value| drop(value));
        refuse_stacks(true);
        for _ in 0..3 {
            let Err(ResumeError::NoMemory(value)) = c.resume(Counted(&drops)) else {
                panic!("it has run");
            };
            assert_eq!(c.state(), State::Ready);
            let before = drops.get();
            drop(value);
            assert_eq!(
                drops.get(),
                before + 1,
                "it came back, and nobody else had dropped it"
            );
        }
        refuse_stacks(false);
        assert!(matches!(c.resume(Counted(&drops)), Ok(Step::Done(()))));
        assert_eq!(drops.get(), 4);
    });
}

// contract: C17
#[test]
fn a_limit_on_address_space_is_named_by_the_join() {
    let test = "a_limit_on_address_space_is_named_by_the_join";
    if let Some(text) = output_of_child(test) {
        assert!(text.contains("RLIMIT_AS"), "{text}");
        return;
    }
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').next().unwrap().parse().unwrap();
    let limit = Rlimit {
        current: Some(pages * 4096 + (256 << 20)),
        ..getrlimit(Resource::As)
    };
    setrlimit(Resource::As, limit).unwrap();
    run(|| {
        let token = CancelToken::new();
        let builder = Builder::new().stack_size(8 << 20).cancel_parent(&token);
        let crowd: Vec<_> = (0..100)
            .map(|_| builder.spawn_local(|| sinew::park().is_err()).unwrap())
            .collect();
        sinew::yield_now().unwrap();
        token.cancel("enough");
        let ends: Vec<_> = crowd.into_iter().map(|handle| handle.join()).collect();
        let (ran, refused): (Vec<_>, Vec<_>) = ends.into_iter().partition(Result::is_ok);
        assert!(ran.len() >= 8 && refused.len() >= 50, "{} ran", ran.len());
        assert!(refused.iter().flatten().count() == 0);
        for error in refused.into_iter().filter_map(Result::err) {
            assert!(error.is_no_memory(), "{error}");
            println!("{error}");
        }
    });
}

// contract: C17
#[test]
fn running_out_of_mappings_names_the_sysctl() {
    let limit = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap();
    let limit: usize = limit.trim().parse().unwrap();
    if limit > 200_000 {
        println!("skipped: vm.max_map_count is {limit}, too many to use up");
        return;
    }
    if let Some(text) = output_of_child("running_out_of_mappings_names_the_sysctl") {
        assert!(
            text.contains("mprotect") && text.contains("vm.max_map_count"),
            "{text}"
        );
        assert!(text.contains(&format!("{limit} mappings")), "{text}");
        return;
    }
    assert!(use_protected_guards());
    assert_eq!(guard_kind(), GuardKind::Protected);
    run(|| {
        let token = CancelToken::new();
        let builder = Builder::new().cancel_parent(&token);
        let crowd: Vec<_> = (0..limit / 2 + 100)
            .map(|_| builder.spawn_local(|| sinew::park().is_err()).unwrap())
            .collect();
        sinew::yield_now().unwrap();
        token.cancel("enough");
        let mut refused = 0;
        for handle in crowd {
            if let Err(error) = handle.join() {
                assert!(error.is_no_memory(), "{error}");
                refused += 1;
                println!("{error}");
            }
        }
        assert!((100..1000).contains(&refused), "{refused}");
        // Those that have gone have left their guards for others.
        spawn_local(|| ()).join().unwrap();
    });
}

/// Has the kernel answer `process_madvise` with this error, from now on.
fn refuse_several_ranges(errno: i32) {
    let statement = |code: u32, k: u32, jt: u8| libc::sock_filter {
        code: u16::try_from(code).unwrap(),
        jt,
        jf: 0,
        k,
    };
    let call = u32::try_from(libc::SYS_process_madvise).unwrap();
    let mut program = [
        // The number of the call is the first of what a filter sees.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, call, 1),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0),
        statement(
            libc::BPF_RET | libc::BPF_K,
            libc::SECCOMP_RET_ERRNO | errno.cast_unsigned(),
            0,
        ),
    ];
    let program = libc::sock_fprog {
        len: 4,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: takes numbers.
    let status = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    assert_eq!(status, 0);
    // SAFETY: a whole program.
    let status = unsafe {
        libc::prctl(
            libc::PR_SET_SECCOMP,
            libc::SECCOMP_MODE_FILTER,
            &raw const program,
        )
    };
    assert_eq!(status, 0);
}

/// Sandboxes know fewer calls than the kernel. Guards are made one by one then.
// contract: C17
#[test]
fn a_filter_that_refuses_the_call_for_several_guards_does_not_matter() {
    if output_of_child("a_filter_that_refuses_the_call_for_several_guards_does_not_matter")
        .is_some()
    {
        return;
    }
    refuse_several_ranges(libc::EPERM);
    run(|| {
        let children: Vec<_> = (0..2_000)
            .map(|n| spawn_local(move || sinew::park().map(|()| n)))
            .collect();
        sinew::yield_now().unwrap();
        children.iter().for_each(|child| child.unparker().unpark());
        let sum: i32 = children
            .into_iter()
            .map(|child| child.join().unwrap().unwrap())
            .sum();
        assert_eq!(sum, 1_999_000);
    });
}
