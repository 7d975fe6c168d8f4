//! The key of a coroutine-local, and the macro that declares one.
//!
//! Owns: how a value is found or initialised, in a coroutine and on a plain thread.

use std::any::Any;
use std::cell::{Cell, OnceCell, RefCell};
use std::fmt;
use std::rc::Rc;

use super::{AccessError, Key, Locals, State};
use crate::scheduler::current::{Place, place};

/// Declares statics of which each coroutine has its own value.
///
/// A value is initialised when its coroutine first uses it. The values are destroyed at the coroutine's end, on its own
/// stack, after its closure has returned or unwound, in the reverse order of their initialisation. In their destructors every
/// wait fails with `State`; a panic there is the coroutine's panic, unless it has one already.
///
/// With the attribute `#[inherit]` a coroutine starts with a clone of the value that the coroutine which spawns it has at
/// that moment, if it has one. The clone is made by the spawning one, which may not wait in it; if it panics, so does the spawn.
/// The coroutine that [`run`](crate::run) starts with inherits nothing.
///
/// Outside of a coroutine it is a thread-local of the standard library's. A stand-alone coroutine
/// ([`crate::coroutine`]) has no values of its own: it shares those of whatever resumes it, each time anew. A
/// reference from `with` keeps the value alive beyond its coroutine's end where a stand-alone coroutine is suspended inside.
///
/// # Examples
///
/// ```
/// use std::cell::Cell;
///
/// sinew::coroutine_local! {
///     /// How many lines this coroutine has read.
///     static LINES: Cell<u32> = Cell::new(0);
///
///     /// The request that the work is for.
///     #[inherit]
///     static REQUEST: Cell<u64> = Cell::new(0);
/// }
///
/// sinew::run(|| {
///     REQUEST.set(7);
///     LINES.set(3);
///     let child = sinew::spawn_local(|| (REQUEST.get(), LINES.get()));
///     assert_eq!(child.join().unwrap(), (7, 0));
/// });
/// ```
#[macro_export]
macro_rules! coroutine_local {
    ($($declarations:tt)*) => {
        $crate::__coroutine_local! { {} (no) $($declarations)* }
    };
}

/// Takes the declarations apart: the attributes seen so far, whether one of them was `#[inherit]`, and the rest.
#[doc(hidden)]
#[macro_export]
macro_rules! __coroutine_local {
    ({} (no)) => {};
    ({ $($seen:tt)* } $inherit:tt #[inherit] $($rest:tt)*) => {
        $crate::__coroutine_local! { { $($seen)* } (yes) $($rest)* }
    };
    ({ $($seen:tt)* } $inherit:tt #[$attribute:meta] $($rest:tt)*) => {
        $crate::__coroutine_local! { { $($seen)* #[$attribute] } $inherit $($rest)* }
    };
    ({ $($seen:tt)* } $inherit:tt $visible:vis static $name:ident: $type:ty = $init:expr; $($rest:tt)*) => {
        $crate::__coroutine_local! { { $($seen)* } $inherit $visible static $name: $type = $init }
        $crate::__coroutine_local! { {} (no) $($rest)* }
    };
    ({ $($seen:tt)* } (no) $visible:vis static $name:ident: $type:ty = $init:expr) => {
        $crate::__coroutine_local! { @key { $($seen)* } $visible $name $type, $init, new }
    };
    ({ $($seen:tt)* } (yes) $visible:vis static $name:ident: $type:ty = $init:expr) => {
        $crate::__coroutine_local! { @key { $($seen)* } $visible $name $type, $init, inherited }
    };
    (@key { $($seen:tt)* } $visible:vis $name:ident $type:ty, $init:expr, $make:ident) => {
        $($seen)*
        $visible static $name: $crate::local::LocalKey<$type> = {
            fn init() -> $type {
                $init
            }
            ::std::thread_local! {
                static THREAD: $crate::local::ThreadSlot<$type> =
                    const { $crate::local::ThreadSlot::new() };
            }
            $crate::local::LocalKey::$make(::std::stringify!($name), init, THREAD)
        };
    };
}

/// A coroutine-local, declared by [`coroutine_local!`](crate::coroutine_local).
pub struct LocalKey<T: 'static> {
    name: &'static str,
    init: fn() -> T,
    /// How a child's value is made, if it inherits one.
    clone: Option<fn(&T) -> T>,
    /// The value outside of any coroutine.
    thread: std::thread::LocalKey<ThreadSlot<T>>,
}

/// The value of a plain thread.
#[doc(hidden)]
pub struct ThreadSlot<T> {
    value: OnceCell<T>,
    is_initialising: Cell<bool>,
}

impl<T> ThreadSlot<T> {
    #[doc(hidden)]
    #[must_use]
    pub const fn new() -> Self {
        Self {
            value: OnceCell::new(),
            is_initialising: Cell::new(false),
        }
    }
}

impl<T> Default for ThreadSlot<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for ThreadSlot<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadSlot").finish_non_exhaustive()
    }
}

