//! Well-known programs of communicating processes, by channels: what they compute is known.
//!
//! Each runs on one scheduler, and its processes spread over schedulers and plain threads.

mod io_rig;

use std::thread;

use io_rig::{stress, watchdog};
use sinew::sync::channel::{Receiver, Sender, bounded, rendezvous, unbounded};
use sinew::{run, scope, select, spawn_local};

/// Where a process runs.
#[derive(Debug, Clone, Copy)]
enum Where {
    /// In a coroutine of the scheduler that starts it.
    Here,
    /// In a coroutine of a scheduler of its own thread.
    Scheduler,
    /// On a plain thread.
    Thread,
}

/// Starts a process; one that is elsewhere is waited for by the channels.
fn start(place: Where, process: impl FnOnce() + Send + 'static) {
    match place {
        Where::Here => drop(spawn_local(process)),
        Where::Scheduler => drop(thread::spawn(|| run(process))),
        Where::Thread => drop(thread::spawn(process)),
    }
}

/// A token goes round a ring of processes, each of which adds one.
fn ring(processes: usize, rounds: u64, place: impl Fn(usize) -> Where) {
    let (first, mut previous) = rendezvous::<u64>();
    for index in 1..processes {
        let (next, receiver) = rendezvous();
        let from = std::mem::replace(&mut previous, receiver);
        start(place(index), move || {
            for token in &from {
                next.send(token + 1).unwrap();
            }
        });
    }
    let mut token = 0;
    for _ in 0..rounds {
        first.send(token).unwrap();
        token = previous.recv().unwrap() + 1;
    }
    assert_eq!(token, rounds * processes as u64);
}

// contract: Y9
#[test]
fn a_ring_of_a_thousand_processes() {
    let _watchdog = watchdog();
    run(|| ring(1000, 100 * stress() as u64, |_| Where::Here));
}

// contract: Y9, Y11
#[test]
fn a_ring_over_schedulers_and_threads() {
    let _watchdog = watchdog();
    let places = [Where::Here, Where::Scheduler, Where::Thread];
    run(move || ring(24, 50 * stress() as u64, move |index| places[index % 3]));
}

/// The numbers from 2 on go through a filter for each prime found; the first that comes out of the last is the next prime.
fn sieve(primes: usize, channel: fn() -> (Sender<u32>, Receiver<u32>), place: fn(usize) -> Where) {
    let (numbers, mut out) = channel();
    start(place(0), move || {
        // Ends when the first filter is gone.
        let _refused = (2..).try_for_each(|n| numbers.send(n));
    });
    let mut found = Vec::new();
    for index in 1..=primes {
        let prime = out.recv().unwrap();
        found.push(prime);
        let (next, receiver) = channel();
        let from = std::mem::replace(&mut out, receiver);
        start(place(index), move || {
            for n in from.iter().filter(|n| n % prime != 0) {
                if next.send(n).is_err() {
                    break;
                }
            }
        });
    }
    let expected: Vec<u32> = (2..)
        .filter(|n| (2..*n).take_while(|d| d * d <= *n).all(|d| n % d != 0))
        .take(primes)
        .collect();
    assert_eq!(found, expected);
}

// contract: Y9
#[test]
fn a_prime_sieve() {
    let _watchdog = watchdog();
    for channel in [rendezvous, || bounded(8)] {
        run(move || sieve(150, channel, |_| Where::Here));
    }
}

// contract: Y9, Y11
#[test]
fn a_prime_sieve_over_schedulers_and_threads() {
    let _watchdog = watchdog();
    run(|| {
        sieve(12, rendezvous, |index| match index % 3 {
            0 => Where::Scheduler,
            1 => Where::Here,
            _ => Where::Thread,
        });
    });
}

