//! Signals as events. In a process of its own: it sends signals to itself.
#![expect(unsafe_code, reason = "sends signals and looks at handlers")]

mod io_rig;

use std::io::ErrorKind;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use io_rig::{stress, watchdog};
use sinew::event::{EventId, EventTable};
use sinew::{WaitError, run, select, signal, spawn_local, yield_now};

const IMPOSSIBLE: [i32; 7] = [
    0,
    -1,
    65,
    i32::MAX,
    libc::SIGKILL,
    libc::SIGSTOP,
    libc::SIGSEGV,
];

/// Handlers belong to the process: one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sends a signal to this thread; its handler has run when this returns.
fn raise(signal: i32) {
    // SAFETY: no preconditions.
    let raised = unsafe { libc::raise(signal) };
    assert_eq!(raised, 0);
}

fn handler_of(signal: i32) -> libc::sighandler_t {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: it is asked only, and writes the action.
    let asked = unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) };
    assert_eq!(asked, 0);
    // SAFETY: written.
    unsafe { action.assume_init() }.sa_sigaction
}

static NOTED: AtomicUsize = AtomicUsize::new(0);

extern "C" fn note(_: libc::c_int) {
    NOTED.fetch_add(1, SeqCst);
}

fn install(signal: i32, handler: libc::sighandler_t) {
    // SAFETY: a handler of the right type that increments an atomic, or the default.
    let before = unsafe { libc::signal(signal, handler) };
    assert_ne!(before, libc::SIG_ERR);
}

fn note_handler() -> libc::sighandler_t {
    let handler: extern "C" fn(libc::c_int) = note;
    handler as libc::sighandler_t
}

/// Until something that another thread does is done.
fn until(mut done: impl FnMut() -> bool) {
    while !done() {
        std::thread::yield_now();
    }
}

// contract: E9
#[test]
fn a_signal_sets_its_events_and_is_kept_for_who_comes_later() {
    let (_watchdog, _alone) = (watchdog(), alone());
    let one = signal::event(libc::SIGUSR1).unwrap();
    let two = signal::event(libc::SIGUSR1).unwrap();
    assert_eq!(one.signal(), libc::SIGUSR1);
    assert!(!one.try_wait());
    raise(libc::SIGUSR1);
    // A plain thread and a coroutine.
    one.wait().unwrap();
    run(move || {
        two.wait().unwrap();
        let waiting = spawn_local(move || {
            two.wait().unwrap();
            two
        });
        yield_now().unwrap();
        assert!(!waiting.is_finished());
        raise(libc::SIGUSR1);
        let two = waiting.join().unwrap();
        let short = two.wait_timeout(Duration::from_millis(1));
        assert_eq!(short, Err(WaitError::Timeout), "one signal is one wake");
        raise(libc::SIGUSR1);
        let chosen = select! {
            result = two.wait() => result,
            _ = after(Duration::from_secs(60)) => Err(WaitError::Timeout),
        };
        assert_eq!(chosen, Ok(Ok(())));
    });
}

// contract: E9
#[test]
fn the_previous_disposition_comes_back_with_the_last_that_leaves() {
    let (_watchdog, _alone) = (watchdog(), alone());
    install(libc::SIGUSR2, note_handler());
    let noted = NOTED.load(SeqCst);
    let one = signal::event(libc::SIGUSR2).unwrap();
    let two = signal::event(libc::SIGUSR2).unwrap();
    let ours = handler_of(libc::SIGUSR2);
    assert_ne!(ours, note_handler());
    drop(one);
    assert_eq!(
        handler_of(libc::SIGUSR2),
        ours,
        "somebody still hears of it"
    );
    raise(libc::SIGUSR2);
    two.wait().unwrap();
    assert_eq!(NOTED.load(SeqCst), noted);
    drop(two);
    assert_eq!(handler_of(libc::SIGUSR2), note_handler());
    raise(libc::SIGUSR2);
    assert_eq!(NOTED.load(SeqCst), noted + 1);

    // Whoever has come in between stays.
    install(libc::SIGUSR2, libc::SIG_DFL);
    let event = signal::event(libc::SIGUSR2).unwrap();
    install(libc::SIGUSR2, note_handler());
    drop(event);
    assert_eq!(handler_of(libc::SIGUSR2), note_handler());
    install(libc::SIGUSR2, libc::SIG_DFL);
}