impl<T: 'static> fmt::Debug for LocalKey<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalKey")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// Runs the closure when dropped.
struct AtLast<F: FnMut()>(F);

impl<F: FnMut()> Drop for AtLast<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

impl<T: 'static> LocalKey<T> {
    #[doc(hidden)]
    #[must_use]
    pub const fn new(
        name: &'static str,
        init: fn() -> T,
        thread: std::thread::LocalKey<ThreadSlot<T>>,
    ) -> Self {
        Self {
            name,
            init,
            clone: None,
            thread,
        }
    }

    #[doc(hidden)]
    #[must_use]
    pub const fn inherited(
        name: &'static str,
        init: fn() -> T,
        thread: std::thread::LocalKey<ThreadSlot<T>>,
    ) -> Self
    where
        T: Clone,
    {
        Self {
            name,
            init,
            clone: Some(T::clone),
            thread,
        }
    }

    /// Calls `f` with the value, which is initialised first if this is its first use.
    ///
    /// # Suspends
    ///
    /// If `f` or the initialiser does.
    ///
    /// # Panics
    ///
    /// If the value is destroyed already; if the initialiser uses the value that it is to make; and if it or `f` does.
    #[track_caller]
    pub fn with<R>(&'static self, f: impl FnOnce(&T) -> R) -> R {
        match self.try_with(f) {
            Ok(returned) => returned,
            Err(error) => self.is_gone(error),
        }
    }

    /// As [`LocalKey::with`], and does not panic if the value is destroyed.
    ///
    /// # Errors
    ///
    /// If the value is destroyed already. `f` has not run.
    ///
    /// # Panics
    ///
    /// As [`LocalKey::with`] in its other cases.
    #[track_caller]
    pub fn try_with<R>(&'static self, f: impl FnOnce(&T) -> R) -> Result<R, AccessError> {
        self.try_with_or(self.init, f)
    }

    /// The same with another initialiser.
    #[track_caller]
    fn try_with_or<R>(
        &'static self,
        init: impl FnOnce() -> T,
        f: impl FnOnce(&T) -> R,
    ) -> Result<R, AccessError> {
        match place() {
            Place::Coroutine(_, block) => {
                let value = self.in_coroutine(&block.extra_or_new().locals, init)?;
                Ok(f(&value))
            }
            Place::Thread | Place::Frame => self
                .thread
                .try_with(|slot| f(self.in_thread(slot, init)))
                .map_err(|_| AccessError(())),
        }
    }

    #[track_caller]
    fn in_coroutine(
        &'static self,
        locals: &Locals,
        init: impl FnOnce() -> T,
    ) -> Result<Rc<T>, AccessError> {
        match locals.find(self) {
            Some(State::Alive(value)) => match value.downcast() {
                Ok(value) => return Ok(value),
                Err(_) => unreachable!("a slot holds a value of its key's type"),
            },
            Some(State::Initialising) => self.is_used_in_init(),
            Some(State::Destroyed) => return Err(AccessError(())),
            None if locals.is_closed.get() => return Err(AccessError(())),
            None => {}
        }
        locals.begin(self);
        let undo = AtLast(|| locals.give_up(self));
        let value = Rc::new(init());
        std::mem::forget(undo);
        if locals.complete(self, Rc::<T>::clone(&value)) {
            Ok(value)
        } else {
            Err(AccessError(()))
        }
    }

    #[track_caller]
    fn in_thread<'a>(&self, slot: &'a ThreadSlot<T>, init: impl FnOnce() -> T) -> &'a T {
        if let Some(value) = slot.value.get() {
            return value;
        }
        if slot.is_initialising.replace(true) {
            self.is_used_in_init();
        }
        let done = AtLast(|| slot.is_initialising.set(false));
        let value = init();
        drop(done);
        slot.value.get_or_init(|| value)
    }

    #[cold]
    #[track_caller]
    fn is_gone(&self, error: AccessError) -> ! {
        panic!("coroutine_local {}: {error}", self.name)
    }

    #[cold]
    #[track_caller]
    fn is_used_in_init(&self) -> ! {
        panic!(
            "coroutine_local {}: its initialiser uses the value that it is to make",
            self.name
        )
    }

    /// Replaces the value by `value` put into place by `put`; the initialiser does not run.
    #[track_caller]
    fn put<V>(&'static self, value: V, wrap: impl FnOnce(V) -> T, put: impl FnOnce(&T, V)) {
        let value = Cell::new(Some(value));
        let mut wrap = Some(wrap);
        let init = || match (value.take(), wrap.take()) {
            (Some(value), Some(wrap)) => wrap(value),
            _ => unreachable!("an initialiser runs once"),
        };
        let done = self.try_with_or(init, |place| {
            if let Some(value) = value.take() {
                put(place, value);
            }
        });
        if let Err(error) = done {
            self.is_gone(error);
        }
    }
}

