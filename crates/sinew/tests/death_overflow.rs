//! A coroutine that runs into its stack's guard ends the process with a report: in Rust and in C, in a scheduler and without one, on
//! a stack of ours and on one that was provided, with memory and when there is none left.
#![expect(unsafe_code, reason = "calls C, provides memory, sets handlers")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::ffi::{CString, c_int, c_void};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, Ordering};

use sinew::coroutine::{self, Coroutine, Suspender, anchor};
use sinew::stack::Stack;
use sinew::{Builder, Scheduler, run, spawn_local};

const CHILD: &str = "SINEW_DEATH";

/// Runs this very test in a child process, with the variable set to `deed`.
fn die(test: &str, deed: &str) -> Output {
    Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(CHILD, deed)
        .output()
        .unwrap()
}

/// What the child is to do.
fn deed() -> Option<String> {
    std::env::var(CHILD).ok()
}

/// An allocator that has run out of memory once it was told so.
struct Exhausted;

static EMPTY: AtomicBool = AtomicBool::new(false);

// SAFETY: passes everything on to the system's allocator, or refuses.
unsafe impl GlobalAlloc for Exhausted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if EMPTY.load(Ordering::Relaxed) {
            return ptr::null_mut();
        }
        // SAFETY: the caller's duty.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: the caller's duty.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Exhausted = Exhausted;

#[inline(never)]
fn recurse(depth: u64) -> u64 {
    let block = std::hint::black_box([depth; 32]);
    if depth == u64::MAX {
        0
    } else {
        recurse(depth + 1) + block[3]
    }
}

/// The text of a report, which has all of `parts`.
fn check(output: &Output, parts: &[&str]) -> String {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{text}");
    for part in parts {
        assert!(text.contains(part), "no {part:?} in the report:\n{text}");
    }
    assert_eq!(text.matches("overflowed its stack").count(), 1, "{text}");
    text
}

/// The number before `unit`, which follows `before`.
fn number(text: &str, before: &str, unit: &str) -> u64 {
    let rest = text.split_once(before).unwrap().1;
    let word = rest.split_once(unit).unwrap().0;
    word.parse()
        .unwrap_or_else(|_| panic!("{word:?} in:\n{text}"))
}

/// Where a coroutine runs, by what it is called.
const PLACES: [&str; 3] = ["scheduler", "alone", "provided"];

/// In a child: runs `body` in a coroutine called "digger" with so much stack and guard, in this kind of place; says on the
/// standard output which coroutine it is.
fn dig_in(place: &str, size_bytes: usize, guard_bytes: usize, body: fn()) {
    if place == "scheduler" {
        run(|| {
            let digger = Builder::new()
                .name("digger")
                .stack_size(size_bytes)
                .guard_size(guard_bytes);
            let body = move || {
                say(&format!("I am {}", sinew::current().unwrap().id()));
                body();
            };
            drop(digger.spawn_local(body).unwrap().join());
        });
        return;
    }
    anchor(|a| {
        let body = move |s: &Suspender<(), ()>, ()| {
            s.suspend(()).unwrap();
            body();
        };
        let builder = Coroutine::builder(a).name("digger");
        let builder = match place {
            "provided" => builder
                .stack(Mapped::new(size_bytes, guard_bytes.max(4096)))
                .unwrap(),
            _ => builder.stack_size(size_bytes).guard_size(guard_bytes),
        };
        let mut digger = builder.build(body).unwrap();
        say(&format!("I am {}", digger.id()));
        digger.resume(()).unwrap();
        digger.resume(()).unwrap();
    });
}

fn say(text: &str) {
    let text = format!("\n{text}\n");
    // SAFETY: the text is readable for its length.
    let written = unsafe { libc::write(1, text.as_ptr().cast(), text.len()) };
    assert_eq!(usize::try_from(written), Ok(text.len()));
}

/// A mapping with a guard.
struct Mapped {
    start: NonNull<u8>,
    bytes: usize,
    guard_bytes: usize,
}

impl Mapped {
    fn new(bytes: usize, guard_bytes: usize) -> Self {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let all = bytes + guard_bytes;
        // SAFETY: a fresh mapping.
        let start = unsafe { libc::mmap(ptr::null_mut(), all, access, flags, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED);
        // SAFETY: its low end, not in use.
        let status = unsafe { libc::mprotect(start, guard_bytes, libc::PROT_NONE) };
        assert_eq!(status, 0);
        let start = NonNull::new(start.cast()).unwrap();
        Self {
            start,
            bytes,
            guard_bytes,
        }
    }
}

// SAFETY: the mapping is this value's, and is never unmapped; its low end cannot be accessed.
unsafe impl Stack for Mapped {
    fn base(&self) -> NonNull<u8> {
        // SAFETY: one past the end.
        unsafe { self.start.add(self.guard_bytes + self.bytes) }
    }

