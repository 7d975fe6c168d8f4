//! Stacks: what can be chosen about them.
//!
//! A coroutine gets its stack at its first resume and gives it back at its end. Where it comes from is said by builders:
//!
//! | what | for the coroutines of a scheduler | for one of them | for a stand-alone one |
//! |---|---|---|---|
//! | usable size | [`SchedulerBuilder::stack_size`] | [`Builder::stack_size`] | [`coroutine::Builder::stack_size`] |
//! | guard | [`SchedulerBuilder::guard_size`] | [`Builder::guard_size`] | [`coroutine::Builder::guard_size`] |
//! | no guard | [`SchedulerBuilder::unguarded`] | [`Builder::unguarded`] | [`coroutine::Builder::unguarded`] |
//! | kept warm afterwards | [`SchedulerBuilder::pooled`] | [`Builder::pooled`] | [`coroutine::Builder::pooled`] |
//! | how many are kept | [`SchedulerBuilder::stack_cache`] | | [`CacheLimits::set_for_process`] |
//! | memory of your own | | | [`coroutine::Builder::stack`] |
//!
//! What a coroutine's builder does not say is as its scheduler's builder said; what that does not say has the default: 248 KiB, a
//! guard of one page, pooled, and at most 1,024 stacks and 256 MiB of them kept warm for each thread.
//!
//! A stack takes address space; memory is committed page by page by the first touch. The kernel never uses huge pages for it.
//!
//! # Overflow
//!
//! A coroutine that runs into its guard ends the process with a report on the standard error: id, name, where it was spawned, the
//! stack's size and deepest use, what to change, and a backtrace in which a recursion is folded. That needs no heap. It holds for
//! Rust code with frames of any size, and for foreign code without stack probes whose frames are no larger than the guard: give
//! `guard_size` accordingly. The report is written by a handler of `SIGSEGV` and `SIGBUS` on an alternate signal stack; both are set up
//! by the first scheduler or anchor. Whatever is no overflow goes on to the handler that was there before. A program that blocks
//! these signals, or later sets handlers that do not pass on what is not theirs, does without the report.
//!
//! # Caches
//!
//! Each cache belongs to one scheduler, or to one anchor outside of any; beyond its bounds the memory of the
//! coldest stacks goes back to the kernel, and when it ends all of it does.
//!
//! [`SchedulerBuilder::stack_size`]: crate::SchedulerBuilder::stack_size
//! [`SchedulerBuilder::guard_size`]: crate::SchedulerBuilder::guard_size
//! [`SchedulerBuilder::unguarded`]: crate::SchedulerBuilder::unguarded
//! [`SchedulerBuilder::pooled`]: crate::SchedulerBuilder::pooled
//! [`SchedulerBuilder::stack_cache`]: crate::SchedulerBuilder::stack_cache
//! [`Builder::stack_size`]: crate::Builder::stack_size
//! [`Builder::guard_size`]: crate::Builder::guard_size
//! [`Builder::unguarded`]: crate::Builder::unguarded
//! [`Builder::pooled`]: crate::Builder::pooled
//! [`coroutine::Builder::stack_size`]: crate::coroutine::Builder::stack_size
//! [`coroutine::Builder::guard_size`]: crate::coroutine::Builder::guard_size
//! [`coroutine::Builder::unguarded`]: crate::coroutine::Builder::unguarded
//! [`coroutine::Builder::pooled`]: crate::coroutine::Builder::pooled
//! [`coroutine::Builder::stack`]: crate::coroutine::Builder::stack
#![expect(unsafe_code, reason = "passes on the promise of unguarded builders")]

use sinew_context::stack::StackConfig;

pub use sinew_context::stack::provided::{Refused, Stack};
pub use sinew_context::stack::{
    CacheLimits, GUARD_BYTES_MAX, Limit, SIZE_BYTES_DEFAULT, SIZE_BYTES_MAX, SIZE_BYTES_MIN,
    StackError,
};

/// What a builder says about stacks.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Choice {
    /// Zero: nothing was said.
    size_bytes: usize,
    guard: Guard,
    is_pooled: Option<bool>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Guard {
    /// Nothing was said.
    #[default]
    Any,
    Bytes(usize),
    None,
}

impl Choice {
    pub(crate) fn set_size(&mut self, bytes: usize) {
        self.size_bytes = bytes;
    }

    pub(crate) fn set_guard(&mut self, bytes: usize) {
        self.guard = match bytes {
            0 => Guard::Any,
            bytes => Guard::Bytes(bytes),
        };
    }

    /// # Safety
    ///
    /// What runs on a stack of this choice never needs more than its size.
    pub(crate) unsafe fn set_unguarded(&mut self) {
        self.guard = Guard::None;
    }

    pub(crate) fn set_pooled(&mut self, is_pooled: bool) {
        self.is_pooled = Some(is_pooled);
    }

    /// Whether it says anything.
    pub(crate) fn is_made(&self) -> bool {
        self.size_bytes != 0 || self.guard != Guard::Any || self.is_pooled.is_some()
    }

    /// This choice, and `general` where it says nothing.
    pub(crate) fn or(self, general: Self) -> Self {
        Self {
            size_bytes: match self.size_bytes {
                0 => general.size_bytes,
                bytes => bytes,
            },
            guard: match self.guard {
                Guard::Any => general.guard,
                guard => guard,
            },
            is_pooled: self.is_pooled.or(general.is_pooled),
        }
    }

    /// What it comes to.
    ///
    /// # Errors
    ///
    /// `Invalid` if a size is out of range.
    pub(crate) fn config(&self) -> Result<StackConfig, StackError> {
        let config = match self.guard {
            Guard::Any => StackConfig::new(self.size_bytes, 0),
            Guard::Bytes(bytes) => StackConfig::new(self.size_bytes, bytes),
            // SAFETY: `set_unguarded`'s caller has promised this.
            Guard::None => unsafe { StackConfig::unguarded(self.size_bytes) },
        };
        config.map(|config| config.pooled(self.is_pooled.unwrap_or(true)))
    }
}

/// What a scheduler was told about stacks.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) choice: Choice,
    /// What that comes to.
    pub(crate) config: StackConfig,
    pub(crate) limits: CacheLimits,
}
