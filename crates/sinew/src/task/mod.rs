//! Tasks: work with an explicit outcome, and those who run it.
//!
//! Owns: nothing. The parts are usable without one another:
//!
//! | file | owns |
//! |---|---|
//! | `outcome` | what a task can end with: [`Outcome`], [`IntoOutcome`] |
//! | `context` | what a running task is lent: [`TaskContext`] |
//! | `job` | a task from its making to its end; [`Task`] is for executors of one's own |
//! | `group` | futures of any origin that end together: [`TaskGroup`] |
//! | `coroutine` | tasks in coroutines: [`spawn()`], [`spawn_on`], [`TaskGroup::spawn`] |
//! | `pool` | threads for tasks that block or compute: [`TaskPool`] |
//! | `worker` | tasks on the loop of a thread that runs a scheduler, now and later: [`Worker`] |
//! | `bridge` | a group and one of those in one step, a file for each: [`TaskGroup::submit`] and its like |
//! | `scope` | a group for the length of a closure, with a rule: [`scope()`] |
//! | `refused` | a task that was not accepted: [`SubmitError`] |
//!
//! # A task's end
//!
//! A task's function returns an [`Outcome`], or a `Result` that is one. It is decided once, and seen in a
//! [`SharedFuture`](crate::future::SharedFuture). A cancel request is a wish: a task that saw it may succeed all the same. One that is
//! asked to stop before it starts never runs. A panic is a failure of kind [`Panic`](crate::ErrorKind::Panic).
//!
//! Each task has an error context ([`crate::coroutine::error`]) and an arena ([`crate::coroutine::arena`]) of its own, whichever
//! thread or coroutine it runs on. What its closure owns is dropped in that context; nothing of it is left to the
//! next one.

mod bridge;
mod context;
mod coroutine;
mod group;
mod job;
mod outcome;
mod pool;
mod refused;
mod scope;
mod worker;

pub use context::TaskContext;
pub use coroutine::{spawn, spawn_on};
pub use group::{AddError, CancelOn, GroupStats, StartError, TaskGroup, TaskGroupBuilder};
pub use job::{Task, TaskEnd};
pub use outcome::{IntoOutcome, Outcome};
pub use pool::{DestroyError, Finalizer, PoolStats, Submitter, TaskPool, TaskPoolBuilder};
pub use refused::SubmitError;
pub use scope::{Race, ScopeBuilder, scope};
pub use worker::{IoBuffer, Worker, WorkerBuilder, WorkerHandle, WorkerLocal, WorkerStats};
