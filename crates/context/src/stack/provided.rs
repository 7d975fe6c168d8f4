//! Stacks in memory that the caller provides.
//!
//! Owns: the registry by which [`lookup`](super::lookup) finds them. One is registered and removed under a lock; it is looked up
//! without one, in signal handlers too.
//!
//! # How an address is found
//!
//! A stack of `n` bytes, guard included, lies in one or two aligned blocks of 2^k bytes, where 2^k is the next power of two.
//! It is entered under (k, number of the block) in a hash table, once for each block. A look-up tries every k
//! that was ever in use: a few buckets, whatever the number of stacks is.
//!
//! Invariants
//! - I1. Records and nodes are never freed: a reader may follow any pointer at any time. They are used again.
//! - I2. A node stays in its bucket for ever, so a reader's walk ends, and misses no node that was there when it began.
//! - I3. A record's fields change only while its sequence number is odd. A reader that finds it odd, or changed, passes over it:
//!   that stack comes or goes, so it is not the one that the reader runs on.
//!
//! Deliberately not here: a cache. What becomes of the memory afterwards is up to the drop of what was provided.
//!
//! Source: the table is our own; the sequence number is a seqlock.

#![expect(unsafe_code, reason = "vouches for memory; follows leaked records")]

#[cfg(test)]
mod tests;

use super::error::StackError;
use super::slab::LINE_BYTES;
use super::{DescribeFn, GUARD_BYTES_MAX, SIZE_BYTES_MAX, SIZE_BYTES_MIN, SlotRef, StackHeader};
use crate::tools::{self, valgrind};
use std::fmt;
use std::marker::PhantomData;
use std::mem;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Memory that a coroutine can run on.
///
/// It is asked for its addresses once, when the coroutine is made, and dropped when the coroutine has ended, on the same thread.
///
/// # Safety
///
/// From the first call of a method until the value is dropped, also while the value is moved:
///
/// - All bytes from [`limit`](Stack::limit) to [`base`](Stack::base) are mapped, readable and writable, and nobody else uses
///   them for anything. [`base`](Stack::base)'s pointer may be used for all of them.
/// - An access to any of the [`guard_bytes`](Stack::guard_bytes) bytes below the limit faults, and they are not part of any other
///   stack or guard. Foreign code whose frames are larger than the guard, and not probed, does not run there.
/// - If there are no such bytes, what runs on the stack, signal handlers included, never needs more than there is.
///
/// So a stack without a guard is the promise of whoever implements this, as it is for `unguarded` builders.
///
/// # Examples
///
/// ```
/// use sinew_context::stack::provided::{Provided, Stack};
/// use std::ptr::NonNull;
///
/// /// 64 KiB of ordinary memory, for code that is known to need less.
/// struct Boxed(NonNull<[u8; 65536]>);
///
/// // SAFETY: the box is nobody else's, and stays in place until the drop; there is no guard, and whoever
/// // makes such a stack knows what will run on it.
/// unsafe impl Stack for Boxed {
///     fn base(&self) -> NonNull<u8> {
///         // SAFETY: one past the end.
///         unsafe { self.0.cast().add(65536) }
///     }
///     fn limit(&self) -> NonNull<u8> {
///         self.0.cast()
///     }
///     fn guard_bytes(&self) -> usize {
///         0
///     }
/// }
///
/// impl Drop for Boxed {
///     fn drop(&mut self) {
///         // SAFETY: it was a box.
///         drop(unsafe { Box::from_raw(self.0.as_ptr()) });
///     }
/// }
///
/// let memory = Boxed(NonNull::from(Box::leak(Box::new([0; 65536]))));
/// let stack = Provided::new(memory).unwrap();
/// assert!(stack.size_bytes() >= 65536 - 128);
/// ```
pub unsafe trait Stack {
    /// One past the highest usable address. The stack grows down from here; up to 127 bytes may be lost to alignment.
    fn base(&self) -> NonNull<u8>;

    /// The lowest usable address; the usable size is 32 KiB at least and 1 GiB at most.
    fn limit(&self) -> NonNull<u8>;

    /// How many bytes below the limit are inaccessible, 1 GiB at most; zero for a stack without a guard.
    fn guard_bytes(&self) -> usize;
}

// SAFETY: what it refers to promises this, and nobody else can use it meanwhile.
unsafe impl<S: Stack + ?Sized> Stack for &mut S {
    fn base(&self) -> NonNull<u8> {
        (**self).base()
    }

