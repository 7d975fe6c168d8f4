//! Backtraces of suspended coroutines.

#![expect(unsafe_code, reason = "suspends inside callbacks of the C library")]

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::hint::black_box;
use std::io::Read;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use sinew::coroutine::{Coroutine, Generator, Step, Suspender, Yielder, anchor};
use sinew::event::Event;
use sinew::inspect::{Backtrace, BacktraceError, FRAMES_MAX, State, backtrace, find};
use sinew::net::{TcpListener, TcpStream};
use sinew::sync::{Mutex, WaitGroup, channel};
use sinew::{JoinHandle, Scheduler, SchedulerHandle, park, run, sleep, spawn_local, yield_now};

const PATIENCE: Duration = Duration::from_secs(60);

fn of(id: u64) -> Backtrace {
    backtrace(id, PATIENCE).unwrap()
}

/// The place of the frame whose name contains this.
#[track_caller]
fn place(trace: &Backtrace, name: &str) -> usize {
    trace
        .frames()
        .iter()
        .position(|frame| frame.name.as_deref().is_some_and(|it| it.contains(name)))
        .unwrap_or_else(|| panic!("no {name} in\n{trace}"))
}

#[inline(never)]
fn outer(wait: fn()) {
    middle(wait);
    black_box(());
}

#[inline(never)]
fn middle(wait: fn()) {
    inner(wait);
    black_box(());
}

#[inline(never)]
fn inner(wait: fn()) {
    wait();
    black_box(());
}

// contract: O4
#[test]
fn nested_calls_are_named_in_order_with_their_lines() {
    run(|| {
        let parked = spawn_local(|| outer(|| park().unwrap()));
        yield_now().unwrap();
        let trace = of(parked.id());
        let places = ["inner", "middle", "outer"]
            .map(|name| place(&trace, &format!("inspect_backtraces::{name}")));
        assert!(places.is_sorted(), "{trace}");
        assert!(trace.is_whole(), "{trace}");
        let frame = &trace.frames()[places[2]];
        assert!(
            frame
                .file
                .as_deref()
                .unwrap()
                .ends_with("inspect_backtraces.rs")
        );
        let line = usize::try_from(frame.line.unwrap()).unwrap();
        let text = include_str!("inspect_backtraces.rs")
            .lines()
            .nth(line - 1)
            .unwrap();
        assert!(text.contains("middle(wait);"), "line {line} is {text:?}");
        parked.unparker().unpark();
    });
}

/// Spawns a coroutine that waits in `wait`, lets it come to that, and returns its backtrace.
fn of_one_in<T: 'static>(wait: impl FnOnce() -> T + 'static) -> (Backtrace, JoinHandle<T>) {
    let handle = spawn_local(move || waits_here(wait));
    for _ in 0..4 {
        yield_now().unwrap();
    }
    (of(handle.id()), handle)
}

#[inline(never)]
fn waits_here<T>(wait: impl FnOnce() -> T) -> T {
    let value = wait();
    black_box(());
    value
}

