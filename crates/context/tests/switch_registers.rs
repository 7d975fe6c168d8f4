//! What a switch keeps: every register that the ABI calls non-volatile is filled on both sides and compared; control words
//! are the thread's, or a coroutine's own; stacks are aligned at any depth.
//!
//! The registers are filled by assembly around a call, so what is tested is the promise to a caller of `enter` and
//! `suspend`, and not how the compiler happens to use the registers here.
#![expect(unsafe_code, reason = "drives raw coroutines; fills registers")]
#![expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "bodies are written inside the block that makes their coroutine"
)]

use std::arch::{asm, naked_asm};
use std::ffi::c_void;

use sinew_context::stack::{Stack, StackConfig};
use sinew_context::{Coroutine, Entered, FpEnv, Yielder};

/// rbx, rbp, r12, r13, r14, r15.
type Registers = [u64; 6];

/// Fills the six registers with `seed + 1` to `seed + 6`, calls `f(data)`, and stores what they are then.
#[unsafe(naked)]
unsafe extern "C" fn fill_and_call(
    f: unsafe extern "C" fn(*mut c_void),
    data: *mut c_void,
    out: *mut Registers,
    seed: u64,
) {
    naked_asm!(
        "push rbp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "push rdx", // and now rsp is aligned again
        "mov rax, rdi",
        "mov rdi, rsi",
        "lea rbx, [rcx + 1]",
        "lea rbp, [rcx + 2]",
        "lea r12, [rcx + 3]",
        "lea r13, [rcx + 4]",
        "lea r14, [rcx + 5]",
        "lea r15, [rcx + 6]",
        "call rax",
        "pop rdx",
        "mov [rdx], rbx",
        "mov [rdx + 8], rbp",
        "mov [rdx + 16], r12",
        "mov [rdx + 24], r13",
        "mov [rdx + 32], r14",
        "mov [rdx + 40], r15",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret",
    )
}

fn check(found: Registers, seed: u64, who: &str) {
    let expected: Registers = std::array::from_fn(|n| seed + 1 + n as u64);
    assert_eq!(found, expected, "{who}: rbx, rbp, r12 to r15");
}

fn stack() -> Stack {
    let config = StackConfig::new(8 << 20, 0).expect("a size in range");
    Stack::new(&config).expect("a stack")
}

unsafe extern "C" fn suspend(data: *mut c_void) {
    // SAFETY: the body passes its yielder, and calls from its own stack.
    unsafe { (*data.cast::<Yielder>()).suspend(0) };
}

unsafe extern "C" fn enter(data: *mut c_void) {
    // SAFETY: the test passes a coroutine that has not ended and does not run.
    let entered = unsafe { (*data.cast::<Coroutine>()).enter(0) };
    assert!(matches!(entered, Entered::Suspended(_)), "{entered:?}");
}

/// Suspends `rounds` times with filled registers, each time a frame deeper, and checks at each level on the way back too.
fn suspend_deeper(yielder: &Yielder, depth: u64, rounds: u64) {
    let mark = std::hint::black_box([depth; 16]);
    let seed = 0xa5a5_0000_0000_0000 + depth * 16;
    let mut found = [0; 6];
    let data = (&raw const *yielder).cast_mut().cast();
    // SAFETY: on the coroutine's own stack.
    unsafe { fill_and_call(suspend, data, &raw mut found, seed) };
    check(found, seed, "the body");
    if depth < rounds {
        suspend_deeper(yielder, depth + 1, rounds);
        let mut found = [0; 6];
        // SAFETY: as above.
        unsafe { fill_and_call(suspend, data, &raw mut found, !seed - 16) };
        check(found, !seed - 16, "the body, returning");
    }
    assert_eq!(std::hint::black_box(mark), [depth; 16]);
}