    fn limit(&self) -> NonNull<u8> {
        (**self).limit()
    }

    fn guard_bytes(&self) -> usize {
        (**self).guard_bytes()
    }
}

// SAFETY: what is inside promises this.
unsafe impl<S: Stack + ?Sized> Stack for Box<S> {
    fn base(&self) -> NonNull<u8> {
        (**self).base()
    }

    fn limit(&self) -> NonNull<u8> {
        (**self).limit()
    }

    fn guard_bytes(&self) -> usize {
        (**self).guard_bytes()
    }
}

/// A provided stack that is good for use. From [`set_owner`](Provided::set_owner) on it is found by [`lookup`](super::lookup), so
/// that its overflow is reported.
///
/// Whoever runs code on it must keep it alive and unborrowed for as long as frames lie there. It stays on its thread:
///
/// ```compile_fail,E0277
/// fn assert_send<T: Send>() {}
/// assert_send::<sinew_context::stack::provided::Provided<'static>>();
/// ```
pub struct Provided<'s> {
    inner: Box<Inner<'s>>,
}

struct Inner<'s> {
    span: Span,
    /// Once it has an owner.
    entry: Option<Entry>,
    /// Dropped last.
    _memory: Box<dyn Stack + 's>,
    thread: PhantomData<*mut ()>,
}

/// A stack's place in the registry.
struct Entry {
    record: &'static Record,
    /// Valgrind's for the stack.
    number: usize,
}

impl<'s> Provided<'s> {
    /// Looks at the memory's addresses.
    ///
    /// # Errors
    ///
    /// `Invalid` if its size or its guard's is out of range; the memory comes back.
    pub fn new<S: Stack + 's>(memory: S) -> Result<Provided<'s>, Refused<S>> {
        let span = match Span::of(&memory) {
            Ok(span) => span,
            Err(error) => return Err(Refused { error, memory }),
        };
        let inner = Inner {
            span,
            entry: None,
            _memory: Box::new(memory),
            thread: PhantomData,
        };
        Ok(Provided {
            inner: Box::new(inner),
        })
    }

    /// One past the highest usable address, a multiple of 64: where the first frame is put.
    #[must_use]
    pub fn base(&self) -> NonNull<u8> {
        self.inner.span.base
    }

    /// The lowest usable address.
    #[must_use]
    pub fn limit(&self) -> NonNull<u8> {
        let limit = self.base().as_ptr().with_addr(self.inner.span.limit);
        NonNull::new(limit).unwrap_or(self.base())
    }

    /// Usable bytes, from limit to base.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        self.inner.span.size_bytes()
    }

    /// Names who runs on this stack from now on, for the overflow report. The first call makes it known to
    /// [`lookup`](super::lookup).
    ///
    /// # Safety
    ///
    /// - As for [`Stack::set_owner`](super::Stack::set_owner), until this is dropped.
    /// - It is dropped, not forgotten: else its addresses would be taken for a stack when they are something else.
    pub unsafe fn set_owner(&mut self, owner: *const (), describe: DescribeFn) {
        let Inner { span, entry, .. } = &mut *self.inner;
        let entry = entry.get_or_insert_with(|| {
            tools::stack_in_use(span.limit, span.size_bytes());
            Entry {
                record: register(span),
                number: valgrind::register(span.limit, span.base.addr().get()),
            }
        });
        entry.record.header.set_owner(owner, describe);
    }

    /// The same without the lifetime.
    ///
    /// # Safety
    ///
    /// It is dropped before `'s` is over.
    #[must_use]
    pub unsafe fn outliving(self) -> Provided<'static> {
        // SAFETY: the types differ in the lifetime only, which the caller watches over.
        unsafe { mem::transmute::<Provided<'s>, Provided<'static>>(self) }
    }
}

impl Drop for Inner<'_> {
    fn drop(&mut self) {
        let span = &self.span;
        if let Some(entry) = self.entry.take() {
            unregister(entry.record, span);
            valgrind::deregister(entry.number);
            tools::stack_idle(span.limit, span.size_bytes());
        }
    }
}

impl fmt::Debug for Provided<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Provided")
            .field("limit", &self.limit())
            .field("base", &self.base())
            .field(
                "guard_bytes",
                &(self.inner.span.limit - self.inner.span.start),
            )
            .finish_non_exhaustive()
    }
}

/// Memory that is no stack; it comes back.
pub struct Refused<S> {
    error: StackError,
    memory: S,
}

