//! What the sanitizers find in coroutines: what is seeded, with the right frames, and nothing that is not there.
//!
//! A defect is seeded in a child, since the sanitizer ends the process that has it. In builds without a sanitizer nothing is
//! seeded; `cargo xtask asan` and `cargo xtask tsan` build with one.
#![expect(unsafe_code, reason = "drives raw coroutines")]

use std::hint::black_box;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use sinew_context::stack::{Stack, StackConfig};
use sinew_context::{Coroutine, Entered, Yielder};

/// A coroutine with its stack.
struct Whole {
    coroutine: Coroutine,
    /// Outlives the coroutine, which nobody enters after this is gone.
    _stack: Stack,
}

impl Whole {
    fn new(body: impl FnOnce(&Yielder, usize) -> usize + 'static) -> Self {
        let stack = Stack::new(&StackConfig::default()).expect("a stack");
        // SAFETY: the stack is kept with the coroutine.
        let coroutine = unsafe { Coroutine::new(stack.base(), body) };
        Self {
            coroutine,
            _stack: stack,
        }
    }

    fn enter(&mut self, word: usize) -> Entered {
        // SAFETY: the tests enter none that has ended.
        unsafe { self.coroutine.enter(word) }
    }
}

/// Frames with something in them that a sanitizer fences off, all of which a panic leaves without returning.
#[inline(never)]
fn sink(depth: usize, words: &[usize; 9]) -> usize {
    let mut mine = [depth; 9];
    black_box(&mut mine)[depth % 9] += words[0];
    if depth == 0 {
        resume_unwind(Box::new(mine[3]));
    }
    sink(depth - 1, black_box(&mine)) + black_box(mine)[0]
}

/// Has the C library write to buffers on the stack, in frames that are not instrumented.
#[inline(never)]
fn reuse(depth: usize) -> usize {
    let name = "x".repeat(300 + depth);
    let there = usize::from(std::fs::metadata(black_box(&name)).is_ok());
    if depth == 0 {
        return there;
    }
    there + black_box(reuse(depth - 1))
}

/// Has the stacks that are mapped from here on lie further from the thread's than AddressSanitizer takes for one stack.
fn keep_stacks_away() {
    const BYTES: usize = 256 << 20;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: somewhere new, and never used.
    let spacer = unsafe { libc::mmap(std::ptr::null_mut(), BYTES, libc::PROT_NONE, flags, -1, 0) };
    assert_ne!(spacer, libc::MAP_FAILED);
}

/// AddressSanitizer forgets the frames that a panic has left, if it knows where the stack is. Without the notes at the
/// switches it does not, and reports what comes to lie there next: this test fails in a build with the sanitizer and
/// without the notes, which `cargo xtask asan` runs too.
// contract: C20
#[test]
fn frames_that_a_panic_has_left_are_forgotten() {
    let deed = || {
        keep_stacks_away();
        let mut whole = Whole::new(|yielder, _| {
            for _ in 0..10 {
                let payload = catch_unwind(AssertUnwindSafe(|| sink(100, &[1; 9])));
                assert!(payload.is_err());
                yielder.suspend_safely(0);
                assert_eq!(reuse(20), 0);
                yielder.suspend_safely(0);
            }
            1
        });
        for _ in 0..20 {
            assert!(matches!(whole.enter(0), Entered::Suspended(0)));
            assert_eq!(reuse(20), 0);
        }
        assert!(matches!(whole.enter(0), Entered::Returned(1)));
    };
    let name = "frames_that_a_panic_has_left_are_forgotten";
    if let Some((status, text)) = child(name, NO_FAKE_STACK, deed) {
        assert!(status.success(), "{text}");
    }
}

/// A suspend that is sound because the tests make it so.
trait SuspendSafely {
    fn suspend_safely(&self, word: usize) -> usize;
}

impl SuspendSafely for Yielder {
    fn suspend_safely(&self, word: usize) -> usize {
        // SAFETY: the tests hand a yielder to functions of its own body only.
        unsafe { self.suspend(word) }
    }
}

/// Where AddressSanitizer keeps the frames: on the stack itself, and not on a fake one.
const NO_FAKE_STACK: &str = "detect_stack_use_after_return=0";

