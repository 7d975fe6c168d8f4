//! What is called when a promise has ended.
//!
//! Owns: nothing. Thread: the one that ends the promise, or the one that comes too late to leave it.

use sinew_core::sync::Chained;

use super::TaskError;

/// See the file's head. It has its place in the promise's list in itself, so that whoever has one can leave it whatever happens.
pub(crate) trait OnDone<T>: Send {
    /// The place for the next one.
    fn next(&mut self) -> &mut Option<Callback<T>>;

    /// Whether nothing of the user's runs in [`call`](Self::call), nothing waits there and nothing unwinds from it: it is called as it is
    /// then.
    fn is_own(&self) -> bool {
        false
    }

    /// The value, or why there is none, is lent to it.
    fn call(self: Box<Self>, result: Result<&T, &TaskError>);
}

/// A callback whose type is forgotten.
pub(crate) type Callback<T> = Box<dyn OnDone<T>>;

impl<T> Chained for Callback<T> {
    fn next(&mut self) -> &mut Option<Self> {
        (**self).next()
    }
}

struct Closure<T, F> {
    next: Option<Callback<T>>,
    f: F,
}

impl<T, F> OnDone<T> for Closure<T, F>
where
    F: FnOnce(Result<&T, &TaskError>) + Send,
{
    fn next(&mut self) -> &mut Option<Callback<T>> {
        &mut self.next
    }

    fn call(self: Box<Self>, result: Result<&T, &TaskError>) {
        (self.f)(result);
    }
}

/// A closure as a callback.
pub(super) fn callback<T: 'static>(
    f: impl FnOnce(Result<&T, &TaskError>) + Send + 'static,
) -> Callback<T> {
    Box::new(Closure { next: None, f })
}