impl<S> Refused<S> {
    /// What is wrong with it.
    pub fn error(&self) -> StackError {
        self.error
    }

    /// The memory, as it was.
    pub fn into_inner(self) -> S {
        self.memory
    }
}

impl<S> fmt::Debug for Refused<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refused")
            .field("error", &self.error)
            .finish_non_exhaustive()
    }
}

impl<S> fmt::Display for Refused<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<S> std::error::Error for Refused<S> {}

/// The addresses of a provided stack, aligned.
struct Span {
    start: usize,
    limit: usize,
    base: NonNull<u8>,
}

impl Span {
    fn size_bytes(&self) -> usize {
        self.base.addr().get() - self.limit
    }

    fn of(memory: &impl Stack) -> Result<Span, StackError> {
        let base = memory.base();
        let limit = memory.limit().addr().get();
        let guard_bytes = memory.guard_bytes();
        let top = base.addr().get() & !(LINE_BYTES - 1);
        let aligned = limit.checked_next_multiple_of(LINE_BYTES);
        let size_bytes = aligned.and_then(|limit| top.checked_sub(limit));
        let found = size_bytes.unwrap_or(0);
        let (min, max) = (SIZE_BYTES_MIN, SIZE_BYTES_MAX);
        if !(min - 2 * LINE_BYTES..=max).contains(&found) {
            return Err(StackError::Invalid {
                what: "provided stack's size",
                found,
                min,
                max,
            });
        }
        let start = limit.checked_sub(guard_bytes);
        let (Some(start), true) = (start, guard_bytes <= GUARD_BYTES_MAX) else {
            return Err(StackError::Invalid {
                what: "provided stack's guard size",
                found: guard_bytes,
                min: 0,
                max: GUARD_BYTES_MAX.min(limit),
            });
        };
        let base = NonNull::new(base.as_ptr().with_addr(top)).unwrap_or(base);
        Ok(Span { start, limit, base })
    }
}

/// What is known of one stack.
struct Record {
    header: StackHeader,
    /// I3.
    sequence: AtomicUsize,
    start: AtomicUsize,
    limit: AtomicUsize,
    base: AtomicPtr<u8>,
}

/// An entry of a bucket.
struct Node {
    /// Null while it is free.
    record: AtomicPtr<Record>,
    next: Option<&'static Node>,
}

const BUCKETS: usize = 1024;

static TABLE: [AtomicPtr<Node>; BUCKETS] = [const { AtomicPtr::new(ptr::null_mut()) }; BUCKETS];

/// Bit k is set if a stack was ever entered by blocks of 2^k bytes.
static LEVELS: AtomicU64 = AtomicU64::new(0);

/// Records that are in nobody's use. Whoever changes the registry holds the lock.
static IDLE: Mutex<Vec<&'static Record>> = Mutex::new(Vec::new());

