//! Foreign code that calls back: glibc's `nftw` and the XML parser of libexpat, neither of which knows of coroutines.

#![allow(unsafe_code, reason = "calls C libraries, with callbacks that suspend")]
#![allow(clippy::print_stdout, reason = "says what it skips")]

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::OnceLock;

use sinew::Outcome;
use sinew::coroutine::{Coroutine, Step, Suspender, anchor};
use sinew::sync::channel;

/// Counts how often it was dropped.
struct Noted<'a>(&'a Cell<u32>);

impl Drop for Noted<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

/// The same numbers for the same seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % limit
    }
}

// ---- nftw ----

type Visitor =
    unsafe extern "C-unwind" fn(*const c_char, *const libc::stat, c_int, *mut c_void) -> c_int;

unsafe extern "C-unwind" {
    fn nftw(path: *const c_char, visit: Visitor, descriptors: c_int, flags: c_int) -> c_int;
}

/// Do not follow links.
const FTW_PHYS: c_int = 1;
/// What a visitor of ours returns to end the walk.
const ENOUGH: c_int = 7;

thread_local! {
    /// The suspender of the walk that runs: a visitor gets no argument of its own. Set before each resume.
    static WALK: Cell<*const Suspender<(), PathBuf>> = const { Cell::new(std::ptr::null()) };
}

/// Suspends with each path; ends the walk when it is cancelled.
unsafe extern "C-unwind" fn visit(
    path: *const c_char,
    _: *const libc::stat,
    _: c_int,
    _: *mut c_void,
) -> c_int {
    // SAFETY: of the body that walks, whose frame is further out.
    let s = unsafe { &*WALK.get() };
    // SAFETY: nftw's own, good until this returns.
    let path = unsafe { CStr::from_ptr(path) };
    let found = s.suspend(PathBuf::from(OsStr::from_bytes(path.to_bytes())));
    // Others have walked meanwhile.
    WALK.set(s);
    if found.is_ok() { 0 } else { ENOUGH }
}

fn walk(s: &Suspender<(), PathBuf>, root: &Path) -> c_int {
    WALK.set(s);
    let root = CString::new(root.as_os_str().as_bytes()).unwrap();
    // SAFETY: a string, and a visitor that may unwind.
    unsafe { nftw(root.as_ptr(), visit, 8, FTW_PHYS) }
}

/// Makes a tree of folders and files, and says what is in it.
fn plant(name: &str, depth: u32, width: u32) -> (PathBuf, BTreeSet<PathBuf>) {
    fn grow(at: &Path, depth: u32, width: u32, all: &mut BTreeSet<PathBuf>) {
        std::fs::create_dir_all(at).unwrap();
        all.insert(at.to_owned());
        for n in 0..width {
            let file = at.join(format!("file{n}"));
            std::fs::write(&file, b"").unwrap();
            all.insert(file);
            if depth > 0 {
                grow(&at.join(format!("folder{n}")), depth - 1, width, all);
            }
        }
    }
    let root =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.{}", std::process::id()));
    let mut all = BTreeSet::new();
    grow(&root, depth, width, &mut all);
    (root, all)
}

/// As in C: what it had open and allocated is lost with it.
fn without_leak_detection<R>(f: impl FnOnce() -> R) -> R {
    #[cfg(sinew_asan)]
    {
        unsafe extern "C" {
            fn __lsan_disable();
            fn __lsan_enable();
        }
        // SAFETY: no preconditions.
        unsafe { __lsan_disable() };
        let result = f();
        // SAFETY: as above.
        unsafe { __lsan_enable() };
        result
    }
    #[cfg(not(sinew_asan))]
    f()
}

