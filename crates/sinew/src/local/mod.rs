//! Values of which each coroutine has its own: [`coroutine_local!`](crate::coroutine_local).
//!
//! Owns: the values of a coroutine, in the rarely needed part of its control block; on a plain thread, and on a
//! scheduler's own frame, a thread-local of the standard library takes their place.
//! Thread: the coroutine's, for all of it.
//!
//! Invariants
//! - I1. No borrow of `Locals::slots` is held while code of the user's runs: an initialiser, a clone, a destructor, or
//!   the function given to `with`.
//! - I2. When the coroutine has ended there is no value left, and none can come: what is dropped with the control block,
//!   which may happen on another thread, is empty.
//! - I3. A value lives as long as any `with` on it: each holds a count. So values need not be pinned, new ones may come
//!   meanwhile, and even a stand-alone coroutine that was suspended inside of `with` and goes on after the coroutine whose
//!   value it borrowed finds it in place. All of it is of one thread: started coroutines do not move.
//!   For the same reason an initialiser holds a count of the control block.
//! - I4. The slots with a value are in the order in which the initialisers returned: one that uses another local is
//!   destroyed before that.
//!
//! A coroutine's few values are found by comparing addresses of keys from the first on: there is no table that all
//! coroutines would have to be as large as.

mod key;

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::ptr;
use std::rc::Rc;

use crate::coroutine::Fence;
use crate::join::JoinError;
use crate::scheduler::block::Block;
use crate::scheduler::body::{self, Payload};
use crate::scheduler::current;

pub use key::LocalKey;
#[doc(hidden)]
pub use key::ThreadSlot;

/// The value is gone: the coroutine, or the thread, is ending and has destroyed it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct AccessError(());

impl fmt::Debug for AccessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AccessError")
    }
}

impl fmt::Display for AccessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the coroutine-local is already destroyed")
    }
}

impl std::error::Error for AccessError {}

/// What a slot knows of the key it is for.
trait Key: Sync {
    /// Whether a child is to have a clone.
    fn is_inherited(&self) -> bool;

    /// The clone for a child.
    fn clone_value(&self, value: &dyn Any) -> Option<Rc<dyn Any>>;
}

type KeyRef = &'static dyn Key;

fn is_same(left: KeyRef, right: KeyRef) -> bool {
    // Keys are statics that are not empty: each has an address of its own.
    ptr::addr_eq(ptr::from_ref(left), ptr::from_ref(right))
}

#[derive(Clone)]
enum State {
    /// Its initialiser runs.
    Initialising,
    Alive(Rc<dyn Any>),
    /// It does not come back.
    Destroyed,
}

struct Slot {
    key: KeyRef,
    state: State,
}

/// The values of one coroutine.
pub(crate) struct Locals {
    slots: RefCell<Vec<Slot>>,
    /// The coroutine has ended.
    is_closed: Cell<bool>,
}

impl Locals {
    pub(crate) const fn new() -> Self {
        Self {
            slots: RefCell::new(Vec::new()),
            is_closed: Cell::new(false),
        }
    }

    fn find(&self, key: KeyRef) -> Option<State> {
        let slots = self.slots.borrow();
        let slot = slots.iter().find(|slot| is_same(slot.key, key))?;
        Some(slot.state.clone())
    }

    /// The initialiser of `key` starts.
    fn begin(&self, key: KeyRef) {
        self.slots.borrow_mut().push(Slot {
            key,
            state: State::Initialising,
        });
    }

    /// It has unwound: the next access tries again.
    fn give_up(&self, key: KeyRef) {
        self.slots
            .borrow_mut()
            .retain(|slot| !(is_same(slot.key, key) && matches!(slot.state, State::Initialising)));
    }

    /// It has returned `value`. False if the coroutine has ended meanwhile, which takes a stand-alone coroutine that was
    /// suspended in the initialiser.
    fn complete(&self, key: KeyRef, value: Rc<dyn Any>) -> bool {
        let mut slots = self.slots.borrow_mut();
        let found = slots
            .iter()
            .position(|slot| is_same(slot.key, key) && matches!(slot.state, State::Initialising));
        let Some(index) = found else {
            return false;
        };
        slots.remove(index);
        let state = State::Alive(value);
        slots.push(Slot { key, state });
        true
    }

