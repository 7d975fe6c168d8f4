//! A wait at several primitives at once, of which one takes effect: what a select is made of.
//!
//! Owns: the order in which arms are tried, linked and left. Thread: the waiter's; a winner marks its node on any.
//!
//! Invariants
//! - I1. While a node of an arm is linked its waiter is spread or claimed: every claim is a compare-and-swap on one word, so
//!   one arm takes effect at most.
//! - I2. Who claims by a node marks that node before the wake. No other node of the wait is marked.
//! - I3. When a wait returns none of its nodes is linked, and only the arm that it names has taken or given anything.
//!
//! # How it goes
//!
//! 1. Each arm is tried, in an order that rotates: the first that can take effect does, and nothing else has happened.
//!    Nobody knows the waiter yet, so a partner that is a select too is claimed by one word only.
//! 2. Otherwise the word is spread and the arms are linked one by one, each under its primitive's lock. An arm
//!    that could take effect by now is not linked: the waiter claims itself. If it wins, nobody else will claim it; it
//!    takes its nodes out and begins anew. If it loses, someone has claimed an arm that was linked before, and owes the wake.
//! 3. The waiter suspends. Who finds one of its nodes claims the word by compare-and-swap, also on the waiter's own
//!    thread, and marks the node: that is how the waiter learns which arm it was. A timer or a cancel marks none.
//! 4. The waiter takes every node out but the marked one, each under its primitive's lock, after which nobody knows it.
//!
//! A claim is never undone, and a party never meets itself: [`Queue::has_other`] passes its own nodes over.
//!
//! Two selects that find each other while they link may both claim themselves and begin anew. Each then tries first,
//! with nothing linked, so one of them succeeds unless both keep in step to the instruction.
#![expect(
    unsafe_code,
    reason = "intrusive nodes in the frames of waiting parties"
)]

use core::cell::Cell;
use core::fmt;
use core::ptr::{self, NonNull};

use crate::facade::UnsafeCell;
use crate::lock::Lock;
use crate::sharing::{Shared, Sharing};
use crate::wait::{Claim, Node, Queue, Reason, Record, Suspend, Waiter};

/// An arm's place in its primitive's queue, with the mark of the winner.
#[repr(C)]
pub struct ArmNode {
    node: Node,
    is_chosen: UnsafeCell<bool>,
}

// SAFETY: as for `Node`; the mark is the winner's from the claim to the wake and the waiter's otherwise.
unsafe impl Send for ArmNode {}
// SAFETY: as above.
unsafe impl Sync for ArmNode {}

impl ArmNode {
    /// A node in no queue.
    #[must_use]
    pub fn new() -> Self {
        Self {
            node: Node::new(),
            is_chosen: UnsafeCell::new(false),
        }
    }

    /// Prepares the node for one wait, see [`Node::prepare`], and returns it as what queues link.
    ///
    /// # Safety
    ///
    /// As for [`Node::prepare`].
    pub unsafe fn prepare(&self, waiter: NonNull<Waiter>, slot: *mut ()) -> NonNull<Node> {
        // SAFETY: passed on to the caller.
        unsafe { self.node.prepare(waiter, slot) };
        self.as_node()
    }

    /// As what queues link: a pointer that is good for the whole of it.
    #[must_use]
    pub fn as_node(&self) -> NonNull<Node> {
        NonNull::from(self).cast()
    }

    /// Marks the node as the one by which its waiter was claimed.
    ///
    /// # Safety
    ///
    /// The node is the first field of an arm's, and the caller has won the claim and not woken the waiter yet.
    pub(super) unsafe fn choose(node: NonNull<Node>) {
        // SAFETY: alive: the waiter cannot go on before it is woken.
        let this = unsafe { node.cast::<Self>().as_ref() };
        // SAFETY: the winner's, until the wake.
        this.is_chosen.with_mut(|mark| unsafe { *mark = true });
    }

    /// The waiter has claimed itself for this arm, which is linked.
    ///
    /// # Safety
    ///
    /// The caller is the waiter, has won the claim, and ends its suspension by itself.
    pub unsafe fn choose_self(&self) {
        // SAFETY: the winner's, until it goes on.
        self.is_chosen.with_mut(|mark| unsafe { *mark = true });
    }

    /// Takes the mark off; says whether it was there.
    ///
    /// # Safety
    ///
    /// The caller is the waiter, and goes on.
    pub unsafe fn take_mark(&self) -> bool {
        self.is_chosen.with_mut(|mark| {
            // SAFETY: the winner has written it before the wake, if at all; nobody else writes.
            let mark = unsafe { &mut *mark };
            core::mem::take(mark)
        })
    }
}

impl Default for ArmNode {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for ArmNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArmNode").finish_non_exhaustive()
    }
}

/// What became of linking an arm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "an arm that is ready was not linked"]
pub enum Linking {
    /// It waits, or can never take effect.
    Linked,
    /// It can take effect now, and was not linked.
    Ready,
}

