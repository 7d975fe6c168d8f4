//! Tasks that are handed to an executor and taken into a group in one step.
//!
//! Owns: nothing. Thread: the submitter's. The place in the group is reserved first: a group that refuses touches neither
//! the executor nor the task, and an executor that refuses leaves nothing in the group.
//!
//! Each executor has a file of its own here: none needs the others, and a group needs none of them.

mod coroutine;
mod pool;
mod worker;

use crate::future::SharedFuture;
use crate::task::group::NoPlace;
use crate::task::refused::SubmitErrorKind;
use crate::task::{SubmitError, TaskGroup};

impl TaskGroup {
    /// Reserves a place and hands the task over.
    pub(super) fn hand_over<F, T>(
        &self,
        task: F,
        accept: impl FnOnce(F) -> Result<SharedFuture<T>, SubmitError<F>>,
    ) -> Result<SharedFuture<T>, SubmitError<F>>
    where
        T: Send + Sync + 'static,
    {
        let place = match self.shared().reserve() {
            Ok(place) => place,
            Err(NoPlace::Closed) => return Err(SubmitError::new(SubmitErrorKind::Closed, task)),
            Err(NoPlace::Full) => return Err(SubmitError::new(SubmitErrorKind::Again, task)),
            Err(NoPlace::NoMemory) => {
                return Err(SubmitError::new(SubmitErrorKind::NoMemory, task));
            }
        };
        let future = accept(task)?;
        place.commit(&future);
        Ok(future)
    }
}