// contract: C4
#[test]
fn walks_of_trees_suspend_in_their_visitors_and_interleave() {
    let trees: Vec<_> = (0..4).map(|n| plant(&format!("walks{n}"), n, 2)).collect();
    anchor(|a| {
        let mut walks: Vec<_> = trees
            .iter()
            .map(|(root, _)| {
                let c = Coroutine::new(a, move |s: &Suspender<(), PathBuf>, ()| walk(s, root));
                (c, BTreeSet::new(), None)
            })
            .collect();
        while walks.iter().any(|(_, _, result)| result.is_none()) {
            for (c, seen, result) in walks.iter_mut().filter(|(_, _, result)| result.is_none()) {
                match c.resume(()).unwrap() {
                    Step::Suspended(path) => assert!(seen.insert(path), "each of them once"),
                    Step::Done(returned) => *result = Some(returned),
                }
            }
        }
        for ((_, seen, result), (_, all)) in walks.iter().zip(&trees) {
            assert_eq!(*result, Some(0));
            assert_eq!(seen, all);
        }
    });
    for (root, _) in trees {
        std::fs::remove_dir_all(root).unwrap();
    }
}

// contract: C4, C10
#[test]
fn a_walk_that_is_cancelled_ends_by_its_own_rules() {
    let (root, _) = plant("cancelled", 2, 2);
    anchor(|a| {
        let mut c = Coroutine::new(a, |s: &Suspender<(), PathBuf>, ()| walk(s, &root));
        for _ in 0..3 {
            assert!(c.resume(()).unwrap().suspended().is_some());
        }
        c.cancel();
        assert_eq!(c.resume(()).unwrap(), Step::Done(ENOUGH));
        assert_eq!(c.outcome(), Some(Outcome::Returned));
    });
    std::fs::remove_dir_all(root).unwrap();
}

// contract: C4, C6
#[test]
fn a_walk_is_unwound_in_its_middle() {
    let (root, all) = plant("unwound", 2, 2);
    let dropped = Cell::new(0);
    anchor(|a| {
        let body = |s: &Suspender<(), PathBuf>, ()| {
            let _noted = Noted(&dropped);
            walk(s, &root)
        };
        let mut first = Coroutine::new(a, body);
        let mut second = Coroutine::new(a, body);
        let mut seen = BTreeSet::new();
        seen.insert(second.resume(()).unwrap().suspended().unwrap());
        without_leak_detection(|| {
            for _ in 0..5 {
                assert!(first.resume(()).unwrap().suspended().is_some());
            }
            drop(first);
        });
        assert_eq!(dropped.get(), 1);
        while let Step::Suspended(path) = second.resume(()).unwrap() {
            seen.insert(path);
        }
        assert_eq!(seen, all, "the other one has not noticed");
    });
    std::fs::remove_dir_all(root).unwrap();
}

// contract: C4
#[test]
fn a_visitor_waits_as_a_coroutine_of_a_scheduler() {
    /// Needs no suspender: any wait will do.
    unsafe extern "C-unwind" fn yielding(
        _: *const c_char,
        _: *const libc::stat,
        _: c_int,
        _: *mut c_void,
    ) -> c_int {
        if sinew::yield_now().is_ok() {
            0
        } else {
            ENOUGH
        }
    }
    let (root, _) = plant("scheduled", 2, 2);
    let path = CString::new(root.as_os_str().as_bytes()).unwrap();
    let results = sinew::run(move || {
        let walks: Vec<_> = (0..3)
            .map(|_| {
                let path = path.clone();
                // SAFETY: a string, and a visitor that may unwind.
                sinew::spawn_local(move || unsafe { nftw(path.as_ptr(), yielding, 8, FTW_PHYS) })
            })
            .collect();
        sinew::yield_now().unwrap();
        sinew::yield_now().unwrap();
        assert!(
            walks.iter().all(|walk| !walk.is_finished()),
            "all in their middle"
        );
        walks[1].cancel("enough");
        walks
            .into_iter()
            .map(|walk| walk.join().unwrap())
            .collect::<Vec<_>>()
    });
    assert_eq!(results, [0, ENOUGH, 0]);
    std::fs::remove_dir_all(root).unwrap();
}

// ---- libexpat ----

type OnStart = unsafe extern "C-unwind" fn(*mut c_void, *const c_char, *mut *const c_char);
type OnEnd = unsafe extern "C-unwind" fn(*mut c_void, *const c_char);
type OnText = unsafe extern "C-unwind" fn(*mut c_void, *const c_char, c_int);