/// One of the things that a party waits for at the same time.
///
/// An arm is used through shared references: while it waits, others reach its node and its slot.
///
/// # Safety
///
/// - `link` links the arm's own [`node`](Arm::node), prepared with this waiter, into the queue of one primitive under that
///   primitive's lock, and only if [`attempt`](Arm::attempt) would fail then, or claims it itself. After it said [`Linking::Ready`] no node is linked.
/// - `unlink` takes the primitive's lock and the node out, if it is still in.
/// - None of the methods runs code of the user's under a lock, and none but `attempt` and `settle` unwinds or suspends. (Those two are
///   called while no arm of the wait is linked and the waiter is idle.)
pub unsafe trait Arm {
    /// Takes effect if that is possible at once. An arm that has taken effect before says so again.
    ///
    /// It takes out of the queues whoever it finds there to be claimed already, so that what [`link`](Arm::link) has called
    /// ready for their sake is not so the next time.
    fn attempt(&self) -> bool;

    /// The arm's node.
    fn node(&self) -> &ArmNode;

    /// Links the node, unless the arm is ready.
    ///
    /// # Safety
    ///
    /// The waiter is the caller's and spread, the node is unlinked, and the arm stays in place until it is
    /// [unlinked](Arm::unlink) or [settled](Arm::settle).
    unsafe fn link(&self, waiter: NonNull<Waiter>) -> Linking;

    /// Leaves the queue without having taken effect.
    ///
    /// # Safety
    ///
    /// The arm was linked, and its waiter was claimed, not by the arm's node.
    unsafe fn unlink(&self);

    /// The waiter was claimed by the arm's node: the arm has taken effect. False if it has not after all, because the wake was
    /// only a hint: then all arms are waited for again.
    ///
    /// # Safety
    ///
    /// The arm was linked, and its waiter was claimed by the arm's node with this reason.
    unsafe fn settle(&self, reason: Reason) -> bool;
}

/// In which order arms are tried: from which on, and which way round.
///
/// An arm is first in one of so many turns as there are arms, and between two ready ones the way round alternates, so
/// that what lies between them and is not ready favours neither.
#[derive(Debug, Clone, Copy)]
pub struct Turn {
    first: usize,
    is_backwards: bool,
}

impl Turn {
    /// The turn that belongs to a number; numbers that are spread over all of a `u32` give all turns alike.
    #[must_use]
    pub fn of(number: u32, arms: usize) -> Self {
        let turns = 2 * arms as u64;
        let turn = (u64::from(number) * turns) >> 32;
        Self {
            first: usize::try_from(turn / 2).unwrap_or(0),
            is_backwards: turn % 2 == 1,
        }
    }

    /// Forwards from `first` on.
    #[must_use]
    pub fn from_arm(first: usize) -> Self {
        Self {
            first,
            is_backwards: false,
        }
    }

    /// The arms in their order.
    fn order(self, arms: usize) -> impl Iterator<Item = usize> {
        let before = move |step: usize| (self.first + arms - step) % arms;
        let after = move |step: usize| (self.first + step) % arms;
        (0..arms).map(move |step| {
            if self.is_backwards {
                before(step)
            } else {
                after(step)
            }
        })
    }
}

/// Lets one arm take effect if that is possible at once; says which.
pub fn attempt_any<A: Arm + ?Sized>(arms: &[&A], turn: Turn) -> Option<usize> {
    turn.order(arms.len()).find(|&index| arms[index].attempt())
}

/// Waits until one of the arms takes effect; says which. No other has taken or given anything.
///
/// An arm that can take effect at once wins over a deadline that has passed and over a cancel.
///
/// # Errors
///
/// The reason for which the party gave up: [`Reason::Timeout`] or [`Reason::Cancelled`]. No arm has taken effect then.
///
/// # Safety
///
/// The arms are different ones, and none of them is linked.
pub unsafe fn wait_any<A: Arm + ?Sized, S: Suspend>(
    arms: &[&A],
    turn: Turn,
    party: &S,
    record: Record,
) -> Result<usize, Reason> {
    let mut was_hint = false;
    loop {
        if let Some(index) = attempt_any(arms, turn) {
            return Ok(index);
        }
        if let Some(reason) = party.refused() {
            return Err(reason);
        }
        // Hints without end, each before the deadline's timer, would put it off for ever.
        if was_hint && let Some(reason) = party.expired() {
            return Err(reason);
        }
        let (waiter, _) = party.party();
        // SAFETY: the party's own waiter, alive while `party` is borrowed.
        let word = &unsafe { waiter.as_ref() }.word;
        word.arm_spread();
        // SAFETY: spread; the caller vouches for the arms.
        let (linked, linking) = unsafe { link_all(arms, waiter) };
        let linked = &arms[..linked];
        if linking == Linking::Ready && word.claim(Reason::Woken) == Claim::Won {
            word.finish();
            party.withdraw();
            for arm in linked {
                // SAFETY: linked above, and claimed by nobody but the waiter itself.
                unsafe { arm.unlink() };
            }
            continue;
        }
        // Also if an arm is ready and the claim was lost: the wake is owed.
        let reason = party.suspend(record);
        // SAFETY: linked above; the waiter was claimed, and goes on.
        match unsafe { leave_all(linked) } {
            None => return Err(reason),
            // SAFETY: its node has the mark.
            Some(chosen) if unsafe { arms[chosen].settle(reason) } => return Ok(chosen),
            Some(_) => was_hint = true,
        }
    }
}