/// How a child ended, in which `deed` was done, with these options of AddressSanitizer.
fn child(
    name: &str,
    options: &str,
    deed: impl FnOnce(),
) -> Option<(std::process::ExitStatus, String)> {
    const STAGE: &str = "SINEW_TOOLS_STAGE";
    if std::env::var_os(STAGE).is_some() {
        deed();
        return None;
    }
    let program = std::env::current_exe().expect("the test's own path");
    let output = std::process::Command::new(program)
        .args(["--exact", name, "--test-threads=1", "--nocapture"])
        .env(STAGE, "1")
        .env("ASAN_OPTIONS", options)
        .output()
        .expect("the test's own program");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    Some((output.status, text))
}

#[cfg(sinew_asan)]
mod asan {
    use super::*;

    /// Does `deed` in a coroutine that has been suspended and beside another one.
    fn in_a_coroutine(deed: fn() -> usize) {
        let mut neighbour = Whole::new(|yielder, _| yielder.suspend_safely(0));
        let mut whole = Whole::new(move |yielder, _| {
            yielder.suspend_safely(0);
            black_box(deed())
        });
        neighbour.enter(0);
        whole.enter(0);
        neighbour.enter(0);
        whole.enter(0);
    }

    /// The report of a child that did `deed`, which says `what` and names the function `frame`.
    fn found(name: &str, deed: fn() -> usize, what: &str, frame: &str) {
        let Some((status, text)) = child(name, "", || in_a_coroutine(deed)) else {
            return;
        };
        assert!(!status.success(), "nothing was found:\n{text}");
        assert!(text.contains(what), "{text}");
        let at = text.find(frame);
        let body = text.find("in_a_coroutine");
        assert!(
            at.zip(body).is_some_and(|(at, body)| at < body),
            "{frame}, and the frames around it:\n{text}"
        );
    }

    #[inline(never)]
    fn writes_past_an_array() -> usize {
        let mut array = [1_usize; 8];
        let past = black_box(&raw mut array).cast::<usize>().wrapping_add(8);
        // SAFETY: none: this is the defect.
        unsafe { past.write_volatile(1) };
        black_box(array)[0]
    }

    // contract: C20
    #[test]
    fn a_write_past_an_array_is_found() {
        found(
            "asan::a_write_past_an_array_is_found",
            writes_past_an_array,
            "AddressSanitizer: stack-buffer-overflow",
            "writes_past_an_array",
        );
    }

    #[inline(never)]
    fn returns_its_local() -> *const usize {
        let mut local = [1_usize; 8];
        black_box(&raw mut local).cast()
    }

    #[inline(never)]
    fn reads_a_frame_that_has_returned() -> usize {
        let local = black_box(returns_its_local());
        // SAFETY: none: this is the defect.
        unsafe { local.read_volatile() }
    }

    // contract: C20
    #[test]
    fn a_use_after_return_is_found_by_the_fake_stack_of_the_flow() {
        found(
            "asan::a_use_after_return_is_found_by_the_fake_stack_of_the_flow",
            reads_a_frame_that_has_returned,
            "AddressSanitizer: stack-use-after-return",
            "reads_a_frame_that_has_returned",
        );
    }

    #[inline(never)]
    fn reads_what_it_has_freed() -> usize {
        let freed = Box::into_raw(Box::new(5_usize));
        // SAFETY: a box, freed once.
        drop(unsafe { Box::from_raw(black_box(freed)) });
        // SAFETY: none: this is the defect.
        unsafe { freed.read_volatile() }
    }

    // contract: C20
    #[test]
    fn a_use_after_free_is_found() {
        found(
            "asan::a_use_after_free_is_found",
            reads_what_it_has_freed,
            "AddressSanitizer: heap-use-after-free",
            "reads_what_it_has_freed",
        );
    }

    /// How much address space this process has.
    fn mapped_bytes() -> usize {
        let text = std::fs::read_to_string("/proc/self/statm").expect("procfs");
        let pages = text
            .split(' ')
            .next()
            .and_then(|pages| pages.parse::<usize>().ok());
        pages.expect("a number of pages") * 4096
    }

    #[inline(never)]
    fn needs_a_fake_stack(n: usize) -> usize {
        let mut local = [n; 16];
        black_box(&mut local)[n % 16]
    }

