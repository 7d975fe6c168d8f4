//! Whether a panic can get from here to a frame that catches it.
//!
//! Owns: nothing. It does what the first phase of a raise does, and raises nothing: it walks outwards and asks each frame's
//! table (the language-specific data area, in the format that C++, Rust and C's cleanups share) what that frame would do.
//! Thread: any; it looks at the calling stack only.
//!
//! | the frame | means |
//! |---|---|
//! | has no table, or only cleanups for this call | go on outwards |
//! | catches everything here (`catch_unwind`, `catch (...)`) | yes |
//! | catches it to pass it on ([`catch_to_pass_on`], the outermost frame of a stack that this one has resumed) | go on outwards |
//! | has a filter here, or a table in which this call is not (an `extern "C"` function in Rust, `noexcept` in C++) | no |
//! | has resumed the stack that the walk comes from | it stands at a switch, which is no call and in no table: what its other calls would do, see `deed_of_any` |
//! | cannot be found by the unwinder (assembly or C without unwind tables) | no |
//!
//! Source of the format: the Itanium C++ ABI, level II, and what the LSB says of `.gcc_except_table`.
#![expect(
    unsafe_code,
    reason = "asks the unwinder, and reads the tables of frames"
)]

use core::ffi::{c_int, c_void};
use core::ops::Range;
use core::ptr;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::stack::lookup;

#[repr(C)]
struct UnwindContext {
    opaque: [u8; 0],
}

type Visit = extern "C" fn(*mut UnwindContext, *mut c_void) -> c_int;

/// What a visit returns to go on, and anything else to stop.
const GO_ON: c_int = 0;
const STOP: c_int = 4;

#[expect(
    clashing_extern_declarations,
    reason = "the overflow report has an opaque type of its own for the same context"
)]
unsafe extern "C" {
    fn _Unwind_Backtrace(visit: Visit, argument: *mut c_void) -> c_int;
    fn _Unwind_GetIPInfo(context: *mut UnwindContext, before: *mut c_int) -> usize;
    fn _Unwind_GetLanguageSpecificData(context: *mut UnwindContext) -> *const u8;
    fn _Unwind_GetRegionStart(context: *mut UnwindContext) -> usize;
    fn _Unwind_GetCFA(context: *mut UnwindContext) -> usize;
}

/// What a frame would do with a panic that comes to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deed {
    /// Let it through.
    Pass,
    /// Take it.
    Catch,
    /// End the process.
    Refuse,
}

/// Whether a panic that is raised here would be caught, and every frame before that can be unwound. Takes about as long as the
/// raise's own search.
///
/// `base` is that of the stack whose outermost frame catches everything, or an address near it. Other stacks of this crate that lie before that one, because its
/// code has resumed them, are taken for such whose outermost frame passes on what it catches. So does
/// [`catch_to_pass_on`]. Any other frame that catches keeps the panic.
#[must_use]
#[inline(never)]
pub fn can_unwind(base: usize) -> bool {
    let mut walk = Walk {
        base,
        stack: 0..0,
        since_catch: None,
        answer: None,
    };
    // SAFETY: `visit` expects a walk.
    unsafe { _Unwind_Backtrace(visit, (&raw mut walk).cast()) };
    // The outermost frame of all may be one that catches.
    walk.answer.unwrap_or(walk.since_catch.is_some())
}

/// Runs `f`, and hands out the panic that came out of it, which the caller is going to raise again: the frame counts as one that
/// lets it through.
///
/// # Errors
///
/// The panic's payload.
#[inline]
pub fn catch_to_pass_on<R>(f: impl FnOnce() -> R) -> Result<R, Box<dyn Any + Send>> {
    let mut f = Some(f);
    let mut value = None;
    passing_on(&mut || value = f.take().map(|f| f()))?;
    // It has run, and returned.
    Ok(value.unwrap_or_else(|| unreachable!("a closure that returned has left its value")))
}

