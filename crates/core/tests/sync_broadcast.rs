//! The raw broadcast and the raw watch against naive models, and with threads.
#![cfg(not(loom))]

mod party;

use std::cell::Cell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;

use party::{Chance, Limit, ThreadParty, rounds};
use proptest::prelude::*;
use sinew_core::sharing::{Local, Shared, Sharing};
use sinew_core::sync::{Broadcast, Missing, RawWatch};
use sinew_core::wait::Reason;

#[derive(Debug, Clone, Copy)]
enum Step {
    Send,
    Recv(usize),
    RecvHasty(usize),
    Subscribe,
    Clone(usize),
    Drop(usize),
    Close,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => Just(Step::Send),
        8 => (0_usize..4).prop_map(Step::Recv),
        2 => (0_usize..4).prop_map(Step::RecvHasty),
        1 => Just(Step::Subscribe),
        1 => (0_usize..4).prop_map(Step::Clone),
        1 => (0_usize..4).prop_map(Step::Drop),
        1 => Just(Step::Close),
    ]
}

/// A receiver as it would be if each had a list of its own.
#[derive(Clone)]
struct Model {
    values: VecDeque<u32>,
    lost: u64,
}

impl Model {
    fn recv(&mut self, closed: bool) -> Result<u32, Missing> {
        match std::mem::take(&mut self.lost) {
            0 => self.values.pop_front().ok_or(if closed {
                Missing::Closed
            } else {
                Missing::Empty
            }),
            lost => Err(Missing::Lagged(lost)),
        }
    }
}

/// A value that counts how many of it are alive.
#[derive(Debug)]
struct Counted(u32, Arc<AtomicUsize>);

impl Counted {
    fn new(number: u32, alive: &Arc<AtomicUsize>) -> Self {
        alive.fetch_add(1, SeqCst);
        Self(number, alive.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_sub(1, SeqCst);
    }
}

proptest! {
    // contract: Y9, Y12
    #[test]
    fn each_receiver_has_a_list_of_its_own(
        capacity in 1_usize..5,
        steps in prop::collection::vec(step(), 0..200),
    ) {
        has_a_list_of_its_own::<Shared>(capacity, &steps)?;
        has_a_list_of_its_own::<Local>(capacity, &steps)?;
    }

    // contract: Y9, Y12
    #[test]
    fn a_watch_shows_the_latest(steps in prop::collection::vec(0_u32..6, 0..200)) {
        shows_the_latest::<Shared>(&steps)?;
        shows_the_latest::<Local>(&steps)?;
    }
}

#[expect(
    clippy::large_stack_frames,
    clippy::too_many_lines,
    reason = "proptest's checks, each with its message, for each step"
)]
fn has_a_list_of_its_own<K: Sharing>(capacity: usize, steps: &[Step]) -> Result<(), TestCaseError> {
    let alive = Arc::new(AtomicUsize::new(0));
    let news = Broadcast::<_, K>::of_kind(capacity);
    let mut real = vec![Cell::new(0)];
    let mut models = vec![Model {
        values: VecDeque::new(),
        lost: 0,
    }];
    let mut closed = false;
    let hasty = ThreadParty::with(Limit::After(0, Reason::Timeout));
    for (number, step) in (0_u32..).zip(steps.iter().copied()) {
        let some = |index: usize| (!real.is_empty()).then(|| index % real.len().max(1));
        match step {
            Step::Send => {
                let sent = news.send(Counted::new(number, &alive));
                if closed || models.is_empty() {
                    prop_assert_eq!(sent.unwrap_err().0, number);
                } else {
                    prop_assert_eq!(sent.unwrap(), models.len());
                    for model in &mut models {
                        model.values.push_back(number);
                        if model.values.len() > capacity {
                            model.values.pop_front();
                            model.lost += 1;
                        }
                    }
                }
            }
            Step::Recv(index) => {
                if let Some(index) = some(index) {
                    let got = news.try_recv(&real[index]).map(|value| value.0);
                    prop_assert_eq!(got, models[index].recv(closed));
                }
            }
            Step::RecvHasty(index) => {
                if let Some(index) = some(index) {
                    let expected = match models[index].recv(closed) {
                        Err(Missing::Empty) => Err(Reason::Timeout),
                        other => Ok(other),
                    };
                    let got = news.recv(&real[index], &hasty);
                    prop_assert_eq!(got.map(|got| got.map(|value| value.0)), expected);
                }
            }
            Step::Subscribe => {
                real.push(Cell::new(news.add_receiver()));
                models.push(Model {
                    values: VecDeque::new(),
                    lost: 0,
                });
            }
            Step::Clone(index) => {
                if let Some(index) = some(index) {
                    news.add_receiver_at(real[index].get());
                    real.push(real[index].clone());
                    models.push(models[index].clone());
                }
            }
            Step::Drop(index) => {
                if let Some(index) = some(index) {
                    news.remove_receiver(real.remove(index).get());
                    models.remove(index);
                }
            }
            Step::Close => {
                prop_assert_eq!(news.close(), !std::mem::replace(&mut closed, true));
            }
        }
        prop_assert_eq!(news.receiver_count(), models.len());
        let mut waited_for: Vec<_> = models
            .iter()
            .flat_map(|model| model.values.clone())
            .collect();
        waited_for.sort_unstable();
        waited_for.dedup();
        // A value that nobody waits for is not kept.
        prop_assert_eq!(alive.load(SeqCst), waited_for.len());
        for (real, model) in real.iter().zip(&models) {
            prop_assert_eq!(news.len(real.get()), model.values.len());
        }
    }
    Ok(())
}

