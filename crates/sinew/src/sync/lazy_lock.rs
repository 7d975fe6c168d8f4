//! A value that is made when it is first wanted.
//!
//! Owns: a cell, and what fills it.

use std::fmt;
use std::ops::Deref;

use crate::error::WaitError;
use crate::sync::OnceCell;

/// A value that is made when it is first wanted; who wants it meanwhile waits.
///
/// The wait suspends the coroutine, and neither a deadline nor a cancel ends it: there would be no value to go on with. Use a
/// [`OnceCell`] where that matters. If making it panics the lock is as before, and the next one makes it: nothing is poisoned.
/// That is why `f` is an `Fn`, where std takes an `FnOnce` and is spoilt for good.
///
/// # Examples
///
/// ```
/// use sinew::sync::LazyLock;
///
/// static WORDS: LazyLock<Vec<String>> = LazyLock::new(|| vec!["made".to_owned()]);
/// assert_eq!(WORDS[0], "made");
/// ```
pub struct LazyLock<T, F = fn() -> T> {
    cell: OnceCell<T>,
    make: F,
}

impl<T, F: Fn() -> T> LazyLock<T, F> {
    /// A value that `f` is to make.
    pub const fn new(f: F) -> Self {
        Self {
            cell: OnceCell::new(),
            make: f,
        }
    }

    /// The value, which is made if it is not there yet.
    ///
    /// # Suspends
    ///
    /// While another makes it, and as making it does.
    ///
    /// # Panics
    ///
    /// As making it does. If it is wanted by what makes it. If another makes it and the caller cannot wait: on a scheduler's own frame,
    /// in a cleanup or in a callback.
    #[inline]
    #[track_caller]
    pub fn force(this: &Self) -> &T {
        match this.cell.get() {
            Some(value) => value,
            None => this.force_slow(),
        }
    }

    #[cold]
    #[track_caller]
    fn force_slow(&self) -> &T {
        match self.cell.get_or_init_deaf(&self.make) {
            Ok(value) => value,
            Err(WaitError::Deadlock) => {
                panic!("the value of a LazyLock is wanted by what makes it")
            }
            Err(_) => {
                panic!("the value of a LazyLock is being made, and nothing can wait for it here")
            }
        }
    }
}

impl<T, F: Fn() -> T> Deref for LazyLock<T, F> {
    type Target = T;

    #[inline]
    #[track_caller]
    fn deref(&self) -> &T {
        Self::force(self)
    }
}

impl<T: Default> Default for LazyLock<T> {
    fn default() -> Self {
        Self::new(T::default)
    }
}

impl<T: fmt::Debug, F> fmt::Debug for LazyLock<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_tuple("LazyLock");
        match self.cell.get() {
            Some(value) => out.field(value),
            None => out.field(&format_args!("<not made>")),
        };
        out.finish()
    }
}
