//! sinew's primitives of one thread beside those of all threads: the same code, run for both kinds.

use std::rc::Rc;

use sinew::sync::kinds::{Event, Local, Mutex, RwLock, Semaphore, Shared, Sharing};
use sinew::sync::{channel, local};
use sinew::{WaitError, spawn_local};

use crate::meter::{Meter, Sample};
use crate::workload::Load;

fn uncancelled<T>(result: Result<T, WaitError>) -> T {
    result.expect("nothing is cancelled here")
}

/// The two ends of a channel of kind `K`.
type Ends<K> = (
    sinew::sync::kinds::Sender<u64, K>,
    sinew::sync::kinds::Receiver<u64, K>,
);

/// A primitive's work, for either kind.
fn measured(work: impl FnOnce() -> u64) -> Result<Sample, String> {
    let meter = Meter::start();
    let done = sinew::run(work);
    Ok(meter.cpu(done))
}

fn free_mutex<K: Sharing>(load: Load) -> u64 {
    let mutex = Mutex::<u64, K>::new(0);
    for _ in 0..load.operations() {
        *uncancelled(mutex.lock()) += 1;
    }
    mutex.into_inner()
}

fn free_rwlock<K: Sharing>(load: Load) -> u64 {
    let lock = RwLock::<u64, K>::new(1);
    (0..load.operations())
        .map(|_| *uncancelled(lock.read()))
        .sum()
}

fn free_semaphore<K: Sharing>(load: Load) -> u64 {
    let semaphore = Semaphore::<K>::new(1);
    let mut count = 0;
    for _ in 0..load.operations() {
        uncancelled(semaphore.down());
        count += 1;
        semaphore.up();
    }
    count
}

fn kept_event<K: Sharing>(load: Load) -> u64 {
    let event = Event::<K>::auto();
    let mut count = 0;
    for _ in 0..load.operations() {
        event.set();
        count += u64::from(event.try_wait());
    }
    count
}

fn buffered<K: Sharing>((sender, receiver): Ends<K>, load: Load) -> u64 {
    let mut count = 0;
    for value in 0..load.operations() {
        count += u64::from(sender.try_send(value).is_ok());
        count -= u64::from(receiver.try_recv() != Ok(value));
    }
    count
}

fn pingpong<K: Sharing>(
    (there, from_there): Ends<K>,
    (back, from_back): Ends<K>,
    load: Load,
) -> u64 {
    let ponger = spawn_local(move || {
        while let Ok(value) = from_there.recv() {
            back.send(value + 1).expect("the pinger waits for it");
        }
    });
    let mut value = 0;
    for _ in 0..load.operations() {
        there.send(value).expect("the ponger waits for it");
        value = uncancelled(from_back.recv());
    }
    drop(there);
    ponger.join().expect("it returns");
    value
}

fn signals<K: Sharing>(load: Load) -> u64 {
    let events = Rc::new((Event::<K>::auto(), Event::<K>::auto()));
    let ponger = {
        let events = events.clone();
        spawn_local(move || {
            for _ in 0..load.operations() {
                uncancelled(events.0.wait());
                events.1.set();
            }
        })
    };
    let mut count = 0;
    for _ in 0..load.operations() {
        events.0.set();
        uncancelled(events.1.wait());
        count += 1;
    }
    ponger.join().expect("it returns");
    count
}

/// Two functions for one work: of one thread, and of all threads.
macro_rules! both {
    ($local:ident, $shared:ident, $work:ident) => {
        pub(crate) fn $local(load: Load) -> Result<Sample, String> {
            measured(|| $work::<Local>(load))
        }

        pub(crate) fn $shared(load: Load) -> Result<Sample, String> {
            measured(|| $work::<Shared>(load))
        }
    };
}

both!(local_mutex, shared_mutex, free_mutex);
both!(local_rwlock, shared_rwlock, free_rwlock);
both!(local_semaphore, shared_semaphore, free_semaphore);
both!(local_event, shared_event, kept_event);
both!(local_signals, shared_signals, signals);

pub(crate) fn local_channel(load: Load) -> Result<Sample, String> {
    measured(|| buffered(local::channel::bounded(1), load))
}

pub(crate) fn shared_channel(load: Load) -> Result<Sample, String> {
    measured(|| buffered(channel::bounded(1), load))
}

pub(crate) fn local_pingpong(load: Load) -> Result<Sample, String> {
    measured(|| {
        let back = local::channel::rendezvous();
        pingpong(local::channel::rendezvous(), back, load)
    })
}

pub(crate) fn shared_pingpong(load: Load) -> Result<Sample, String> {
    measured(|| pingpong(channel::rendezvous(), channel::rendezvous(), load))
}