/// One function for all types, to be known by its address.
#[inline(never)]
fn passing_on(f: &mut dyn FnMut()) -> Result<(), Box<dyn Any + Send>> {
    catch_unwind(AssertUnwindSafe(f))
}

/// A walk outwards.
struct Walk {
    /// Where it ends.
    base: usize,
    /// The stack that the walk is on; empty if that is none of this crate's.
    stack: Range<usize>,
    /// How many frames ago one was that catches, of which it is not clear yet whether it passes on.
    since_catch: Option<u32>,
    answer: Option<bool>,
}

/// How far `passing_on` is from the frame that catches for it, which in a debug build is one of std's.
const FRAMES_OF_CATCH: u32 = 4;
/// How far a stack's end is from that frame, for the outermost one.
const FRAMES_OF_BASE: u32 = 12;

impl Walk {
    /// Looks at the next frame: an address in it, where its function starts, and what it would do. Says whether to go on.
    ///
    /// `deed` is told whether the frame stands at a switch.
    fn step(&mut self, address: usize, function: usize, deed: impl FnOnce(bool) -> Deed) -> bool {
        let mut has_resumed = false;
        if !self.stack.contains(&address) {
            let next = lookup(address).map_or(0..0, |slot| {
                slot.limit().addr().get()..slot.base().addr().get()
            });
            let is_known = !self.stack.is_empty();
            has_resumed = is_known;
            if is_known || !next.is_empty() {
                // Somebody else's stack: whatever its frames do with a panic.
                let is_kept = !is_known && self.since_catch.is_some();
                if is_kept
                    || is_known && (self.stack.start + 1..=self.stack.end).contains(&self.base)
                {
                    self.answer = Some(true);
                }
                self.since_catch = None;
                self.stack = next;
            }
        }
        if self.answer.is_some() {
            return false;
        }
        let passes_on = function == (passing_on as *const ()).addr();
        if let Some(frames) = &mut self.since_catch {
            *frames += 1;
            if passes_on && *frames <= FRAMES_OF_CATCH {
                self.since_catch = None;
            } else if *frames > FRAMES_OF_BASE || deed(has_resumed) == Deed::Catch {
                self.answer = Some(true);
            }
            return self.answer.is_none();
        }
        match deed(has_resumed) {
            Deed::Catch if !passes_on => self.since_catch = Some(0),
            Deed::Catch | Deed::Pass => {}
            Deed::Refuse => self.answer = Some(false),
        }
        self.answer.is_none()
    }
}

extern "C" fn visit(context: *mut UnwindContext, walk: *mut c_void) -> c_int {
    // SAFETY: `can_unwind` passes one, and waits.
    let walk = unsafe { &mut *walk.cast::<Walk>() };
    // SAFETY: the unwinder passes a context of its own.
    let address = unsafe { _Unwind_GetCFA(context) };
    // SAFETY: as above.
    let function = unsafe { _Unwind_GetRegionStart(context) };
    // SAFETY: as above.
    let deed = |has_resumed: bool| unsafe { deed_of(context, has_resumed) };
    if walk.step(address, function, deed) {
        GO_ON
    } else {
        STOP
    }
}

/// # Safety
///
/// The unwinder is visiting this context.
unsafe fn deed_of(context: *mut UnwindContext, has_resumed: bool) -> Deed {
    // SAFETY: passed on to the caller.
    let table = unsafe { _Unwind_GetLanguageSpecificData(context) };
    if table.is_null() {
        return Deed::Pass;
    }
    let mut before = 0;
    // SAFETY: passed on to the caller.
    let address = unsafe { _Unwind_GetIPInfo(context, &raw mut before) };
    // SAFETY: passed on to the caller.
    let start = unsafe { _Unwind_GetRegionStart(context) };
    // A return address may be the first of the next call's range: one before it is in this one's.
    let address = address - usize::from(before == 0);
    // SAFETY: the table of the function that starts there.
    let deed = unsafe { look_up(table, start, address) };
    if has_resumed && deed == Deed::Refuse {
        // SAFETY: as above.
        return unsafe { deed_of_any(table) };
    }
    deed
}