#[expect(
    clippy::large_stack_frames,
    reason = "proptest's checks, each with its message"
)]
fn shows_the_latest<K: Sharing>(steps: &[u32]) -> Result<(), TestCaseError> {
    let watch = RawWatch::<_, K>::of_kind(0);
    let seen = [Cell::new(0), Cell::new(0)];
    let (mut latest, mut new, mut closed) = (0, [false; 2], false);
    let hasty = ThreadParty::with(Limit::After(0, Reason::Timeout));
    for (number, step) in (1_u32..).zip(steps.iter().copied()) {
        match step {
            0 | 1 => match watch.send(number) {
                Ok(before) => {
                    prop_assert!(!closed);
                    prop_assert_eq!(*before, latest);
                    (latest, new) = (number, [true; 2]);
                }
                Err(value) => prop_assert_eq!((value, closed), (number, true)),
            },
            2 | 3 => {
                let index = step as usize - 2;
                prop_assert_eq!(watch.has_changed(seen[index].get()), new[index]);
                let expected = match (std::mem::take(&mut new[index]), closed) {
                    (true, _) => Ok(()),
                    (false, true) => Err(Reason::Closed),
                    (false, false) => Err(Reason::Timeout),
                };
                prop_assert_eq!(watch.changed(&seen[index], &hasty), expected);
            }
            4 => {
                prop_assert_eq!(*watch.replace(number), latest);
                (latest, new) = (number, [true; 2]);
            }
            _ => {
                if number % 16 == 0 {
                    prop_assert_eq!(watch.close(), !std::mem::replace(&mut closed, true));
                }
            }
        }
        prop_assert_eq!(*watch.get().0, latest);
    }
    Ok(())
}

/// A value whose drop uses the broadcast that it was in, and may panic.
struct Reentrant<'a> {
    news: &'a Broadcast<Reentrant<'a>>,
    drops: &'a AtomicUsize,
    panics: bool,
}

impl Drop for Reentrant<'_> {
    fn drop(&mut self) {
        self.drops.fetch_add(1, SeqCst);
        assert!(self.news.len(0) <= 10, "the lock is free");
        assert!(!self.panics, "this one panics");
    }
}

#[test]
fn values_are_dropped_outside_of_the_lock_and_once() {
    // The values borrow the broadcast that they are in.
    let news: &Broadcast<Reentrant<'_>> = Box::leak(Box::new(Broadcast::new(10)));
    let drops: &AtomicUsize = Box::leak(Box::default());
    for number in 0..12 {
        let value = Reentrant {
            news,
            drops,
            panics: number == 5,
        };
        assert!(news.send(value).is_ok());
    }
    assert_eq!(drops.load(SeqCst), 2, "the oldest went");
    let left = catch_unwind(AssertUnwindSafe(|| news.remove_receiver(0)));
    assert!(left.is_err(), "the panic is the caller's");
    assert_eq!((drops.load(SeqCst), news.receiver_count()), (12, 0));
}

#[test]
fn an_absurd_capacity_panics() {
    assert!(catch_unwind(|| Broadcast::<u8>::new(0)).is_err());
    assert!(catch_unwind(|| Broadcast::<u8>::new(usize::MAX)).is_err());
    assert!(catch_unwind(|| Broadcast::<u8>::new(usize::MAX / 64)).is_err());
}

/// Receivers come, go, give up and lag; each sees the numbers in order, and knows exactly how many it lost.
// contract: Y9, Y11
#[test]
fn what_is_not_received_is_counted() {
    let mut chance = Chance::new();
    for _ in 0..rounds(20) {
        let alive = Arc::new(AtomicUsize::new(0));
        let news = &Broadcast::new(1 + chance.below(8) as usize);
        let values = 2000_u64;
        thread::scope(|scope| {
            for first in 0..3 {
                let mut chance = chance.fork();
                // The first one is the receiver that a broadcast is made with.
                let position = Cell::new(if first == 0 { 0 } else { news.add_receiver() });
                scope.spawn(move || {
                    let party = ThreadParty::new();
                    let (mut got, mut lost, mut newest) = (0, 0, None);
                    loop {
                        party.limit.set(chance.limit());
                        match news.recv(&position, &party) {
                            Ok(Ok(value)) => {
                                let Counted(number, _) = *value;
                                assert!(newest < Some(number), "overtaken");
                                newest = Some(number);
                                got += 1;
                            }
                            Ok(Err(Missing::Lagged(count))) => lost += count,
                            Ok(Err(missing)) => {
                                assert_eq!(missing, Missing::Closed);
                                break;
                            }
                            Err(_) => {}
                        }
                    }
                    assert_eq!(got + lost, values);
                    news.remove_receiver(position.get());
                });
            }
            let alive = &alive;
            scope.spawn(move || {
                for number in 0..values {
                    let number = u32::try_from(number).unwrap();
                    assert_eq!(news.send(Counted::new(number, alive)).unwrap(), 3);
                }
                news.remove_sender();
            });
        });
        assert_eq!(alive.load(SeqCst), 0, "each was dropped once");
    }
}
