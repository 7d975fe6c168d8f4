//! The switch for x86-64 with the System V calling convention.
//!
//! Owns: the layout of [`Context`] and the three pieces of assembly that read or write it.
//! Thread: whichever runs; nothing here is shared and nothing reads a thread-local.
//!
//! Invariants
//! - I1. A suspended flow's registers are in its [`Context`], not on its stack: its stack pointer is the
//!   one its function had before the switch, so the function's ordinary unwind information is
//!   exact at the resume point.
//! - I2. Every register that is not in [`Context`] is declared clobbered at the switch, so
//!   the compiler has already saved what it needs.
//! - I3. Every address that a switch jumps to starts with `endbr64`.
//!
//! # The context
//!
//! ```text
//!  offset 0   fp   rbp       a frame record, as a frame-pointer walker expects it:
//!  offset 8   ip   rip       the saved rbp and, above it, the return address
//!  offset 16  sp   rsp
//!  offset 24  bx   rbx       the compiler reserves it, so it cannot be declared clobbered
//!  offset 32  what a sanitizer keeps with the flow; nothing in other builds
//! ```
//!
//! # The switch
//!
//! It leaves by an indirect `jmp`, not by `ret`: a `ret` whose target is not the one that the processor's
//! return predictor holds costs 25 to 33 ns a round trip where the jump costs 3 to 4.5.
//! The floating-point control words are not saved (20 ns more); for coroutines that want their own
//! the layer above exchanges [`FpEnv`]s around the switch.
//!
//! # The first frame
//!
//! [`start`] is where a new stack begins; [`crate::frame`] draws what it finds there. Its unwind
//! information is written by hand: it says that the caller of the first frame is the
//! flow of control whose [`Context`] the frame's `link` points to, wherever that flow's stack is.
//! So a backtrace taken inside a coroutine goes on in whoever resumed it, through the
//! exception tables and along the frame pointers alike. (LLVM puts all tables of a compilation unit
//! into `.debug_frame`, where debuggers find them and `std::backtrace` does not, if the unit has functions
//! and none of them has unwind tables. A sanitizer's constructor of the module would be the only one;
//! `keep_unwind_tables` is another.)
//!
//! Source: the jump instead of the return is known from corosensei and Boost.Context's
//! discussions of the return stack buffer; DWARF 5, section 6.4, for the expressions.
#![expect(
    unsafe_code,
    reason = "the context switch is inline assembly over raw stack pointers"
)]

mod fp_env;

use core::arch::{asm, naked_asm};
use core::mem::MaybeUninit;

pub use fp_env::FpEnv;

use crate::tools::{self, Notes};

/// The registers of a suspended flow of control.
///
/// While the flow runs the content is stale. The first two fields form a frame record, see the module's
/// head.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Context {
    /// The frame pointer.
    pub fp: usize,
    /// Where the flow goes on.
    pub ip: usize,
    /// The stack pointer.
    pub sp: usize,
    /// `rbx`, which the compiler keeps for itself.
    pub bx: usize,
    /// What the tools are told at the switch.
    pub notes: Notes,
}

impl Context {
    /// A context that nothing has been saved to; its `ip` of zero ends a backtrace.
    pub const EMPTY: Self = Self {
        fp: 0,
        ip: 0,
        sp: 0,
        bx: 0,
        notes: Notes::EMPTY,
    };
}

/// Saves the current flow of control in `from` and goes on with the one saved in `to`.
///
/// `value` is handed over: it is what the other flow's own `switch` returns, or the second argument
/// of its entry function if it has not run yet. Returns when something switches back to `from`, with
/// the value handed over then.
///
/// # Safety
///
/// - `from` is valid for writes, and stays in place until the flow it describes has been resumed.
/// - `to` holds a flow that was saved by `switch` or prepared by [`crate::frame::prepare`],
///   that has not been resumed since, and whose stack is intact.
/// - Whoever resumes `from` does so on the thread that runs now.
/// - `from` and `to` may be the same place only if `to` was read out before (it is not: they differ).
#[inline(always)]
pub unsafe fn switch(from: *mut Context, to: *const Context, value: usize) -> usize {
    // SAFETY: passed on to the caller.
    let arrival = unsafe { switch_word(from, to, MaybeUninit::new(value)) };
    // SAFETY: the other side hands over a whole word, by this function or as it ends.
    unsafe { arrival.word.assume_init() }
}

/// What a flow finds when it is resumed.
#[derive(Debug, Clone, Copy)]
pub struct Arrival {
    /// What was handed over.
    pub word: MaybeUninit<usize>,
    /// The flow's own context: the `from` of its switch. It comes in a register, where `from` itself would have to be read back
    /// from the stack or through a saved register, after the loads of the switch.
    pub context: *mut Context,
}

