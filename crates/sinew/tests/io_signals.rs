//! Signals that interrupt system calls: nothing is lost, repeated, or reported as interrupted.
#![expect(unsafe_code, reason = "installs a signal handler and sends signals")]

mod io_rig;

use std::io::{Read, Write};
use std::os::unix::thread::JoinHandleExt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc;
use std::time::Duration;

use io_rig::{std_pair, stress, watchdog};
use sinew::net::{TcpStream, UnixStream};
use sinew::{run, spawn_local};

/// How much is transferred: a gibibyte with `SINEW_STRESS=16`.
fn bytes() -> usize {
    stress() * (64 << 20)
}

static CAUGHT: AtomicUsize = AtomicUsize::new(0);

extern "C" fn count(_signal: libc::c_int) {
    CAUGHT.fetch_add(1, Relaxed);
}

/// Installs the handler so that it interrupts system calls.
fn install() {
    let handler: extern "C" fn(libc::c_int) = count;
    // SAFETY: all-zero is a valid sigaction.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as usize;
    // SAFETY: the handler only adds to an atomic.
    let result = unsafe { libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()) };
    assert_eq!(result, 0);
}

/// Runs `f` on a thread that gets a signal every millisecond.
fn under_signals<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> T {
    install();
    let done = Arc::new(AtomicBool::new(false));
    let told = done.clone();
    let (_never, pause) = mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        let value = f();
        told.store(true, Relaxed);
        value
    });
    while !done.load(Relaxed) {
        // SAFETY: the thread is not joined yet, so its handle is good.
        unsafe { libc::pthread_kill(thread.as_pthread_t(), libc::SIGUSR1) };
        // Nobody sends: this paces the signals.
        let _paced = pause.recv_timeout(Duration::from_millis(1)).is_err();
    }
    thread.join().unwrap()
}

/// A stream of bytes that is easy to make and never repeats soon.
struct Pattern(u64);

impl Pattern {
    fn fill(&mut self, buffer: &mut [u8]) {
        for byte in buffer {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            *byte = (self.0 >> 56) as u8;
        }
    }
}

fn checksum(sum: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(sum, |sum, &byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

fn send(mut stream: impl Write) -> u64 {
    let (mut pattern, mut sum) = (Pattern(1), 0);
    let mut buffer = vec![0; 50_000];
    let mut left = bytes();
    while left > 0 {
        let len = left.min(buffer.len());
        pattern.fill(&mut buffer[..len]);
        sum = checksum(sum, &buffer[..len]);
        stream.write_all(&buffer[..len]).unwrap();
        left -= len;
    }
    sum
}

fn receive(mut stream: impl Read) -> u64 {
    let (mut sum, mut total) = (0, 0);
    let mut buffer = vec![0; 70_000];
    loop {
        // Not `read_exact`, which would swallow `Interrupted`.
        let len = stream.read(&mut buffer).unwrap();
        if len == 0 {
            assert_eq!(total, bytes());
            return sum;
        }
        total += len;
        sum = checksum(sum, &buffer[..len]);
    }
}

// contract: I1
#[test]
fn a_transfer_between_coroutines_under_signals() {
    let _watchdog = watchdog();
    let (sent, received) = under_signals(|| {
        run(|| {
            let (a, b) = io_rig::tcp_pair();
            let sending = spawn_local(move || send(a));
            let received = receive(b);
            (sending.join().unwrap(), received)
        })
    });
    assert_eq!(sent, received);
    assert!(CAUGHT.load(Relaxed) > 0);
}

// contract: I1
#[test]
fn a_copy_by_the_kernel_under_signals() {
    let _watchdog = watchdog();
    let ((a, b), (c, d)) = (std_pair(), std_pair());
    let sending = std::thread::spawn(move || send(a));
    let fetching = std::thread::spawn(move || receive(d));
    let copied = under_signals(move || {
        let adopt = |stream| TcpStream::from_std(stream).unwrap();
        run(|| sinew::io::copy(&mut adopt(b), &mut adopt(c)).unwrap())
    });
    assert_eq!(copied, bytes() as u64);
    assert_eq!(sending.join().unwrap(), fetching.join().unwrap());
}

// contract: I1
// contract: I11
#[test]
fn a_plain_thread_waits_under_signals() {
    let _watchdog = watchdog();
    let (a, b) = std_pair();
    let sending = std::thread::spawn(move || send(a));
    let received = under_signals(move || receive(TcpStream::from_std(b).unwrap()));
    assert_eq!(sending.join().unwrap(), received);
}

// contract: I2
#[test]
fn writing_to_a_closed_connection_raises_no_signal() {
    // Rust's start-up ignores SIGPIPE; here it would end the process.
    // SAFETY: the default action involves no code of ours.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    run(|| {
        let (mut a, b) = UnixStream::pair().unwrap();
        drop(b);
        let parts = [std::io::IoSlice::new(b"x")];
        let broken = std::io::ErrorKind::BrokenPipe;
        assert_eq!(a.write(b"x").unwrap_err().kind(), broken);
        assert_eq!(a.write_vectored(&parts).unwrap_err().kind(), broken);
    });
}
