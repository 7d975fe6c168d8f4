//! More raw primitives under loom: semaphore, reader-writer lock, condition variable, barrier and once.
//!
//! As in `loom_sync.rs`: a wake-up that is lost ends in a deadlock, which loom reports; a value that is touched out of
//! turn, in a failure of loom's cells; a permit, a place or a turn that is lost or doubled, in a failed count.
#![cfg(loom)]
#![expect(unsafe_code, reason = "guards cells by the primitives")]

mod loom_party;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use loom_party::{Party, check};
use sinew_core::sync::{
    Begin, RawBarrier, RawCondvar, RawMutex, RawOnce, RawRwLock, RawSemaphore, Role, TryDown,
};
use sinew_core::wait::Reason;

const TIMEOUT: Option<Reason> = Some(Reason::Timeout);

/// A number beside a primitive that says who may touch it.
struct Beside<T> {
    primitive: T,
    number: UnsafeCell<usize>,
}

// SAFETY: loom's cell finds a touch out of turn.
unsafe impl<T> Sync for Beside<T> {}
// SAFETY: as above.
unsafe impl<T> Send for Beside<T> {}

impl<T> Beside<T> {
    fn new(primitive: T) -> Arc<Self> {
        Arc::new(Self {
            primitive,
            number: UnsafeCell::new(0),
        })
    }

    fn count(&self) {
        // SAFETY: loom checks that this thread is alone at it.
        self.number.with_mut(|number| unsafe { *number += 1 });
    }

    fn read(&self) -> usize {
        // SAFETY: loom checks that nobody writes.
        self.number.with(|number| unsafe { *number })
    }
}

/// Runs the first in this thread and the others in theirs; returns what they return.
fn run_all<T: 'static>(mut parts: Vec<Box<dyn FnOnce() -> T + Send>>) -> Vec<T> {
    let first = parts.remove(0);
    let threads: Vec<_> = parts.into_iter().map(thread::spawn).collect();
    let mut all = vec![first()];
    all.extend(threads.into_iter().map(|thread| thread.join().unwrap()));
    all
}

type Parts<T> = Vec<Box<dyn FnOnce() -> T + Send>>;

/// Each takes so many permits once, if its wait is not struck, and gives them back. There are so many at first.
fn permits(preemptions: usize, count: usize, parties: &'static [(usize, Option<Reason>)]) {
    check(preemptions, move || {
        let shared = Beside::new(RawSemaphore::new(count));
        let parts: Parts<()> = parties
            .iter()
            .map(|&(wanted, rival)| {
                let shared = shared.clone();
                let part = move || match shared.primitive.down(wanted, &*Party::new(rival)) {
                    Ok(()) => {
                        if wanted == count {
                            shared.count();
                        }
                        shared.primitive.up(wanted).unwrap();
                    }
                    Err(reason) => assert_eq!(Some(reason), rival),
                };
                Box::new(part) as Box<dyn FnOnce() + Send>
            })
            .collect();
        run_all(parts);
        assert_eq!(shared.primitive.value(), count, "lost or doubled");
        assert_eq!(shared.primitive.try_down(count), TryDown::Taken);
    });
}

#[test]
fn semaphore_of_one_excludes() {
    permits(2, 1, &[(1, None), (1, None), (1, None)]);
    permits(2, 1, &[(1, None), (1, TIMEOUT), (1, None)]);
}

/// One wants all there are and may give up, with another behind it that could do with less.
#[test]
fn semaphore_with_one_that_wants_many() {
    permits(2, 2, &[(1, None), (2, None), (1, None)]);
    permits(2, 2, &[(1, None), (2, TIMEOUT), (1, None)]);
}

/// The first in the line gives up, and nobody gives permits: who comes behind it is served by it.
#[test]
fn semaphore_served_by_one_that_gives_up() {
    check(3, || {
        let semaphore = Arc::new(RawSemaphore::new(1));
        let large = {
            let semaphore = semaphore.clone();
            thread::spawn(move || semaphore.down(2, &*Party::new(TIMEOUT)))
        };
        assert_eq!(semaphore.down(1, &*Party::new(None)), Ok(()));
        assert_eq!(large.join().unwrap(), Err(Reason::Timeout));
        assert_eq!(semaphore.value(), 0);
    });
}

