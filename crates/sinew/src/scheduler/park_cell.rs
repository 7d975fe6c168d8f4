//! The park cell of a block: what came early for it, and whether it has stopped there.
//!
//! Owns: the bits. Guarded by the cell's lock, see `Block::park`.
//!
//! Two kinds of stop share the cell and have bits of their own, so that neither takes what is meant for the other:
//!
//! | bits | meaning |
//! |---|---|
//! | `EARLY` | a signal of this kind came while the coroutine had not stopped for it |
//! | `STOPPED` | it has stopped for this kind: the live ticket. Of one kind at most |
//! | `POLLING` | a `block_on` is under way in the coroutine |

/// What a coroutine stops for here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// An unpark: early ones are a permit.
    Park = 0,
    /// A call of the [`Waker`](std::task::Waker) that its futures were polled with.
    Poll = 1,
}

/// The state of a park cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Park(u8);

const EARLY: u8 = 1;
const STOPPED: u8 = 2;
const BITS_PER_KIND: u8 = 2;
const POLLING: u8 = 0b1_0000;

impl Stop {
    const fn early(self) -> u8 {
        EARLY << (self as u8 * BITS_PER_KIND)
    }

    const fn stopped(self) -> u8 {
        STOPPED << (self as u8 * BITS_PER_KIND)
    }
}

impl Park {
    /// Nobody has stopped, nothing came.
    pub(crate) const EMPTY: Self = Self(0);

    /// Takes the signal that came early, if one did.
    pub(crate) fn take_early(&mut self, stop: Stop) -> bool {
        let was_early = self.0 & stop.early() != 0;
        self.0 &= !stop.early();
        was_early
    }

    /// The coroutine stops here.
    pub(crate) fn stop(&mut self, stop: Stop) {
        debug_assert!(
            self.0 & (Stop::Park.stopped() | Stop::Poll.stopped()) == 0,
            "a coroutine stops once at a time"
        );
        self.0 |= stop.stopped();
    }

    /// The coroutine goes on for another reason than a signal.
    pub(crate) fn go_on(&mut self, stop: Stop) {
        self.0 &= !stop.stopped();
    }

    /// A signal came. If this says that the coroutine had stopped for it, the caller tries to claim it, and
    /// [delivers](Self::deliver) the signal if that is won; otherwise the signal is an early one.
    #[must_use]
    pub(crate) fn signal(&mut self, stop: Stop) -> bool {
        let had_stopped = self.0 & stop.stopped() != 0;
        self.0 = (self.0 | stop.early()) & !stop.stopped();
        had_stopped
    }

    /// The signal has reached the coroutine.
    pub(crate) fn deliver(&mut self, stop: Stop) {
        self.0 &= !stop.early();
    }

    /// A `block_on` begins; says whether it is inside of another one. What came early for an earlier one means nothing
    /// any more.
    pub(crate) fn begin_polling(&mut self) -> bool {
        let is_nested = self.0 & POLLING != 0;
        if !is_nested {
            self.0 = (self.0 | POLLING) & !Stop::Poll.early();
        }
        is_nested
    }

    /// It ends. What it took may have been meant for the one around it, which is told to look.
    pub(crate) fn end_polling(&mut self, is_nested: bool) {
        if is_nested {
            self.0 |= Stop::Poll.early();
        } else {
            self.0 &= !POLLING;
        }
    }
}
