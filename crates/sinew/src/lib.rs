//! Stackful coroutines and structured tasks: straight-line blocking code, std's names and traits, no coloured functions.
//!
//! [`run`] starts a scheduler on the calling thread; inside, [`spawn_local`] and [`go_local`] start coroutines. What would block a
//! thread suspends the coroutine instead: the locks and channels of [`sync`], the sockets of [`net`], [`sleep`], [`park`],
//! a join; [`select!`] waits for whichever comes first. Each wait can time out, and can be cancelled ([`CancelToken`]). Outside of a scheduler the same calls
//! block the thread.
//!
//! A coroutine stays on its thread once it has started, and never outlives the call of [`run`] that it belongs to: so `Rc`,
//! `RefCell`, thread-locals and borrows across waits are as safe as in a thread, and nothing here is `unsafe` to call but a few
//! functions that say so.
//!
//! ```
//! use std::time::Duration;
//! use sinew::sync::channel;
//!
//! let total = sinew::run(|| {
//!     let (sender, receiver) = channel::bounded(4);
//!     for n in 1..=3_u64 {
//!         let sender = sender.clone();
//!         sinew::go_local(move || {
//!             sinew::sleep(Duration::from_millis(n)).unwrap();
//!             sender.send(n).unwrap();
//!         });
//!     }
//!     drop(sender);
//!     receiver.iter().sum::<u64>()
//! });
//! assert_eq!(total, 6);
//! ```
//!
//! `docs/guide/start.md` goes from here to a server that stops in order, and says what the names of Go, tokio and std are called here.
//! [`coroutine`] has coroutines to be resumed by hand, without a scheduler (the guide is `docs/guide/coroutines.md`); [`inspect`] shows what every live one waits for.

pub mod cancel;
pub mod coroutine;
mod driver;
mod error;
pub mod event;
pub mod fs;
pub mod future;
pub mod inspect;
pub mod io;
mod join;
pub mod local;
pub mod net;
mod park;
pub mod process;
mod scheduler;
mod scope;
pub mod signal;
pub mod stack;
pub mod sync;
mod sys;
pub mod task;
pub mod time;
#[cfg(feature = "tls")]
pub mod tls;

pub use cancel::{CancelRecord, CancelToken, shield, timeout, timeout_deadline};
pub use coroutine::cleanup::{defer, try_defer};
pub use error::{Cancelled, Closed, Elapsed, Error, ErrorKind, WaitError, is_cancelled};
pub use future::{block_on, block_on_deadline, block_on_timeout};
pub use join::{JoinError, JoinHandle, Outcome};
pub use local::LocalKey;
pub use park::{
    CoroutineRef, Unparker, confirm_cancel, current, in_coroutine, park, park_deadline,
    park_timeout, stopping, yield_now,
};
pub use scheduler::Scheduler;
pub use scheduler::exit::{exit, exit_all};
pub use scheduler::object::{SchedulerBuilder, StateError, stop, thread_detach};
pub use scheduler::order::{NotFound, cancel_id, cancel_id_within};
pub use scheduler::post::{PostError, SchedulerHandle};
pub use scheduler::run::{RunError, run, run_code, try_run};
pub use scheduler::spawn::{Builder, Detached, Priority, SpawnError, go_local, spawn_local};
pub use scheduler::step::Progress;
pub use scope::{Scope, ScopedJoinHandle, scope};
pub use time::{sleep, sleep_until};

/// The listings of the guide to the runtime.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/start.md")]
struct Start;

/// The README's listing compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
