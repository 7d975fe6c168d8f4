//! The listing: what every live coroutine is and what it waits for, read from its control block.
//!
//! Owns: nothing. Any thread. Each entry is consistent in itself (read under the block's sequence lock);
//! the listing as a whole is not a snapshot: coroutines go on while it is made.
#![expect(
    unsafe_code,
    reason = "reads published fields of control blocks that other threads write"
)]

use std::panic::Location;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::fence;
use std::time::Instant;

use sinew_context::stack::{self, SlotRef};
use sinew_core::wait::Kind;

use crate::cancel::CancelRecord;
use crate::scheduler::block::{Block, TIMED, flag};
use crate::scheduler::door::Door;
use crate::scheduler::slab;
use crate::sys::clock;

/// What a coroutine does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum State {
    /// It can run, and waits for its turn.
    Ready,
    /// It runs.
    Running,
    /// It waits for something.
    Suspended,
}

/// What a suspended coroutine waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Wait {
    /// The kind of thing: "mutex", "receive", "sleep" …
    pub what: &'static str,
    /// Which one: an identity, the same for all that wait for the same thing; the number for a descriptor.
    pub object: usize,
    /// The id of the coroutine that holds it, if that is known.
    pub owner: Option<u64>,
    /// Since when, as of the scheduler's last look at the clock before.
    pub since: Instant,
    /// Until when at most.
    pub until: Option<Instant>,
}

/// A live coroutine.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Info {
    /// Its id: unique in the process.
    pub id: u64,
    /// The name that it was given.
    pub name: Option<Arc<str>>,
    /// What it does.
    pub state: State,
    /// What it waits for, if it is suspended.
    pub wait: Option<Wait>,
    /// The id of the coroutine that spawned it, which may have ended; `None` for the first one of a `run`.
    pub parent: Option<u64>,
    /// Where it was spawned.
    pub spawned_at: &'static Location<'static>,
    /// The usable size of its stack in bytes; `None` before it starts.
    pub stack_bytes: Option<usize>,
    /// How much of it was in use when it last stopped, in bytes.
    pub stack_used_bytes: Option<usize>,
    /// Who asked it to stop, why and when, and when it was told, if anybody did.
    pub cancel: Option<CancelRecord>,
    /// Which slot its stack is; good for a question to the kernel.
    slot: Option<StackSlot>,
}

#[derive(Clone, Copy)]
struct StackSlot(SlotRef);

impl std::fmt::Debug for StackSlot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StackSlot")
    }
}

impl Info {
    /// The deepest use of its stack since that was last cleaned, by this coroutine or an earlier one on the same
    /// stack, in bytes rounded up to pages. Asks the kernel: about a microsecond.
    #[must_use]
    pub fn stack_high_water_bytes(&self) -> Option<usize> {
        self.slot.map(|slot| slot.0.high_water_bytes())
    }
}

/// Calls `f` for every live coroutine of the process.
///
/// # Suspends
///
/// Never, unless `f` does. No lock is held while `f` runs.
///
/// # Examples
///
/// ```
/// sinew::run(|| {
///     let _handle = sinew::Builder::new().name("clerk").spawn_local(|| ()).unwrap();
///     let mut names = Vec::new();
///     sinew::inspect::for_each(|info| names.extend(info.name.clone()));
///     assert!(names.iter().any(|name| &**name == "clerk"));
/// });
/// ```
pub fn for_each(mut f: impl FnMut(&Info)) {
    slab::for_each_block(|block| {
        if let Some(info) = info(block) {
            f(&info);
        }
    });
}

/// The live coroutine with this id. Looks at all of them.
#[must_use]
pub fn find(id: u64) -> Option<Info> {
    let mut found = None;
    slab::for_each_block(|block| {
        if found.is_none() && block.id.load(Relaxed) == id {
            found = info(block).filter(|info| info.id == id);
        }
    });
    found
}