// contract: C19
#[test]
fn callee_saved_registers_survive_on_both_sides() {
    const ROUNDS: u64 = 500;
    let stack = stack();
    // SAFETY: the stack outlives the coroutine, which runs to its end on this thread.
    let mut co = unsafe {
        Coroutine::new(stack.base(), |yielder, _| {
            suspend_deeper(yielder, 0, ROUNDS);
            yielder.suspend(1);
            7
        })
    };
    let suspends = 2 * ROUNDS + 2;
    for round in 0..suspends {
        let seed = 0x5a5a_0000_0000_0000 + round * 16;
        let mut found = [0; 6];
        // SAFETY: not ended, not running.
        unsafe { fill_and_call(enter, (&raw mut co).cast(), &raw mut found, seed) };
        check(found, seed, "the resumer");
    }
    // SAFETY: not ended, not running.
    assert!(matches!(unsafe { co.enter(0) }, Entered::Returned(7)));
}

// contract: C19
#[test]
fn callee_saved_registers_survive_the_end_and_a_panic() {
    unsafe extern "C" fn enter_last(data: *mut c_void) {
        // SAFETY: as in `enter`.
        let entered = unsafe { (*data.cast::<Coroutine>()).enter(0) };
        assert!(!matches!(entered, Entered::Suspended(_)), "{entered:?}");
    }
    for panics in [false, true] {
        let stack = stack();
        // SAFETY: as above.
        let mut co = unsafe {
            Coroutine::new(stack.base(), move |yielder, _| {
                yielder.suspend(0);
                if panics {
                    std::panic::resume_unwind(Box::new(()));
                }
                0
            })
        };
        for (round, f) in [(1, enter as unsafe extern "C" fn(_)), (2, enter_last)] {
            let seed = round << 32;
            let mut found = [0; 6];
            // SAFETY: not ended, not running.
            unsafe { fill_and_call(f, (&raw mut co).cast(), &raw mut found, seed) };
            check(found, seed, "the resumer");
        }
    }
}

/// The control words.
fn control_words() -> (u32, u16) {
    let (mut mxcsr, mut x87) = (0_u32, 0_u16);
    // SAFETY: stores two registers.
    unsafe {
        asm!("stmxcsr [{}]", "fnstcw [{}]", in(reg) &raw mut mxcsr, in(reg) &raw mut x87);
    }
    (mxcsr & 0xffc0, x87)
}

/// Sets the rounding modes (0 to 3) of both units, the precision of the x87 unit, and SSE's flush-to-zero.
fn set_control_words(sse: u32, x87: u16, precision: u16, flush: u32) -> (u32, u16) {
    let mxcsr = 0x1f80 | sse << 13 | flush << 15;
    let word = 0x7f | x87 << 10 | precision << 8;
    // SAFETY: only defined bits; this test does its floating-point arithmetic in assembly.
    unsafe {
        asm!("ldmxcsr [{}]", "fldcw [{}]", in(reg) &raw const mxcsr, in(reg) &raw const word)
    };
    (mxcsr, word)
}

/// One third, rounded by SSE's mode, and by the x87 unit's mode and precision; as bits.
fn thirds() -> (u64, u64) {
    let (one, three) = (1.0_f64, 3.0_f64);
    let (mut sse, mut x87) = (0_u64, 0_u64);
    // SAFETY: arithmetic on registers that are named or pushed and popped.
    unsafe {
        asm!(
            "movsd xmm0, [{one}]",
            "divsd xmm0, [{three}]",
            "movsd [{sse}], xmm0",
            "fld qword ptr [{one}]",
            "fdiv qword ptr [{three}]",
            "fstp qword ptr [{x87}]",
            one = in(reg) &raw const one,
            three = in(reg) &raw const three,
            sse = in(reg) &raw mut sse,
            x87 = in(reg) &raw mut x87,
            out("xmm0") _,
            out("st(0)") _, out("st(1)") _, out("st(2)") _, out("st(3)") _,
            out("st(4)") _, out("st(5)") _, out("st(6)") _, out("st(7)") _,
        );
    }
    (sse, x87)
}