fn lock() -> MutexGuard<'static, Vec<&'static Record>> {
    // A panic (of the allocator) leaves at worst a record unused.
    IDLE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Record {
    fn new() -> Record {
        Record {
            header: StackHeader::new(),
            sequence: AtomicUsize::new(0),
            start: AtomicUsize::new(0),
            limit: AtomicUsize::new(0),
            base: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// Writes the fields. The caller holds the lock.
    fn write(&self, start: usize, limit: usize, base: *mut u8) {
        let sequence = self.sequence.load(Ordering::Relaxed);
        self.sequence.store(sequence + 1, Ordering::Relaxed);
        // ORDERING: release, pairs with the acquire fence in `read`: who sees a field sees the odd number.
        fence(Ordering::Release);
        self.start.store(start, Ordering::Relaxed);
        self.limit.store(limit, Ordering::Relaxed);
        self.base.store(base, Ordering::Relaxed);
        // ORDERING: release, pairs with the acquire in `read`.
        self.sequence.store(sequence + 2, Ordering::Release);
    }

    /// The stack, unless there is none or it is being changed.
    fn read(&'static self) -> Option<SlotRef> {
        // ORDERING: acquire, pairs with the release store in `write`: the fields are at least as new.
        let sequence = self.sequence.load(Ordering::Acquire);
        let (start, limit, base) = (
            self.start.load(Ordering::Relaxed),
            self.limit.load(Ordering::Relaxed),
            self.base.load(Ordering::Relaxed),
        );
        // ORDERING: acquire, pairs with the release fence in `write`.
        fence(Ordering::Acquire);
        let is_whole =
            sequence.is_multiple_of(2) && self.sequence.load(Ordering::Relaxed) == sequence;
        let base = NonNull::new(base).filter(|_| is_whole)?;
        Some(SlotRef {
            start,
            limit,
            base,
            end: base.addr().get(),
            header: NonNull::from(&self.header),
        })
    }
}

/// Under which level and blocks a stack is entered; the second block is missing if the first one holds all of it.
fn keys(start: usize, end: usize) -> (u32, usize, Option<usize>) {
    let level = usize::BITS - (end - start - 1).leading_zeros();
    let (first, last) = (start >> level, (end - 1) >> level);
    (level, first, (last != first).then_some(last))
}

fn bucket(level: u32, block: usize) -> &'static AtomicPtr<Node> {
    // Fibonacci hashing: the high bits of a product with 2^64 / phi.
    let hash = (block as u64 ^ u64::from(level) << 56).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    &TABLE[(hash >> 54) as usize % BUCKETS]
}

fn nodes(bucket: &AtomicPtr<Node>) -> impl Iterator<Item = &'static Node> {
    // ORDERING: acquire, pairs with the release in `enter`: a node is seen whole.
    let first = bucket.load(Ordering::Acquire);
    // SAFETY: I1.
    let first: Option<&'static Node> = unsafe { first.as_ref() };
    std::iter::successors(first, |node| node.next)
}

/// Enters the record into one bucket. The caller holds the lock.
fn enter(level: u32, block: usize, record: &'static Record) {
    let record = ptr::from_ref(record).cast_mut();
    let bucket = bucket(level, block);
    if let Some(node) = nodes(bucket).find(|node| node.record.load(Ordering::Relaxed).is_null()) {
        // ORDERING: release, pairs with the acquire in `lookup`.
        node.record.store(record, Ordering::Release);
        return;
    }
    // SAFETY: I1.
    let next = unsafe { bucket.load(Ordering::Relaxed).as_ref() };
    let node = Box::leak(Box::new(Node {
        record: AtomicPtr::new(record),
        next,
    }));
    // ORDERING: release, pairs with the acquire in `nodes`.
    bucket.store(node, Ordering::Release);
}

fn leave(level: u32, block: usize, record: &'static Record) {
    let entered = |node: &&Node| ptr::eq(node.record.load(Ordering::Relaxed), record);
    if let Some(node) = nodes(bucket(level, block)).find(entered) {
        node.record.store(ptr::null_mut(), Ordering::Relaxed);
    }
}

fn register(span: &Span) -> &'static Record {
    let mut idle = lock();
    let record = idle.pop().unwrap_or_else(|| {
        // Room for its way back, so that giving up a stack allocates nothing.
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let made = MADE.fetch_add(1, Ordering::Relaxed) + 1;
        let room = made - idle.len();
        idle.reserve(room);
        Box::leak(Box::new(Record::new()))
    });
    record.write(span.start, span.limit, span.base.as_ptr());
    let (level, first, second) = keys(span.start, span.base.addr().get());
    enter(level, first, record);
    if let Some(second) = second {
        enter(level, second, record);
    }
    // ORDERING: relaxed; the thread that will run there sees its own store.
    LEVELS.fetch_or(1 << level, Ordering::Relaxed);
    record
}

fn unregister(record: &'static Record, span: &Span) {
    let mut idle = lock();
    let (level, first, second) = keys(span.start, span.base.addr().get());
    leave(level, first, record);
    if let Some(second) = second {
        leave(level, second, record);
    }
    record.header.clear_owner();
    record.write(0, 0, ptr::null_mut());
    idle.push(record);
}

/// Finds the provided stack that `addr` lies in: lock-free, async-signal-safe.
pub(super) fn lookup(addr: usize) -> Option<SlotRef> {
    // ORDERING: relaxed, as in `register`.
    let mut levels = LEVELS.load(Ordering::Relaxed);
    while levels != 0 {
        let level = levels.trailing_zeros();
        levels &= levels - 1;
        for node in nodes(bucket(level, addr >> level)) {
            // ORDERING: acquire, pairs with the release in `enter`.
            let record = node.record.load(Ordering::Acquire);
            // SAFETY: I1.
            let Some(record) = (unsafe { record.as_ref() }) else {
                continue;
            };
            if let Some(place) = record.read()
                && place.span().contains(&addr)
            {
                return Some(place);
            }
        }
    }
    None
}