/// What the block says, unless it is free, has ended, or changes faster than it can be read.
pub(super) fn info(block: &Block) -> Option<Info> {
    let (id, parent, location, kind, object, owner, since_ns, until_ns, started, done, sp, stack) =
        block.read(|| {
            let is_armed = block.waiter.word.is_armed();
            // ORDERING: pairs with the fence in `PublishedKind::clear`: the kind is not older than the arming.
            fence(Acquire);
            (
                block.id.load(Relaxed),
                block.parent.load(Relaxed),
                block.location.load(Relaxed),
                // Whoever was woken waits for its turn only.
                if is_armed {
                    block.kind.load(Relaxed)
                } else {
                    0
                },
                block.object.load(Relaxed),
                block.owner.load(Relaxed),
                block.since.load(Relaxed),
                block.timer.deadline_ns(),
                block.has(flag::STARTED),
                // ORDERING: Acquire orders this before the name and the stack are looked at.
                block.is_done(),
                stack_pointer(block),
                block.stack_words(),
            )
        })?;
    if id == 0 || done {
        return None;
    }
    // SAFETY: a location is a static, and was stored with the id.
    let spawned_at = unsafe { location.as_ref() }?;
    let wait = (Kind::from_u8(kind & !TIMED) != Kind::Nothing).then(|| Wait {
        what: Kind::from_u8(kind & !TIMED).name(),
        object,
        owner: (owner != 0).then_some(owner),
        since: clock::to_instant(since_ns),
        until: (kind & TIMED != 0).then(|| clock::to_instant(until_ns)),
    });
    let state = match (&wait, is_running(block)) {
        (Some(_), _) => State::Suspended,
        (None, true) => State::Running,
        (None, false) => State::Ready,
    };
    // SAFETY: read under the sequence.
    let own = unsafe { Block::highest_of(stack) };
    let (slot, sp) = if started {
        where_it_is(state, own, sp)
    } else {
        (None, 0)
    };
    let name = block.name();
    // The name was read after the rest: it is this coroutine's only if the block still is.
    let name = if block.id.load(Relaxed) == id {
        name
    } else {
        None
    };
    Some(Info {
        id,
        parent: (parent != 0).then_some(parent),
        name,
        state,
        wait,
        spawned_at,
        stack_bytes: slot.map(SlotRef::size_bytes),
        stack_used_bytes: slot.map(|slot| slot.base().addr().get().saturating_sub(sp)),
        cancel: block.cancel_record_of(id),
        slot: slot.map(StackSlot),
    })
}

/// The door of the scheduler that the coroutine with this id is of.
#[cfg(feature = "backtrace")]
pub(super) fn door_of(id: u64) -> Option<&'static Door> {
    let block = slab::Cursor::new().find(|block| block.id() == id && !block.is_done())?;
    // SAFETY: doors are never freed.
    unsafe { block.door.load(Relaxed).as_ref() }
}

/// The id of the coroutine that has this scheduler's thread.
pub(super) fn running_in(door: &Door) -> Option<u64> {
    // SAFETY: blocks are never unmapped.
    let block = unsafe { door.running().as_ref() }?;
    Some(block.id()).filter(|id| *id != 0)
}

fn is_running(block: &Block) -> bool {
    let door = block.door.load(Relaxed);
    // SAFETY: doors are never freed.
    unsafe { door.as_ref() }.is_some_and(|door| ptr::eq(door.running(), block))
}

/// The stack of a coroutine that has started, and where on it it last stopped. `own` is an address on its own stack.
fn where_it_is(state: State, own: Option<usize>, sp: usize) -> (Option<SlotRef>, usize) {
    match own {
        // It may not have stopped yet, and what its context has is of an earlier coroutine then.
        Some(own) if state == State::Running => {
            let slot = stack::lookup(own);
            let sp = if stack::lookup(sp) == slot {
                sp
            } else {
                own + 1
            };
            (slot, sp)
        }
        _ => (stack::lookup(sp), sp),
    }
}

/// Where the coroutine's stack pointer was when it last stopped.
fn stack_pointer(block: &Block) -> usize {
    // SAFETY: in bounds of the context.
    let sp = unsafe { &raw mut (*block.context.get()).sp };
    // SAFETY: aligned and never unmapped. It is written by the switch, in assembly, by one store of an aligned word, which is
    // what a relaxed atomic store is.
    unsafe { AtomicUsize::from_ptr(sp) }.load(Relaxed)
}
