//! Cycles of joins, found when the wait that would close one begins.
//!
//! Owns: nothing. Thread: the scheduler's. What it looks at, the waits of coroutines of the same scheduler, cannot begin or go on
//! meanwhile, so what it says is exact.
//!
//! Invariants
//! - I1. Waits in joins that nothing but the end of what is joined will end, by themselves (see [`has_way_out`]), form no cycle
//!   within one scheduler: [`is_closed_by`] refuses the last of them. So a walk along them comes to an end.
#![expect(
    unsafe_code,
    reason = "follows the records of joins from block to block"
)]

use std::ptr;
use std::sync::atomic::Ordering::Relaxed;

use sinew_core::wait::Kind;

use crate::scheduler::block::{Block, TIMED, flag};

/// Whether `target` cannot end before `me` does, because it waits for the end of `me` by a chain of joins, or is `me`.
///
/// What this wait of `me` has for a deadline does not matter: it could only pass.
#[inline]
pub(crate) fn is_closed_by(me: &Block, target: &Block) -> bool {
    if ptr::eq(me, target) {
        return true;
    }
    // Whoever waits for `me` has set this: almost always this is all there is to do.
    me.life.is_waited() && leads_to(target, me)
}

#[cold]
fn leads_to(from: &Block, me: &Block) -> bool {
    let mut at = from;
    while let Some(next) = joined_by(at, me) {
        if ptr::eq(next, me) {
            return true;
        }
        at = next;
    }
    false
}

/// What `block` joins, if it does so with no way out, and is of the same scheduler as `me`.
fn joined_by<'a>(block: &'a Block, me: &Block) -> Option<&'a Block> {
    // In this order: the look at the life acquires the door that belongs to it.
    let alive = !block.is_done();
    if !alive || !ptr::eq(block.door.load(Relaxed), me.door.load(Relaxed)) {
        return None;
    }
    // One that was claimed is about to go on.
    let joins = block.kind.load(Relaxed) == Kind::Join as u8 && block.waiter.word.is_armed();
    if !joins || has_way_out(block, true) {
        return None;
    }
    let next = ptr::with_exposed_provenance::<Block>(block.object.load(Relaxed));
    // SAFETY: the join borrows a handle, which counts a reference, and exposed the address.
    let next = unsafe { &*next };
    debug_assert_eq!(next.id(), block.owner.load(Relaxed));
    Some(next)
}

/// Whether the wait of a suspended coroutine will be ended by a deadline, or by a cancel that is on its way.
///
/// For any block, from any thread; `is_mine` says that it is a live one of the calling thread's scheduler.
pub(crate) fn has_way_out(block: &Block, is_mine: bool) -> bool {
    if block.kind.load(Relaxed) & TIMED != 0 {
        return true;
    }
    if block.has(flag::DEAF) {
        return false;
    }
    let refused = if is_mine {
        block.is_refused()
    } else {
        // Inside of a limit there may be a shield, and then the cancel does not come through.
        block.is_cancelled() && !block.has(flag::LIMITED)
    };
    if refused {
        return true;
    }
    // As for the name: the lock keeps the extra part in place.
    let _in_place = block.park.lock();
    block
        .extra()
        .and_then(|extra| extra.token.get())
        .is_some_and(|(token, _)| token.has_deadline())
}
