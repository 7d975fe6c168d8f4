//! The raw primitives under loom: threads that wait, and timers or cancels that strike right after the waiter is linked.
//!
//! A wake-up that is lost ends in a deadlock, which loom reports; a value that is touched without its
//! lock, a failure of loom's cells; one that is lost or doubled, a failed count.
#![cfg(loom)]
#![expect(unsafe_code, reason = "guards cells by the primitives")]

mod loom_party;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering::Relaxed};
use loom::thread;
use loom_party::{Party, check};
use sinew_core::sync::{Channel, Mode, RawEvent, RawMutex, RawWaitGroup, Signal};
use sinew_core::wait::Reason;

/// A count that only the holder of the mutex touches.
struct Guarded {
    mutex: RawMutex,
    count: UnsafeCell<usize>,
}

// SAFETY: loom's cell finds a touch without the mutex.
unsafe impl Sync for Guarded {}
// SAFETY: as above.
unsafe impl Send for Guarded {}

impl Guarded {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            mutex: RawMutex::new(),
            count: UnsafeCell::new(0),
        })
    }

    /// What a holder does.
    fn count_and_unlock(&self) {
        assert!(self.mutex.is_locked());
        // SAFETY: the mutex is held.
        self.count.with_mut(|count| unsafe { *count += 1 });
        // SAFETY: as above.
        unsafe { self.mutex.unlock() };
    }

    /// Locks and counts `times` times; says how often it got the mutex.
    fn count(&self, rival: Option<Reason>, times: usize) -> usize {
        let party = Party::new(rival);
        let mut taken = 0;
        for _ in 0..times {
            match self.mutex.lock(&*party, 1) {
                Ok(()) => {
                    self.count_and_unlock();
                    taken += 1;
                }
                Err(reason) => assert_eq!(Some(reason), rival),
            }
        }
        taken
    }
}

/// One party locks as often as given with each entry, with what strikes its waits.
fn mutex_among(preemptions: usize, parties: &'static [(Option<Reason>, usize)]) {
    check(preemptions, move || {
        let guarded = Guarded::new();
        let threads: Vec<_> = parties[1..]
            .iter()
            .map(|&(rival, times)| {
                let guarded = guarded.clone();
                thread::spawn(move || guarded.count(rival, times))
            })
            .collect();
        let mut taken = guarded.count(parties[0].0, parties[0].1);
        for thread in threads {
            taken += thread.join().unwrap();
        }
        assert_eq!(guarded.count(None, 1), 1, "left free");
        // SAFETY: the others have ended.
        let count = guarded.count.with(|count| unsafe { *count });
        assert_eq!(count, taken + 1);
    });
}

#[test]
fn mutex_excludes_three() {
    mutex_among(2, &[(None, 1), (None, 1), (None, 1)]);
}

#[test]
fn mutex_with_a_timeout_among_three() {
    mutex_among(2, &[(None, 1), (None, 1), (Some(Reason::Timeout), 1)]);
}

/// One takes it again and again, so that the other loses and has it handed over.
#[test]
fn mutex_is_handed_over() {
    mutex_among(3, &[(None, 1), (None, 3)]);
}

/// As above, while the one to whom it would be handed may have given up.
#[test]
fn mutex_is_handed_over_against_a_timeout() {
    mutex_among(3, &[(Some(Reason::Timeout), 2), (None, 2)]);
}

/// The only waiter asks for the hand-over and gives up, so the mutex is given back after all; what was done under it is
/// seen by who takes it next, without any queue.
#[test]
fn mutex_is_given_back_when_the_one_to_hand_it_to_has_given_up() {
    check(3, || {
        let guarded = Guarded::new();
        assert!(guarded.mutex.try_lock(1));
        let waiter = {
            let guarded = guarded.clone();
            thread::spawn(move || {
                let party = Party::struck_after(1, Some(Reason::Timeout));
                let got = guarded.mutex.lock(&*party, 2).is_ok() || guarded.mutex.try_lock(2);
                got.then(|| guarded.count_and_unlock()).is_some()
            })
        };
        guarded.count_and_unlock();
        let again = guarded.mutex.try_lock(1);
        if again {
            guarded.count_and_unlock();
        }
        let got = waiter.join().unwrap();
        // SAFETY: the other has ended.
        let count = guarded.count.with(|count| unsafe { *count });
        assert_eq!(count, 1 + usize::from(again) + usize::from(got));
        assert!(guarded.mutex.try_lock(1));
    });
}

