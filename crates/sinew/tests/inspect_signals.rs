//! Dumps on signals. In a process of its own: it sends signals to itself.
#![expect(unsafe_code, reason = "sends signals and looks at handlers")]

use std::io;
use std::mem::MaybeUninit;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use sinew::inspect::{dump_on_signal, write_to_stderr};
use sinew::{park, run, spawn_local, yield_now};

const PATIENCE: Duration = Duration::from_secs(60);
const CHILD: &str = "SINEW_TEST_DUMPS_ON_SIGNAL";

/// Handlers belong to the process: one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn send(signal: i32) {
    let me = std::process::id().cast_signed();
    // SAFETY: no preconditions.
    let sent = unsafe { libc::kill(me, signal) };
    assert_eq!(sent, 0);
}

fn handler_of(signal: i32) -> libc::sighandler_t {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: it is asked only, and writes the action.
    let asked = unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) };
    assert_eq!(asked, 0);
    // SAFETY: written.
    unsafe { action.assume_init() }.sa_sigaction
}

static NOTED: AtomicU32 = AtomicU32::new(0);

extern "C" fn note(_: libc::c_int) {
    NOTED.fetch_add(1, Relaxed);
}

fn install(signal: i32, handler: extern "C" fn(libc::c_int)) {
    let handler = handler as libc::sighandler_t;
    // SAFETY: a handler of the right type that increments an atomic.
    let before = unsafe { libc::signal(signal, handler) };
    assert_ne!(before, libc::SIG_ERR);
}

// contract: O4, O5
#[test]
fn a_signal_makes_a_dump_of_all_schedulers_with_backtraces() {
    let _alone = alone();
    let (tell, told) = mpsc::channel();
    let on_signal = dump_on_signal(libc::SIGUSR1, PATIENCE, move |dump| {
        tell.send(dump.clone()).unwrap();
    })
    .unwrap();
    run(move || {
        let parked = spawn_local(park);
        yield_now().unwrap();
        // Without having let it go, many come: they are answered by one more at least, and by no more than were sent.
        send(libc::SIGUSR1);
        let dump = loop {
            match told.try_recv() {
                Ok(dump) => break dump,
                Err(_) => yield_now().unwrap(),
            }
        };
        let group = dump
            .groups()
            .iter()
            .find(|group| group.members().iter().any(|info| info.id == parked.id()))
            .unwrap();
        assert!(group.backtrace().unwrap().is_whole(), "{dump}");
        for _ in 0..5 {
            send(libc::SIGUSR1);
        }
        let mut more = 0;
        while more == 0 {
            more += told.try_iter().count();
            yield_now().unwrap();
        }
        drop(on_signal);
        // The sink goes with the wish, when the last dump is given.
        while let Ok(_) | Err(mpsc::TryRecvError::Empty) = told.try_recv().inspect(|_| more += 1) {
            yield_now().unwrap();
        }
        assert!((1..=5).contains(&more), "{more}");
        parked.cancel("end");
    });
}

// contract: O5
#[test]
fn what_the_signal_did_before_it_does_again() {
    let _alone = alone();
    install(libc::SIGUSR2, note);
    let before = handler_of(libc::SIGUSR2);
    let (tell, told) = mpsc::channel();
    let on_signal =
        dump_on_signal(libc::SIGUSR2, PATIENCE, move |_| tell.send(()).unwrap()).unwrap();
    assert_ne!(handler_of(libc::SIGUSR2), before);
    let second = dump_on_signal(libc::SIGUSR2, PATIENCE, |_| ());
    assert_eq!(second.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    send(libc::SIGUSR2);
    told.recv().unwrap();
    assert_eq!(NOTED.load(Relaxed), 0);
    drop(on_signal);
    assert_eq!(handler_of(libc::SIGUSR2), before);
    send(libc::SIGUSR2);
    while NOTED.load(Relaxed) == 0 {
        std::thread::yield_now();
    }
    // It can be taken again, and one that was replaced meanwhile is left alone.
    let again = dump_on_signal(libc::SIGUSR2, PATIENCE, |_| ()).unwrap();
    install(libc::SIGUSR2, note);
    drop(again);
    assert_eq!(handler_of(libc::SIGUSR2), before);
}

// contract: O5
#[test]
fn signals_that_cannot_be_taken_are_refused() {
    let _alone = alone();
    for signal in [
        -1,
        0,
        65,
        1000,
        i32::MAX,
        libc::SIGKILL,
        libc::SIGSTOP,
        libc::SIGSEGV,
        libc::SIGABRT,
    ] {
        let before = (1..65).contains(&signal).then(|| handler_of(signal));
        let refused = dump_on_signal(signal, PATIENCE, |_| ()).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{signal}");
        assert_eq!(
            (1..65).contains(&signal).then(|| handler_of(signal)),
            before
        );
    }
}

// contract: O5
#[test]
fn a_sink_that_panics_does_no_harm() {
    let _alone = alone();
    let (tell, told) = mpsc::channel();
    let on_signal = dump_on_signal(libc::SIGUSR1, PATIENCE, move |_| {
        tell.send(()).unwrap();
        panic!("a panic that belongs to the test");
    })
    .unwrap();
    for _ in 0..3 {
        send(libc::SIGUSR1);
        told.recv().unwrap();
    }
    drop(on_signal);
}

// contract: O5
#[test]
fn the_text_goes_to_the_standard_error_output_though_a_coroutine_holds_its_lock() {
    if std::env::var_os(CHILD).is_some() {
        run(|| {
            let parked = spawn_local(|| {
                let _held = std::io::stderr().lock();
                park()
            });
            yield_now().unwrap();
            let (tell, told) = mpsc::channel();
            let _on_signal = dump_on_signal(libc::SIGQUIT, PATIENCE, move |dump| {
                write_to_stderr(dump);
                tell.send(()).unwrap();
            })
            .unwrap();
            send(libc::SIGQUIT);
            while told.try_recv().is_err() {
                yield_now().unwrap();
            }
            parked.cancel("end");
        });
        return;
    }
    let name = "the_text_goes_to_the_standard_error_output_though_a_coroutine_holds_its_lock";
    let output = Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("suspended in park"), "{text}");
    assert!(text.contains("inspect_signals.rs:"), "{text}");
}