/// Two wait at an empty semaphore; one `up` and a close come.
#[test]
fn semaphore_up_and_close() {
    for rival in [None, TIMEOUT] {
        check(3, move || {
            let semaphore = Arc::new(RawSemaphore::new(0));
            let waiting = |rival| {
                let semaphore = semaphore.clone();
                thread::spawn(move || semaphore.down(1, &*Party::new(rival)))
            };
            let waiters = [waiting(rival), waiting(None)];
            semaphore.up(1).unwrap();
            assert!(semaphore.close());
            let mut taken = 0;
            for (waiter, rival) in waiters.into_iter().zip([rival, None]) {
                match waiter.join().unwrap() {
                    Ok(()) => taken += 1,
                    Err(reason) => assert!(reason == Reason::Closed || Some(reason) == rival),
                }
            }
            assert_eq!(taken + semaphore.value(), 1, "lost or doubled");
        });
    }
}

#[derive(Clone, Copy)]
enum Side {
    Read,
    Write,
    Downgrade,
}

/// Each goes in once as given, if its wait is not struck. Writers count.
fn readers_and_writers(preemptions: usize, parties: &'static [(Side, Option<Reason>)]) {
    check(preemptions, move || {
        let shared = Beside::new(RawRwLock::new());
        let parts: Parts<usize> = parties
            .iter()
            .map(|&(side, rival)| {
                let shared = shared.clone();
                let part = move || go_in(&shared, side, rival);
                Box::new(part) as Box<dyn FnOnce() -> usize + Send>
            })
            .collect();
        let written: usize = run_all(parts).into_iter().sum();
        assert_eq!(shared.read(), written);
        assert_eq!(shared.primitive.holders(), (0, false));
        assert!(shared.primitive.try_write(1), "left free");
    });
}

/// Returns how often it has written.
fn go_in(shared: &Beside<RawRwLock>, side: Side, rival: Option<Reason>) -> usize {
    let party = Party::new(rival);
    let lock = &shared.primitive;
    let result = match side {
        Side::Read => lock.read(&*party),
        Side::Write | Side::Downgrade => lock.write(&*party, 1),
    };
    if let Err(reason) = result {
        assert_eq!(Some(reason), rival);
        return 0;
    }
    match side {
        Side::Read => {
            let _number = shared.read();
            // SAFETY: this thread is in to read.
            unsafe { lock.unlock_read() };
            0
        }
        Side::Write => {
            shared.count();
            // SAFETY: this thread is in to write.
            unsafe { lock.unlock_write() };
            1
        }
        Side::Downgrade => {
            shared.count();
            // SAFETY: this thread is in to write.
            unsafe { lock.downgrade() };
            let _number = shared.read();
            // SAFETY: and now to read.
            unsafe { lock.unlock_read() };
            1
        }
    }
}

#[test]
fn rwlock_with_a_writer_among_readers() {
    readers_and_writers(
        2,
        &[(Side::Read, None), (Side::Write, None), (Side::Read, None)],
    );
    readers_and_writers(
        2,
        &[
            (Side::Read, None),
            (Side::Write, TIMEOUT),
            (Side::Read, None),
        ],
    );
}

#[test]
fn rwlock_with_a_reader_among_writers() {
    readers_and_writers(
        2,
        &[(Side::Write, None), (Side::Read, None), (Side::Write, None)],
    );
    readers_and_writers(
        2,
        &[
            (Side::Write, None),
            (Side::Read, TIMEOUT),
            (Side::Write, TIMEOUT),
        ],
    );
}