/// Links arms up to the first that is ready; says how many.
///
/// # Safety
///
/// As for [`Arm::link`], for each.
unsafe fn link_all<A: Arm + ?Sized>(arms: &[&A], waiter: NonNull<Waiter>) -> (usize, Linking) {
    for (index, arm) in arms.iter().enumerate() {
        // SAFETY: passed on to the caller.
        if unsafe { arm.link(waiter) } == Linking::Ready {
            return (index, Linking::Ready);
        }
    }
    (arms.len(), Linking::Linked)
}

/// Takes all arms out but the one by which the waiter was claimed; says which that is.
///
/// # Safety
///
/// The arms are linked, and their waiter was claimed and goes on.
unsafe fn leave_all<A: Arm + ?Sized>(arms: &[&A]) -> Option<usize> {
    let mut chosen = None;
    for (index, arm) in arms.iter().enumerate() {
        // SAFETY: the waiter goes on.
        if unsafe { arm.node().take_mark() } {
            debug_assert_eq!(chosen, None, "I2");
            chosen = Some(index);
        } else {
            // SAFETY: linked, and not the one that was claimed by.
            unsafe { arm.unlink() };
        }
    }
    chosen
}

/// How an arm looks at a primitive whose wakers do not use the slots of those who wait: under its lock.
///
/// # Safety
///
/// `queue` always finds the same queue, whose claimed waiters have what they waited for, or find it by
/// [`take`](Probe::take) if the wake [is a hint](Probe::IS_HINT). No code of the user's runs in any of them.
pub unsafe trait Probe<T> {
    /// Whether a claimed waiter has still to take what it was woken for, and may find that another was faster.
    const IS_HINT: bool = false;

    /// Takes what is waited for, if it is there; says with which reason.
    fn take(&self, state: &mut T) -> Option<Reason>;
    /// Whether [`take`](Probe::take) would succeed. Whoever brings it about takes the lock afterwards and
    /// claims who waits.
    fn is_there(&self, state: &mut T) -> bool;
    /// Where those who wait are.
    fn queue<'a>(&self, state: &'a mut T) -> &'a mut Queue;
}

/// An arm at a primitive that hands nothing over through slots: an event, a count, the end of something.
///
/// `K` says whose parties share it: of all threads, or of one.
pub struct QueueArm<'a, T, P, K: Sharing = Shared> {
    lock: &'a Lock<T, K>,
    probe: P,
    node: ArmNode,
    /// With which reason it has taken effect.
    taken: Cell<Option<Reason>>,
}

impl<'a, T, P: Probe<T>, K: Sharing> QueueArm<'a, T, P, K> {
    /// An arm that waits at what is behind this lock.
    pub fn new(lock: &'a Lock<T, K>, probe: P) -> Self {
        Self {
            lock,
            probe,
            node: ArmNode::new(),
            taken: Cell::new(None),
        }
    }

    /// Whether the arm has taken effect, and with which reason; it can be waited for again afterwards.
    pub fn take(&self) -> Option<Reason> {
        self.taken.take()
    }

    /// The arm's way of looking, which may keep what it took.
    pub fn probe(&self) -> &P {
        &self.probe
    }
}

// SAFETY: linked and unlinked under the one lock; `is_there` says whether `take` would succeed.
unsafe impl<T, P: Probe<T>, K: Sharing> Arm for QueueArm<'_, T, P, K> {
    fn attempt(&self) -> bool {
        if self.taken.get().is_none() {
            let taken = self.probe.take(&mut self.lock.lock());
            self.taken.set(taken);
        }
        self.taken.get().is_some()
    }

    fn node(&self) -> &ArmNode {
        &self.node
    }

    unsafe fn link(&self, waiter: NonNull<Waiter>) -> Linking {
        let mut state = self.lock.lock();
        if self.probe.is_there(&mut state) {
            return Linking::Ready;
        }
        // SAFETY: unlinked, and the caller is its waiter.
        let node = unsafe { self.node.prepare(waiter, ptr::null_mut()) };
        // SAFETY: prepared, spread; `unlink` or the claim takes it out.
        unsafe { self.probe.queue(&mut state).push_back(node) };
        Linking::Linked
    }

    unsafe fn unlink(&self) {
        let mut state = self.lock.lock();
        let node = self.node.as_node();
        // SAFETY: alive; if it is in a queue then in this one.
        unsafe { self.probe.queue(&mut state).remove(node) };
    }

    unsafe fn settle(&self, reason: Reason) -> bool {
        if P::IS_HINT {
            return self.attempt();
        }
        self.taken.set(Some(reason));
        true
    }
}

impl<T, P, K: Sharing> fmt::Debug for QueueArm<'_, T, P, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueArm").finish_non_exhaustive()
    }
}