/// What the table says about a call at `address`, in the function that starts at `start`.
///
/// # Safety
///
/// `table` is a whole language-specific data area.
unsafe fn look_up(table: *const u8, start: usize, address: usize) -> Deed {
    let mut table = Table::read(table);
    while let Some(site) = table.next_site() {
        let from = start.wrapping_add(site.from);
        // In order of their addresses.
        if address < from {
            break;
        }
        if address - from < site.bytes {
            return table.deed_at(&site);
        }
    }
    // A call that the compiler says cannot unwind.
    Deed::Refuse
}

/// What a function would do that has been left by a switch. That is no call, so no line of the table is about it; what comes out of
/// the other stack is raised anew, by a call of the same function, but which one that is nobody can say.
///
/// In a function that lets no panic out each call that could raise one ends the process; in any other one it is let through, so
/// the first line with a landing pad tells. (A later one may be about a landing pad: a destructor there must not raise again, and what ends
/// the process may be said to.) Where the first one catches, the call may be one that is caught or not: if any line lets a panic through,
/// the frames further out count as well.
///
/// A line without a landing pad lets a panic through, but need not be about a call that raises one: a sanitizer's calls have such
/// lines in every function. It counts where nothing speaks against it: a function that lets a panic out and has a landing pad that
/// ends the process has another one that leads there.
///
/// # Safety
///
/// `table` is a whole language-specific data area.
unsafe fn deed_of_any(table: *const u8) -> Deed {
    let mut table = Table::read(table);
    let (mut first, mut refuses, mut has_bare) = (None, false, false);
    while let Some(site) = table.next_site() {
        if site.landing == 0 {
            has_bare = true;
            continue;
        }
        match table.deed_at(&site) {
            Deed::Pass => return Deed::Pass,
            Deed::Refuse if first.is_none() && !has_bare => return Deed::Refuse,
            deed => {
                refuses |= deed == Deed::Refuse;
                first = first.or(Some(deed));
            }
        }
    }
    match first {
        None | Some(Deed::Catch) if has_bare => Deed::Pass,
        Some(Deed::Catch) if !refuses => Deed::Catch,
        _ => Deed::Refuse,
    }
}

/// A table that is read call site by call site. Made of whole language-specific data areas only.
struct Table {
    sites: Reader,
    site_encoding: u8,
    actions: *const u8,
    types: *const u8,
    types_encoding: u8,
}

/// A range of a function's code, relative to its start, and where a panic goes that comes out of a call there.
struct Site {
    from: usize,
    bytes: usize,
    landing: usize,
    action: usize,
}

impl Table {
    /// Reads the head.
    fn read(table: *const u8) -> Self {
        let mut head = Reader { at: table };
        let landing_encoding = head.byte();
        if landing_encoding != encoding::OMIT {
            head.encoded(landing_encoding);
        }
        let types_encoding = head.byte();
        let types = if types_encoding == encoding::OMIT {
            ptr::null()
        } else {
            let bytes = head.uleb();
            head.at.wrapping_add(bytes)
        };
        let site_encoding = head.byte();
        let site_bytes = head.uleb();
        Self {
            actions: head.at.wrapping_add(site_bytes),
            sites: head,
            site_encoding,
            types,
            types_encoding,
        }
    }

    fn next_site(&mut self) -> Option<Site> {
        if self.sites.at >= self.actions {
            return None;
        }
        Some(Site {
            from: self.sites.encoded(self.site_encoding),
            bytes: self.sites.encoded(self.site_encoding),
            landing: self.sites.encoded(self.site_encoding),
            action: self.sites.uleb(),
        })
    }

