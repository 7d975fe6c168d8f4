//! Stand-alone coroutines: typed values both ways, no scheduler.
//!
//! [`anchor`] opens a frame that none of its coroutines outlives; [`Coroutine`] is resumed with a value and
//! suspends with one, at any depth of calls; [`Generator`] is one seen as an iterator.
//!
//! ```
//! use sinew::coroutine::{Coroutine, Step, Suspender, anchor};
//!
//! anchor(|a| {
//!     let mut adder = Coroutine::new(a, |s: &Suspender<i32, i32>, first| {
//!         let mut sum = first;
//!         while let Ok(next) = s.suspend(sum) {
//!             sum += next;
//!         }
//!         sum
//!     });
//!     assert_eq!(adder.resume(1).unwrap(), Step::Suspended(1));
//!     assert_eq!(adder.resume(2).unwrap(), Step::Suspended(3));
//!     adder.cancel();
//!     assert_eq!(adder.resume(0).unwrap(), Step::Done(3));
//! });
//! ```
//!
//! # Why the anchor
//!
//! A suspended stack holds borrows: of thread-locals, of scoped threads, of the frames around it. A handle that is
//! forgotten or hidden in a thread-local would leave them dangling. So each coroutine belongs to a frame of its
//! thread, by a lifetime that its closure and all of its values outlive, and that frame ends all of them,
//! whatever has become of their handles.
//!
//! # How one ends
//!
//! | event | outcome |
//! |---|---|
//! | the body returns | Returned; Cancelled if it has called [`Suspender::confirm_cancel`]; else Error if it has left an error in its [context](error) |
//! | the body, or a [cleanup], panics | Error; [`Coroutine::resume`] raises the panic again |
//! | cancelled before its first resume | Cancelled; the closure is dropped unrun |
//! | its handle is dropped, or its anchor ends, while it is suspended | its frames are unwound; Cancelled |
//! | it panics while it is unwound | Error; the anchor raises the first such panic at its end |
//!
//! | file | owns |
//! |---|---|
//! | `anchor` | the list of coroutines, their stacks, the end of all of them |
//! | `control` | the record of one coroutine: state, contexts, stack |
//! | `body` | the closure, and the first frame of a stack |
//! | `handle` | the side that resumes |
//! | `suspender` | the side that suspends |
//! | `fence` | what keeps one from suspending inside a limit or a scope |
//! | `word` | how values cross a switch |
//! | `generator` | the iterator |
//!
//! # What a coroutine has of its own
//!
//! [Cleanups](cleanup) that run at its end, an [error context](error) and an [arena]: coroutines of a
//! scheduler and stand-alone ones alike. A plain thread has the latter two.
//!
//! | file | owns |
//! |---|---|
//! | `estate` | where these are kept, and the end of all three |
//! | `cleanup` | the stack of cleanups |
//! | `context` | the error context |
//! | `arena` | the temporary memory |

mod anchor;
pub mod arena;
mod body;
pub mod cleanup;
mod context;
mod control;
mod estate;
mod fence;
mod generator;
mod handle;
mod suspender;
#[cfg(feature = "backtrace")]
mod walked;
mod word;

pub use anchor::{Anchor, anchor};
pub use cleanup::{defer, try_defer};
pub use control::State;
pub(crate) use fence::Fence;
pub use generator::{Generator, Yielder};
pub use handle::{Builder, Coroutine, ResumeError, Step};
pub use suspender::{SuspendError, Suspender};

pub(crate) use estate::{Estate, Settled};

/// The error context of each coroutine, and of each thread's plain code.
pub mod error {
    pub use super::context::{last, set, take, with_context};
}

/// Whether the calling code runs on a coroutine's stack.
pub(crate) fn is_inside() -> bool {
    sinew_context::stack::lookup(sinew_context::arch::stack_pointer()).is_some()
}