    fn limit(&self) -> NonNull<u8> {
        // SAFETY: inside.
        unsafe { self.start.add(self.guard_bytes) }
    }

    fn guard_bytes(&self) -> usize {
        self.guard_bytes
    }
}

/// The stack of one that has ended goes to the next one straight from the stack of another that stops, and so does the name.
// contract: C18
#[test]
fn the_report_names_who_began_on_the_stack_of_another() {
    if deed().is_some() {
        run(|| {
            let ends = Builder::new()
                .name("ended")
                .spawn_local(|| _ = sinew::yield_now());
            let stops = spawn_local(|| {
                sinew::yield_now().unwrap();
                let digger = Builder::new().name("digger").spawn_local(|| _ = recurse(0));
                sinew::yield_now().unwrap();
                drop(digger.unwrap().join());
            });
            drop((ends.unwrap().join(), stops.join()));
        });
        return;
    }
    let output = die("the_report_names_who_began_on_the_stack_of_another", "dig");
    let text = check(&output, &[" \"digger\", spawned at ", "death_overflow.rs:"]);
    assert!(!text.contains("\"ended\""), "{text}");
}

// contract: C18
#[test]
fn the_report_says_who_where_how_much_and_what_to_do() {
    let test = "the_report_says_who_where_how_much_and_what_to_do";
    if let Some(place) = deed() {
        return dig_in(&place, 128 * 1024, 0, || _ = recurse(0));
    }
    for place in PLACES {
        let output = die(test, place);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let id = number(&said, "\nI am ", "\n");
        let advice = match place {
            "provided" => "provide a larger one where the coroutine is built",
            _ => {
                "raise it with Builder::stack_size(bytes) where the coroutine is built, for a scheduler's first and all others with \
                 SchedulerBuilder::stack_size(bytes), or"
            }
        };
        let parts = [
            format!("sinew: coroutine {id} \"digger\""),
            "death_overflow.rs:".into(),
            advice.into(),
            "into the guard of 4096".into(),
            "more frames of the same".into(),
            "death_overflow::recurse".into(),
        ];
        let text = check(&output, &parts.each_ref().map(String::as_str));
        let size = number(&text, "overflowed its stack: ", " KiB at 0x");
        assert!((126..=160).contains(&size), "{size} in:\n{text}");
        // All of it was in use.
        assert_eq!(number(&text, "high water ", " KiB"), size, "{text}");
        assert!(text.lines().count() < 160, "not folded:\n{text}");
    }
}

// contract: C18
#[test]
fn the_high_water_mark_does_not_count_what_was_not_reached() {
    let test = "the_high_water_mark_does_not_count_what_was_not_reached";
    if deed().is_some() {
        return dig_in("scheduler", 1 << 20, 2 << 20, || far_frame(2 << 20));
    }
    if !has_c_compiler() {
        return;
    }
    let text = check(&die(test, "far"), &["overflowed its stack"]);
    let high_water = number(&text, "high water ", " KiB");
    assert!(high_water < 64, "{text}");
}

// contract: C18
#[test]
fn a_report_needs_no_heap() {
    let test = "a_report_needs_no_heap";
    if let Some(place) = deed() {
        return dig_in(&place, 64 * 1024, 0, || {
            EMPTY.store(true, Ordering::Relaxed);
            _ = recurse(0);
        });
    }
    for place in PLACES {
        let parts = [
            "\"digger\"",
            "death_overflow.rs:",
            "overflowed its stack: ",
            "high water ",
            "where the coroutine is built",
            "backtrace (addresses",
            "more frames of the same",
        ];
        check(&die(test, place), &parts);
    }
}

/// The same with true exhaustion: no page is to be had from the kernel either.
// contract: C18
#[test]
fn a_report_needs_no_address_space() {
    let test = "a_report_needs_no_address_space";
    if deed().is_some() {
        return dig_in("scheduler", 64 * 1024, 0, || {
            let none = libc::rlimit {
                rlim_cur: 0,
                rlim_max: libc::RLIM_INFINITY,
            };
            // SAFETY: reads a local.
            assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &none) }, 0);
            // SAFETY: whatever it gives is not used.
            while !unsafe { libc::malloc(64) }.is_null() {}
            _ = recurse(0);
        });
    }
    check(
        &die(test, "x"),
        &["\"digger\"", "backtrace (addresses", "more frames"],
    );
}

unsafe extern "C-unwind" fn compare(_: *const c_void, _: *const c_void) -> c_int {
    // A sort inside a sort, for ever.
    sort();
    0
}

unsafe extern "C-unwind" {
    fn qsort(
        base: *mut c_void,
        count: usize,
        size: usize,
        compare: unsafe extern "C-unwind" fn(*const c_void, *const c_void) -> c_int,
    );
}