    fn deed_at(&self, site: &Site) -> Deed {
        if site.landing == 0 || site.action == 0 {
            return Deed::Pass;
        }
        let first = self.actions.wrapping_add(site.action - 1);
        follow(first, self.types, self.types_encoding)
    }
}

/// What a chain of actions says.
fn follow(first: *const u8, types: *const u8, types_encoding: u8) -> Deed {
    let mut action = Reader { at: first };
    loop {
        let filter = action.sleb();
        let base = action.at;
        let next = action.sleb();
        if filter < 0 {
            return Deed::Refuse;
        }
        if filter > 0 && is_catch_all(types, types_encoding, filter.unsigned_abs()) {
            return Deed::Catch;
        }
        if next == 0 {
            // Cleanups, and catches of types that a panic is not of.
            return Deed::Pass;
        }
        action.at = base.wrapping_offset(next);
    }
}

/// Whether the type with this number is none: what is caught is everything.
fn is_catch_all(types: *const u8, types_encoding: u8, number: usize) -> bool {
    let Some(bytes) = encoding::fixed_bytes(types_encoding) else {
        // Nobody writes such tables; whoever did would have the unwinder's own say.
        return true;
    };
    let mut entry = Reader {
        at: types.wrapping_sub(number * bytes),
    };
    (0..bytes).all(|_| entry.byte() == 0)
}

/// How pointers are encoded.
mod encoding {
    /// There is none.
    pub(super) const OMIT: u8 = 0xff;
    /// The bits that say how long one is.
    pub(super) const FORMAT: u8 = 0x0f;
    pub(super) const POINTER: u8 = 0x00;
    pub(super) const ULEB: u8 = 0x01;
    pub(super) const U16: u8 = 0x02;
    pub(super) const U32: u8 = 0x03;
    pub(super) const U64: u8 = 0x04;
    pub(super) const I16: u8 = 0x0a;
    pub(super) const I32: u8 = 0x0b;
    pub(super) const I64: u8 = 0x0c;

    /// How many bytes one takes, if that is always the same.
    pub(super) fn fixed_bytes(encoding: u8) -> Option<usize> {
        match encoding & FORMAT {
            POINTER => Some(size_of::<usize>()),
            U16 | I16 => Some(2),
            U32 | I32 => Some(4),
            U64 | I64 => Some(8),
            _ => None,
        }
    }
}

/// Reads a table from front to end. Made for whole tables only, which say themselves where they end.
struct Reader {
    at: *const u8,
}

impl Reader {
    fn byte(&mut self) -> u8 {
        // SAFETY: inside of a whole table: see the type.
        let byte = unsafe { self.at.read() };
        self.at = self.at.wrapping_add(1);
        byte
    }

    /// The bits of a LEB128 number, and how many there are.
    fn leb(&mut self) -> (usize, u32, bool) {
        let (mut value, mut bits) = (0_usize, 0_u32);
        loop {
            let byte = self.byte();
            value |= usize::from(byte & 0x7f).checked_shl(bits).unwrap_or(0);
            bits += 7;
            if byte & 0x80 == 0 {
                return (value, bits, byte & 0x40 != 0);
            }
        }
    }

    fn uleb(&mut self) -> usize {
        self.leb().0
    }

    fn sleb(&mut self) -> isize {
        let (value, bits, negative) = self.leb();
        let sign = if negative {
            usize::MAX.checked_shl(bits).unwrap_or(0)
        } else {
            0
        };
        (value | sign).cast_signed()
    }

    /// A pointer's bits; what they are relative to is not added.
    fn encoded(&mut self, encoding: u8) -> usize {
        match encoding::fixed_bytes(encoding) {
            Some(bytes) => (0..bytes).fold(0, |value, place| {
                value | usize::from(self.byte()) << (8 * place)
            }),
            None if encoding & encoding::FORMAT == encoding::ULEB => self.uleb(),
            None => self.sleb().cast_unsigned(),
        }
    }
}

#[cfg(test)]
mod tests;
