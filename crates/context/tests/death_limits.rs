//! What happens at the limits of the process: each test runs itself again as a child, so that only
//! the child is starved.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "tests say what they skip and measure"
)]
#![allow(unsafe_code, reason = "sets resource limits")]

use sinew_context::stack::{
    GuardKind, Limit, Stack, StackConfig, StackError, guard_kind, use_protected_guards,
};
use std::process::Command;
use std::{env, fs};

const CHILD: &str = "SINEW_DEATH_CHILD";

fn is_child() -> bool {
    env::var_os(CHILD).is_some()
}

/// Runs the test of this name again as a child, which must succeed; gives what it said.
fn run_child(test: &str) -> String {
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{:?}\n{text}", output.status);
    text
}

/// Takes stacks until none is left, or `most`; the list is allocated beforehand.
fn take_until_refused(config: &StackConfig, most: usize) -> (Vec<Stack>, Option<StackError>) {
    let mut stacks = Vec::with_capacity(most);
    while stacks.len() < most {
        match Stack::new(config) {
            Ok(stack) => stacks.push(stack),
            Err(error) => return (stacks, Some(error)),
        }
    }
    (stacks, None)
}

// contract: C17
#[test]
fn the_mapping_limit_is_an_error_that_names_the_sysctl() {
    let limit = fs::read_to_string("/proc/sys/vm/max_map_count").unwrap();
    let limit: usize = limit.trim().parse().unwrap();
    if limit > 200_000 {
        println!("skipped: vm.max_map_count is {limit}, too many to exhaust");
        return;
    }
    if is_child() {
        assert!(use_protected_guards());
        assert_eq!(guard_kind(), GuardKind::Protected);
        let config = StackConfig::default();
        let (stacks, error) = take_until_refused(&config, limit);
        let count = stacks.len();
        // Refused again, and nothing was lost: all of them can be had again.
        let again = Stack::new(&config).unwrap_err();
        drop(stacks);
        assert_eq!(take_until_refused(&config, count).0.len(), count);
        eprintln!("{count} stacks: {}", error.unwrap());
        assert_eq!(Some(again), error);
        assert!(
            count > limit / 2 - 500 && count <= limit / 2,
            "{count} of {limit}"
        );
        return;
    }
    let text = run_child("the_mapping_limit_is_an_error_that_names_the_sysctl");
    println!("{text}");
    assert!(
        text.contains("no memory for a stack: mprotect of 4096 bytes: "),
        "{text}"
    );
    assert!(text.contains("raise the sysctl vm.max_map_count"), "{text}");
    assert!(text.contains(&format!("{limit} mappings")), "{text}");
}

/// Lowers the soft limit.
fn limit_resource(resource: libc::__rlimit_resource_t, soft: u64) {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is a live, writable rlimit.
    let status = unsafe { libc::getrlimit(resource, &raw mut limit) };
    assert_eq!(status, 0);
    limit.rlim_cur = soft;
    // SAFETY: `limit` is a live rlimit.
    let status = unsafe { libc::setrlimit(resource, &raw const limit) };
    assert_eq!(status, 0);
}

#[test]
fn a_limited_address_space_is_used_up_and_then_named() {
    if is_child() {
        limit_resource(libc::RLIMIT_AS, 1 << 30);
        let (stacks, error) = take_until_refused(&StackConfig::default(), 10_000);
        // Large slabs are refused early; smaller ones fill the rest.
        assert!(stacks.len() > 2500, "{}", stacks.len());
        let error = error.unwrap();
        let limit = Limit::AddressSpace { value: 1 << 30 };
        assert!(matches!(error, StackError::NoMemory { limit: found, .. } if found == limit));
        eprintln!("{} stacks: {error}", stacks.len());
        return;
    }
    let text = run_child("a_limited_address_space_is_used_up_and_then_named");
    println!("{text}");
    assert!(text.contains("RLIMIT_AS"), "{text}");
}

#[test]
fn limited_data_is_named() {
    if is_child() {
        limit_resource(libc::RLIMIT_DATA, 1 << 30);
        let (stacks, error) = take_until_refused(&StackConfig::default(), 10_000);
        eprintln!("{} stacks: {}", stacks.len(), error.unwrap());
        return;
    }
    let text = run_child("limited_data_is_named");
    assert!(text.contains("RLIMIT_DATA"), "{text}");
}

/// The proof of marked guards needs no descriptor.
#[test]
fn guards_are_proved_without_descriptors() {
    let kind = guard_kind();
    if is_child() {
        return;
    }
    let test = "guards_are_proved_without_descriptors_child";
    let text = run_child(test);
    assert!(text.contains(&format!("{kind:?}")), "{text}");
}

#[test]
fn guards_are_proved_without_descriptors_child() {
    if is_child() {
        limit_resource(libc::RLIMIT_NOFILE, 3);
        eprintln!("{:?}", guard_kind());
    }
}
