//! A child that is dropped while there are no descriptors to be had. A program of its own, for the limit is the process's.
#![allow(unsafe_code, reason = "limits of the process, kill(2)")]

mod io_rig;

use std::time::{Duration, Instant};

use io_rig::watchdog;
use sinew::process::{Command, Stdio};
use sinew::time::now;

fn limit_descriptors(soft: u64) {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: a valid place.
    let got = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    assert_eq!(got, 0);
    limit.rlim_cur = soft.min(limit.rlim_max);
    // SAFETY: a valid limit.
    let set = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    assert_eq!(set, 0);
}

fn is_there(pid: u32) -> bool {
    // SAFETY: only numbers, and nothing is sent.
    unsafe { libc::kill(pid.cast_signed(), 0) == 0 }
}

#[test]
fn who_is_dropped_without_descriptors_holds_no_other_up() {
    let _watchdog = watchdog();
    let sleep = |time: &str| {
        let mut command = Command::new("sleep");
        // The test's own output is not to stay open if it fails.
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command.arg(time).spawn().unwrap()
    };
    let (endless, short) = (sleep("100"), sleep("0.3"));
    let (stays, goes) = (endless.id(), short.id());
    limit_descriptors(3);
    drop(endless);
    // The reaper has it, and waits.
    let until: Instant = now() + Duration::from_millis(100);
    while now() < until {
        std::thread::yield_now();
    }
    limit_descriptors(1024);
    drop(short);
    let until = now() + Duration::from_secs(20);
    while is_there(goes) {
        assert!(now() < until, "it is still there, reaped by nobody");
        std::thread::yield_now();
    }
    assert!(is_there(stays));
    // SAFETY: only numbers; the child is not reaped before it has ended.
    assert_eq!(unsafe { libc::kill(stays.cast_signed(), libc::SIGKILL) }, 0);
    while is_there(stays) {
        assert!(now() < until + Duration::from_secs(20));
        std::thread::yield_now();
    }
}
