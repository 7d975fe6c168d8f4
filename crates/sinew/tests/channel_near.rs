//! Parties that are near and parties that are far on one channel and on one event, with cancels and deadlines: at the end the counts are exact.
//!
//! A coroutine that was ever inside of a limit waits in the general way from then on. So each coroutine here lives for a few calls only,
//! and most never meet a limit: these wait in the brisk way.

mod chance_rig;
mod io_rig;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use chance_rig::Chance;
use io_rig::{stress, watchdog};
use sinew::event::Event;
use sinew::sync::channel::{self, Receiver, Sender};
use sinew::{CancelToken, WaitError, run, shield, spawn_local, timeout, yield_now};

/// What went in and what came out.
#[derive(Default)]
struct Sums {
    sent: AtomicU64,
    received: AtomicU64,
    live: AtomicUsize,
}

/// A value that is counted as long as it lives.
struct Coin(u64, Arc<Sums>);

impl Coin {
    fn new(chance: &mut Chance, sums: &Arc<Sums>) -> Self {
        sums.live.fetch_add(1, SeqCst);
        Self(1 + chance.next() % 1_000_000, sums.clone())
    }
}

impl Drop for Coin {
    fn drop(&mut self) {
        self.1.live.fetch_sub(1, SeqCst);
    }
}

/// One end each, and the account.
#[derive(Clone)]
struct Market {
    sender: Sender<Coin>,
    receiver: Receiver<Coin>,
    sums: Arc<Sums>,
}

impl Market {
    fn new(capacity: usize) -> Self {
        let (sender, receiver) = channel::bounded(capacity);
        Self {
            sender,
            receiver,
            sums: Arc::default(),
        }
    }

    fn send(&self, chance: &mut Chance, limit: Option<Duration>) {
        let coin = Coin::new(chance, &self.sums);
        let number = coin.0;
        let result = match limit {
            Some(limit) => self.sender.send_timeout(coin, limit),
            None => self.sender.send(coin),
        };
        match result {
            Ok(()) => {
                self.sums.sent.fetch_add(number, SeqCst);
            }
            Err(error) => {
                assert!(matches!(
                    error.reason,
                    WaitError::Timeout | WaitError::Cancelled
                ));
                assert_eq!(error.value.0, number, "another's value came back");
            }
        }
    }

    fn recv(&self, limit: Option<Duration>) {
        let result = match limit {
            Some(limit) => self.receiver.recv_timeout(limit),
            None => self.receiver.recv(),
        };
        match result {
            Ok(coin) => {
                self.sums.received.fetch_add(coin.0, SeqCst);
            }
            Err(error) => assert!(matches!(error, WaitError::Timeout | WaitError::Cancelled)),
        }
    }

    fn deal(&self, chance: &mut Chance, limit: Option<Duration>) {
        if chance.below(2) == 0 {
            self.send(chance, limit);
        } else {
            self.recv(limit);
        }
    }

    /// The life of a coroutine.
    fn live(&self, chance: &mut Chance) {
        for _ in 0..4 {
            self.deal(chance, None);
        }
        // The limit comes after waits without one.
        match chance.below(6) {
            0 => {
                let _in_time = timeout(chance.moment(), || self.deal(&mut chance.fork(), None));
                self.deal(chance, None);
            }
            1 => shield(|| self.deal(&mut chance.fork(), Some(Duration::from_micros(50)))),
            _ => self.deal(chance, None),
        }
    }

    /// Waves of coroutines on a scheduler of this thread, each of which is cancelled in the end, by a neighbour or another thread.
    fn crowd(&self, mut chance: Chance, waves: usize, orders: &mpsc::Sender<CancelToken>) {
        run(|| {
            for _ in 0..waves {
                let children: Vec<_> = (0..6)
                    .map(|_| {
                        let (market, mut chance) = (self.clone(), chance.fork());
                        spawn_local(move || market.live(&mut chance))
                    })
                    .collect();
                for _ in 0..chance.below(6) {
                    yield_now().unwrap();
                }
                for child in &children {
                    if chance.below(2) == 0 {
                        child.cancel("by a neighbour");
                    } else {
                        orders.send(child.cancel_token()).unwrap();
                    }
                }
                for child in children {
                    if let Err(error) = child.join() {
                        assert!(error.is_cancelled(), "{error:?}");
                    }
                }
            }
        });
    }
}

