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
//! | has a filter here, or a table in which this call is not (an `extern "C"` function in Rust, `noexcept` in C++) | no |
//! | cannot be found by the unwinder (assembly or C without unwind tables) | no |
//!
//! Source of the format: the Itanium C++ ABI, level II, and what the LSB says of `.gcc_except_table`.
#![expect(
    unsafe_code,
    reason = "asks the unwinder, and reads the tables of frames"
)]

use core::ffi::{c_int, c_void};
use core::ptr;

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

/// Whether a panic that is raised here would be caught by some frame further out, and every frame before that can be
/// unwound. Takes about as long as the raise's own search.
#[must_use]
#[inline(never)]
pub fn can_unwind() -> bool {
    let mut caught = false;
    // SAFETY: `visit` expects a bool.
    unsafe { _Unwind_Backtrace(visit, (&raw mut caught).cast()) };
    caught
}

/// Stops at the first frame that does not let a panic through, and says whether that takes it.
extern "C" fn visit(context: *mut UnwindContext, caught: *mut c_void) -> c_int {
    // SAFETY: the unwinder passes a context of its own.
    let deed = unsafe { deed_of(context) };
    if deed == Deed::Pass {
        return GO_ON;
    }
    // SAFETY: `can_unwind` passes a bool.
    unsafe { *caught.cast::<bool>() = deed == Deed::Catch };
    STOP
}

/// # Safety
///
/// The unwinder is visiting this context.
unsafe fn deed_of(context: *mut UnwindContext) -> Deed {
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
    unsafe { look_up(table, start, address) }
}

/// What the table says about a call at `address`, in the function that starts at `start`.
///
/// # Safety
///
/// `table` is a whole language-specific data area.
unsafe fn look_up(table: *const u8, start: usize, address: usize) -> Deed {
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
    let actions = head.at.wrapping_add(site_bytes);
    let mut sites = head;
    while sites.at < actions {
        let from = start.wrapping_add(sites.encoded(site_encoding));
        let bytes = sites.encoded(site_encoding);
        let landing = sites.encoded(site_encoding);
        let action = sites.uleb();
        // In order of their addresses.
        if address < from {
            break;
        }
        if address - from < bytes {
            if landing == 0 || action == 0 {
                return Deed::Pass;
            }
            let first = actions.wrapping_add(action - 1);
            return follow(first, types, types_encoding);
        }
    }
    // A call that the compiler says cannot unwind.
    Deed::Refuse
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