/// The functions of the library that are of use here, found at run time so that building needs nothing.
struct Expat {
    create: unsafe extern "C-unwind" fn(*const c_char) -> *mut c_void,
    free: unsafe extern "C-unwind" fn(*mut c_void),
    set_user_data: unsafe extern "C-unwind" fn(*mut c_void, *mut c_void),
    on_element: unsafe extern "C-unwind" fn(*mut c_void, OnStart, OnEnd),
    on_text: unsafe extern "C-unwind" fn(*mut c_void, OnText),
    parse: unsafe extern "C-unwind" fn(*mut c_void, *const c_char, c_int, c_int) -> c_int,
    stop: unsafe extern "C-unwind" fn(*mut c_void, u8) -> c_int,
    error_code: unsafe extern "C-unwind" fn(*mut c_void) -> c_int,
}

/// `XML_STATUS_OK`.
const OK: c_int = 1;
/// `XML_ERROR_ABORTED`.
const ABORTED: c_int = 35;

/// # Safety
///
/// `F` is the type of that function.
unsafe fn function<F>(library: *mut c_void, name: &CStr) -> F {
    // SAFETY: a library that is open, and a name.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    assert!(!found.is_null(), "{name:?} is not in libexpat");
    assert_eq!(size_of::<F>(), size_of::<*mut c_void>());
    // SAFETY: a function's address, of a function of this type.
    unsafe { std::mem::transmute_copy(&found) }
}

/// The library; `None` and a notice if it is not installed.
fn expat() -> Option<&'static Expat> {
    static EXPAT: OnceLock<Option<Expat>> = OnceLock::new();
    let expat = EXPAT.get_or_init(|| {
        // SAFETY: a name; the library's initialisers do nothing of note.
        let library = unsafe { libc::dlopen(c"libexpat.so.1".as_ptr(), libc::RTLD_NOW) };
        if library.is_null() {
            return None;
        }
        #[expect(
            clippy::multiple_unsafe_ops_per_block,
            reason = "one duty for all: the types are right"
        )]
        // SAFETY: the types are those of expat.h.
        let expat = unsafe {
            Expat {
                create: function(library, c"XML_ParserCreate"),
                free: function(library, c"XML_ParserFree"),
                set_user_data: function(library, c"XML_SetUserData"),
                on_element: function(library, c"XML_SetElementHandler"),
                on_text: function(library, c"XML_SetCharacterDataHandler"),
                parse: function(library, c"XML_Parse"),
                stop: function(library, c"XML_StopParser"),
                error_code: function(library, c"XML_GetErrorCode"),
            }
        };
        Some(expat)
    });
    if expat.is_none() {
        assert!(
            std::env::var_os("SINEW_NO_SKIPS").is_none(),
            "libexpat.so.1 is not installed (Debian: libexpat1)"
        );
        println!("SKIPPED: libexpat.so.1 is not installed (Debian: libexpat1)");
    }
    expat.as_ref()
}

/// A parser, freed when it is dropped: also by an unwind that passes through it.
struct Parser {
    expat: &'static Expat,
    raw: *mut c_void,
}

impl Parser {
    fn new(expat: &'static Expat) -> Self {
        // SAFETY: no encoding: as the document says.
        let raw = unsafe { (expat.create)(std::ptr::null()) };
        assert!(!raw.is_null());
        Self { expat, raw }
    }

    /// Parses a document in pieces; the callbacks get `data`. Returns the error code, 0 for none.
    ///
    /// # Safety
    ///
    /// `data` is what the callbacks expect.
    unsafe fn feed(
        &self,
        (start, end, text): (OnStart, OnEnd, OnText),
        data: *mut c_void,
        document: &str,
        piece_bytes: usize,
    ) -> c_int {
        let expat = self.expat;
        // SAFETY: a live parser; passed on to the caller.
        unsafe { (expat.set_user_data)(self.raw, data) };
        // SAFETY: a live parser, and callbacks of the right types.
        unsafe { (expat.on_element)(self.raw, start, end) };
        // SAFETY: as above.
        unsafe { (expat.on_text)(self.raw, text) };
        for piece in document.as_bytes().chunks(piece_bytes) {
            let bytes = c_int::try_from(piece.len()).unwrap();
            // SAFETY: so many bytes.
            let status = unsafe { (expat.parse)(self.raw, piece.as_ptr().cast(), bytes, 0) };
            if status != OK {
                // SAFETY: a live parser.
                return unsafe { (expat.error_code)(self.raw) };
            }
        }
        // SAFETY: no bytes, and the end.
        let status = unsafe { (expat.parse)(self.raw, std::ptr::null(), 0, 1) };
        assert_eq!(status, OK);
        0
    }
}