/// A value of which loom checks that it is dropped, and that its content is handed on properly.
type Value = Arc<UnsafeCell<u32>>;

fn value(number: u32) -> Value {
    Arc::new(UnsafeCell::new(number))
}

/// The only owner reads it, and may write to it.
fn number(mut value: Value) -> u32 {
    let cell = Arc::get_mut(&mut value).expect("the value is on two sides");
    // SAFETY: the only owner.
    cell.with_mut(|number| unsafe { *number })
}

/// A channel whose values loom may take for movable.
struct Shared(Channel<Value>);

// SAFETY: the values' cells are touched by their only owner, which `number` asserts.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

fn shared(channel: Channel<Value>) -> Arc<Shared> {
    Arc::new(Shared(channel))
}

/// One sender, one receiver, either with a rival, and perhaps one who closes.
fn one_to_one(capacity: usize, rivals: [Option<Reason>; 2], closing: bool) {
    check(4, move || {
        let shared = shared(Channel::bounded(capacity));
        let sender = {
            let shared = shared.clone();
            thread::spawn(
                move || match shared.0.send(value(7), &*Party::new(rivals[0])) {
                    Ok(()) => true,
                    Err(failed) => {
                        assert!(
                            failed.reason == Reason::Closed || Some(failed.reason) == rivals[0]
                        );
                        assert_eq!(number(failed.value), 7);
                        false
                    }
                },
            )
        };
        let closer = closing.then(|| {
            let shared = shared.clone();
            thread::spawn(move || {
                shared.0.close();
            })
        });
        let received = match shared.0.recv(&*Party::new(rivals[1])) {
            Ok(value) => {
                assert_eq!(number(value), 7);
                true
            }
            Err(reason) => {
                assert!(reason == Reason::Closed || Some(reason) == rivals[1]);
                false
            }
        };
        if !closing && !received {
            // The sender may wait for a receiver that has gone.
            shared.0.close_receivers();
        }
        let sent = sender.join().unwrap();
        if let Some(closer) = closer {
            closer.join().unwrap();
        }
        if closing {
            let left = shared.0.try_recv().is_ok();
            assert_eq!(sent, received || left, "lost, or on both sides");
        } else {
            assert!(sent || !received, "on both sides");
            assert!(capacity > 0 || sent == received, "sent to nobody");
        }
    });
}

#[test]
fn rendezvous() {
    one_to_one(0, [None, None], false);
}

#[test]
fn rendezvous_against_the_sender_s_timeout_and_a_close() {
    one_to_one(0, [Some(Reason::Timeout), None], true);
}

#[test]
fn rendezvous_against_the_receiver_s_cancel() {
    one_to_one(0, [None, Some(Reason::Cancelled)], false);
}

#[test]
fn rendezvous_against_two_timeouts_and_a_close() {
    one_to_one(0, [Some(Reason::Timeout), Some(Reason::Timeout)], true);
}

#[test]
fn bounded_against_the_receiver_s_timeout() {
    one_to_one(1, [None, Some(Reason::Timeout)], false);
}

/// The buffer of one is full and empty by turns, and both queues are used; one of the senders may give up.
fn bounded_between_full_and_empty(rival: Option<Reason>) {
    check(2, move || {
        let shared = shared(Channel::bounded(1));
        shared.0.add_sender();
        let senders: Vec<_> = [(1, 2, None), (100, 1, rival)]
            .into_iter()
            .map(|(amount, times, rival)| {
                let shared = shared.clone();
                thread::spawn(move || {
                    let party = Party::new(rival);
                    let mut sent = 0;
                    for _ in 0..times {
                        match shared.0.send(value(amount), &*party) {
                            Ok(()) => sent += amount,
                            Err(failed) => assert_eq!(number(failed.value), amount),
                        }
                    }
                    shared.0.remove_sender();
                    sent
                })
            })
            .collect();
        let party = Party::new(None);
        let mut received = 0;
        while let Ok(value) = shared.0.recv(&*party) {
            received += number(value);
        }
        let sent: u32 = senders
            .into_iter()
            .map(|sender| sender.join().unwrap())
            .sum();
        assert_eq!(received, sent, "lost or doubled");
        assert!(rival.is_some() || sent == 102);
    });
}