impl<T: 'static> Key for LocalKey<T> {
    fn is_inherited(&self) -> bool {
        self.clone.is_some()
    }

    fn clone_value(&self, value: &dyn Any) -> Option<Rc<dyn Any>> {
        let value = value.downcast_ref::<T>()?;
        Some(Rc::new((self.clone?)(value)))
    }
}

/// All panic as [`LocalKey::with`] does.
impl<T: 'static> LocalKey<Cell<T>> {
    /// Sets the value; the initialiser does not run for it.
    #[track_caller]
    pub fn set(&'static self, value: T) {
        self.put(value, Cell::new, Cell::set);
    }

    /// A copy of the value.
    #[track_caller]
    pub fn get(&'static self) -> T
    where
        T: Copy,
    {
        self.with(Cell::get)
    }

    /// Takes the value and leaves the default.
    #[track_caller]
    pub fn take(&'static self) -> T
    where
        T: Default,
    {
        self.with(Cell::take)
    }

    /// Replaces the value and returns the one before.
    #[track_caller]
    pub fn replace(&'static self, value: T) -> T {
        self.with(|cell| cell.replace(value))
    }
}

/// All panic as [`LocalKey::with`] does, and if the cell is borrowed already.
impl<T: 'static> LocalKey<RefCell<T>> {
    /// Calls `f` with the value, borrowed.
    #[track_caller]
    pub fn with_borrow<R>(&'static self, f: impl FnOnce(&T) -> R) -> R {
        self.with(|cell| f(&cell.borrow()))
    }

    /// Calls `f` with the value, borrowed for writing.
    #[track_caller]
    pub fn with_borrow_mut<R>(&'static self, f: impl FnOnce(&mut T) -> R) -> R {
        self.with(|cell| f(&mut cell.borrow_mut()))
    }

    /// Sets the value; the initialiser does not run for it.
    #[track_caller]
    pub fn set(&'static self, value: T) {
        self.put(value, RefCell::new, |cell, value| {
            drop(cell.replace(value));
        });
    }

    /// Takes the value and leaves the default.
    #[track_caller]
    pub fn take(&'static self) -> T
    where
        T: Default,
    {
        self.with(RefCell::take)
    }

    /// Replaces the value and returns the one before.
    #[track_caller]
    pub fn replace(&'static self, value: T) -> T {
        self.with(|cell| cell.replace(value))
    }
}
