//! Valgrind's client requests: told where stacks are, memcheck takes a new stack pointer inside another one for a switch, and
//! not for a frame of a quarter of a megabyte.
//!
//! Owns: the encoding of a request. Thread: any.
//!
//! A request is an exchange of `rbx` with itself behind four rotations of `rdi` that add up to 128 bits: eleven
//! instructions that change nothing but the flags, unless Valgrind, which translates all code, recognises them.
//!
//! Source: Valgrind's manual, section 3.1, "The Client Request mechanism"; the numbers are its ABI.
#![expect(unsafe_code, reason = "a request is inline assembly")]

use core::arch::asm;

/// How many Valgrinds run this process, one inside the other.
const RUNNING_ON_VALGRIND: usize = 0x1001;
/// A stack is there, lowest address and highest address; returns its number.
const STACK_REGISTER: usize = 0x1501;
/// The stack with this number is gone.
const STACK_DEREGISTER: usize = 0x1502;

/// Asks Valgrind; zero if it is not there.
#[inline(never)]
fn request(request: usize, first: usize, second: usize) -> usize {
    let block: [usize; 6] = [request, first, second, 0, 0, 0];
    let mut answer = 0_usize;
    // SAFETY: leaves everything as it is but `rdx`, if Valgrind is there, and the flags; reads the block.
    unsafe {
        asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            in("rax") &raw const block,
            inout("rdx") answer,
            options(nostack),
        );
    }
    answer
}

/// Whether this process runs under Valgrind.
pub(crate) fn is_here() -> bool {
    request(RUNNING_ON_VALGRIND, 0, 0) != 0
}

/// Tells of a stack, whose number is returned.
pub(crate) fn register(limit: usize, base: usize) -> usize {
    request(STACK_REGISTER, limit, base - 1)
}

/// The stack is not one any more.
pub(crate) fn deregister(number: usize) {
    request(STACK_DEREGISTER, number, 0);
}