#[test]
fn bounded_between_full_and_empty_with_patience() {
    bounded_between_full_and_empty(None);
}

#[test]
fn bounded_between_full_and_empty_against_a_timeout() {
    bounded_between_full_and_empty(Some(Reason::Timeout));
}

/// What was buffered before the last sender went is received; then the end is reported, to whoever waits.
#[test]
fn the_last_value_and_the_end() {
    for channel in [
        || Channel::bounded(1),
        Channel::unbounded,
        Channel::rendezvous,
    ] {
        check(4, move || {
            let shared = shared(channel());
            let sender = {
                let shared = shared.clone();
                thread::spawn(move || {
                    assert!(shared.0.send(value(7), &*Party::new(None)).is_ok());
                    shared.0.remove_sender();
                })
            };
            let party = Party::new(None);
            assert_eq!(number(shared.0.recv(&*party).unwrap()), 7);
            assert_eq!(shared.0.recv(&*party).unwrap_err(), Reason::Closed);
            sender.join().unwrap();
        });
    }
}

/// The receivers go while a value is sent and another waits: each is dropped by one side, which loom counts.
#[test]
fn the_receivers_go() {
    check(4, || {
        let shared = shared(Channel::bounded(1));
        let sender = {
            let shared = shared.clone();
            thread::spawn(move || {
                let party = Party::new(None);
                for sent in [1, 2] {
                    if let Err(failed) = shared.0.send(value(sent), &*party) {
                        assert_eq!(failed.reason, Reason::Closed);
                        assert_eq!(number(failed.value), sent);
                    }
                }
            })
        };
        shared.0.remove_receiver();
        assert!(shared.0.try_recv().is_err());
        sender.join().unwrap();
        assert!(shared.0.is_empty());
    });
}

/// Two senders reach the end of a ring at once.
#[test]
fn unbounded_grows() {
    check(4, || {
        let shared = shared(Channel::unbounded());
        let sender = {
            let shared = shared.clone();
            thread::spawn(move || assert!(shared.0.try_send(value(1)).is_ok()))
        };
        assert!(shared.0.try_send(value(2)).is_ok());
        let party = Party::new(None);
        let sum = number(shared.0.recv(&*party).unwrap()) + number(shared.0.recv(&*party).unwrap());
        assert_eq!(sum, 3);
        sender.join().unwrap();
    });
}

#[test]
fn wait_group_of_two() {
    for rival in [None, Some(Reason::Timeout)] {
        check(4, move || {
            let group = Arc::new((RawWaitGroup::new(), UnsafeCell::new(0)));
            group.0.add(2).unwrap();
            let worker = {
                let group = group.clone();
                thread::spawn(move || {
                    // SAFETY: read only by those who have seen the group at zero.
                    group.1.with_mut(|cell| unsafe { *cell = 5 });
                    group.0.done().unwrap();
                })
            };
            let other = {
                let group = group.clone();
                thread::spawn(move || group.0.done().unwrap())
            };
            match group.0.wait(&*Party::new(rival)) {
                // SAFETY: the writer is done.
                Ok(()) => assert_eq!(group.1.with(|cell| unsafe { *cell }), 5),
                Err(reason) => assert_eq!(Some(reason), rival),
            }
            worker.join().unwrap();
            other.join().unwrap();
            assert_eq!(group.0.count(), 0);
        });
    }
}

/// An event, and what is written before it is set.
struct Announced {
    event: RawEvent,
    news: UnsafeCell<u32>,
}

// SAFETY: loom's cell finds a read that the signal did not order.
unsafe impl Sync for Announced {}
// SAFETY: as above.
unsafe impl Send for Announced {}

impl Announced {
    fn new(mode: Mode) -> Arc<Self> {
        Arc::new(Self {
            event: RawEvent::new(mode),
            news: UnsafeCell::new(0),
        })
    }