/// A writer gives up while one reads and keeps reading: the reader that comes behind it is let in.
#[test]
fn rwlock_opened_by_a_writer_that_gives_up() {
    check(3, || {
        let lock = Arc::new(RawRwLock::new());
        assert!(lock.try_read());
        let writer = {
            let lock = lock.clone();
            thread::spawn(move || lock.write(&*Party::new(TIMEOUT), 1))
        };
        assert_eq!(lock.read(&*Party::new(None)), Ok(()));
        assert_eq!(writer.join().unwrap(), Err(Reason::Timeout));
        assert_eq!(lock.holders(), (2, false));
    });
}

#[test]
fn rwlock_with_a_downgrade() {
    readers_and_writers(
        2,
        &[
            (Side::Downgrade, None),
            (Side::Read, None),
            (Side::Write, None),
        ],
    );
}

/// One waits for the number to be set, with the mutex around it; the other sets it and notifies.
#[test]
fn condvar_notified() {
    for (all, rival) in [(false, None), (true, None), (false, TIMEOUT)] {
        check(3, move || {
            let shared = Beside::new((RawMutex::new(), RawCondvar::new()));
            let setter = {
                let shared = shared.clone();
                thread::spawn(move || {
                    let (mutex, condvar) = &shared.primitive;
                    mutex.lock(&*Party::new(None), 1).unwrap();
                    shared.count();
                    // SAFETY: locked above.
                    unsafe { mutex.unlock() };
                    if all {
                        condvar.notify_all();
                    } else {
                        condvar.notify_one();
                    }
                })
            };
            let (mutex, condvar) = &shared.primitive;
            let (party, relocking) = (Party::new(rival), Party::new(None));
            mutex.lock(&*relocking, 2).unwrap();
            let mut result = Ok(());
            while shared.read() == 0 && result.is_ok() {
                // SAFETY: locked, and locked again after each wait.
                result = unsafe { condvar.wait(mutex, 2, &*party, &*relocking) };
            }
            assert!(mutex.is_locked());
            assert!(result.is_ok() || result == Err(Reason::Timeout));
            let _touched_under_the_mutex = shared.read();
            // SAFETY: locked.
            unsafe { mutex.unlock() };
            setter.join().unwrap();
            assert_eq!(shared.read(), 1);
        });
    }
}

/// One notification, two who wait, of whom one may give up: it does not swallow the notification then, for nobody else would
/// wake the other.
#[test]
fn condvar_one_notification_for_two() {
    /// Waits until the number is set; who gets the notification passes it on.
    fn wait(shared: &Beside<(RawMutex, RawCondvar)>, rival: Option<Reason>) {
        let (mutex, condvar) = &shared.primitive;
        let (party, relocking) = (Party::new(rival), Party::new(None));
        mutex.lock(&*relocking, 1).unwrap();
        let mut result = Ok(());
        while shared.read() == 0 && result.is_ok() {
            // SAFETY: locked, and locked again after each wait.
            result = unsafe { condvar.wait(mutex, 1, &*party, &*relocking) };
        }
        // SAFETY: locked.
        unsafe { mutex.unlock() };
        match result {
            Ok(()) => {
                condvar.notify_one();
            }
            Err(reason) => assert_eq!(Some(reason), rival),
        }
    }
    check(2, || {
        let shared = Beside::new((RawMutex::new(), RawCondvar::new()));
        let other = {
            let shared = shared.clone();
            thread::spawn(move || wait(&shared, TIMEOUT))
        };
        let setter = {
            let shared = shared.clone();
            thread::spawn(move || {
                let (mutex, condvar) = &shared.primitive;
                mutex.lock(&*Party::new(None), 2).unwrap();
                shared.count();
                // SAFETY: locked.
                unsafe { mutex.unlock() };
                condvar.notify_one();
            })
        };
        wait(&shared, None);
        other.join().unwrap();
        setter.join().unwrap();
    });
}

