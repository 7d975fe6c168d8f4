//! What a thread of a pool does.
//!
//! Owns: nothing. Thread: the worker's.
//!
//! Before it sleeps it looks a moment longer, see `scheduler::linger`; one worker of a pool at a time.
#![expect(unsafe_code, reason = "finds the pool of a thread by its identity")]

use std::cell::Cell;

use super::Shared;
use super::finalizer;
use crate::scheduler::body::drop_payload;
use crate::scheduler::current;
use crate::scheduler::linger::{Habit, linger};
use crate::scheduler::waiting::Waiting;
use crate::task::job::Order;

use sinew_core::sync::Next;

/// Does what the pool has to do, until it is over.
pub(super) fn serve(pool: &Shared, number: usize) {
    let identity = pool.identity();
    pool.crew(|crew| crew.serve(number, identity, purge, || work(pool, number)));
}

/// For the only worker of a pool, which waits: see [`Crew::serve`](crate::scheduler::crew::Crew::serve).
fn purge(identity: *const ()) {
    // SAFETY: called on the worker, inside of `serve`, which borrows the pool; the identity is its address.
    let pool = unsafe { &*identity.cast::<Shared>() };
    pool.purge();
}

fn work(pool: &Shared, number: usize) {
    let mut was_busy = false;
    let habit = Cell::new(Habit::new());
    let wait_a_moment = |has_news: &dyn Fn() -> bool| {
        linger(&habit, has_news);
    };
    loop {
        let Ok(party) = Waiting::new(None) else {
            unreachable!("a plain thread outside of callbacks may wait")
        };
        match pool.raw.next(number, &party, was_busy, wait_a_moment) {
            Next::Job(job) => {
                let mut ended = |end| pool.raw.ended(number, end);
                if let Some(payload) = job.end(Order::Run, pool.host(), &mut ended) {
                    // A task that raised on what it had caught in a coroutine of its own.
                    drop_payload(payload);
                }
                was_busy = true;
            }
            Next::Finalizer(link) => {
                current::aside(|| finalizer::run(link));
                was_busy = false;
            }
            Next::Leave => return,
        }
    }
}