    /// Takes out the value that was initialised last, for it to be dropped.
    fn take_last(&self) -> Option<Rc<dyn Any>> {
        let mut slots = self.slots.borrow_mut();
        slots.iter_mut().rev().find_map(|slot| {
            match std::mem::replace(&mut slot.state, State::Destroyed) {
                State::Alive(value) => Some(value),
                State::Initialising | State::Destroyed => None,
            }
        })
    }

    /// Destroys the values, the last one first, and those that come meanwhile. Hands out the first panic.
    fn destroy(&self) -> Option<Payload> {
        let mut first = None;
        while let Some(value) = self.take_last() {
            let panic = current::without_waits(|| body::drop_quietly(value));
            match panic {
                Some(payload) if first.is_none() => first = Some(payload),
                Some(payload) => body::drop_payload(payload),
                None => {}
            }
        }
        first
    }
}

/// The body of the coroutine is over: its locals are destroyed, still on its stack. A destructor's panic becomes the
/// coroutine's, if that has none.
#[inline]
pub(crate) fn settle<T>(block: &Block, result: Result<T, JoinError>) -> Result<T, JoinError> {
    match block.extra() {
        Some(extra) => settle_slow(&extra.locals, result),
        None => result,
    }
}

#[cold]
fn settle_slow<T>(locals: &Locals, result: Result<T, JoinError>) -> Result<T, JoinError> {
    let Some(payload) = locals.destroy() else {
        return result;
    };
    match result {
        Err(error) if error.is_panic() => {
            body::drop_payload(payload);
            Err(error)
        }
        instead => {
            if let Some(second) = body::drop_quietly(instead) {
                body::drop_payload(second);
            }
            Err(JoinError::panic(payload))
        }
    }
}

/// The coroutine has ended, and its result is dropped if it was its own to drop, which may have made new locals: they go
/// as well, and none is made from here on (I2). Hands out the first panic.
#[inline]
pub(crate) fn close(block: &Block) -> Option<Payload> {
    // Without an extra part there are none, and nothing of the user's runs any more in this coroutine that could make any.
    close_slow(&block.extra()?.locals)
}

#[cold]
fn close_slow(locals: &Locals) -> Option<Payload> {
    let panic = locals.destroy();
    locals.is_closed.set(true);
    locals.slots.take();
    panic
}

/// The clones that a child of a coroutine starts with.
pub(crate) struct Inherited(Option<Vec<Slot>>);

/// Clones what a child of `parent` inherits.
#[inline]
pub(crate) fn inherited(parent: Option<&Block>) -> Inherited {
    match parent.and_then(Block::extra) {
        Some(extra) => inherited_slow(&extra.locals),
        None => Inherited(None),
    }
}

#[cold]
fn inherited_slow(locals: &Locals) -> Inherited {
    let of_parent: Vec<_> = locals
        .slots
        .borrow()
        .iter()
        .filter(|slot| slot.key.is_inherited())
        .filter_map(|slot| match &slot.state {
            State::Alive(value) => Some((slot.key, Rc::clone(value))),
            State::Initialising | State::Destroyed => None,
        })
        .collect();
    if of_parent.is_empty() {
        return Inherited(None);
    }
    // A stand-alone coroutine must not suspend in a clone: the spawn goes on in this scheduler.
    let _fence = Fence::raise();
    let clones = current::without_waits(|| {
        let clone = |(key, value): (KeyRef, Rc<dyn Any>)| {
            let state = State::Alive(key.clone_value(&*value)?);
            Some(Slot { key, state })
        };
        of_parent.into_iter().filter_map(clone).collect()
    });
    Inherited(Some(clones))
}

impl Inherited {
    /// Gives them to the child, which is new and of the same thread.
    #[inline]
    pub(crate) fn give(self, child: &Block) {
        if let Some(slots) = self.0 {
            *child.extra_or_new().locals.slots.borrow_mut() = slots;
        }
    }
}