/// Producers and consumers, each somewhere; the sum and the count are exact.
fn produce_and_consume(channel: fn() -> (Sender<u64>, Receiver<u64>), places: [Where; 3]) {
    const EACH: u64 = 2_000;
    const PRODUCERS: u64 = 6;
    let (sender, receiver) = channel();
    let (totals, results) = unbounded();
    for producer in 0..PRODUCERS {
        let sender = sender.clone();
        start(places[producer as usize % 3], move || {
            let first = producer * EACH;
            (first..first + EACH).for_each(|n| sender.send(n).unwrap());
        });
    }
    drop(sender);
    for consumer in 0..4 {
        let (receiver, totals) = (receiver.clone(), totals.clone());
        start(places[(consumer + 1) % 3], move || {
            let total = receiver
                .iter()
                .fold((0, 0), |(count, sum), n| (count + 1, sum + n));
            totals.send(total).unwrap();
        });
    }
    drop((receiver, totals));
    let total: (u64, u64) = results.iter().fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
    let count = PRODUCERS * EACH;
    assert_eq!(total, (count, count * (count - 1) / 2));
}

// contract: Y9, Y11
#[test]
fn producers_and_consumers_count_exactly() {
    let _watchdog = watchdog();
    let spread = [Where::Here, Where::Scheduler, Where::Thread];
    for channel in [rendezvous, || bounded(1), || bounded(64), unbounded] {
        run(move || produce_and_consume(channel, [Where::Here; 3]));
        run(move || produce_and_consume(channel, spread));
    }
}

/// Many lines into one, each in its order, by a select; the end of each line is seen once.
// contract: Y10, Y11
#[test]
fn lines_are_merged_in_their_order() {
    const EACH: u32 = 1_000;
    let _watchdog = watchdog();
    for place in [Where::Here, Where::Scheduler, Where::Thread] {
        run(move || {
            let (senders, lines): (Vec<_>, Vec<_>) = (0..3).map(|_| rendezvous::<u32>()).unzip();
            for sender in senders {
                start(place, move || {
                    (0..EACH).for_each(|n| sender.send(n).unwrap())
                });
            }
            let mut next = [Some(0); 3];
            while next.iter().any(Option::is_some) {
                let open = |line: usize| next[line].map(|_| &lines[line]);
                // One that has ended would always be ready: it is left out by a channel on which nothing comes.
                let (_keep, never) = rendezvous();
                let (a, b, c) = (
                    open(0).unwrap_or(&never),
                    open(1).unwrap_or(&never),
                    open(2).unwrap_or(&never),
                );
                let (line, n) = select! {
                    n = a.recv() => (0, n),
                    n = b.recv() => (1, n),
                    n = c.recv() => (2, n),
                }
                .unwrap();
                let expected = next[line].unwrap();
                next[line] = n.ok().inspect(|n| assert_eq!(*n, expected)).map(|n| n + 1);
                assert!(next[line].is_some() || expected == EACH);
            }
        });
    }
}

/// Philosophers at a table: a fork is a channel of one, taken by receiving; who cannot have both gives the first one back.
// contract: Y10
#[test]
fn philosophers_eat_by_channels() {
    const MEALS: u32 = 300;
    let _watchdog = watchdog();
    run(|| {
        let forks: Vec<_> = (0..5).map(|_| bounded::<()>(1)).collect();
        forks.iter().for_each(|fork| fork.0.send(()).unwrap());
        let meals = scope(|s| {
            let eaters: Vec<_> = (0..5)
                .map(|seat| {
                    let (left, right) = (&forks[seat], &forks[(seat + 1) % 5]);
                    s.spawn(move || {
                        let mut meals = 0;
                        while meals < MEALS {
                            // Whichever fork comes first, and the other only if it is there.
                            let (first, second) = select! {
                                fork = left.1.recv() => { fork.unwrap(); (left, right) }
                                fork = right.1.recv() => { fork.unwrap(); (right, left) }
                            }
                            .unwrap();
                            let is_fed = select! { fork = second.1.recv() => fork.is_ok(), default => false };
                            sinew::yield_now().unwrap();
                            if is_fed {
                                meals += 1;
                                second.0.send(()).unwrap();
                            }
                            first.0.send(()).unwrap();
                            sinew::yield_now().unwrap();
                        }
                        meals
                    })
                })
                .collect();
            eaters
                .into_iter()
                .map(|eater| eater.join().unwrap())
                .sum::<u32>()
        });
        assert_eq!(meals, 5 * MEALS);
        assert!(
            forks.iter().all(|fork| fork.1.len() == 1),
            "all forks are back"
        );
    });
}