// contract: C19
#[test]
fn each_rounding_mode_stays_on_its_side() {
    let start = FpEnv::current();
    let third = thirds();
    let words = control_words();
    for (sse, x87, precision, flush) in (0..64).map(|n| {
        (
            n & 3,
            n as u16 >> 2 & 3,
            [0, 2, 3, 3][n as usize >> 4],
            n & 1,
        )
    }) {
        let stack = stack();
        // SAFETY: the stack outlives the coroutine, which runs to its end on this thread.
        let mut co = unsafe {
            Coroutine::new(stack.base(), |yielder, _| {
                assert_eq!(control_words(), words, "it starts with what it is given");
                let set = set_control_words(sse, x87, precision, flush);
                let here = thirds();
                for _ in 0..3 {
                    yielder.suspend(0);
                    assert_eq!(control_words(), set);
                    assert_eq!(thirds(), here);
                }
                (sse == 2) as usize + 2 * (here.0 > third.0) as usize
            })
        };
        let mut env = FpEnv::current();
        for _ in 0..3 {
            // SAFETY: not ended, not running; the default environment is in force for Rust code outside.
            let entered = unsafe { co.enter_with_fp_env(0, &mut env) };
            assert!(matches!(entered, Entered::Suspended(0)), "{entered:?}");
            assert_eq!(control_words(), words);
            assert_eq!(thirds(), third);
        }
        // SAFETY: as above.
        let entered = unsafe { co.enter_with_fp_env(0, &mut env) };
        let Entered::Returned(up) = entered else {
            panic!("{entered:?}")
        };
        assert!(up == 0 || up == 3, "only rounding up makes a third larger");
        assert_eq!(FpEnv::current(), start, "the end brings it back too");
    }
}

// contract: C19
#[test]
fn without_exchange_the_words_are_the_threads() {
    let start = FpEnv::current();
    let stack = stack();
    // SAFETY: as above.
    let mut co = unsafe {
        Coroutine::new(stack.base(), |yielder, _| {
            let set = set_control_words(1, 2, 3, 0);
            yielder.suspend(0);
            (control_words() == set) as usize
        })
    };
    // SAFETY: not ended, not running.
    unsafe { co.enter(0) };
    assert_ne!(FpEnv::current(), start);
    // SAFETY: as above.
    assert!(matches!(unsafe { co.enter(0) }, Entered::Returned(1)));
    // SAFETY: it was in force before.
    unsafe { start.load() };
}

/// Aligned stores relative to the stack pointer, as compiled code makes them.
fn store_aligned(depth: usize) -> usize {
    #[repr(align(16))]
    struct Sixteen([u8; 16]);
    #[repr(align(64))]
    struct Line([u8; 64]);
    let mut small = Sixteen([0; 16]);
    let mut large = Line([0; 64]);
    // SAFETY: faults if an address is not aligned, which is the test.
    unsafe {
        asm!(
            "pcmpeqd xmm0, xmm0",
            "movaps [{small}], xmm0",
            "movaps [{large}], xmm0",
            "movaps [{large} + 48], xmm0",
            small = in(reg) &raw mut small,
            large = in(reg) &raw mut large,
            out("xmm0") _,
        );
    }
    assert_eq!((&raw const large).addr() % 64, 0);
    let sum = usize::from(std::hint::black_box(small.0)[3]) + usize::from(large.0[50]);
    if depth == 0 {
        sum
    } else {
        sum + store_aligned(depth - 1)
    }
}

// contract: C19
#[test]
fn aligned_vector_code_runs_at_any_depth() {
    let stack = stack();
    // SAFETY: as above.
    let mut co = unsafe {
        Coroutine::new(stack.base(), |yielder, _| {
            let mut text = [0_u8; 32];
            // A variadic function spills the vector registers with aligned stores, relative to its frame.
            let length = libc::snprintf(
                text.as_mut_ptr().cast(),
                text.len(),
                c"%.3f %.1e".as_ptr(),
                1234.5_f64,
                0.25_f64,
            );
            assert_eq!(&text[..length as usize], b"1234.500 2.5e-01");
            yielder.suspend(0);
            store_aligned(100)
        })
    };
    // SAFETY: not ended, not running.
    assert!(matches!(unsafe { co.enter(0) }, Entered::Suspended(0)));
    // SAFETY: as above.
    assert!(matches!(unsafe { co.enter(0) }, Entered::Returned(51_510)));
}