impl Drop for Parser {
    fn drop(&mut self) {
        // SAFETY: nothing is parsed by it any more: the frames of that have returned, or are gone.
        unsafe { (self.expat.free)(self.raw) };
    }
}

/// What a document is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Event {
    Start(String),
    End(String),
    Text(String),
}

/// What the callbacks get.
struct Feed<'s> {
    suspender: &'s Suspender<(), Event>,
    parser: &'s Parser,
}

/// Suspends with an event; stops the parser when that is cancelled.
///
/// # Safety
///
/// Called by a parser that was given a `Feed`.
unsafe fn hand_out(feed: *mut c_void, event: Event) {
    // SAFETY: on the stack of the body that parses, further out.
    let feed = unsafe { &*feed.cast::<Feed<'_>>() };
    if feed.suspender.suspend(event).is_err() {
        // Some more callbacks may follow.
        // SAFETY: a live parser, in one of its callbacks; not to be resumed.
        unsafe { (feed.parser.expat.stop)(feed.parser.raw, 0) };
    }
}

/// # Safety
///
/// A C string.
unsafe fn owned(name: *const c_char) -> String {
    // SAFETY: passed on to the caller.
    unsafe { CStr::from_ptr(name) }.to_str().unwrap().to_owned()
}

/// # Safety
///
/// So many bytes of text.
unsafe fn owned_bytes(text: *const c_char, bytes: c_int) -> String {
    let bytes = usize::try_from(bytes).unwrap();
    // SAFETY: passed on to the caller.
    let text = unsafe { std::slice::from_raw_parts(text.cast::<u8>(), bytes) };
    str::from_utf8(text).unwrap().to_owned()
}

unsafe extern "C-unwind" fn start(feed: *mut c_void, name: *const c_char, _: *mut *const c_char) {
    // SAFETY: the parser's name of the element.
    let event = Event::Start(unsafe { owned(name) });
    // SAFETY: called by the parser.
    unsafe { hand_out(feed, event) };
}

unsafe extern "C-unwind" fn end(feed: *mut c_void, name: *const c_char) {
    // SAFETY: the parser's name of the element.
    let event = Event::End(unsafe { owned(name) });
    // SAFETY: called by the parser.
    unsafe { hand_out(feed, event) };
}

unsafe extern "C-unwind" fn text(feed: *mut c_void, text: *const c_char, bytes: c_int) {
    // SAFETY: the parser's text.
    let event = Event::Text(unsafe { owned_bytes(text, bytes) });
    // SAFETY: called by the parser.
    unsafe { hand_out(feed, event) };
}

/// Parses a document on a coroutine's stack, suspending with each event.
fn parse(s: &Suspender<(), Event>, expat: &'static Expat, document: &str, piece: usize) -> c_int {
    let parser = Parser::new(expat);
    let feed = Feed {
        suspender: s,
        parser: &parser,
    };
    let data = (&raw const feed).cast_mut().cast();
    // SAFETY: the callbacks expect a `Feed`.
    unsafe { parser.feed((start, end, text), data, document, piece) }
}

/// A document, and what is in it.
fn compose(seed: u64) -> (String, Vec<Event>) {
    fn element(numbers: &mut Numbers, depth: u64, document: &mut String, events: &mut Vec<Event>) {
        let name = format!("e{}", numbers.below(1000));
        document.push_str(&format!("<{name} key='{}'>", numbers.below(1000)));
        events.push(Event::Start(name.clone()));
        for _ in 0..numbers.below(4) {
            if depth > 0 && numbers.below(3) > 0 {
                element(numbers, depth - 1, document, events);
            } else {
                let number = numbers.below(1_000_000);
                document.push_str(&format!("{number} &lt; é\n"));
                events.push(Event::Text(format!("{number} < é\n")));
            }
        }
        document.push_str(&format!("</{name}>"));
        events.push(Event::End(name));
    }
    let mut numbers = Numbers(seed);
    let mut document = String::from("<?xml version='1.0'?><all>");
    let mut events = vec![Event::Start("all".to_owned())];
    for _ in 0..10 {
        element(&mut numbers, 5, &mut document, &mut events);
    }
    document.push_str("</all>");
    events.push(Event::End("all".to_owned()));
    (document, joined(events))
}

/// Pieces of text that follow each other are one: a parser cuts text where it likes.
fn joined(events: impl IntoIterator<Item = Event>) -> Vec<Event> {
    let mut all: Vec<Event> = Vec::new();
    for event in events {
        match (all.last_mut(), event) {
            (Some(Event::Text(before)), Event::Text(text)) => before.push_str(&text),
            (_, event) => all.push(event),
        }
    }
    all
}

// contract: C4
#[test]
fn parsers_suspend_in_their_callbacks_and_interleave() {
    let Some(expat) = expat() else { return };
    let documents: Vec<_> = (1..=12).map(compose).collect();
    let mut numbers = Numbers(3);
    anchor(|a| {
        let mut parsers: Vec<_> = documents
            .iter()
            .zip(1..)
            .map(|((document, _), piece)| {
                Coroutine::new(a, move |s: &Suspender<(), Event>, ()| {
                    parse(s, expat, document, piece)
                })
            })
            .collect();
        let mut seen = vec![Vec::new(); parsers.len()];
        let mut live: Vec<usize> = (0..parsers.len()).collect();
        while !live.is_empty() {
            let at = usize::try_from(numbers.below(live.len() as u64)).unwrap();
            let which = live[at];
            match parsers[which].resume(()).unwrap() {
                Step::Suspended(event) => seen[which].push(event),
                Step::Done(code) => {
                    assert_eq!(code, 0);
                    live.swap_remove(at);
                }
            }
        }
        for (seen, (_, events)) in seen.into_iter().zip(&documents) {
            assert!(events.len() > 20, "not much of a document");
            assert_eq!(joined(seen), *events);
        }
    });
}

// contract: C4, C6, C10
#[test]
fn parsers_are_cancelled_and_unwound_in_their_middle_beside_others() {
    let Some(expat) = expat() else { return };
    let documents: Vec<_> = (20..32).map(compose).collect();
    let dropped = Cell::new(0);
    anchor(|a| {
        let mut parsers: Vec<_> = documents
            .iter()
            .map(|(document, _)| {
                let c = Coroutine::new(a, |s: &Suspender<(), Event>, ()| {
                    let _noted = Noted(&dropped);
                    parse(s, expat, document, 64)
                });
                (c, Vec::new())
            })
            .collect();
        for steps in 0..12 {
            for (c, seen) in &mut parsers[steps..] {
                seen.push(c.resume(()).unwrap().suspended().unwrap());
            }
        }
        // One in three is unwound, one is asked to stop, one goes on.
        for (n, ((mut c, mut seen), (_, events))) in parsers.drain(..).zip(&documents).enumerate() {
            match n % 3 {
                0 => {
                    let before = dropped.get();
                    drop(c);
                    assert_eq!(dropped.get(), before + 1);
                }
                1 => {
                    c.cancel();
                    let code = loop {
                        if let Step::Done(code) = c.resume(()).unwrap() {
                            break code;
                        }
                    };
                    assert_eq!(code, ABORTED, "the parser ends by its own rules");
                }
                _ => {
                    while let Step::Suspended(event) = c.resume(()).unwrap() {
                        seen.push(event);
                    }
                    assert_eq!(joined(seen), *events);
                }
            }
        }
    });
    assert_eq!(dropped.get(), 12);
}

// contract: C4, C25
#[test]
fn a_panic_in_a_parsers_callback_reaches_whoever_resumes() {
    unsafe extern "C-unwind" fn panicking(_: *mut c_void, _: *const c_char) {
        panic!("at the first end");
    }
    let Some(expat) = expat() else { return };
    let (document, events) = compose(40);
    anchor(|a| {
        let mut c = Coroutine::new(a, |s: &Suspender<(), Event>, ()| {
            let parser = Parser::new(expat);
            let feed = Feed {
                suspender: s,
                parser: &parser,
            };
            let data = (&raw const feed).cast_mut().cast();
            // SAFETY: the callbacks expect a `Feed`, or nothing.
            unsafe { parser.feed((start, panicking, text), data, &document, 10) }
        });
        let mut seen = Vec::new();
        let payload = loop {
            match catch_unwind(AssertUnwindSafe(|| c.resume(()))) {
                Ok(step) => seen.push(step.unwrap().suspended().unwrap()),
                Err(payload) => break payload,
            }
        };
        assert_eq!(payload.downcast_ref(), Some(&"at the first end"));
        assert_eq!(c.outcome(), Some(Outcome::Error));
        let seen = joined(seen);
        assert_eq!(seen, events[..seen.len()]);
    });
}

/// What the callbacks get that send.
struct Sending {
    sender: channel::Sender<Event>,
    parser: Parser,
    refused: RefCell<Vec<Event>>,
}

unsafe extern "C-unwind" fn send_start(
    data: *mut c_void,
    name: *const c_char,
    _: *mut *const c_char,
) {
    // SAFETY: the parser's name of the element.
    let event = Event::Start(unsafe { owned(name) });
    // SAFETY: called by the parser.
    unsafe { send(data, event) };
}

unsafe extern "C-unwind" fn send_end(data: *mut c_void, name: *const c_char) {
    // SAFETY: the parser's name of the element.
    let event = Event::End(unsafe { owned(name) });
    // SAFETY: called by the parser.
    unsafe { send(data, event) };
}

unsafe extern "C-unwind" fn send_text(data: *mut c_void, text: *const c_char, bytes: c_int) {
    // SAFETY: the parser's text.
    let event = Event::Text(unsafe { owned_bytes(text, bytes) });
    // SAFETY: called by the parser.
    unsafe { send(data, event) };
}

/// # Safety
///
/// Called by a parser that was given a `Sending`.
unsafe fn send(data: *mut c_void, event: Event) {
    // SAFETY: on the stack of the body that parses, further out.
    let sending = unsafe { &*data.cast::<Sending>() };
    if let Err(error) = sending.sender.send(event) {
        sending.refused.borrow_mut().push(error.into_inner());
        // SAFETY: a live parser, in one of its callbacks; not to be resumed.
        unsafe { (sending.parser.expat.stop)(sending.parser.raw, 0) };
    }
}

// contract: C4
#[test]
fn a_callback_waits_at_a_channel_in_a_scheduler() {
    let Some(expat) = expat() else { return };
    sinew::run(move || {
        let mut parsers = Vec::new();
        for seed in 50..56 {
            let (document, events) = compose(seed);
            let (sender, receiver) = channel::rendezvous();
            let parser = sinew::spawn_local(move || {
                let sending = Sending {
                    sender,
                    parser: Parser::new(expat),
                    refused: RefCell::default(),
                };
                let data = (&raw const sending).cast_mut().cast();
                let callbacks: (OnStart, OnEnd, OnText) = (send_start, send_end, send_text);
                // SAFETY: the callbacks expect a `Sending`.
                let code = unsafe { sending.parser.feed(callbacks, data, &document, 33) };
                (code, sending.refused.into_inner().len())
            });
            parsers.push((parser, receiver, Rc::new(events)));
        }
        let readers: Vec<_> = parsers
            .into_iter()
            .enumerate()
            .map(|(n, (parser, receiver, events))| {
                sinew::spawn_local(move || {
                    if n % 2 == 0 {
                        assert_eq!(joined(receiver.iter()), *events);
                        assert_eq!(parser.join().unwrap(), (0, 0));
                    } else {
                        let seen = joined(receiver.iter().take(5 + n));
                        assert!(seen[..seen.len() - 1] == events[..seen.len() - 1]);
                        parser.cancel("seen enough");
                        let (code, refused) = parser.join().unwrap();
                        assert_eq!(code, ABORTED);
                        assert!(refused > 0);
                    }
                })
            })
            .collect();
        for reader in readers {
            reader.join().unwrap();
        }
    });
}
