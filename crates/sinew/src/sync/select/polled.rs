//! A std future as an arm: polled where the select runs, by a waker that wakes the select.
//!
//! Owns: the future, its output until it is taken, and the bell that its wakers ring. Thread: the waiting one; the bell is rung on
//! any, also after the arm is gone.
//!
//! Invariants
//! - I1. The future is polled only while no arm of the select is linked, so its code may do what it likes: wait, panic, select.
//! - I2. A ring is not lost: it is either seen by the next attempt, or finds the node in the queue, or is found by `link`.
#![expect(unsafe_code, reason = "implements the arms' side of the wait protocol")]

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use sinew_core::lock::Lock;
use sinew_core::wait::{Arm as RawArm, ArmNode, Linking, Queue, Reason, Waiter};

use super::sealed::Sealed;
use super::{Arm, Common};

/// Waits for a std future. Made by [`future`].
pub struct PollArm<F: Future> {
    future: RefCell<F>,
    output: Cell<Option<F::Output>>,
    /// Whether it is not to be polled any more.
    is_over: Cell<bool>,
    bell: Arc<Bell>,
    waker: Waker,
    node: ArmNode,
    common: Common,
}

/// Takes effect when the future is ready; it is polled where the select runs. The future is dropped with the arm: to keep one
/// that was not ready, lend it, as `future(&mut future)` or `future(pinned.as_mut())`.
///
/// Of a future that panics the select's caller has the panic, and no arm has taken effect. It is not polled again.
///
/// # Examples
///
/// ```
/// use std::pin::pin;
/// use sinew::{select, sync::channel::bounded};
///
/// sinew::run(|| {
///     let (sender, receiver) = bounded(1);
///     let mut sum = pin!(async {
///         let mut sum = 0;
///         while let Ok(number) = receiver.recv_async().await {
///             sum += number;
///         }
///         sum
///     });
///     let mut sender = Some(sender);
///     let mut number = Some(1);
///     let sum = loop {
///         let done = select! {
///             sum = future(sum.as_mut()) => Some(sum),
///             default => None,
///         };
///         match (done, number.take()) {
///             (Some(sum), _) => break sum,
///             (None, Some(number)) => sender.as_ref().unwrap().send(number).unwrap(),
///             (None, None) => drop(sender.take()),
///         }
///     };
///     assert_eq!(sum, 1);
/// });
/// ```
pub fn future<F: Future + Unpin>(future: F) -> PollArm<F> {
    let bell = Arc::new(Bell {
        state: Lock::new(BellState {
            is_rung: true,
            waiters: Queue::new(),
        }),
    });
    PollArm {
        future: RefCell::new(future),
        output: Cell::new(None),
        is_over: Cell::new(false),
        waker: Waker::from(bell.clone()),
        bell,
        node: ArmNode::new(),
        common: Common::new(),
    }
}

impl<F: Future> PollArm<F> {
    /// The future's output, if the arm was the one that took effect.
    #[must_use]
    pub fn take(&self) -> Option<F::Output> {
        self.output.take()
    }
}

/// What the wakers of an arm ring.
struct Bell {
    state: Lock<BellState>,
}

struct BellState {
    /// Whether it was rung since the last poll.
    is_rung: bool,
    /// The arm's node, while it waits.
    waiters: Queue,
}

impl Bell {
    fn take(&self) -> bool {
        mem::take(&mut self.state.lock().is_rung)
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut state = self.state.lock();
        state.is_rung = true;
        let woken = state.waiters.claim_all(Reason::Woken);
        drop(state);
        woken.wake_all();
    }
}

// SAFETY: linked and unlinked under the bell's lock; a bell that was rung before the link claims the node as a ring after it does. What may
// unwind or wait is the future's code, in `attempt`, by I1.
unsafe impl<F: Future + Unpin> RawArm for PollArm<F> {
    fn attempt(&self) -> bool {
        let output = self.output.take();
        if output.is_some() {
            self.output.set(output);
            return true;
        }
        if self.is_over.get() || !self.bell.take() {
            return false;
        }
        // Stays so if the poll panics.
        self.is_over.set(true);
        let mut future = self.future.borrow_mut();
        match Pin::new(&mut *future).poll(&mut Context::from_waker(&self.waker)) {
            Poll::Ready(output) => {
                self.output.set(Some(output));
                true
            }
            Poll::Pending => {
                self.is_over.set(false);
                false
            }
        }
    }

    fn node(&self) -> &ArmNode {
        &self.node
    }

    unsafe fn link(&self, waiter: NonNull<Waiter>) -> Linking {
        if self.is_over.get() {
            return Linking::Linked;
        }
        let mut state = self.bell.state.lock();
        // SAFETY: unlinked, and the caller is its waiter.
        let node = unsafe { self.node.prepare(waiter, ptr::null_mut()) };
        // SAFETY: prepared, spread; `unlink` or the claim takes it out.
        unsafe { state.waiters.push_back(node) };
        if state.is_rung {
            // A future that has woken itself: the wait ends as it begins, after a turn for everybody else.
            let woken = state.waiters.claim_all(Reason::Woken);
            drop(state);
            woken.wake_all();
        }
        Linking::Linked
    }

    unsafe fn unlink(&self) {
        let mut state = self.bell.state.lock();
        // SAFETY: alive; if it is in a queue then in this one.
        unsafe { state.waiters.remove(self.node.as_node()) };
    }

    unsafe fn settle(&self, _: Reason) -> bool {
        self.attempt()
    }
}

impl<F: Future + Unpin> Sealed for PollArm<F> {
    fn common(&self) -> &Common {
        &self.common
    }
}

impl<F: Future + Unpin> Arm for PollArm<F> {}

impl<F: Future> fmt::Debug for PollArm<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PollArm")
            .field("is_over", &self.is_over.get())
            .finish_non_exhaustive()
    }
}