// contract: E9
#[test]
fn what_is_impossible_is_refused() {
    let (_watchdog, _alone) = (watchdog(), alone());
    static EVENTS: EventTable<i32> = EventTable::new(4);
    let id = EVENTS
        .create(None, |_, _| {})
        .unwrap_or_else(|_| panic!("no event"));
    for number in IMPOSSIBLE {
        let error = signal::event(number).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{number}");
        assert!(error.to_string().contains(&number.to_string()), "{error}");
        let error = signal::bind(number, &EVENTS, id).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{number}");
        assert_eq!(signal::bound(number), None);
        let error = signal::unbind(number).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{number}");
    }
    let before = handler_of(libc::SIGUSR1);
    let error = signal::bind(libc::SIGUSR1, &EVENTS, EventId(3)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert_eq!(handler_of(libc::SIGUSR1), before, "nothing has changed");
    assert_eq!(signal::bound(libc::SIGUSR1), None);
    let error = signal::unbind(libc::SIGUSR1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    // What failed leaves a binding as it was.
    assert_eq!(signal::bind(libc::SIGUSR1, &EVENTS, id).unwrap(), None);
    signal::bind(libc::SIGUSR1, &EVENTS, EventId(3)).unwrap_err();
    assert_eq!(signal::bound(libc::SIGUSR1), Some(id));
    assert_eq!(signal::unbind(libc::SIGUSR1).unwrap(), id);
    assert_eq!(signal::bound(libc::SIGUSR1), None);
    assert_eq!(handler_of(libc::SIGUSR1), before);
}

// contract: E9
#[test]
fn a_signal_triggers_its_numbered_event() {
    let (_watchdog, _alone) = (watchdog(), alone());
    let events = Arc::new(EventTable::<i32>::new(4));
    let called = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&called);
    let id = events
        .create(None, move |_, signal| {
            assert_eq!(*signal, libc::SIGUSR1);
            counted.fetch_add(1, SeqCst);
            // A wait fails there, and a panic harms nobody.
            assert_eq!(yield_now(), Err(WaitError::State));
            assert!(counted.load(SeqCst) != 2, "the second call");
        })
        .unwrap_or_else(|_| panic!("no event"));
    signal::bind(libc::SIGUSR1, Arc::clone(&events), id).unwrap();
    let waited = Arc::clone(&events);
    run(move || {
        let waiting = spawn_local(move || waited.wait(id).unwrap());
        yield_now().unwrap();
        raise(libc::SIGUSR1);
        assert_eq!(waiting.join().unwrap(), libc::SIGUSR1);
    });
    for calls in 2..4 {
        raise(libc::SIGUSR1);
        until(|| called.load(SeqCst) == calls);
    }
    // Without the event the signal goes to nobody, and stays bound.
    events.remove(id).unwrap();
    raise(libc::SIGUSR1);
    assert_eq!(signal::bound(libc::SIGUSR1), Some(id));
    signal::unbind(libc::SIGUSR1).unwrap();
    assert_eq!(called.load(SeqCst), 3);
    until(|| Arc::strong_count(&events) == 1);
}

/// Each signal reaches the old or the new event while they change, and as the last one leaves.
// contract: E9
#[test]
fn none_is_lost_between_two_subscriptions() {
    let (_watchdog, _alone) = (watchdog(), alone());
    static EVENTS: EventTable<i32> = EventTable::new(4);
    static HEARD: AtomicUsize = AtomicUsize::new(0);
    let count = || {
        let counting = |_: EventId, _: &i32| {
            HEARD.fetch_add(1, SeqCst);
        };
        let id = EVENTS.create(None, counting);
        id.unwrap_or_else(|_| panic!("no event"))
    };
    let ids = [count(), count()];
    signal::bind(libc::SIGUSR1, &EVENTS, ids[0]).unwrap();
    let ends = AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| {
            for turn in 1.. {
                if ends.load(SeqCst) {
                    break;
                }
                let before = signal::bind(libc::SIGUSR1, &EVENTS, ids[turn % 2]).unwrap();
                assert_eq!(before, Some(ids[(turn + 1) % 2]));
            }
        });
        for _ in 0..2000 * stress() {
            // Both hear of it if both are subscribed when it comes.
            let before = HEARD.load(SeqCst);
            raise(libc::SIGUSR1);
            until(|| HEARD.load(SeqCst) > before);
        }
        ends.store(true, SeqCst);
    });
    signal::unbind(libc::SIGUSR1).unwrap();
    install(libc::SIGUSR1, note_handler());
    for _ in 0..2000 * stress() {
        signal::bind(libc::SIGUSR1, &EVENTS, ids[0]).unwrap();
        let (before, noted) = (HEARD.load(SeqCst), NOTED.load(SeqCst));
        raise(libc::SIGUSR1);
        signal::unbind(libc::SIGUSR1).unwrap();
        until(|| HEARD.load(SeqCst) == before + 1);
        assert_eq!(NOTED.load(SeqCst), noted, "it came while it was bound");
    }
    install(libc::SIGUSR1, libc::SIG_DFL);
}

