//! A scheduler that has nothing to do uses no CPU. In a file of its own: the figures are of the whole process.

use std::fs;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use sinew::{run, sleep, spawn_local, yield_now};

/// How long it is idle.
const IDLE: Duration = Duration::from_millis(300);

/// What the scheduler's thread has used so far.
#[derive(Debug)]
struct Used {
    cpu: Duration,
    /// How often it slept in the kernel.
    sleeps: u64,
    /// Coroutine switches.
    switches: u64,
}

impl Used {
    fn now() -> Self {
        let cpu = clock_gettime(ClockId::ThreadCPUTime);
        let status = fs::read_to_string("/proc/thread-self/status").unwrap();
        let sleeps = status
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))
            .unwrap();
        Self {
            cpu: cpu.try_into().unwrap(),
            sleeps: sleeps.trim().parse().unwrap(),
            switches: sinew::inspect::stats().total.switches,
        }
    }
}

// contract: S26
#[test]
fn a_sleeper_and_a_reader_cost_nothing_while_they_wait() {
    run(|| {
        let (from, to) = sinew::io::pipe().unwrap();
        let reader = spawn_local(move || sinew::io::read(&from, &mut [0; 8], None).unwrap());
        let sleeper = spawn_local(|| sleep(IDLE).unwrap());
        yield_now().unwrap();
        let before = Used::now();
        sleeper.join().unwrap();
        let after = Used::now();
        assert!(!reader.is_finished());
        // Entering the kernel and leaving it takes some microseconds; a loop that never sleeps takes all of the time.
        let cpu = after.cpu - before.cpu;
        assert!(cpu < IDLE / 10, "{cpu:?} of CPU time");
        // One sleep, or a few if the kernel's timer is early.
        assert!(after.sleeps - before.sleeps < 10, "{before:?}, {after:?}");
        assert!(
            after.switches - before.switches < 10,
            "{before:?}, {after:?}"
        );
        assert_eq!(rustix::io::write(&to, &[1; 3]), Ok(3));
        assert_eq!(reader.join().unwrap(), 3);
    });
}

/// A kernel's timer that counts in milliseconds would be late by most of one, each time.
// contract: S13, S16
#[test]
fn a_sleeper_alone_is_woken_within_a_part_of_a_millisecond_and_never_early() {
    const ASKED: Duration = Duration::from_micros(1_300);
    run(|| {
        let late = || {
            let begin = clock();
            sleep(ASKED).unwrap();
            clock().checked_sub(begin + ASKED).expect("early")
        };
        // The machine may have others to run now and then, not each time.
        let best = (0..2_000).map(|_| late()).find(|late| *late < ASKED / 4);
        assert!(best.is_some(), "late each time");
    });
}

/// The clock that sleeps go by.
fn clock() -> Duration {
    clock_gettime(ClockId::Monotonic).try_into().unwrap()
}
