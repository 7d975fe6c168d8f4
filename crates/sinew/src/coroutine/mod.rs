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
//! The guide `docs/guide/coroutines.md` goes from a generator and a tree walk to a parser turned inside out and a C library's
//! callback.
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
//! # What a body may do about it
//!
//! The frames of a suspended coroutine that is dropped, or whose anchor ends, are unwound by a panic with a private payload.
//! Before each such raise it is made sure that it will be caught by the body's end, or by the body. (An [`anchor`], a scope or
//! [`cleanup::with`] on its way catches it only to pass it on, so the frames around those are looked at, too.)
//!
//! | the body | result |
//! |---|---|
//! | lets it pass, or catches it and returns | every destructor and cleanup has run, once; Cancelled |
//! | catches it and suspends again | unwound again; after 16 times the process ends with a report |
//! | suspends in a destructor that it runs | `State`; the unwind goes on |
//! | panics in a destructor that it runs | the process ends, as everywhere in Rust |
//! | has a frame in between that cannot be unwound (an `extern "C"` callback, code without unwind tables), or the program is built with `panic = "abort"` | [`SuspendError::Ending`], and `State` afterwards; the body runs on until it returns, or suspends where it can be unwound; after 1,000 more tries the process ends with the report |
//! | is in a destructor that a panic of the thread runs | as in the line above, with `State` |
//! | resumes or drops others meanwhile | they are resumed and unwound as ever |
//!
//! | file | owns |
//! |---|---|
//! | `anchor` | the list of coroutines, their stacks, the end of all of them |
//! | `control` | the record of one coroutine: state, contexts, stack |
//! | `body` | the closure, and the first frame of a stack |
//! | `handle` | the side that resumes |
//! | `suspender` | the side that suspends |
//! | `unanchored` | what keeps coroutines that have no anchor |
//! | `fence` | what keeps one from suspending inside a limit or a scope |
//! | `spares` | memory of records, to be used again |
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
//! | `task_estate` | the same for a task, in their place |
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
mod spares;
mod suspender;
mod task_estate;
mod unanchored;
#[cfg(feature = "backtrace")]
mod walked;
mod word;

pub use anchor::{Anchor, anchor};
pub use cleanup::{defer, try_defer};
pub use control::State;
pub(crate) use fence::Fence;
pub use generator::{Generator, Yielder};
pub use handle::{Builder, Coroutine, ResumeError, Step};
pub use suspender::{SuspendError, Suspender, suspend};

pub(crate) use estate::{Estate, Settled};
pub(crate) use task_estate::TaskEstate;
pub(crate) use unanchored::alternate_stack;

/// The error context of each coroutine, and of each thread's plain code.
pub mod error {
    pub use super::context::{last, set, take, with_context};
}

/// The guide's listings are examples that run.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/guide/coroutines.md")]
struct Guide;

/// Whether the calling code runs on a coroutine's stack.
pub(crate) fn is_inside() -> bool {
    sinew_context::stack::lookup(sinew_context::arch::stack_pointer()).is_some()
}