/// The switch itself: `rdi` is `from` and `rsi` is `to`. What it declares is I2: the ABI's caller-saved registers and r12 to r15 are
/// clobbered, rbx and rbp go through the context.
macro_rules! leave_and_come_back {
    ($from:ident, $word:ident, $note:ident, $way:ident("rsi") $own:ident $(, $first:literal, $($operand:tt)*)?) => {
        asm!(
            $($first,)?
            "lea rax, [rip + 2f]",   // the resume point of this flow
            "mov [rdi], rbp",        // the frame record: rbp below ...
            "mov [rdi + 8], rax",    // ... the address to go on at
            "mov [rdi + 16], rsp",
            "mov [rdi + 24], rbx",
            "mov rbp, [rsi]",
            "mov rsp, [rsi + 16]",
            "mov rbx, [rsi + 24]",
            "jmp [rsi + 8]",         // rdx goes over untouched: the value; and rcx: the note
            ".p2align 6",            // PERF: a jump to the middle of a line cost up to a third of a round trip
            "2:",
            "endbr64",               // I3
            inout("rdi") $from => _,
            $way("rsi") $own,        // afterwards `from`: whoever resumes this flow has put it there
            inout("rdx") $word,
            // PERF: only there: an operand that is nothing still cost an instruction a switch.
            #[cfg(any(sinew_asan, sinew_tsan, sinew_msan))]
            inout("rcx") $note,
            out("r12") _, out("r13") _, out("r14") _, out("r15") _,
            $($($operand)*,)?
            clobber_abi("sysv64"),
        )
    };
}

/// As [`switch`], handing over whatever bits a word holds, some of which may be uninitialised.
///
/// # Safety
///
/// As for [`switch`]; and whoever resumes expects such a word.
#[inline(always)]
pub unsafe fn switch_word(
    from: *mut Context,
    to: *const Context,
    value: MaybeUninit<usize>,
) -> Arrival {
    let (mut word, mut context) = (value, to.cast_mut());
    #[cfg(sinew_msan)]
    tools::take_as_written(&mut word);
    #[allow(unused_mut, reason = "changed where it is an operand")]
    // SAFETY: both contexts are as the caller vouches for.
    let mut note = unsafe { tools::leave(from, to) };
    // SAFETY: the caller vouches for both contexts.
    unsafe { leave_and_come_back!(from, word, note, inout("rsi") context) };
    // SAFETY: this flow has just been resumed.
    unsafe { tools::arrive(context, note) };
    Arrival { word, context }
}

/// As [`switch_word`], to the context that lies `DISTANCE` contexts above `from`.
///
/// PERF: one pointer describes both flows. If it takes two the compiler keeps the second on the stack across the switch, and the
/// next one waits for the stack pointer and then for that.
///
/// # Safety
///
/// As for [`switch_word`].
#[inline(always)]
pub unsafe fn switch_beside<const DISTANCE: isize>(
    from: *mut Context,
    value: MaybeUninit<usize>,
) -> Arrival {
    let mut word = value;
    #[cfg(sinew_msan)]
    tools::take_as_written(&mut word);
    let context: *mut Context;
    // SAFETY: the caller vouches for a context there.
    let to = unsafe { from.offset(DISTANCE) };
    #[allow(unused_mut, reason = "changed where it is an operand")]
    // SAFETY: both contexts are as the caller vouches for.
    let mut note = unsafe { tools::leave(from, to) };
    // SAFETY: the caller vouches for both contexts.
    unsafe {
        leave_and_come_back!(
            from, word, note, out("rsi") context,
            "lea rsi, [rdi + {distance}]",
            distance = const DISTANCE * size_of::<Context>() as isize
        );
    }
    // SAFETY: this flow has just been resumed.
    unsafe { tools::arrive(context, note) };
    Arrival { word, context }
}

/// Goes on with the flow saved in `to` and saves nothing: the current one is over.
///
/// # Safety
///
/// As for [`switch`] as to `to` and `value`. The current stack may be used by others from
/// here on, so no destructor of a frame on it is still to run.
#[inline(always)]
pub unsafe fn switch_final(to: *const Context, value: usize) -> ! {
    #[allow(unused_variables, reason = "used where it is an operand")]
    // SAFETY: as the caller vouches for.
    let note = unsafe { tools::leave_for_good(to) };
    // SAFETY: the caller vouches for `to`; nothing of this flow is needed again.
    unsafe {
        asm!(
            "mov rbp, [rsi]",
            "mov rsp, [rsi + 16]",
            "mov rbx, [rsi + 24]",
            "jmp [rsi + 8]",
            in("rsi") to,
            in("rdx") value,
            #[cfg(any(sinew_asan, sinew_tsan, sinew_msan))]
            in("rcx") note,
            options(noreturn),
        );
    }
}

