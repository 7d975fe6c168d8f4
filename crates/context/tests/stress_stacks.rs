//! Many stacks at once, all guarded, each with one page touched.
//!
//! 100,000 times `SINEW_STRESS`, a million at most: 10 makes the full test. Each is far beyond what two mappings per
//! stack would allow under the usual `vm.max_map_count` of 65,530.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "tests say what they skip and measure"
)]
#![allow(unsafe_code, reason = "touches raw stack memory")]
#![allow(
    clippy::disallowed_methods,
    reason = "figures are printed, nothing depends on the clock"
)]

use sinew_context::stack::{
    GuardKind, Stack, StackCache, StackConfig, committed_bytes, guard_kind, lookup, stats,
};
use std::time::Instant;

fn available_bytes() -> usize {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))
        .unwrap();
    line.split_ascii_whitespace()
        .next()
        .unwrap()
        .parse::<usize>()
        .unwrap()
        * 1024
}

fn touch(stack: &Stack, value: usize) {
    // SAFETY: usable bytes of a stack of ours.
    unsafe {
        stack
            .base()
            .as_ptr()
            .cast::<usize>()
            .wrapping_sub(1)
            .write_volatile(value)
    };
}

fn touched(stack: &Stack) -> usize {
    // SAFETY: usable bytes of a stack of ours.
    unsafe {
        stack
            .base()
            .as_ptr()
            .cast::<usize>()
            .wrapping_sub(1)
            .read_volatile()
    }
}

/// Runs one step and prints what it takes for each stack.
fn timed<T>(what: &str, count: usize, step: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = step();
    let each = start.elapsed().as_nanos() / count as u128;
    println!("{what}: {each} ns each");
    result
}

// contract: C17
#[test]
fn many_guarded_stacks_at_once() {
    if guard_kind() != GuardKind::Marked {
        println!("skipped: this kernel has no MADV_GUARD_INSTALL");
        return;
    }
    let factor = std::env::var("SINEW_STRESS").map_or(1, |text| match text.as_str() {
        "full" => 10,
        _ => text
            .parse()
            .unwrap_or_else(|_| panic!("SINEW_STRESS={text} is not a number")),
    });
    let count = (100_000 * factor).clamp(1, 1_000_000);
    // A page each, its share of a page table, and the handles.
    let need = count * 5300;
    if available_bytes() < need {
        println!("skipped: {count} stacks need {need} bytes of available memory");
        return;
    }
    let config = StackConfig::default();
    let mut cache = StackCache::default();
    for round in ["fresh", "recycled"] {
        println!("{count} stacks, {round}");
        let take = || {
            (0..count)
                .map(|_| cache.get(&config).unwrap())
                .collect::<Vec<_>>()
        };
        let stacks = timed("  take and guard", count, take);
        timed("  touch", count, || {
            stacks.iter().enumerate().for_each(|(n, s)| touch(s, n))
        });
        assert_eq!(stats().stacks_in_use, count);
        let committed = timed("  ask what is committed", count, committed_bytes);
        println!("  committed {} bytes each", committed / count);
        assert!(committed >= count * 4096 && committed < count * 4096 + (64 << 20));
        assert!(
            stacks
                .iter()
                .enumerate()
                .all(|(n, stack)| touched(stack) == n)
        );
        let deepest = || stacks.iter().map(Stack::high_water_bytes).max();
        assert!(timed("  high-water mark", count, deepest).unwrap() <= 4096);
        let found = |stack: &Stack| lookup(stack.guard().start).map(|slot| slot.base());
        assert!(
            stacks
                .iter()
                .step_by(97)
                .all(|stack| found(stack) == Some(stack.base()))
        );
        let mappings = std::fs::read_to_string("/proc/self/maps")
            .unwrap()
            .lines()
            .count();
        println!("  {mappings} mappings");
        assert!(mappings < 1000);
        timed("  put back", count, || {
            stacks.into_iter().for_each(|stack| cache.put(stack))
        });
        assert_eq!(stats().stacks_in_use, 0);
        assert_eq!(stats().stacks_cached + stats().stacks_idle, count);
        assert!(committed_bytes() <= 1024 * 4096 + (1 << 20));
    }
    let config_time = count.max(1_000_000);
    timed("get and put of a warm stack", config_time, || {
        for _ in 0..config_time {
            let stack = std::hint::black_box(cache.get(&config).unwrap());
            cache.put(stack);
        }
    });
    drop(cache);
    assert_eq!(committed_bytes(), 0);
}