// contract: O4
#[test]
fn every_kind_of_wait_is_walked_to_the_first_frame() {
    run(|| {
        let mutex = Rc::new(Mutex::new(()));
        let held = mutex.lock().unwrap();
        let event = Rc::new(Event::manual());
        let group = Rc::new(WaitGroup::new());
        group.add(1);
        let (sender, receiver) = channel::bounded::<u32>(1);
        sender.send(1).unwrap();
        let (idle_sender, idle) = channel::bounded::<u32>(1);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let _server = listener.accept().unwrap();
        let sleeper = spawn_local(|| sleep(Duration::from_secs(3600)));
        let joined = sleeper.id();

        let mut traces = Vec::new();
        let mut handles = Vec::new();
        let mut add = |name: &str, (trace, handle): (Backtrace, JoinHandle<()>)| {
            traces.push((name.to_owned(), trace));
            handles.push(handle);
        };
        add("park", of_one_in(|| _ = park()));
        add("sleep", of_one_in(|| _ = sleep(Duration::from_secs(3600))));
        add("join", of_one_in(move || _ = sleeper.join()));
        add(
            "lock",
            of_one_in({
                let mutex = mutex.clone();
                move || _ = mutex.lock().map(drop)
            }),
        );
        add(
            "wait",
            of_one_in({
                let event = event.clone();
                move || _ = event.wait()
            }),
        );
        add(
            "wait",
            of_one_in({
                let group = group.clone();
                move || _ = group.wait()
            }),
        );
        add("send", of_one_in(move || _ = sender.send(2)));
        add("recv", of_one_in(move || _ = idle.recv()));
        add("read", of_one_in(move || _ = client.read(&mut [0; 8])));
        add("yield_now", of_one_in(|| while yield_now().is_ok() {}));
        for (name, trace) in &traces {
            assert!(trace.is_whole(), "{name}:\n{trace}");
            assert!(place(trace, name) < place(trace, "waits_here"), "{trace}");
        }
        for handle in &handles {
            handle.cancel("end");
        }
        sinew::cancel_id(joined, "end").unwrap();
        group.done();
        drop((held, receiver, idle_sender));
    });
}

#[inline(never)]
fn recurse(depth: usize) {
    if depth == 0 {
        park().unwrap();
    } else {
        recurse(depth - 1);
    }
    black_box(());
}

// contract: O4
#[test]
fn a_deep_stack_is_cut_off_and_says_so() {
    run(|| {
        let within = spawn_local(|| recurse(FRAMES_MAX / 2));
        let beyond = spawn_local(|| recurse(FRAMES_MAX * 2));
        yield_now().unwrap();
        let trace = of(within.id());
        let is_recurse = |name: Option<&str>| name.is_some_and(|name| name.ends_with("recurse"));
        let count = trace
            .frames()
            .iter()
            .filter(|frame| is_recurse(frame.name.as_deref()))
            .count();
        assert!(trace.is_whole());
        assert_eq!(count, FRAMES_MAX / 2 + 1, "no frame is left out");
        let trace = of(beyond.id());
        assert!(!trace.is_whole());
        assert!(trace.to_string().ends_with("could not be walked"));
        within.unparker().unpark();
        beyond.unparker().unpark();
    });
}

extern "C-unwind" fn compare_parked(_: *const c_void, _: *const c_void) -> c_int {
    park().unwrap();
    0
}

#[inline(never)]
fn sort_with_the_c_library() {
    let mut numbers = [2_u32, 1];
    // The library's own type of callback cannot say that it may unwind; it does not here.
    type Compare = unsafe extern "C" fn(*const c_void, *const c_void) -> c_int;
    let compare: extern "C-unwind" fn(*const c_void, *const c_void) -> c_int = compare_parked;
    // SAFETY: they differ in what an unwinding does, and none comes.
    let compare = unsafe {
        std::mem::transmute::<extern "C-unwind" fn(*const c_void, *const c_void) -> c_int, Compare>(
            compare,
        )
    };
    // SAFETY: two numbers of four bytes.
    unsafe { libc::qsort(numbers.as_mut_ptr().cast(), 2, 4, Some(compare)) };
    black_box(numbers);
}

// contract: O4
#[test]
fn frames_of_the_c_library_are_walked_through() {
    run(|| {
        let sorter = spawn_local(sort_with_the_c_library);
        yield_now().unwrap();
        let trace = of(sorter.id());
        let places =
            ["compare_parked", "qsort", "sort_with_the_c_library"].map(|name| place(&trace, name));
        assert!(places.is_sorted(), "{trace}");
        assert!(trace.is_whole(), "{trace}");
        sorter.unparker().unpark();
    });
}

