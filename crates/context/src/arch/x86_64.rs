//! The switch for x86-64 with the System V calling convention.
//!
//! Owns: the layout of [`Context`] and [`Pair`], and the pieces of assembly that read or write them.
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
//! # The pair
//!
//! ```text
//!  rdi -> inner   the context of the flow that is entered
//!         outer   the context of the one that enters it, 32 bytes above (more with a sanitizer's notes)
//! ```
//!
//! A switch by [`switch`] names two places, `rdi` to save in and `rsi` to load from. Two flows that resume one another only are named
//! by one: `rdi` is the pair before a switch and after it, on both sides, and what is inner and outer is in the offsets.
//!
//! A round trip takes two indirect jumps and, if both sides loop, two jumps back. On the processors measured that alone takes 2.0 ns
//! (6 cycles at 3 GHz), and everything else that the bare switch does goes on beside it. So there is no more to be had from
//! fewer instructions there; where more happens at each switch they count.
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
use core::cell::UnsafeCell;
use core::mem::{MaybeUninit, offset_of};

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

/// The switch itself. `rdi` is what the first text is relative to, the place to save in, and `rsi` or `rdi` the second, the place to
/// load from. What it declares is I2: the ABI's caller-saved registers and r12 to r15 are clobbered, rbx and rbp go through the context.
macro_rules! leave_and_come_back {
    ($from:literal => $to:literal, $word:ident, $note:ident, $($operand:tt)*) => {
        asm!(
            "lea rax, [rip + 2f]",                     // the resume point of this flow
            concat!("mov [", $from, "], rbp"),         // the frame record: rbp below ...
            concat!("mov [", $from, " + 8], rax"),     // ... the address to go on at
            concat!("mov [", $from, " + 16], rsp"),
            concat!("mov [", $from, " + 24], rbx"),
            concat!("mov rbp, [", $to, "]"),
            concat!("mov rsp, [", $to, " + 16]"),
            concat!("mov rbx, [", $to, " + 24]"),
            concat!("jmp [", $to, " + 8]"), // rdi, rsi and rdx go over untouched; and rcx: the note
            ".p2align 6", // PERF: a jump to the middle of a line cost up to a third of a round trip
            "2:",
            "endbr64",    // I3
            $($operand)*
            inout("rdx") $word,
            // PERF: only there: an operand that is nothing still cost an instruction a switch.
            #[cfg(any(sinew_asan, sinew_tsan, sinew_msan))]
            inout("rcx") $note,
            out("r12") _, out("r13") _, out("r14") _, out("r15") _,
            clobber_abi("sysv64"),
        )
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
/// - Whoever resumes `from` does so on the thread that runs now, by `switch` or [`switch_final`].
/// - `from` and `to` may be the same place only if `to` was read out before (it is not: they differ).
#[inline(always)]
pub unsafe fn switch(from: *mut Context, to: *const Context, value: usize) -> usize {
    let mut word = value;
    #[allow(unused_mut, reason = "changed where it is an operand")]
    // SAFETY: both contexts are as the caller vouches for.
    let mut note = unsafe { tools::leave(from, to) };
    #[allow(unused_variables, reason = "used where there is a note")]
    let me: *mut Context;
    // SAFETY: the caller vouches for both contexts.
    unsafe {
        leave_and_come_back!(
            "rdi" => "rsi", word, note,
            inout("rdi") from => _,
            inout("rsi") to => me, // whoever resumes this flow has put `from` there
        );
    }
    // SAFETY: this flow has just been resumed.
    unsafe { tools::arrive(me, note) };
    word
}

/// The contexts of two flows that resume one another and nobody else: a coroutine's and that of whoever entered it.
///
/// PERF: one register describes both, and keeps doing so across the switch, on both sides. That saves four instructions a round
/// trip, and neither side waits for a pointer that it has to load.
#[derive(Debug)]
#[repr(C)]
pub struct Pair {
    /// The flow that is entered.
    pub inner: UnsafeCell<Context>,
    /// The one that enters it.
    pub outer: UnsafeCell<Context>,
}

/// What a flow of a [`Pair`] finds when it is resumed.
#[derive(Debug, Clone, Copy)]
pub struct Arrival {
    /// What was handed over.
    pub word: MaybeUninit<usize>,
    /// The pair: the same as was given to the switch. It comes in a register, where that would have to be read back from the stack or
    /// through a saved register, after the loads of the switch.
    pub pair: *const Pair,
}

/// Where the inner context lies in a pair, and where the outer one.
const INNER: usize = offset_of!(Pair, inner);
const OUTER: usize = offset_of!(Pair, outer);

impl Pair {
    /// A pair of contexts to which nothing has been saved.
    #[must_use]
    #[inline(always)]
    pub const fn empty() -> Self {
        Self {
            inner: UnsafeCell::new(Context::EMPTY),
            outer: UnsafeCell::new(Context::EMPTY),
        }
    }

    /// Saves the current flow as the outer one and goes on with the inner one, handing over whatever bits a word holds, some of which
    /// may be uninitialised. Returns when the inner flow calls [`leave`](Self::leave) or [`leave_for_good`](Self::leave_for_good).
    ///
    /// # Safety
    ///
    /// - `this` is valid until then; no other flow is the outer one now.
    /// - The inner flow was prepared by [`crate::frame::prepare`] or has left by `leave` and has not been entered since; its stack is
    ///   intact. It expects such a word.
    /// - It leaves on the thread that runs now.
    #[inline(always)]
    pub unsafe fn enter(this: *const Self, value: MaybeUninit<usize>) -> Arrival {
        // SAFETY: passed on to the caller.
        unsafe { Self::exchange::<OUTER, INNER>(this, value) }
    }

    /// Saves the current flow, which is the inner one, and goes on with the outer one, handing over a word. Returns when it is entered
    /// again.
    ///
    /// # Safety
    ///
    /// - `this` is valid until then; the current flow was entered by [`enter`](Self::enter) on this pair and has not left since.
    /// - Whoever entered expects such a word, and enters again on the thread that runs now.
    #[inline(always)]
    pub unsafe fn leave(this: *const Self, value: MaybeUninit<usize>) -> Arrival {
        // SAFETY: passed on to the caller.
        unsafe { Self::exchange::<INNER, OUTER>(this, value) }
    }

    /// As [`leave`](Self::leave), saving nothing: the inner flow is over.
    ///
    /// # Safety
    ///
    /// As for `leave`. The stack may be used by others from here on, so no destructor of a frame on it is still to run.
    #[inline(always)]
    pub unsafe fn leave_for_good(this: *const Self, value: MaybeUninit<usize>) -> ! {
        #[cfg(sinew_msan)]
        let value = {
            let mut word = value;
            tools::take_as_written(&mut word);
            word
        };
        #[allow(unused_variables, reason = "used where it is an operand")]
        // SAFETY: as the caller vouches for.
        let note = unsafe { tools::leave_for_good(Self::at::<OUTER>(this)) };
        // SAFETY: the caller vouches for the outer context; nothing of this flow is needed again.
        unsafe {
            asm!(
                "mov rbp, [rdi + {outer}]",
                "mov rsp, [rdi + {outer} + 16]",
                "mov rbx, [rdi + {outer} + 24]",
                "jmp [rdi + {outer} + 8]",
                outer = const OUTER,
                in("rdi") this,
                in("rdx") value,
                #[cfg(any(sinew_asan, sinew_tsan, sinew_msan))]
                in("rcx") note,
                options(noreturn),
            );
        }
    }

    /// The context at this offset.
    #[inline(always)]
    fn at<const OFFSET: usize>(this: *const Self) -> *mut Context {
        this.cast::<Context>().wrapping_byte_add(OFFSET).cast_mut()
    }

    /// Saves to the one and goes on with the other.
    ///
    /// # Safety
    ///
    /// As for `enter` or `leave`.
    #[inline(always)]
    unsafe fn exchange<const FROM: usize, const TO: usize>(
        this: *const Self,
        value: MaybeUninit<usize>,
    ) -> Arrival {
        let mut word = value;
        #[cfg(sinew_msan)]
        tools::take_as_written(&mut word);
        let (from, to) = (Self::at::<FROM>(this), Self::at::<TO>(this));
        #[allow(unused_mut, reason = "changed where it is an operand")]
        // SAFETY: both contexts are as the caller vouches for.
        let mut note = unsafe { tools::leave(from, to) };
        let pair: *const Self;
        // SAFETY: the caller vouches for both contexts.
        unsafe {
            leave_and_come_back!(
                "rdi + {from}" => "rdi + {to}", word, note,
                from = const FROM,
                to = const TO,
                inout("rdi") this => pair,
            );
        }
        // SAFETY: this flow has just been resumed.
        unsafe { tools::arrive(Self::at::<FROM>(pair), note) };
        Arrival { word, pair }
    }
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

/// Whether the caller's stack pointer is at least the word at the offset `LOW` of a record, and less than the one at `HIGH`.
///
/// PERF: two comparisons with memory, where a stack pointer in a register takes twice as many instructions.
///
/// # Safety
///
/// The two words are readable, and nobody writes them meanwhile.
#[inline(always)]
#[must_use]
pub unsafe fn runs_within<const LOW: usize, const HIGH: usize>(record: *const u8) -> bool {
    // SAFETY: the caller vouches for the words; nothing is written.
    unsafe {
        asm!(
            "cmp rsp, [{record} + {low}]",
            "jb {outside}",
            "cmp rsp, [{record} + {high}]",
            "jae {outside}",
            record = in(reg) record,
            low = const LOW,
            high = const HIGH,
            outside = label { return false },
            options(readonly, nostack),
        );
    }
    true
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