    // contract: C20
    #[test]
    fn a_flow_that_is_over_has_no_fake_stack() {
        let deed = || {
            let run = |number: usize| {
                for n in 0..number {
                    let mut whole = Whole::new(|yielder, word| {
                        let word = needs_a_fake_stack(word);
                        yielder.suspend_safely(word);
                        needs_a_fake_stack(word)
                    });
                    assert!(matches!(whole.enter(n), Entered::Suspended(word) if word == n));
                    assert!(matches!(whole.enter(n), Entered::Returned(word) if word == n));
                }
            };
            run(100);
            let before = mapped_bytes();
            run(2000);
            // One has eleven sizes of frames, each with as much room as the stack.
            let growth = mapped_bytes().saturating_sub(before);
            assert!(growth < 200 << 20, "{growth} bytes more are mapped");
        };
        let name = "asan::a_flow_that_is_over_has_no_fake_stack";
        if let Some((status, text)) = child(name, "detect_stack_use_after_return=1", deed) {
            assert!(status.success(), "{text}");
        }
    }

    const LOST_BYTES: usize = 3000;

    #[inline(never)]
    fn makes_what_is_kept() -> Box<[u8; 1000]> {
        black_box(Box::new([1; 1000]))
    }

    #[inline(never)]
    fn makes_what_is_lost() {
        std::mem::forget(black_box(Box::new([2_u8; LOST_BYTES])));
    }

    fn suspends_with_something(is_forgetful: bool) {
        let mut whole = Whole::new(move |yielder, _| {
            let kept = black_box(makes_what_is_kept());
            if is_forgetful {
                // Old copies of the pointer may lie about on the stack, but not of all of them.
                (0..100).for_each(|_| makes_what_is_lost());
            }
            yielder.suspend_safely(0);
            usize::from(kept[0])
        });
        whole.enter(0);
        // The frames of the body stay; so does whatever they hold.
        std::mem::forget(whole);
    }

    // contract: C20
    #[test]
    fn what_a_suspended_stack_holds_is_not_a_leak() {
        let name = "asan::what_a_suspended_stack_holds_is_not_a_leak";
        if let Some((status, text)) = child(name, NO_FAKE_STACK, || suspends_with_something(false))
        {
            assert!(status.success(), "{text}");
        }
    }

    // contract: C20
    #[test]
    fn what_no_stack_holds_is_a_leak() {
        let name = "asan::what_no_stack_holds_is_a_leak";
        if let Some((status, text)) = child(name, NO_FAKE_STACK, || suspends_with_something(true)) {
            assert!(!status.success(), "{text}");
            assert!(
                text.contains("LeakSanitizer: detected memory leaks"),
                "{text}"
            );
            let number = (90..=100).find(|lost| {
                let summary = format!(
                    "{} byte(s) leaked in {lost} allocation(s)",
                    lost * LOST_BYTES
                );
                text.contains(&summary)
            });
            assert!(number.is_some(), "these and nothing else:\n{text}");
        }
    }
}

#[cfg(sinew_tsan)]
mod tsan {
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

    use super::*;

    /// What the threads fight over.
    struct Place(std::cell::UnsafeCell<usize>);

    // SAFETY: none: this is the defect.
    unsafe impl Sync for Place {}

    static PLACE: Place = Place(std::cell::UnsafeCell::new(0));
    static TURN: AtomicUsize = AtomicUsize::new(0);

    #[inline(never)]
    fn writes_the_place(word: usize) -> usize {
        // SAFETY: none: this is the defect, in one of the tests.
        unsafe { PLACE.0.get().write_volatile(word) };
        black_box(word)
    }

    #[inline(never)]
    fn body_that_writes(yielder: &Yielder, word: usize) -> usize {
        let word = black_box(yielder.suspend_safely(word));
        black_box(writes_the_place(word))
    }

    #[inline(never)]
    fn body_of_the_neighbour(yielder: &Yielder, word: usize) -> usize {
        black_box(yielder.suspend_safely(word)) + 1
    }

    /// Two coroutines of a thread, each in the middle of a call.
    fn pair() -> [Whole; 2] {
        let mut whole = Whole::new(body_that_writes);
        let mut neighbour = Whole::new(body_of_the_neighbour);
        whole.enter(0);
        neighbour.enter(0);
        [whole, neighbour]
    }