    fn announce(&self) {
        // SAFETY: read only by those who have the signal.
        self.news.with_mut(|news| unsafe { *news = 5 });
        self.event.set();
    }

    /// Waits; whoever gets the signal gets the news.
    fn wait(&self, rival: Option<Reason>) -> bool {
        match self.event.wait(&*Party::new(rival)) {
            Ok(signal) => {
                signal.accept();
                self.read();
                true
            }
            Err(reason) => {
                assert_eq!(Some(reason), rival);
                false
            }
        }
    }

    fn read(&self) {
        // SAFETY: the writer is done.
        assert_eq!(self.news.with(|news| unsafe { *news }), 5);
    }
}

/// One set, one wait, in both modes.
#[test]
fn event_set_meets_a_wait() {
    for mode in [Mode::Auto, Mode::Manual] {
        for rival in [None, Some(Reason::Timeout)] {
            check(4, move || {
                let announced = Announced::new(mode);
                let setter = {
                    let announced = announced.clone();
                    thread::spawn(move || announced.announce())
                };
                let got = announced.wait(rival);
                setter.join().unwrap();
                let left = announced.event.try_wait();
                assert!(got || rival.is_some());
                if mode == Mode::Auto {
                    assert_ne!(got, left, "lost or doubled");
                } else {
                    assert!(left, "it stays set");
                }
            });
        }
    }
}

/// One set, and two who wait: for ever, with a deadline, or until a cancel.
fn event_one_set_for_two(rivals: [Option<Reason>; 2]) {
    check(3, move || {
        let announced = Announced::new(Mode::Auto);
        let other = {
            let announced = announced.clone();
            thread::spawn(move || announced.wait(rivals[1]))
        };
        let setter = {
            let announced = announced.clone();
            thread::spawn(move || announced.announce())
        };
        let mut got = usize::from(announced.wait(rivals[0]));
        setter.join().unwrap();
        let mut set = 1;
        if rivals[1].is_none() && got == 1 {
            // The signal that the other waits for has gone here.
            announced.event.set();
            set += 1;
        }
        got += usize::from(other.join().unwrap());
        let left = usize::from(announced.event.try_wait());
        assert_eq!(got + left, set, "lost or doubled");
        assert!(!announced.event.is_set());
    });
}

#[test]
fn event_set_against_a_timeout_and_a_cancel() {
    event_one_set_for_two([Some(Reason::Timeout), Some(Reason::Cancelled)]);
}

#[test]
fn event_set_for_a_patient_one_beside_a_timeout() {
    event_one_set_for_two([Some(Reason::Timeout), None]);
}

/// A manual event wakes two, of whom one may have given up.
#[test]
fn event_manual_set_wakes_two() {
    for rival in [None, Some(Reason::Cancelled)] {
        check(3, move || {
            let announced = Announced::new(Mode::Manual);
            let other = {
                let announced = announced.clone();
                thread::spawn(move || announced.wait(rival))
            };
            let setter = {
                let announced = announced.clone();
                thread::spawn(move || announced.announce())
            };
            assert!(announced.wait(None));
            assert!(other.join().unwrap() || rival.is_some());
            setter.join().unwrap();
            assert!(announced.event.is_set());
        });
    }
}

/// Two who set after having done something, and one who waits until it has seen both: merged or not, it does.
#[test]
fn event_two_sets_for_one() {
    check(4, || {
        let event = Arc::new(RawEvent::new(Mode::Auto));
        let done = Arc::new([AtomicBool::new(false), AtomicBool::new(false)]);
        let setters: Vec<_> = (0..2)
            .map(|which: usize| {
                let (event, done) = (event.clone(), done.clone());
                thread::spawn(move || {
                    done[which].store(true, Relaxed);
                    event.set();
                })
            })
            .collect();
        let party = Party::new(None);
        let mut waits = 0;
        while !(done[0].load(Relaxed) && done[1].load(Relaxed)) {
            event.wait(&*party).unwrap().accept();
            waits += 1;
        }
        for setter in setters {
            setter.join().unwrap();
        }
        let left = usize::from(event.try_wait());
        assert!((1..=2).contains(&(waits + left)), "made up or lost");
    });
}

