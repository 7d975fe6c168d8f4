//! Futures made of futures: `map`, `and_then`, `all`, `any`, `race`.
//!
//! Owns: nothing: each is a promise that callbacks of its sources complete, on whatever thread ends them.
//!
//! A cancel of what was made is passed on to all its sources. Sources that are not needed any more go on: whoever
//! wants them stopped cancels them.
//!
//! While a source is pending it and what is made of it keep each other: by the callback, and by the cancel that is passed on. The
//! source's end, which comes with its last promise at the latest, undoes both.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Promise, SharedFuture, TaskError};

impl<T: Send + Sync + 'static> SharedFuture<T> {
    /// The value of `f` on this one's value; no value is passed on as it is.
    ///
    /// `f` is called as a callback of [`on_done`](Self::on_done) is. If it panics what was made is closed.
    ///
    /// # Examples
    ///
    /// ```
    /// let (promise, future) = sinew::future::Promise::new();
    /// let text = future.map(|n: &u32| n.to_string());
    /// promise.resolve(7).unwrap();
    /// assert_eq!(text.get().unwrap().unwrap(), "7");
    /// ```
    #[must_use = "the value is only found in what is returned"]
    pub fn map<U: Send + Sync + 'static>(
        &self,
        f: impl FnOnce(&T) -> U + Send + 'static,
    ) -> SharedFuture<U> {
        let (promise, made) = Promise::new();
        let passing = self.cancel_with(&made.cancel_token());
        self.on_done(move |result| {
            drop(passing);
            let result = result.map(f).map_err(TaskError::clone);
            // Nobody else completes it.
            drop(promise.complete(result));
        });
        made
    }

    /// The end of the future that `f` makes of this one's value; no value is passed on as it is.
    ///
    /// `f` is called as a callback of [`on_done`](Self::on_done) is. If it panics what was made is closed.
    #[must_use = "the value is only found in what is returned"]
    pub fn and_then<U: Clone + Send + Sync + 'static>(
        &self,
        f: impl FnOnce(&T) -> SharedFuture<U> + Send + 'static,
    ) -> SharedFuture<U> {
        let (promise, made) = Promise::new();
        let token = promise.cancel_token();
        let passing = self.cancel_with(&token);
        self.on_done(move |result| {
            drop(passing);
            match result {
                Ok(value) => {
                    let second = f(value);
                    let passing = second.cancel_with(&token);
                    second.on_done(move |result| {
                        drop(passing);
                        drop(promise.complete(copy(result)));
                    });
                }
                Err(error) => drop(promise.complete(Err(error.clone()))),
            }
        });
        made
    }
}

fn copy<T: Clone>(result: Result<&T, &TaskError>) -> Result<T, TaskError> {
    result.cloned().map_err(TaskError::clone)
}

/// What the callbacks of several sources share.
struct Gathering<T, S> {
    /// Until it is completed.
    promise: Option<Promise<T>>,
    /// What has come so far.
    sofar: S,
}

/// Hands each source's end to `gather`, until that says what the whole comes to; if it never does, what was made is closed.
fn gather<T, U, S>(
    sources: &[SharedFuture<T>],
    sofar: S,
    gather: impl Fn(&mut S, usize, Result<T, TaskError>) -> Option<Result<U, TaskError>>
    + Send
    + Sync
    + 'static,
) -> SharedFuture<U>
where
    T: Clone + Send + Sync + 'static,
    U: Send + Sync + 'static,
    S: Send + 'static,
{
    let (promise, made) = Promise::new();
    let token = promise.cancel_token();
    let gathering = Arc::new((
        Mutex::new(Gathering {
            promise: Some(promise),
            sofar,
        }),
        gather,
    ));
    for (index, source) in sources.iter().enumerate() {
        let passing = source.cancel_with(&token);
        let gathering = gathering.clone();
        source.on_done(move |result| {
            drop(passing);
            let (gathering, gather) = &*gathering;
            if lock(gathering).promise.is_none() {
                return;
            }
            // Without the lock: a clone is the user's code, as is a drop.
            let result = copy(result);
            let mut gathering = lock(gathering);
            if gathering.promise.is_none() {
                return;
            }
            let Some(whole) = gather(&mut gathering.sofar, index, result) else {
                return;
            };
            let promise = gathering.promise.take();
            drop(gathering);
            if let Some(promise) = promise {
                drop(promise.complete(whole));
            }
        });
    }
    made
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No user code runs under the lock, so a panic cannot leave it half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All values, in the order of the sources; or the first end that is none, as soon as it comes. Of no sources: no values.
///
/// # Examples
///
/// ```
/// use sinew::future::{Promise, all};
///
/// let (one, first) = Promise::new();
/// let (two, second) = Promise::new();
/// let both = all([first, second]);
/// two.resolve(2).unwrap();
/// one.resolve(1).unwrap();
/// assert_eq!(both.get().unwrap().unwrap(), &[1, 2]);
/// ```
#[must_use = "the values are only found in what is returned"]
pub fn all<T: Clone + Send + Sync + 'static>(
    sources: impl IntoIterator<Item = SharedFuture<T>>,
) -> SharedFuture<Vec<T>> {
    let sources: Vec<_> = sources.into_iter().collect();
    let missing = sources.len();
    if missing == 0 {
        return SharedFuture::ready(Ok(Vec::new()));
    }
    let places: Vec<Option<T>> = sources.iter().map(|_| None).collect();
    gather(
        &sources,
        (missing, places),
        |(missing, places), index, result| {
            match result {
                Ok(value) => places[index] = Some(value),
                Err(error) => return Some(Err(error)),
            }
            *missing -= 1;
            (*missing == 0).then(|| Ok(places.drain(..).flatten().collect()))
        },
    )
}

/// The first value; if all end without one, the last of the ends. Of no sources: closed.
#[must_use = "the value is only found in what is returned"]
pub fn any<T: Clone + Send + Sync + 'static>(
    sources: impl IntoIterator<Item = SharedFuture<T>>,
) -> SharedFuture<T> {
    let sources: Vec<_> = sources.into_iter().collect();
    gather(&sources, sources.len(), |missing, _, result| {
        *missing -= 1;
        match result {
            Err(_) if *missing > 0 => None,
            result => Some(result),
        }
    })
}

/// The first end, whichever it is. Of no sources: closed.
#[must_use = "the value is only found in what is returned"]
pub fn race<T: Clone + Send + Sync + 'static>(
    sources: impl IntoIterator<Item = SharedFuture<T>>,
) -> SharedFuture<T> {
    let sources: Vec<_> = sources.into_iter().collect();
    gather(&sources, (), |(), _, result| Some(result))
}