fn sort() {
    let mut numbers = [3_i32, 1, 2];
    // SAFETY: three numbers of four bytes; the comparator does not look at them.
    unsafe { qsort(numbers.as_mut_ptr().cast(), 3, 4, compare) };
    std::hint::black_box(&mut numbers);
}

// contract: C18, C4
#[test]
fn an_overflow_in_a_c_callback_is_reported() {
    let test = "an_overflow_in_a_c_callback_is_reported";
    if let Some(place) = deed() {
        return dig_in(&place, 64 * 1024, 0, sort);
    }
    for place in PLACES {
        let parts = [
            "\"digger\"",
            "death_overflow::compare",
            "more frames of the same",
        ];
        check(&die(test, place), &parts);
    }
}

/// C without stack probes, as most C is compiled.
const C_SOURCE: &str = r"
#include <alloca.h>

/* One frame of so many bytes, of which only the far end is touched. */
__attribute__((noinline)) void far_frame(unsigned long bytes) {
    volatile char *block = alloca(bytes);
    block[0] = 1;
}

/* Frames of some 3,000 bytes each, of which only a word is touched. */
__attribute__((noinline)) unsigned long deep_frames(unsigned long depth) {
    volatile unsigned long block[375];
    block[depth % 2] = depth;
    return deep_frames(depth + 1) + block[depth % 2];
}
";

fn has_c_compiler() -> bool {
    let found = Command::new("cc").arg("--version").output().is_ok();
    if !found {
        say("skipped: no C compiler");
    }
    found
}

/// The C functions, compiled.
fn c_library() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let number = std::process::id();
    let source = folder.join(format!("unprobed-{number}.c"));
    let library = folder.join(format!("unprobed-{number}.so"));
    std::fs::write(&source, C_SOURCE).unwrap();
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-fno-stack-protector", "-w"])
        .args(["-fno-stack-clash-protection", "-fno-optimize-sibling-calls"])
        .arg("-o")
        .args([&library, &source])
        .status()
        .unwrap();
    assert!(compiled.success());
    std::fs::remove_file(&source).unwrap();
    library
}

/// The function of this name in a library that the child compiles for itself.
fn c_function(name: &str) -> *mut c_void {
    let library = c_library();
    let path = CString::new(library.as_os_str().as_encoded_bytes()).unwrap();
    // SAFETY: it has no initialisers.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
    std::fs::remove_file(&library).unwrap();
    let name = CString::new(name).unwrap();
    // SAFETY: a library and a name.
    let function = unsafe { libc::dlsym(handle, name.as_ptr()) };
    assert!(!function.is_null());
    function
}

fn far_frame(bytes: usize) {
    // SAFETY: the function's type.
    let function = unsafe {
        std::mem::transmute::<*mut c_void, unsafe extern "C" fn(usize)>(c_function("far_frame"))
    };
    // SAFETY: touches the stack only.
    unsafe { function(bytes) };
}

fn deep_frames() {
    // SAFETY: the function's type.
    let function = unsafe {
        let function = c_function("deep_frames");
        std::mem::transmute::<*mut c_void, unsafe extern "C" fn(usize) -> usize>(function)
    };
    // SAFETY: touches the stack only.
    unsafe { function(0) };
}

// contract: C18
#[test]
fn unprobed_c_frames_within_the_default_guard_are_reported() {
    let test = "unprobed_c_frames_within_the_default_guard_are_reported";
    if let Some(place) = deed() {
        return dig_in(&place, 256 * 1024, 0, deep_frames);
    }
    if !has_c_compiler() {
        return;
    }
    for place in PLACES {
        let text = check(&die(test, place), &["\"digger\"", "into the guard of 4096"]);
        assert!(
            text.contains("deep_frames") || text.contains("more frames"),
            "{text}"
        );
    }
}

// contract: C18
#[test]
fn an_unprobed_c_frame_as_large_as_the_guard_is_reported() {
    let test = "an_unprobed_c_frame_as_large_as_the_guard_is_reported";
    if let Some(place) = deed() {
        // The frame begins somewhere in the stack, so its far end is in the guard, wherever that was.
        return dig_in(&place, 512 * 1024, 4 << 20, || far_frame(4 << 20));
    }
    if !has_c_compiler() {
        return;
    }
    for place in PLACES {
        check(
            &die(test, place),
            &["\"digger\"", "into the guard of 4194304"],
        );
    }
}