/// As many come as the barrier is for, one of whom may give up; then one more comes in its place.
#[test]
fn barrier_with_one_that_gives_up() {
    check(3, || {
        let shared = Beside::new(RawBarrier::new(2));
        let coming = |rival| {
            let shared = shared.clone();
            thread::spawn(move || shared.primitive.wait(&*Party::new(rival)))
        };
        let others = [coming(TIMEOUT), coming(TIMEOUT)];
        let mine = shared.primitive.wait(&*Party::new(TIMEOUT));
        let mut all: Vec<_> = others.map(|other| other.join().unwrap()).into();
        all.push(mine);
        let of = |role| all.iter().filter(|&&one| one == role).count();
        let leaders = of(Ok(Role::Leader));
        assert_eq!(of(Ok(Role::Follower)), leaders, "two go through, or none");
        assert_eq!(leaders * 2 + of(Err(Reason::Timeout)), 3);
        assert_eq!(shared.primitive.arrived(), 0, "nobody is left");
    });
}

/// What each has done before it came is seen by those who are through.
#[test]
fn barrier_orders_what_came_before() {
    check(3, || {
        let shared = Beside::new(RawBarrier::new(2));
        let other = {
            let shared = shared.clone();
            thread::spawn(move || {
                shared.count();
                shared.primitive.wait(&*Party::new(None)).unwrap()
            })
        };
        let mine = shared.primitive.wait(&*Party::new(None)).unwrap();
        assert_eq!(shared.read(), 1);
        assert_ne!(mine, other.join().unwrap(), "one leads");
    });
}

/// Each comes to do it; those of the given numbers fail. One that waits may give up.
fn doers(preemptions: usize, fail: &'static [bool], rival: Option<Reason>) {
    check(preemptions, move || {
        let shared = Beside::new(RawOnce::new());
        let parts: Parts<bool> = fail
            .iter()
            .zip(1..)
            .map(|(&fails, me)| {
                let shared = shared.clone();
                let rival = rival.filter(|_| me == 1);
                let part = move || match shared.primitive.begin(me, &*Party::new(rival)) {
                    Ok(Begin::Turn(turn)) => {
                        shared.count();
                        if !fails {
                            turn.complete();
                        }
                        true
                    }
                    Ok(Begin::Done) => {
                        let _number = shared.read();
                        false
                    }
                    Ok(Begin::Reentered) => panic!("it is not at it"),
                    Err(reason) => {
                        assert_eq!(Some(reason), rival);
                        false
                    }
                };
                Box::new(part) as Box<dyn FnOnce() -> bool + Send>
            })
            .collect();
        let done = run_all(parts);
        let tries = done.iter().filter(|&&tried| tried).count();
        assert_eq!(shared.read(), tries);
        let succeeded = done
            .iter()
            .zip(fail)
            .filter(|&(&tried, &fails)| tried && !fails);
        assert_eq!(succeeded.count(), usize::from(shared.primitive.is_done()));
        assert_eq!(shared.primitive.runner(), 0, "nobody is left at it");
    });
}

#[test]
fn once_of_three() {
    doers(2, &[false, false, false], None);
}

#[test]
fn once_with_failures_and_a_timeout() {
    doers(2, &[true, true, false], None);
    doers(2, &[false, true, true], TIMEOUT);
}

/// One only watches, while the first to do it fails and the second succeeds.
#[test]
fn once_watched() {
    check(3, || {
        let shared = Beside::new(RawOnce::new());
        let doing = {
            let shared = shared.clone();
            thread::spawn(move || {
                for fails in [true, false] {
                    match shared.primitive.begin(1, &*Party::new(None)) {
                        Ok(Begin::Turn(turn)) => {
                            shared.count();
                            if !fails {
                                turn.complete();
                            }
                        }
                        other => panic!("{other:?}"),
                    }
                }
            })
        };
        let watching = shared.clone();
        let watcher = thread::spawn(move || {
            watching.primitive.wait(&*Party::new(None)).unwrap();
            assert_eq!(watching.read(), 2);
        });
        if shared.primitive.is_done() {
            assert_eq!(shared.read(), 2);
        }
        doing.join().unwrap();
        watcher.join().unwrap();
    });
}
