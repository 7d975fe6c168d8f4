//! Backtraces of suspended coroutines.

use std::hint::black_box;
use std::io::{Read, Write};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc;
use std::time::Duration;

use sinew::inspect::{Backtrace, BacktraceError, FRAMES_MAX, backtrace};
use sinew::net::{TcpListener, TcpStream};
use sinew::sync::{Mutex, channel};
use sinew::{Builder, Scheduler, go_local, park, run, sleep, spawn_local, yield_now};

const PATIENCE: Duration = Duration::from_secs(60);

fn of(id: u64) -> Backtrace {
    backtrace(id, PATIENCE).unwrap()
}

/// The place of the frame whose name contains this.
#[track_caller]
fn place(trace: &Backtrace, name: &str) -> usize {
    trace
        .frames()
        .iter()
        .position(|frame| frame.name.as_deref().is_some_and(|it| it.contains(name)))
        .unwrap_or_else(|| panic!("no {name} in\n{trace}"))
}

#[inline(never)]
fn outer(wait: fn()) {
    middle(wait);
    black_box(());
}

#[inline(never)]
fn middle(wait: fn()) {
    inner(wait);
    black_box(());
}

#[inline(never)]
fn inner(wait: fn()) {
    wait();
    black_box(());
}

// contract: O4
#[test]
fn nested_calls_are_named_in_order_with_their_lines() {
    run(|| {
        let parked = spawn_local(|| outer(|| park().unwrap()));
        yield_now().unwrap();
        let trace = of(parked.id());
        let places = ["inner", "middle", "outer"].map(|name| place(&trace, &format!("inspect_backtraces::{name}")));
        assert!(places.is_sorted(), "{trace}");
        assert!(trace.is_whole(), "{trace}");
        let frame = &trace.frames()[places[2]];
        assert!(frame.file.as_deref().unwrap().ends_with("inspect_backtraces.rs"));
        let line = usize::try_from(frame.line.unwrap()).unwrap();
        let text = include_str!("inspect_backtraces.rs").lines().nth(line - 1).unwrap();
        assert!(text.contains("middle(wait);"), "line {line} is {text:?}");
        parked.unparker().unpark();
    });
}