/// One set, one reset, one wait: the signal is taken by one of them, or left.
#[test]
fn event_reset_takes_what_nobody_has() {
    check(4, || {
        let announced = Announced::new(Mode::Auto);
        let setter = {
            let announced = announced.clone();
            thread::spawn(move || announced.announce())
        };
        let resetter = {
            let announced = announced.clone();
            thread::spawn(move || announced.event.reset())
        };
        let got = announced.wait(Some(Reason::Timeout));
        setter.join().unwrap();
        let taken = resetter.join().unwrap();
        let left = announced.event.try_wait();
        assert_eq!(
            usize::from(got) + usize::from(taken) + usize::from(left),
            1,
            "lost or doubled"
        );
    });
}

/// A manual event that is set and reset at once wakes who waited before; who did not waits for the next set.
#[test]
fn event_manual_reset_keeps_nobody_from_running() {
    check(4, || {
        let announced = Announced::new(Mode::Manual);
        let waiter = {
            let announced = announced.clone();
            thread::spawn(move || announced.wait(None))
        };
        announced.announce();
        assert!(announced.event.reset());
        announced.event.set();
        assert!(waiter.join().unwrap());
        assert!(announced.event.reset());
        assert!(!announced.event.is_set());
    });
}

/// Who was woken does not accept the signal: the other one has it.
#[test]
fn event_signal_is_passed_on() {
    check(3, || {
        let announced = Announced::new(Mode::Auto);
        let unwound = {
            let announced = announced.clone();
            thread::spawn(move || {
                let party = Party::new(Some(Reason::Timeout));
                announced
                    .event
                    .wait(&*party)
                    .map(drop::<Signal<'_>>)
                    .is_ok()
            })
        };
        let setter = {
            let announced = announced.clone();
            thread::spawn(move || announced.announce())
        };
        assert!(announced.wait(None));
        setter.join().unwrap();
        unwound.join().unwrap();
        assert!(!announced.event.is_set(), "doubled");
    });
}

/// As [`Announced::wait`] of one whose cancel has grown into a forced unwind at the same moment: whatever its wait came to, it
/// does not get to its return, and what it has is dropped. (Not by a real unwind: loom's threads share the one of the system, whose
/// panic all of them would see.) Says whether a signal had been claimed for it.
fn wait_and_be_unwound(announced: &Announced) -> bool {
    let party = Party::new(Some(Reason::Cancelled));
    let signal: Result<Signal<'_>, Reason> = announced.event.wait(&*party);
    let was_claimed = signal.is_ok();
    drop(signal);
    was_claimed
}

/// Nobody else waits: the signal that the one unwound was chosen for is kept, once.
// contract: E1
#[test]
fn event_signal_of_one_who_is_unwound_is_kept() {
    check(4, || {
        let announced = Announced::new(Mode::Auto);
        let unwound = {
            let announced = announced.clone();
            thread::spawn(move || wait_and_be_unwound(&announced))
        };
        announced.announce();
        // Claimed for it or not, it is where it was.
        let _was_claimed = unwound.join().unwrap();
        assert!(announced.event.try_wait(), "lost");
        announced.read();
        assert!(!announced.event.is_set(), "doubled");
    });
}

/// Two signals, and two who wait, of whom one is unwound: the other has one signal, and one is left.
// contract: E1
#[test]
fn event_signal_of_one_who_is_unwound_goes_to_who_waits() {
    for sets in [1, 2] {
        check(3, move || {
            let announced = Announced::new(Mode::Auto);
            let unwound = {
                let announced = announced.clone();
                thread::spawn(move || wait_and_be_unwound(&announced))
            };
            let setter = {
                let announced = announced.clone();
                thread::spawn(move || {
                    announced.announce();
                    // With nobody to take the first one, two are merged into one.
                    (1..sets).for_each(|_| announced.event.set());
                })
            };
            assert!(announced.wait(None), "lost");
            setter.join().unwrap();
            unwound.join().unwrap();
            // Of two, one may have come while the other was kept.
            let left = announced.event.try_wait();
            assert!(sets == 2 || !left, "doubled");
            assert!(!announced.event.is_set(), "doubled");
        });
    }
}
