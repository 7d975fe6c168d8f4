//! Suspending inside of C libraries that know nothing of it: a walk over a directory, a parser of XML.
#![allow(unsafe_code, reason = "calls C libraries and is called back")]

use std::cell::Cell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::PathBuf;

use sinew::Outcome;
use sinew::coroutine::{self, Coroutine, State, Step, Suspender, anchor};

unsafe extern "C-unwind" {
    fn nftw(
        path: *const c_char,
        visit: unsafe extern "C-unwind" fn(
            *const c_char,
            *const libc::stat,
            c_int,
            *mut c_void,
        ) -> c_int,
        descriptors: c_int,
        flags: c_int,
    ) -> c_int;
}

/// Links are not followed.
const FTW_PHYS: c_int = 1;

/// Suspends with each path; goes on as long as it is told to.
unsafe extern "C-unwind" fn visit(
    path: *const c_char,
    _: *const libc::stat,
    _: c_int,
    _: *mut c_void,
) -> c_int {
    // SAFETY: `nftw` passes a string.
    let path = unsafe { CStr::from_ptr(path) };
    let path = PathBuf::from(path.to_str().unwrap());
    match coroutine::suspend::<bool, PathBuf>(path) {
        Ok(true) => 0,
        _ => 1,
    }
}

/// A folder that is removed again.
struct Folder(PathBuf);

impl Folder {
    fn with_files(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("sinew-{name}-{}", std::process::id()));
        for inner in ["a/b", "c"] {
            std::fs::create_dir_all(path.join(inner)).unwrap();
        }
        for file in ["1", "a/2", "a/b/3", "c/4"] {
            std::fs::write(path.join(file), file).unwrap();
        }
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn walk(folder: &Folder) -> c_int {
    let path = CString::new(folder.0.to_str().unwrap()).unwrap();
    // SAFETY: a string, and a visitor of the right type.
    unsafe { nftw(path.as_ptr(), visit, 8, FTW_PHYS) }
}

// contract: C4
#[test]
fn a_directory_is_walked_step_by_step() {
    let folder = Folder::with_files("walked");
    let mut names = anchor(|a| {
        let mut c = Coroutine::new(a, |s: &Suspender<bool, PathBuf>, _| {
            s.publish();
            walk(&folder)
        });
        let mut names = Vec::new();
        loop {
            match c.resume(true).unwrap() {
                Step::Suspended(path) => {
                    let name = path.strip_prefix(&folder.0).unwrap();
                    names.push(name.to_str().unwrap().to_owned());
                }
                Step::Done(status) => break assert_eq!(status, 0),
            }
        }
        names
    });
    names.sort();
    assert_eq!(names, ["", "1", "a", "a/2", "a/b", "a/b/3", "c", "c/4"]);
}

// contract: C4, C6
#[test]
fn a_walk_is_ended_early_by_an_answer_a_cancel_or_a_drop() {
    struct Noted<'a>(&'a Cell<u32>);
    impl Drop for Noted<'_> {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }
    let folder = Folder::with_files("ended");
    let dropped = Cell::new(0);
    anchor(|a| {
        let make = || {
            let mut c = Coroutine::new(a, |s: &Suspender<bool, PathBuf>, _| {
                let _noted = Noted(&dropped);
                s.publish();
                walk(&folder)
            });
            for _ in 0..3 {
                assert!(matches!(c.resume(true), Ok(Step::Suspended(_))));
            }
            c
        };
        assert_eq!(make().resume(false).unwrap(), Step::Done(1));
        let mut cancelled = make();
        cancelled.cancel();
        assert_eq!(cancelled.resume(true).unwrap(), Step::Done(1));
        assert_eq!(cancelled.outcome(), Some(Outcome::Returned));
        if cfg!(sinew_asan) {
            println!("SKIPPED: what nftw had allocated when it was unwound counts as a leak");
            return;
        }
        let unwound = make();
        assert_eq!((unwound.state(), dropped.get()), (State::Suspended, 2));
        drop(unwound);
        assert_eq!(dropped.get(), 3);
    });
}

/// The parts of expat that are used here, found at run time: it need not be installed.
struct Expat {
    create: unsafe extern "C" fn(*const c_char) -> *mut c_void,
    free: unsafe extern "C" fn(*mut c_void),
    parse: unsafe extern "C-unwind" fn(*mut c_void, *const c_char, c_int, c_int) -> c_int,
    on_element: unsafe extern "C" fn(*mut c_void, OnStart, OnEnd),
}

type OnStart = unsafe extern "C-unwind" fn(*mut c_void, *const c_char, *mut *const c_char);
type OnEnd = unsafe extern "C-unwind" fn(*mut c_void, *const c_char);