unsafe extern "C" fn park_once(_: *mut libc::dl_phdr_info, _: usize, data: *mut c_void) -> c_int {
    // SAFETY: it is what was given to `dl_iterate_phdr`.
    let parked = unsafe { &*data.cast::<AtomicBool>() };
    if !parked.swap(true, Relaxed) {
        park().unwrap();
    }
    0
}

// contract: O4
#[test]
fn a_coroutine_that_holds_the_linkers_lock_is_walked_from_another_thread() {
    let (ask, asked) = mpsc::channel::<u64>();
    let (tell, told) = mpsc::channel();
    // Started before: making a thread may take that lock.
    let other = std::thread::spawn(move || {
        let id = asked.recv().unwrap();
        tell.send(of(id)).unwrap();
    });
    run(move || {
        let holder = spawn_local(|| {
            let parked = AtomicBool::new(false);
            let data = (&raw const parked).cast_mut().cast();
            // SAFETY: the callback takes an atomic.
            unsafe { libc::dl_iterate_phdr(Some(park_once), data) };
        });
        yield_now().unwrap();
        ask.send(holder.id()).unwrap();
        let trace = loop {
            match told.try_recv() {
                Ok(trace) => break trace,
                Err(_) => yield_now().unwrap(),
            }
        };
        assert!(
            place(&trace, "park_once") < place(&trace, "dl_iterate_phdr"),
            "{trace}"
        );
        assert!(trace.is_whole(), "{trace}");
        holder.unparker().unpark();
    });
    other.join().unwrap();
}

#[inline(never)]
fn has_a_stand_alone_one() {
    anchor(|a| {
        let mut c = Coroutine::new(a, |_: &Suspender<(), ()>, ()| {
            waits_here(|| park().unwrap())
        });
        assert_eq!(c.resume(()).unwrap(), Step::Done(()));
    });
    // What comes after the call keeps this frame in place.
    black_box(());
}

// contract: O4
#[test]
fn a_wait_inside_of_a_stand_alone_coroutine_leads_on_to_its_resumer() {
    run(|| {
        let parked = spawn_local(has_a_stand_alone_one);
        yield_now().unwrap();
        let trace = of(parked.id());
        let resumer = trace.frames().iter().rposition(|frame| {
            let name = frame.name.as_deref();
            name.is_some_and(|name| name.ends_with("has_a_stand_alone_one"))
        });
        assert!(Some(place(&trace, "waits_here")) < resumer, "{trace}");
        assert!(trace.is_whole(), "{trace}");
        parked.unparker().unpark();
    });
}

// contract: O4
#[test]
fn those_that_cannot_be_walked_say_why() {
    run(|| {
        let me = sinew::current().unwrap().id();
        let ended = spawn_local(|| ());
        let ended_id = ended.id();
        let unstarted = spawn_local(|| ());
        assert_eq!(
            backtrace(unstarted.id(), PATIENCE),
            Err(BacktraceError::NotStarted)
        );
        assert_eq!(backtrace(me, PATIENCE), Err(BacktraceError::Running));
        ended.join().unwrap();
        assert_eq!(backtrace(ended_id, PATIENCE), Err(BacktraceError::NotFound));
        assert_eq!(backtrace(u64::MAX, PATIENCE), Err(BacktraceError::NotFound));
        let messages: Vec<_> = [
            BacktraceError::NotStarted,
            BacktraceError::Running,
            BacktraceError::NotFound,
            BacktraceError::NoAnswer,
            BacktraceError::Cancelled,
            BacktraceError::State,
        ]
        .map(|error| error.to_string())
        .into();
        assert!(messages.is_sorted_by(|one, other| one != other));
    });
}

