//! The switch and the first frame: values both ways, alignment, contained panics, backtraces that go on in
//! the resumer, callee-saved registers.
#![expect(unsafe_code, reason = "drives raw coroutines")]
#![expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "bodies are written inside the block that makes their coroutine"
)]

use std::cell::Cell;
use std::ptr::NonNull;

use sinew_context::stack::{Stack, StackConfig};
use sinew_context::{Coroutine, Entered, arch::stack_pointer};

/// A stack that is given back at the end of the test.
struct Block(Stack);

impl Block {
    fn new() -> Self {
        Self(Stack::new(&StackConfig::default()).expect("a stack"))
    }
    fn base(&mut self) -> NonNull<u8> {
        self.0.base()
    }
}

fn word(entered: Entered) -> usize {
    match entered {
        Entered::Suspended(word) | Entered::Returned(word) => word,
        Entered::Panicked(_) => panic!("the body panicked"),
    }
}

#[test]
fn words_travel_both_ways() {
    let mut block = Block::new();
    let seen = Cell::new(0);
    // SAFETY: the block outlives the coroutine, which runs to its end on this thread.
    let mut co = unsafe {
        Coroutine::new(block.base(), |yielder, mut word| {
            while word != 0 {
                seen.set(seen.get() + word);
                word = yielder.suspend(word * 2);
            }
            99
        })
    };
    for n in 1..=100 {
        // SAFETY: not ended, not running.
        assert_eq!(word(unsafe { co.enter(n) }), n * 2);
    }
    // SAFETY: not ended, not running.
    assert!(matches!(unsafe { co.enter(0) }, Entered::Returned(99)));
    assert_eq!(seen.get(), 5050);
}

#[test]
fn a_panic_stays_in_the_coroutine() {
    let mut block = Block::new();
    // SAFETY: as above.
    let mut co = unsafe {
        Coroutine::new(block.base(), |yielder, _| {
            yielder.suspend(0);
            std::panic::resume_unwind(Box::new("boom"))
        })
    };
    // SAFETY: not ended, not running.
    assert!(matches!(unsafe { co.enter(0) }, Entered::Suspended(0)));
    // SAFETY: not ended, not running.
    let Entered::Panicked(payload) = (unsafe { co.enter(0) }) else {
        panic!("no panic came")
    };
    assert_eq!(payload.downcast_ref::<&str>(), Some(&"boom"));
}

#[test]
fn the_first_frame_is_aligned() {
    #[repr(align(16))]
    struct Aligned([u8; 32]);
    let mut block = Block::new();
    // SAFETY: as above.
    let mut co = unsafe {
        Coroutine::new(block.base(), |_, _| {
            let local = std::hint::black_box(Aligned([1; 32]));
            std::hint::black_box(&local.0);
            (&raw const local).addr() % 16
        })
    };
    // SAFETY: not ended, not running.
    assert_eq!(word(unsafe { co.enter(0) }), 0);
}

#[test]
fn it_runs_on_its_own_stack() {
    let mut block = Block::new();
    let range = block.0.limit()..block.0.base();
    // SAFETY: as above.
    let mut co = unsafe { Coroutine::new(block.base(), |_, _| stack_pointer()) };
    // SAFETY: not ended, not running.
    let sp = word(unsafe { co.enter(0) });
    assert!((range.start.addr().get()..range.end.addr().get()).contains(&sp));
}

#[inline(never)]
fn resumer_of_the_backtrace(co: &mut Coroutine) -> Entered {
    // SAFETY: not ended, not running.
    std::hint::black_box(unsafe { co.enter(0) })
}

#[inline(never)]
fn body_of_the_backtrace() -> String {
    std::hint::black_box(std::backtrace::Backtrace::force_capture().to_string())
}

#[test]
fn a_backtrace_goes_on_in_the_resumer() {
    let mut block = Block::new();
    let text = Cell::new(String::new());
    // SAFETY: as above.
    let mut co = unsafe {
        Coroutine::new(block.base(), |yielder, _| {
            yielder.suspend(0);
            text.set(body_of_the_backtrace());
            0
        })
    };
    // SAFETY: not ended, not running.
    unsafe { co.enter(0) };
    resumer_of_the_backtrace(&mut co);
    let text = text.take();
    let body = text
        .find("body_of_the_backtrace")
        .expect("the body's frame");
    let resumer = text
        .find("resumer_of_the_backtrace")
        .expect("the resumer's frame");
    let test = text
        .rfind("a_backtrace_goes_on_in_the_resumer")
        .expect("the test's frame");
    assert!(body < resumer && resumer < test, "{text}");
}

#[test]
fn coroutines_nest_and_interleave() {
    let mut blocks: Vec<Block> = (0..8).map(|_| Block::new()).collect();
    let mut cos: Vec<Coroutine> = blocks
        .iter_mut()
        .map(|block| {
            // SAFETY: the blocks outlive the coroutines, which run to their ends on this thread.
            unsafe {
                Coroutine::new(block.base(), |yielder, mut word| {
                    for _ in 0..1000 {
                        let mut inner_block = Block::new();
                        let mut inner = Coroutine::new(inner_block.base(), |_, w| w + 1);
                        let Entered::Returned(sum) = inner.enter(word) else {
                            unreachable!()
                        };
                        word = yielder.suspend(sum);
                    }
                    word
                })
            }
        })
        .collect();
    let mut words = vec![0; cos.len()];
    for _ in 0..1000 {
        for (co, word_here) in cos.iter_mut().zip(&mut words) {
            // SAFETY: not ended, not running.
            *word_here = word(unsafe { co.enter(*word_here) });
        }
    }
    assert!(words.iter().all(|w| *w == 1000), "{words:?}");
    for co in &mut cos {
        // SAFETY: not ended, not running.
        unsafe { co.enter(0) };
    }
}
