//! The raw channel beside a naive model, under random schedules of parties that wait within each other's waits: who gets which
//! value, who goes on and who is told of the close must be the same for both.
#![cfg(not(loom))]

mod party;

use std::cell::RefCell;
use std::collections::VecDeque;

use party::oracle::{Oracle, wait_within};
use party::{Chance, rounds};
use sinew_core::sharing::{Local, Shared, Sharing};
use sinew_core::sync::{Channel, SendFailed, TryRecv, TrySend};
use sinew_core::wait::{Reason, Suspend};

/// How a party's wait ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Sent,
    Kept(u32, Reason),
    Got(u32),
    Missed(Reason),
}

/// What a party has come for.
#[derive(Debug, Clone, Copy)]
enum Role {
    Send(u32),
    Recv,
}

/// The channel, by lists.
#[derive(Default)]
struct Model {
    limit: usize,
    buffer: VecDeque<u32>,
    senders: VecDeque<(usize, u32)>,
    receivers: VecDeque<usize>,
    closed: bool,
    roles: Vec<Role>,
    ended: Vec<Option<End>>,
    next: u32,
}

impl Model {
    fn value(&mut self) -> u32 {
        self.next += 1;
        self.next
    }

    fn try_send(&mut self, value: u32) -> Result<(), TrySend<u32>> {
        if self.closed {
            return Err(TrySend::Closed(value));
        }
        if let Some(first) = self.receivers.pop_front() {
            self.ended[first] = Some(End::Got(value));
        } else if self.buffer.len() < self.limit {
            self.buffer.push_back(value);
        } else {
            return Err(TrySend::Full(value));
        }
        Ok(())
    }

    fn try_recv(&mut self) -> Result<u32, TryRecv> {
        let value = self.buffer.pop_front();
        if value.is_some() && self.senders.is_empty() {
            return Ok(value.unwrap_or(0));
        }
        if let Some((first, its)) = self.senders.pop_front() {
            self.ended[first] = Some(End::Sent);
            if value.is_some() {
                self.buffer.push_back(its);
            }
            return Ok(value.unwrap_or(its));
        }
        Err(if self.closed {
            TryRecv::Closed
        } else {
            TryRecv::Empty
        })
    }

    fn close(&mut self) -> bool {
        for (one, value) in self.senders.drain(..) {
            self.ended[one] = Some(End::Kept(value, Reason::Closed));
        }
        for one in self.receivers.drain(..) {
            self.ended[one] = Some(End::Missed(Reason::Closed));
        }
        !std::mem::replace(&mut self.closed, true)
    }
}

struct Both<K: Sharing> {
    channel: Channel<u32, K>,
    model: RefCell<Model>,
    chance: RefCell<Chance>,
}

impl<K: Sharing> Oracle for Both<K> {
    fn below(&self, end: u64) -> u64 {
        self.chance.borrow_mut().below(end)
    }

    fn begin(&self) -> usize {
        let model = &mut *self.model.borrow_mut();
        let one = model.roles.len();
        model.ended.push(None);
        if self.below(2) == 0 {
            let value = model.value();
            model.roles.push(Role::Send(value));
            match model.try_send(value) {
                Ok(()) => model.ended[one] = Some(End::Sent),
                Err(TrySend::Closed(value)) => {
                    model.ended[one] = Some(End::Kept(value, Reason::Closed));
                }
                Err(TrySend::Full(value)) => model.senders.push_back((one, value)),
            }
        } else {
            model.roles.push(Role::Recv);
            match model.try_recv() {
                Ok(value) => model.ended[one] = Some(End::Got(value)),
                Err(TryRecv::Closed) => model.ended[one] = Some(End::Missed(Reason::Closed)),
                Err(TryRecv::Empty) => model.receivers.push_back(one),
            }
        }
        one
    }

    fn is_over(&self, one: usize) -> bool {
        self.model.borrow().ended[one].is_some()
    }

    fn strike(&self, one: usize, reason: Reason) -> bool {
        let model = &mut *self.model.borrow_mut();
        if model.ended[one].is_some() {
            return false;
        }
        model.senders.retain(|sender| sender.0 != one);
        model.receivers.retain(|&receiver| receiver != one);
        model.ended[one] = Some(match model.roles[one] {
            Role::Send(value) => End::Kept(value, reason),
            Role::Recv => End::Missed(reason),
        });
        true
    }

    fn wait(&self, one: usize, party: &impl Suspend) {
        let role = self.model.borrow().roles[one];
        let end = match role {
            Role::Send(value) => match self.channel.send(value, party) {
                Ok(()) => End::Sent,
                Err(SendFailed { value, reason }) => End::Kept(value, reason),
            },
            Role::Recv => match self.channel.recv(party) {
                Ok(value) => End::Got(value),
                Err(reason) => End::Missed(reason),
            },
        };
        assert_eq!(Some(end), self.model.borrow().ended[one]);
    }

    fn call(&self) {
        let number = self.below(80);
        let model = &mut *self.model.borrow_mut();
        match number {
            0 => assert_eq!(self.channel.close(), model.close()),
            1..40 => {
                let value = model.value();
                let sent = model.try_send(value);
                assert!(self.channel.try_send(value) == sent, "{sent:?}");
            }
            _ => assert_eq!(self.channel.try_recv(), model.try_recv()),
        }
        assert_eq!(self.channel.len(), model.buffer.len());
        assert_eq!(self.channel.is_closed(), model.closed);
    }
}

// contract: Y9, Y12
#[test]
fn it_does_what_the_model_does() {
    does_what_the_model_does::<Shared>();
    does_what_the_model_does::<Local>();
}

fn does_what_the_model_does<K: Sharing>() {
    let mut chance = Chance::new();
    for round in 0..rounds(3_000) {
        let limit = [0, 0, 1, 3, usize::MAX][usize::try_from(round % 5).unwrap()];
        let both = Both {
            channel: if limit == usize::MAX {
                Channel::<u32, K>::unbounded_of_kind()
            } else {
                Channel::bounded_of_kind(limit)
            },
            model: RefCell::new(Model {
                limit,
                ..Model::default()
            }),
            chance: RefCell::new(chance.fork()),
        };
        for _ in 0..4 {
            wait_within(&both, 5);
        }
    }
}