/// Where a new stack begins; only its address is of use. Entered by a switch with `rsp` at the
/// [`crate::frame::FirstFrame`] and `rbp` at its frame record.
///
/// # Safety
///
/// Never called: jumped to, with the registers that [`crate::frame::prepare`] has laid down.
#[unsafe(naked)]
pub unsafe extern "C" fn start() {
    naked_asm!(
        ".cfi_startproc",
        // The caller's frame may lie anywhere. gdb takes one that lies below for the end of the stack, but for a signal's: what a
        // signal interrupts may run on any stack. An unwinder looks the caller up by its exact address then, which is right as
        // well: no call is before it.
        ".cfi_signal_frame",
        // The caller's frame address is the stack pointer in the context that the link at [rbp]
        // names: def_cfa_expression { breg6 0, deref, plus_uconst 16, deref }.
        ".cfi_escape 0x0f, 0x06, 0x76, 0x00, 0x06, 0x23, 0x10, 0x06",
        // Its rip is saved in the same context at 8: expression(16) { breg6 0, deref, plus_uconst 8 }.
        ".cfi_escape 0x10, 0x10, 0x05, 0x76, 0x00, 0x06, 0x23, 0x08",
        // Its rbp at 0: expression(6) { breg6 0, deref }.
        ".cfi_escape 0x10, 0x06, 0x03, 0x76, 0x00, 0x06",
        // Its rbx at 24: expression(3) { breg6 0, deref, plus_uconst 24 }.
        ".cfi_escape 0x10, 0x03, 0x05, 0x76, 0x00, 0x06, 0x23, 0x18",
        "endbr64",        // I3
        // In a build with a sanitizer: it is told, by a call that keeps rdx and the alignment.
        #[cfg(any(sinew_asan, sinew_tsan, sinew_msan))]
        "push rdx",
        #[cfg(any(sinew_asan, sinew_tsan, sinew_msan))]
        "push rdx",
        #[cfg(any(sinew_asan, sinew_tsan, sinew_msan))]
        "mov rdi, rcx",
        #[cfg(any(sinew_asan, sinew_tsan, sinew_msan))]
        "call {arrive_first}",
        #[cfg(any(sinew_asan, sinew_tsan, sinew_msan))]
        "pop rdx",
        #[cfg(any(sinew_asan, sinew_tsan, sinew_msan))]
        "pop rdx",
        "mov rdi, [rsp]", // the argument given to `prepare`
        "mov rsi, rdx",   // the value handed over by the first switch
        "call [rsp + 8]", // the entry; rsp is 16-byte aligned before the call, as the ABI asks
        "ud2",            // it does not return
        ".cfi_endproc",
        #[cfg(any(sinew_asan, sinew_tsan, sinew_msan))]
        arrive_first = sym tools::arrive_first,
    )
}

/// Does nothing, but has unwind tables, so that [`start`]'s are where an unwinder looks; see the module's head.
#[cfg(any(sinew_asan, sinew_tsan, sinew_msan))]
#[inline(never)]
fn keep_unwind_tables() {}

/// Has it compiled.
#[cfg(any(sinew_asan, sinew_tsan, sinew_msan))]
#[used]
static KEEP_UNWIND_TABLES: fn() = keep_unwind_tables;

/// The stack pointer of the caller: tells on which stack it runs.
#[inline(always)]
#[must_use]
pub fn stack_pointer() -> usize {
    let sp: usize;
    // SAFETY: reads a register.
    unsafe {
        asm!("mov {}, rsp", out(reg) sp, options(nomem, nostack, preserves_flags));
    }
    sp
}

/// Reads a word of a suspended stack, by an instruction that no sanitizer looks at: to them what lies between the locals of
/// a frame is out of bounds.
///
/// # Safety
///
/// `address` is a multiple of eight and the word there is mapped and readable.
#[inline]
#[must_use]
pub unsafe fn peek(address: usize) -> usize {
    let word: usize;
    // SAFETY: the caller vouches for the address; nothing is written.
    unsafe {
        asm!("mov {}, [{}]", out(reg) word, in(reg) address, options(readonly, nostack, preserves_flags));
    }
    word
}

/// Whether a return address leads into [`start`]: then the frame that returns there is its stack's outermost.
#[must_use]
pub fn is_in_start(return_address: usize) -> bool {
    /// More than the code takes in any build.
    const BYTES_MAX: usize = 64;
    let start = start as unsafe extern "C" fn() as usize;
    return_address
        .checked_sub(start)
        .is_some_and(|offset| offset < BYTES_MAX)
}