/// The handler interrupts allocation, switches and system calls, on coroutine stacks.
// contract: E9
#[test]
fn a_storm_of_signals_disturbs_nothing() {
    let (_watchdog, _alone) = (watchdog(), alone());
    let event = signal::event(libc::SIGUSR1).unwrap();
    let (sent, ends) = (AtomicUsize::new(0), AtomicBool::new(false));
    // SAFETY: no preconditions.
    let target = unsafe { libc::pthread_self() };
    std::thread::scope(|s| {
        s.spawn(|| {
            while !ends.load(SeqCst) {
                // SAFETY: the thread waits for this one.
                let sent_now = unsafe { libc::pthread_kill(target, libc::SIGUSR1) };
                assert_eq!(sent_now, 0);
                sent.fetch_add(1, SeqCst);
            }
        });
        run(|| {
            let workers: Vec<_> = (0..8)
                .map(|number: usize| {
                    spawn_local(move || {
                        let (mut sum, rounds) = (0, 2000 * stress());
                        for round in 0..rounds {
                            sum += vec![number; round % 100].len();
                            yield_now().unwrap();
                        }
                        (sum, rounds)
                    })
                })
                .collect();
            for worker in workers {
                let (sum, rounds) = worker.join().unwrap();
                assert_eq!(sum, (0..rounds).map(|round| round % 100).sum());
            }
        });
        ends.store(true, SeqCst);
    });
    assert!(sent.into_inner() > 100);
    event.wait().unwrap();
}

// contract: E9
#[test]
fn an_interrupt_is_taken_for_the_length_of_the_call() {
    let (_watchdog, _alone) = (watchdog(), alone());
    install(libc::SIGINT, note_handler());
    let noted = NOTED.load(SeqCst);
    run(|| {
        let waiting = spawn_local(signal::ctrl_c);
        yield_now().unwrap();
        raise(libc::SIGINT);
        waiting.join().unwrap().unwrap();
        let cancelled = spawn_local(signal::ctrl_c);
        yield_now().unwrap();
        assert_ne!(handler_of(libc::SIGINT), note_handler());
        cancelled.cancel("enough");
        assert!(sinew::is_cancelled(&cancelled.join().unwrap().unwrap_err()));
    });
    assert_eq!(NOTED.load(SeqCst), noted);
    raise(libc::SIGINT);
    assert_eq!(NOTED.load(SeqCst), noted + 1);
    install(libc::SIGINT, libc::SIG_DFL);
}

/// A table's handle whose drop asks for a signal.
struct Asks(i32);

impl std::ops::Deref for Asks {
    type Target = EventTable<i32>;

    fn deref(&self) -> &Self::Target {
        static TABLE: EventTable<i32> = EventTable::new(4);
        &TABLE
    }
}

impl Drop for Asks {
    fn drop(&mut self) {
        drop(signal::event(self.0).unwrap());
    }
}

#[test]
fn a_refused_table_may_ask_for_signals_as_it_goes() {
    let (_watchdog, _alone) = (watchdog(), alone());
    let table = Asks(libc::SIGWINCH);
    let id = table.create(None, |_, _| ()).unwrap();
    let error = signal::bind(9_999, table, id).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
}
