//! A coroutine as an iterator.
//!
//! Owns: a coroutine that is resumed with nothing and returns nothing. All of it is safe code.

use std::fmt;
use std::iter::FusedIterator;

use crate::coroutine::anchor::Anchor;
use crate::coroutine::handle::{Coroutine, ResumeError, Step};
use crate::coroutine::suspender::{SuspendError, Suspender};

/// An iterator whose items come out of a closure with a stack of its own.
///
/// # Examples
///
/// ```
/// use sinew::coroutine::{Generator, Yielder, anchor};
///
/// fn walk(y: &Yielder<u32>, depth: u32) {
///     if depth > 0 {
///         walk(y, depth - 1);
///         let _ = y.suspend(depth);
///         walk(y, depth - 1);
///     }
/// }
/// anchor(|a| {
///     let order: Vec<u32> = Generator::new(a, |y| walk(y, 3)).collect();
///     assert_eq!(order, [1, 2, 1, 3, 1, 2, 1]);
/// });
/// ```
pub struct Generator<'a, T> {
    coroutine: Coroutine<'a, (), T, ()>,
}

/// What a generator's body gives its items to.
pub struct Yielder<'s, T> {
    suspender: &'s Suspender<(), T>,
}

impl<T> Yielder<'_, T> {
    /// Hands an item to the iterator's next `next`, and returns when the one after that is asked for.
    ///
    /// # Suspends
    ///
    /// Always, unless it fails.
    ///
    /// # Cancellation
    ///
    /// When the generator is dropped, or its anchor ends, this call unwinds the stack instead of returning.
    ///
    /// # Errors
    ///
    /// `State`, with the item in it, as for [`Suspender::suspend`].
    #[inline]
    pub fn suspend(&self, item: T) -> Result<(), SuspendError<(), T>> {
        self.suspender.suspend(item)
    }
}

impl<'a, T: 'a> Generator<'a, T> {
    /// An iterator over what `f` gives to its yielder. Runs nothing before the first `next`.
    #[track_caller]
    pub fn new<F>(anchor: &'a Anchor<'a, '_>, f: F) -> Self
    where
        F: FnOnce(&Yielder<'_, T>) + 'a,
    {
        Self {
            coroutine: Coroutine::new(anchor, |suspender: &Suspender<(), T>, ()| {
                f(&Yielder { suspender });
            }),
        }
    }

    #[cfg(feature = "backtrace")]
    pub(super) fn coroutine(&self) -> &Coroutine<'a, (), T, ()> {
        &self.coroutine
    }
}

impl<T> Iterator for Generator<'_, T> {
    type Item = T;

    /// Runs the body to its next item.
    ///
    /// # Panics
    ///
    /// With the panic of the body; if no stack can be had for the first item.
    #[inline]
    #[track_caller]
    fn next(&mut self) -> Option<T> {
        match self.coroutine.resume(()) {
            Ok(Step::Suspended(item)) => Some(item),
            Ok(Step::Done(())) => None,
            Err(ResumeError::State(()) | ResumeError::Cancelled(())) => None,
            Err(error @ ResumeError::NoMemory(())) => panic!("{error}"),
        }
    }
}

impl<T> FusedIterator for Generator<'_, T> {}

impl<T> fmt::Debug for Generator<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Generator")
            .field("coroutine", &self.coroutine)
            .finish()
    }
}

impl<T> fmt::Debug for Yielder<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Yielder").finish_non_exhaustive()
    }
}