impl Expat {
    fn find() -> Option<Self> {
        // SAFETY: loads a library, which stays.
        let library = unsafe { libc::dlopen(c"libexpat.so.1".as_ptr(), libc::RTLD_NOW) };
        if library.is_null() {
            return None;
        }
        let symbol = |name: &CStr| {
            // SAFETY: a loaded library, and a string.
            let symbol = unsafe { libc::dlsym(library, name.as_ptr()) };
            (!symbol.is_null()).then_some(symbol)
        };
        let create = symbol(c"XML_ParserCreate")?;
        let free = symbol(c"XML_ParserFree")?;
        let parse = symbol(c"XML_Parse")?;
        let on_element = symbol(c"XML_SetElementHandler")?;
        Some(Self {
            // SAFETY: as its header declares it.
            create: unsafe {
                std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*const c_char) -> *mut c_void>(
                    create,
                )
            },
            // SAFETY: as above.
            free: unsafe {
                std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_void)>(free)
            },
            // SAFETY: as above; it unwinds only if a callback does.
            parse: unsafe {
                std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C-unwind" fn(*mut c_void, *const c_char, c_int, c_int) -> c_int,
                >(parse)
            },
            // SAFETY: as above.
            on_element: unsafe {
                std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_void, OnStart, OnEnd)>(
                    on_element,
                )
            },
        })
    }
}

/// A parser, freed on every way out of its frame.
struct Parser<'e>(&'e Expat, *mut c_void, &'e Cell<u32>);

impl Drop for Parser<'_> {
    fn drop(&mut self) {
        // SAFETY: made by `create`; no frame of its is left.
        unsafe { (self.0.free)(self.1) };
        self.2.set(self.2.get() + 1);
    }
}

/// What is found in a document.
#[derive(Debug, PartialEq)]
enum Tag {
    Start(String),
    End(String),
}

fn name(name: *const c_char) -> String {
    // SAFETY: expat passes strings.
    unsafe { CStr::from_ptr(name) }.to_str().unwrap().to_owned()
}

unsafe extern "C-unwind" fn on_start(_: *mut c_void, tag: *const c_char, _: *mut *const c_char) {
    coroutine::suspend::<(), Tag>(Tag::Start(name(tag))).unwrap();
}

unsafe extern "C-unwind" fn on_end(_: *mut c_void, tag: *const c_char) {
    coroutine::suspend::<(), Tag>(Tag::End(name(tag))).unwrap();
}

// contract: C4, C6
#[test]
fn a_parser_that_calls_back_is_asked_for_one_tag_after_another() {
    let Some(expat) = Expat::find() else {
        println!("SKIPPED: libexpat.so.1 is not installed");
        return;
    };
    let freed = Cell::new(0);
    let body = |text: &'static str| {
        let (expat, freed) = (&expat, &freed);
        move |s: &Suspender<(), Tag>, ()| {
            s.publish();
            // SAFETY: null stands for the document's own encoding.
            let parser = Parser(expat, unsafe { (expat.create)(std::ptr::null()) }, freed);
            // SAFETY: a parser, and callbacks of the right types.
            unsafe { (expat.on_element)(parser.1, on_start, on_end) };
            let length = c_int::try_from(text.len()).unwrap();
            // SAFETY: a parser, and a text of this length, the last one.
            unsafe { (expat.parse)(parser.1, text.as_ptr().cast(), length, 1) }
        }
    };
    anchor(|a| {
        let mut one = Coroutine::new(a, body("<a><b/><c>text</c></a>"));
        let mut two = Coroutine::new(a, body("<x><y></x>"));
        let mut three = Coroutine::new(a, body("<p><q/></p>"));
        assert_eq!(
            three.resume(()).unwrap(),
            Step::Suspended(Tag::Start("p".into()))
        );
        let mut tags = Vec::new();
        let (mut first, mut second) = (None, None);
        // Two documents in turn, each parser in the middle of its work.
        while first.is_none() || second.is_none() {
            for (c, status) in [(&mut one, &mut first), (&mut two, &mut second)] {
                match c.resume(()) {
                    Ok(Step::Suspended(Tag::Start(tag))) => tags.push(tag),
                    Ok(Step::Suspended(Tag::End(tag))) => tags.push(format!("/{tag}")),
                    Ok(Step::Done(value)) => *status = Some(value),
                    Err(_) => {}
                }
            }
        }
        assert_eq!(
            (first, second),
            (Some(1), Some(0)),
            "the second is not well formed"
        );
        assert_eq!(tags, ["a", "x", "b", "y", "/b", "c", "/c", "/a"]);
        assert_eq!(freed.get(), 2);
        drop(three);
        assert_eq!(freed.get(), 3, "unwound through the parser, which is freed");
    });
}