fn trade(capacity: usize) {
    let _watchdog = watchdog();
    let mut chance = Chance::new();
    let market = Market::new(capacity);
    let waves = 60 * stress();
    thread::scope(|scope| {
        let (orders, cancels) = mpsc::channel::<CancelToken>();
        scope.spawn(move || cancels.iter().for_each(|token| token.cancel("by a thread")));
        for _ in 0..2 {
            let (market, orders) = (&market, orders.clone());
            let (for_crowd, mut for_thread) = (chance.fork(), chance.fork());
            // The channel is met by one scheduler after the other of this thread.
            scope.spawn(move || {
                let mut for_crowd = for_crowd;
                for _ in 0..4 {
                    market.crowd(for_crowd.fork(), waves / 4, &orders);
                }
            });
            scope.spawn(move || {
                for _ in 0..10 * waves {
                    let limit = for_thread.moment();
                    market.deal(&mut for_thread, Some(limit));
                }
            });
        }
    });
    while let Ok(coin) = market.receiver.try_recv() {
        market.sums.received.fetch_add(coin.0, SeqCst);
    }
    let Market { sums, .. } = market;
    assert_eq!(sums.sent.load(SeqCst), sums.received.load(SeqCst));
    assert_eq!(sums.live.load(SeqCst), 0, "a value was lost");
}

// contract: Y9, Y11
#[test]
fn a_rendezvous_of_near_and_far_loses_nothing() {
    trade(0);
}

// contract: Y9, Y11
#[test]
fn a_small_buffer_of_near_and_far_loses_nothing() {
    trade(1);
    trade(3);
}

/// The signal of an event is a token: who has it is alone, and gives it back.
// contract: Y11
#[test]
fn the_signal_of_an_event_is_neither_lost_nor_doubled() {
    let _watchdog = watchdog();
    let mut chance = Chance::new();
    let event = Event::auto();
    event.set();
    let inside = AtomicUsize::new(0);
    let hold = |is_coroutine: bool| {
        assert_eq!(inside.fetch_add(1, SeqCst), 0, "the signal was doubled");
        if is_coroutine {
            // A cancel changes nothing about what is held.
            let _cancelled = yield_now();
        }
        inside.fetch_sub(1, SeqCst);
        event.set();
    };
    let waves = 100 * stress();
    thread::scope(|scope| {
        for _ in 0..2 {
            let (mut for_crowd, mut for_thread) = (chance.fork(), chance.fork());
            let (event, hold) = (&event, &hold);
            scope.spawn(move || {
                run(|| {
                    for _ in 0..waves {
                        sinew::scope(|children| {
                            let handles: Vec<_> = (0..5)
                                .map(|_| {
                                    children.spawn(|| {
                                        for _ in 0..3 {
                                            if event.wait().is_ok() {
                                                hold(true);
                                            }
                                        }
                                    })
                                })
                                .collect();
                            for handle in &handles {
                                match for_crowd.below(3) {
                                    0 => handle.cancel("by a neighbour"),
                                    1 => drop(yield_now()),
                                    _ => {}
                                }
                            }
                        });
                    }
                });
            });
            scope.spawn(move || {
                for _ in 0..5 * waves {
                    if event.wait_timeout(for_thread.moment()).is_ok() {
                        hold(false);
                    }
                }
            });
        }
    });
    assert!(event.try_wait(), "the signal was lost");
    assert!(!event.try_wait(), "the signal was doubled");
}

/// Sends while it is dropped.
struct LastWill(Sender<u32>, u32);

impl Drop for LastWill {
    fn drop(&mut self) {
        self.0.send(self.1).unwrap();
    }
}

sinew::coroutine_local! {
    static WILL: std::cell::RefCell<Option<LastWill>> = const { std::cell::RefCell::new(None) };
}

/// Who waits is near while others send in their unwinding, and in the destructor of a coroutine-local.
// contract: Y9
#[test]
fn a_send_reaches_a_neighbour_from_a_destructor() {
    let _watchdog = watchdog();
    for capacity in [0, 1] {
        run(|| {
            let (sender, receiver) = channel::bounded(capacity);
            let listener = spawn_local(move || receiver.into_iter().sum::<u32>());
            for number in 0..8 {
                let (in_unwinding, in_local) = (sender.clone(), sender.clone());
                spawn_local(move || {
                    let _will = LastWill(in_unwinding, 1 << number);
                    std::panic::resume_unwind(Box::new("on purpose"));
                })
                .join()
                .unwrap_err();
                spawn_local(move || {
                    WILL.set(Some(LastWill(in_local, 1 << (8 + number))));
                })
                .join()
                .unwrap();
            }
            drop(sender);
            assert_eq!(listener.join().unwrap(), (1 << 16) - 1);
        });
    }
}