// contract: C18
#[test]
fn a_guard_that_the_scheduler_was_given_is_as_good() {
    let test = "a_guard_that_the_scheduler_was_given_is_as_good";
    if deed().is_some() {
        Scheduler::builder().guard_size(1 << 20).anchor(|s| {
            drop(sinew::spawn_local(|| far_frame(1 << 20)));
            let _died = s.run();
        });
        return;
    }
    if has_c_compiler() {
        check(&die(test, "x"), &["into the guard of 1048576"]);
    }
}

extern "C" fn previous(_: c_int) {
    let text = b"the previous handler\n";
    // SAFETY: the text is readable for its length.
    unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
    // SAFETY: no preconditions.
    unsafe { libc::_exit(47) };
}

// contract: C18
#[test]
fn a_fault_that_is_no_overflow_is_the_previous_handler_s() {
    let test = "a_fault_that_is_no_overflow_is_the_previous_handler_s";
    if let Some(place) = deed() {
        // SAFETY: all-zero is a valid sigaction.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = previous as *const () as usize;
        action.sa_flags = libc::SA_ONSTACK;
        // SAFETY: the handler only writes and exits.
        let status = unsafe { libc::sigaction(libc::SIGSEGV, &action, ptr::null_mut()) };
        assert_eq!(status, 0);
        return dig_in(&place, 0x20000, 0, || {
            // SAFETY: not sound; the test wants the fault.
            unsafe { ptr::without_provenance_mut::<u8>(0x10).write_volatile(1) };
        });
    }
    for place in PLACES {
        let output = die(test, place);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(47), "{text}");
        assert!(
            text.contains("the previous handler") && !text.contains("overflowed"),
            "{text}"
        );
    }
}

// contract: C18
#[test]
fn an_overflow_of_a_plain_thread_is_still_stds() {
    if deed().is_some() {
        run(|| ());
        std::thread::spawn(|| recurse(0)).join().unwrap();
        return;
    }
    let output = die("an_overflow_of_a_plain_thread_is_still_stds", "x");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("has overflowed its stack"), "{text}");
    assert!(!text.contains("coroutine"), "{text}");
}

/// The stack of a coroutine that was resumed by another one: the report is of the inner one, and its frames go on in the outer.
// contract: C18
#[test]
fn the_innermost_coroutine_is_reported() {
    let test = "the_innermost_coroutine_is_reported";
    if deed().is_some() {
        run(|| {
            let outer = Builder::new().name("outer").spawn_local(|| {
                anchor(|a| {
                    let mut inner = coroutine::Coroutine::builder(a)
                        .name("inner")
                        .build(|_: &Suspender<(), ()>, ()| recurse(0))
                        .unwrap();
                    inner.resume(()).unwrap();
                });
            });
            drop(outer.unwrap().join());
        });
        return;
    }
    let text = check(&die(test, "x"), &["\"inner\"", "death_overflow::recurse"]);
    assert!(!text.contains("\"outer\""), "{text}");
}

#[inline(never)]
#[expect(clippy::large_stack_frames, reason = "the test is about large frames")]
fn huge_frame() -> u8 {
    let mut frame = [0_u8; 8 << 20];
    std::hint::black_box(&mut frame);
    frame[7]
}

// contract: C18
#[test]
fn a_rust_frame_that_is_larger_than_stack_and_guard_is_reported() {
    let test = "a_rust_frame_that_is_larger_than_stack_and_guard_is_reported";
    if let Some(place) = deed() {
        return dig_in(&place, 64 * 1024, 0, || _ = huge_frame());
    }
    for place in PLACES {
        let parts = [
            "\"digger\"",
            "into the guard of 4096",
            "death_overflow::huge_frame",
        ];
        check(&die(test, place), &parts);
    }
}

extern "C" fn nothing(_: c_int) {}

/// A handler without SA_ONSTACK, as most are, that strikes where its frame has no room.
// contract: C18
#[test]
fn a_signal_that_does_not_fit_is_reported() {
    #[inline(never)]
    #[expect(unconditional_recursion, reason = "overflows")]
    fn raise_at_every_depth() {
        // SAFETY: no preconditions.
        unsafe { libc::raise(libc::SIGUSR1) };
        let block = std::hint::black_box([0_u8; 256]);
        raise_at_every_depth();
        std::hint::black_box(block);
    }
    let test = "a_signal_that_does_not_fit_is_reported";
    if let Some(place) = deed() {
        // SAFETY: all-zero is a valid sigaction.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = nothing as *const () as usize;
        // SAFETY: the handler does nothing.
        let status = unsafe { libc::sigaction(libc::SIGUSR1, &action, ptr::null_mut()) };
        assert_eq!(status, 0);
        return dig_in(&place, 128 * 1024, 0, raise_at_every_depth);
    }
    for place in PLACES {
        let parts = [
            "\"digger\"",
            "a signal's frame did not fit above the guard of 4096",
            "raise_at_every_depth",
        ];
        check(&die(test, place), &parts);
    }
}
