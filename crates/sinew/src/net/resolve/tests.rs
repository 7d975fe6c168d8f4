//! The resolver threads with answers of the tests' own: their number, cancels, abandoned requests.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use super::{Answer, REQUESTS_MAX, ROOM, THREADS_MAX, lock, resolve_elsewhere};
use crate::net::{ToSocketAddrs, lookup_host_deadline, lookup_host_timeout};

/// What a test's lookups do: they wait until the test opens the gate of their name.
#[derive(Default)]
struct Gate {
    open: bool,
    begun: usize,
    now: usize,
    most: usize,
}

static GATES: Mutex<Option<HashMap<String, Gate>>> = Mutex::new(None);
static CHANGED: Condvar = Condvar::new();

fn with_gate<R>(name: &str, f: impl FnOnce(&mut Gate) -> R) -> R {
    let mut gates = GATES.lock().unwrap();
    let gates = gates.get_or_insert_default();
    let result = f(gates.entry(name.to_owned()).or_default());
    CHANGED.notify_all();
    result
}

fn wait_for(name: &str, ready: impl Fn(&Gate) -> bool) {
    let mut gates = GATES.lock().unwrap();
    while !gates
        .as_ref()
        .and_then(|gates| gates.get(name))
        .is_some_and(&ready)
    {
        gates = CHANGED.wait(gates).unwrap();
    }
}

fn ask(host: &str, port: u16) -> Answer {
    with_gate(host, |gate| {
        gate.begun += 1;
        gate.now += 1;
        gate.most = gate.most.max(gate.now);
    });
    wait_for(host, |gate| gate.open);
    with_gate(host, |gate| gate.now -= 1);
    Ok(vec![SocketAddr::from(([127, 0, 0, 1], port))])
}

// One test, for the threads are the process's.
#[test]
fn lookups_on_a_bounded_number_of_threads() {
    crate::run(|| {
        let lookups: Vec<_> = (0..40)
            .map(|port| {
                crate::spawn_local(move || resolve_elsewhere("many", port, ask).unwrap()[0].port())
            })
            .collect();
        crate::sleep(Duration::ZERO).unwrap();
        wait_for("many", |gate| gate.begun == THREADS_MAX);
        // All threads are busy: this one is queued, and a cancel ends its wait all the same.
        let queued = crate::spawn_local(|| resolve_elsewhere("queued", 1, ask));
        crate::sleep(Duration::ZERO).unwrap();
        queued.cancel("test");
        let error = queued.join().unwrap().unwrap_err();
        assert!(crate::is_cancelled(&error), "{error}");
        // And one that has begun.
        lookups[0].cancel("test");
        lookups[0].wait().unwrap();
        with_gate("many", |gate| gate.open = true);
        let mut lookups = lookups.into_iter().zip(0..);
        let (cancelled, _) = lookups.next().unwrap();
        assert!(cancelled.join().is_err());
        for (lookup, port) in lookups {
            assert_eq!(lookup.join().unwrap(), port);
        }
        assert!(with_gate("many", |gate| gate.most) <= THREADS_MAX);
        // Nobody waited for it any more when its turn came.
        assert_eq!(with_gate("queued", |gate| gate.begun), 0);
    });
    crate::run(a_bounded_number_of_requests);
    nobody_takes_it_for_a_deadlock();
    crate::run(limits_end_a_lookup);
    // A plain thread that has a limit does not ask for itself.
    limits_end_a_lookup();
    with_gate("slow", |gate| gate.open = true);
}

fn nobody_takes_it_for_a_deadlock() {
    let (_never, pause) = std::sync::mpsc::channel::<()>();
    let opening = std::thread::spawn(move || {
        wait_for("long", |gate| gate.begun == 1);
        // Longer than it takes until a scheduler that sleeps is looked at. Nobody sends.
        let _paused = pause.recv_timeout(Duration::from_millis(100)).is_err();
        with_gate("long", |gate| gate.open = true);
    });
    crate::run(|| resolve_elsewhere("long", 1, ask)).unwrap();
    opening.join().unwrap();
}

/// A name whose resolver takes its time.
struct Slow;

impl ToSocketAddrs for Slow {
    type Iter = std::vec::IntoIter<SocketAddr>;

    fn to_socket_addrs(&self) -> std::io::Result<Self::Iter> {
        Ok(resolve_elsewhere("slow", 1, ask)?.into_iter())
    }
}

fn limits_end_a_lookup() {
    let timeout = Duration::from_millis(1);
    let error = lookup_host_timeout(Slow, timeout).err();
    assert_eq!(error.unwrap().kind(), ErrorKind::TimedOut);
    let error = lookup_host_deadline(Slow, crate::time::now() + timeout).err();
    assert_eq!(error.unwrap().kind(), ErrorKind::TimedOut);
}

fn a_bounded_number_of_requests() {
    let lookup = |name: &'static str| crate::spawn_local(move || resolve_elsewhere(name, 1, ask));
    let busy: Vec<_> = (0..THREADS_MAX).map(|_| lookup("full")).collect();
    crate::sleep(Duration::ZERO).unwrap();
    wait_for("full", |gate| gate.begun == THREADS_MAX);
    let mut queued: Vec<_> = (THREADS_MAX..REQUESTS_MAX)
        .map(|_| lookup("full"))
        .collect();
    let mut late: Vec<_> = (0..10).map(|_| lookup("late")).collect();
    crate::sleep(Duration::ZERO).unwrap();
    assert_eq!(lock().requests.len(), REQUESTS_MAX - THREADS_MAX);
    assert_eq!(ROOM.value(), 0);
    // Who waits for room can be cancelled, and has a deadline.
    let cancelled = late.swap_remove(0);
    cancelled.cancel("test");
    assert!(crate::is_cancelled(&cancelled.join().unwrap().unwrap_err()));
    let ended = crate::timeout(Duration::from_millis(1), || {
        resolve_elsewhere("never", 1, ask).unwrap_err().kind()
    });
    assert!(ended.is_err());
    // One that is queued makes room when it is given up, though all threads are busy.
    for lookup in queued.drain(..late.len()) {
        lookup.cancel("test");
        assert!(crate::is_cancelled(&lookup.join().unwrap().unwrap_err()));
    }
    crate::sleep(Duration::ZERO).unwrap();
    assert_eq!(lock().requests.len(), REQUESTS_MAX - THREADS_MAX);
    with_gate("late", |gate| gate.open = true);
    with_gate("full", |gate| gate.open = true);
    for lookup in busy.into_iter().chain(queued).chain(late) {
        lookup.join().unwrap().unwrap();
    }
    assert_eq!(with_gate("never", |gate| gate.begun), 0);
    assert_eq!(with_gate("full", |gate| gate.most), THREADS_MAX);
}