    /// One of the two goes on, and writes.
    fn write_in(pair: &mut [Whole; 2]) {
        pair[0].enter(1);
    }

    /// Two threads do that; they see each other's turn with these orderings, and share nothing else meanwhile: also no lock
    /// of those who give stacks.
    fn two_threads(is_ordered: bool) {
        let (store, load) = if is_ordered {
            (Release, Acquire)
        } else {
            (Relaxed, Relaxed)
        };
        let await_turn = move |turn| {
            while TURN.load(load) != turn {
                std::thread::yield_now();
            }
        };
        let other = std::thread::spawn(move || {
            let mut pair = pair();
            TURN.store(1, store);
            await_turn(2);
            write_in(&mut pair);
        });
        let mut pair = pair();
        await_turn(1);
        write_in(&mut pair);
        TURN.store(2, store);
        other.join().expect("it does not panic");
    }

    // contract: C20
    #[test]
    fn a_race_between_coroutines_of_two_threads_is_found() {
        let name = "tsan::a_race_between_coroutines_of_two_threads_is_found";
        let Some((status, text)) = child(name, "", || two_threads(false)) else {
            return;
        };
        assert!(!status.success(), "nothing was found:\n{text}");
        assert!(text.contains("ThreadSanitizer: data race"), "{text}");
        assert_eq!(
            text.matches("WARNING: ThreadSanitizer").count(),
            1,
            "{text}"
        );
        let at = text
            .find("writes_the_place")
            .unwrap_or_else(|| panic!("{text}"));
        let body = text[at..].find("body_that_writes");
        assert!(body.is_some(), "the frames around it:\n{text}");
        assert!(
            !text.contains("body_of_the_neighbour"),
            "another coroutine's frames are not among them:\n{text}"
        );
    }

    // contract: C20
    #[test]
    fn what_is_ordered_is_no_race() {
        let name = "tsan::what_is_ordered_is_no_race";
        if let Some((status, text)) = child(name, "", || two_threads(true)) {
            assert!(status.success(), "{text}");
        }
    }
}

#[inline(never)]
fn decides_by_what_was_never_written(yielder: &Yielder, word: usize) -> usize {
    let mut place = std::mem::MaybeUninit::<[usize; 4]>::uninit();
    let place = black_box(&raw mut place).cast::<usize>();
    // SAFETY: the first of four words.
    unsafe { place.write_volatile(word) };
    yielder.suspend_safely(0);
    let which = black_box(usize::from(word > 1));
    // SAFETY: the first of four words; or the second, and none: this is the defect.
    let read = unsafe { place.wrapping_add(which).read_volatile() };
    if black_box(read) > 5 { 7 } else { 8 }
}

/// Decides by what was written before a suspend, if `word` is 1, else by what was not.
fn decide(word: usize) {
    let mut neighbour = Whole::new(|yielder, word| yielder.suspend_safely(word));
    let mut whole = Whole::new(decides_by_what_was_never_written);
    neighbour.enter(0);
    whole.enter(word);
    neighbour.enter(0);
    whole.enter(0);
}

/// `cargo xtask valgrind` runs this under memcheck as it is, which has nothing to report, and with the defect, which has to be.
// contract: C21
#[test]
fn memcheck_tells_what_was_written_from_what_was_not() {
    let with_the_defect = std::env::var_os("SINEW_TOOLS_DEFECT").is_some();
    decide(1 + usize::from(with_the_defect));
}

#[cfg(sinew_msan)]
mod msan {
    use super::*;

    // contract: C20
    #[test]
    fn a_use_of_what_was_never_written_is_found() {
        let name = "msan::a_use_of_what_was_never_written_is_found";
        let Some((status, text)) = child(name, "", || decide(2)) else {
            return;
        };
        assert!(!status.success(), "nothing was found:\n{text}");
        let what = "MemorySanitizer: use-of-uninitialized-value";
        assert!(text.contains(what), "{text}");
        let frame = "decides_by_what_was_never_written";
        assert!(text.contains(frame), "{text}");
    }

    // contract: C20
    #[test]
    fn what_was_written_before_a_suspend_is_written_after_it() {
        let name = "msan::what_was_written_before_a_suspend_is_written_after_it";
        if let Some((status, text)) = child(name, "", || decide(1)) {
            assert!(status.success(), "{text}");
        }
    }
}