// contract: O4
#[test]
fn a_walk_changes_nothing() {
    run(|| {
        let steps = Rc::new(Cell::new(0));
        let parked = spawn_local({
            let steps = steps.clone();
            move || {
                for _ in 0..3 {
                    steps.set(steps.get() + 1);
                    park().unwrap();
                }
            }
        });
        yield_now().unwrap();
        for round in 1..=3 {
            let before = find(parked.id()).unwrap();
            let traces: Vec<_> = (0..10).map(|_| of(parked.id())).collect();
            assert!(traces.windows(2).all(|two| two[0] == two[1]));
            let after = find(parked.id()).unwrap();
            assert_eq!((before.state, before.wait), (after.state, after.wait));
            assert_eq!(before.stack_used_bytes, after.stack_used_bytes);
            assert_eq!((after.state, steps.get()), (State::Suspended, round));
            parked.unparker().unpark();
            yield_now().unwrap();
        }
        parked.join().unwrap();
    });
}

/// A scheduler on a thread of its own, with one parked coroutine; it spins while it is told to.
struct Elsewhere {
    spin: Arc<AtomicBool>,
    spins: Arc<AtomicBool>,
    parked: u64,
    handle: SchedulerHandle,
    thread: std::thread::JoinHandle<()>,
}

impl Elsewhere {
    fn new() -> Self {
        let (spin, spins) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicBool::new(false)),
        );
        let (tell, told) = mpsc::channel();
        let thread = std::thread::spawn({
            let (spin, spins) = (spin.clone(), spins.clone());
            move || {
                run(move || {
                    let parked = spawn_local(|| waits_here(|| _ = park()));
                    yield_now().unwrap();
                    let handle = SchedulerHandle::current().unwrap();
                    tell.send((parked.id(), handle)).unwrap();
                    while find(parked.id()).is_some() {
                        spins.store(spin.load(Relaxed), Relaxed);
                        if !spin.load(Relaxed) {
                            yield_now().unwrap();
                        }
                    }
                });
            }
        });
        let (parked, handle) = told.recv().unwrap();
        Self {
            spin,
            spins,
            parked,
            handle,
            thread,
        }
    }

    fn spin(&self, spin: bool) {
        self.spin.store(spin, Relaxed);
        while self.spins.load(Relaxed) != spin {
            std::thread::yield_now();
        }
    }

    fn end(self) {
        let cancel = move || sinew::cancel_id(self.parked, "end").unwrap();
        assert!(self.handle.post(cancel).is_ok());
        self.thread.join().unwrap();
    }
}

// contract: O4
#[test]
fn another_threads_coroutine_is_walked_by_that_thread() {
    let elsewhere = Elsewhere::new();
    let trace = of(elsewhere.parked);
    assert!(trace.is_whole());
    place(&trace, "waits_here");
    run({
        let id = elsewhere.parked;
        move || assert_eq!(of(id), trace, "a coroutine can ask as well as a thread")
    });
    elsewhere.end();
}

// contract: O4
#[test]
fn a_thread_that_is_kept_busy_does_not_answer_until_it_is_free() {
    let elsewhere = Elsewhere::new();
    elsewhere.spin(true);
    let short = Duration::from_millis(20);
    assert_eq!(
        backtrace(elsewhere.parked, short),
        Err(BacktraceError::NoAnswer)
    );
    elsewhere.spin(false);
    assert!(of(elsewhere.parked).is_whole());
    elsewhere.end();
}

// contract: O4
#[test]
fn where_nothing_may_wait_only_the_own_threads_coroutines_are_walked() {
    let elsewhere = Elsewhere::new();
    let other = elsewhere.parked;
    run(move || {
        let parked = spawn_local(|| waits_here(|| _ = park()));
        yield_now().unwrap();
        let (id, told) = (parked.id(), Rc::new(Cell::new(0)));
        static SEEN: AtomicU64 = AtomicU64::new(0);
        SchedulerHandle::current()
            .unwrap()
            .post(move || {
                place(&of(id), "waits_here");
                assert_eq!(backtrace(other, PATIENCE), Err(BacktraceError::State));
                SEEN.store(id, Relaxed);
            })
            .unwrap();
        while SEEN.load(Relaxed) != id {
            yield_now().unwrap();
        }
        // Requested before the wait: the own ones are there all the same, for the others it would have to wait.
        let cancelled = spawn_local({
            let told = told.clone();
            move || {
                sinew::cancel_id(sinew::current().unwrap().id(), "for the test").unwrap();
                place(&of(id), "waits_here");
                assert_eq!(backtrace(other, PATIENCE), Err(BacktraceError::Cancelled));
                told.set(1);
            }
        });
        cancelled.join().unwrap();
        assert_eq!(told.get(), 1);
        parked.cancel("end");
    });
    elsewhere.end();
}

