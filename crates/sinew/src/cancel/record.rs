//! What became of a coroutine's cancel: why it was, and how long it took to be obeyed.
//!
//! Owns: two points in time in the rarely needed part of a block. The owner thread writes them; any reads them.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::cancel::Cause;
use crate::scheduler::block::Block;
use crate::sys::clock;

/// A cancel of a coroutine, and how it was obeyed.
///
/// # Examples
///
/// ```
/// sinew::run(|| {
///     let parked = sinew::spawn_local(sinew::park);
///     sinew::yield_now().unwrap();
///     parked.cancel("enough");
///     parked.wait().unwrap();
///     let record = parked.cancel_record().unwrap();
///     assert_eq!(&*record.cause.reason, "enough");
///     assert_eq!(record.cause.who, sinew::current().unwrap().id());
///     assert!(record.noticed_after.unwrap() <= record.ended_after.unwrap());
/// });
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct CancelRecord {
    /// Why, by whom and when.
    pub cause: Cause,
    /// How long it took until the coroutine was told: a wait of its failed or ended because of it, or it asked
    /// ([`crate::stopping`]). `None` if it has not been told.
    pub noticed_after: Option<Duration>,
    /// How long it took until the coroutine ended. `None` while it lives, and if it had ended before.
    pub ended_after: Option<Duration>,
}

/// When a coroutine was told of its cancel, and when it ended; 0 for what has not come about.
#[derive(Debug)]
pub(crate) struct Times {
    noticed_ns: AtomicU64,
    ended_ns: AtomicU64,
}

impl Times {
    pub(crate) const fn new() -> Self {
        Self {
            noticed_ns: AtomicU64::new(0),
            ended_ns: AtomicU64::new(0),
        }
    }
}

fn note(time: &AtomicU64) {
    if time.load(Relaxed) == 0 {
        time.store(clock::now_ns().max(1), Relaxed);
    }
}

impl Block {
    /// The coroutine is told of its cancel. Owner thread.
    pub(crate) fn notice_cancel(&self) {
        if self.is_cancelled()
            && let Some(extra) = self.extra()
        {
            note(&extra.times.noticed_ns);
        }
    }

    /// The coroutine, which was cancelled, ends. Owner thread, before the result is there for others.
    #[cold]
    pub(crate) fn note_cancelled_end(&self) {
        if let Some(extra) = self.extra() {
            note(&extra.times.ended_ns);
        }
    }

    /// What became of the cancel of the coroutine with this number, if the block is its still. From any thread, for any block.
    pub(crate) fn cancel_record_of(&self, id: u64) -> Option<CancelRecord> {
        if !self.is_cancelled() {
            return None;
        }
        // As for the name: it keeps the rarely needed part in place.
        let in_place = self.park.lock();
        let record = self.cancel_record();
        drop(in_place);
        record.filter(|_| self.id() == id)
    }

    /// What became of its cancel, if there was one. The caller holds a reference, or the block's short lock.
    pub(crate) fn cancel_record(&self) -> Option<CancelRecord> {
        let extra = self.extra()?;
        let (token, _) = extra.token.get()?;
        let cause = token.cause()?;
        let after = |time: &AtomicU64| match time.load(Relaxed) {
            0 => None,
            ns => Some(clock::to_instant(ns).saturating_duration_since(cause.when)),
        };
        Some(CancelRecord {
            noticed_after: after(&extra.times.noticed_ns),
            ended_after: after(&extra.times.ended_ns),
            cause,
        })
    }
}
