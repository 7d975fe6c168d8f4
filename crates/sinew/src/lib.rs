//! Stackful coroutines and structured tasks: straight-line blocking code, std's names and traits, no coloured functions.

pub mod cancel;
pub mod coroutine;
mod driver;
mod error;
pub mod event;
pub mod inspect;
pub mod io;
mod join;
pub mod local;
pub mod net;
mod park;
mod scheduler;
mod scope;
pub mod sync;
mod sys;
pub mod time;

pub use cancel::{CancelToken, shield, timeout, timeout_deadline};
pub use coroutine::cleanup::{defer, try_defer};
pub use error::{Cancelled, Closed, Elapsed, Error, ErrorKind, WaitError, is_cancelled};
pub use join::{JoinError, JoinHandle, Outcome};
pub use local::LocalKey;
pub use park::{
    CoroutineRef, Unparker, confirm_cancel, current, in_coroutine, park, park_deadline,
    park_timeout, stopping, yield_now,
};
pub use scheduler::Scheduler;
pub use scheduler::exit::{NotFound, cancel_id, cancel_id_within, exit, exit_all};
pub use scheduler::object::{SchedulerBuilder, StateError, stop, thread_detach};
pub use scheduler::post::{PostError, SchedulerHandle};
pub use scheduler::run::{RunError, run, run_code, try_run};
pub use scheduler::spawn::{Builder, Detached, SpawnError, go_local, spawn_local};
pub use scheduler::step::Progress;
pub use scope::{Scope, ScopedJoinHandle, scope};
pub use time::{sleep, sleep_until};