// contract: O4
#[test]
fn two_schedulers_that_ask_each_other_both_get_answers() {
    let one = Elsewhere::new();
    let two = Elsewhere::new();
    let threads = [(one.parked, two.parked), (two.parked, one.parked)].map(|(mine, other)| {
        std::thread::spawn(move || {
            run(move || {
                for _ in 0..50 {
                    place(&of(mine), "waits_here");
                    place(&of(other), "waits_here");
                }
            });
        })
    });
    for thread in threads {
        thread.join().unwrap();
    }
    one.end();
    two.end();
}

// contract: O4
#[test]
fn a_scheduler_that_nobody_runs_answers_when_it_is_stepped() {
    Scheduler::anchor(|s| {
        let parked = spawn_local(|| waits_here(|| _ = park()));
        while s.step().unwrap() == sinew::Progress::Made {}
        let id = parked.id();
        let short = Duration::from_millis(20);
        let asker = std::thread::spawn(move || backtrace(id, short));
        assert_eq!(asker.join().unwrap(), Err(BacktraceError::NoAnswer));
        let (tell, told) = mpsc::channel();
        let asker = std::thread::spawn(move || tell.send(backtrace(id, PATIENCE)).unwrap());
        let answer = loop {
            match told.try_recv() {
                Ok(answer) => break answer,
                Err(_) => _ = s.step().unwrap(),
            }
        };
        asker.join().unwrap();
        place(&answer.unwrap(), "waits_here");
        parked.cancel("end");
        s.run().unwrap();
    });
}

// contract: O4
#[test]
fn a_scheduler_that_ends_meanwhile_keeps_nobody_waiting() {
    for _ in 0..200 {
        let (tell, told) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            run(move || {
                let parked = spawn_local(|| waits_here(|| _ = park()));
                yield_now().unwrap();
                tell.send(parked.id()).unwrap();
                parked.cancel("end");
            });
        });
        // With this patience the test would not end, were it waited for.
        match backtrace(told.recv().unwrap(), Duration::from_secs(1_000_000)) {
            Ok(trace) => assert!(trace.is_whole()),
            Err(error) => assert_eq!(error, BacktraceError::NotFound),
        }
        thread.join().unwrap();
    }
}

// contract: O4
#[test]
fn a_stand_alone_coroutine_is_walked_by_its_handle() {
    anchor(|a| {
        let mut c = Coroutine::new(a, |s: &Suspender<(), ()>, ()| {
            waits_here(|| _ = s.suspend(()));
        });
        assert_eq!(c.backtrace(), Err(BacktraceError::NotStarted));
        assert_eq!(c.resume(()).unwrap(), Step::Suspended(()));
        let trace = c.backtrace().unwrap();
        assert!(
            place(&trace, "suspend") < place(&trace, "waits_here"),
            "{trace}"
        );
        assert!(trace.is_whole(), "it ends at its own first frame: {trace}");
        assert!(!trace.to_string().contains("anchor::anchor"), "{trace}");
        assert_eq!(c.resume(()).unwrap(), Step::Done(()));
        assert_eq!(c.backtrace(), Err(BacktraceError::NotFound));

        let mut numbers = Generator::new(a, |y: &Yielder<'_, u32>| {
            waits_here(|| _ = y.suspend(7));
        });
        assert_eq!(numbers.next(), Some(7));
        place(&numbers.backtrace().unwrap(), "waits_here");
        assert_eq!(numbers.next(), None);
    });
}
