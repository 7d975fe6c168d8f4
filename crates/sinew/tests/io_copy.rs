//! Copies between streams, files and pipes: by a buffer, and beyond a mebibyte by the kernel alone.

mod fs_rig;
mod io_rig;

use std::io::{self, ErrorKind, Read, Write};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use fs_rig::{Folder, both};
use io_rig::{tcp_pair, watchdog};
use sinew::fs::File;
use sinew::io::{copy, pipe};
use sinew::net::{TcpStream, UnixStream};
use sinew::{run, spawn_local};

/// Enough to go on by the kernel, and no round number.
const BYTES: usize = (5 << 20) + 123;

/// So many bytes that do not repeat soon.
fn pattern(len: usize) -> &'static [u8] {
    static PATTERN: OnceLock<Vec<u8>> = OnceLock::new();
    &PATTERN.get_or_init(|| fs_rig::pattern(BYTES))[..len]
}

/// Sends the pattern on a thread of its own.
fn feed(mut to: impl Write + Send + 'static) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || to.write_all(pattern(BYTES)).unwrap())
}

/// Reads to the end on a thread of its own.
fn fetch(mut from: impl Read + Send + 'static) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).unwrap();
        bytes
    })
}

/// One test at a time: they count the process's descriptors.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

// contract: I2
// contract: I11
#[test]
fn between_all_kinds() {
    let (_watchdog, _alone) = (watchdog(), alone());
    both(|| {
        let check =
            |what: &str, copied: io::Result<u64>, fetched: std::thread::JoinHandle<Vec<u8>>| {
                assert_eq!(copied.unwrap(), BYTES as u64, "{what}");
                assert!(fetched.join().unwrap() == pattern(BYTES), "{what}");
            };
        let ((a, mut b), (mut c, d)) = (tcp_pair(), tcp_pair());
        let (fed, fetched) = (feed(a), fetch(d));
        let copied = copy(&mut b, &mut c);
        drop(c);
        fed.join().unwrap();
        check("socket to socket", copied, fetched);

        let ((a, b), (c, d)) = (UnixStream::pair().unwrap(), UnixStream::pair().unwrap());
        let (fed, fetched) = (feed(a), fetch(d));
        let ((mut from, _), (_from, mut to)) = (b.into_split(), c.into_split());
        let copied = copy(&mut from, &mut to);
        drop((to, _from));
        fed.join().unwrap();
        check("half to half", copied, fetched);

        let ((a, b), (to, from)) = (tcp_pair(), pipe().map(|(from, to)| (to, from)).unwrap());
        let (fed, fetched) = (feed(a), fetch(from));
        let copied = copy(&mut &b, &mut &to);
        drop(to);
        fed.join().unwrap();
        check("socket to pipe, shared", copied, fetched);

        let ((mut from, to), (mut c, d)) = (pipe().unwrap(), tcp_pair());
        let (fed, fetched) = (feed(to), fetch(d));
        let copied = copy(&mut from, &mut c);
        drop(c);
        fed.join().unwrap();
        check("pipe to socket", copied, fetched);

        let ((mut from, to), (far, mut near)) = (pipe().unwrap(), pipe().unwrap());
        let (fed, fetched) = (feed(to), fetch(far));
        let copied = copy(&mut from, &mut near);
        drop(near);
        fed.join().unwrap();
        check("pipe to pipe", copied, fetched);

        let folder = Folder::new("copies");
        let path = folder.join("file");
        std::fs::write(&path, pattern(BYTES)).unwrap();
        let (mut c, d) = tcp_pair();
        let fetched = fetch(d);
        let copied = copy(&mut File::open(&path).unwrap(), &mut c);
        drop(c);
        check("file to socket", copied, fetched);

        let copied = copy(
            &mut File::open(&path).unwrap(),
            &mut File::create(folder.join("to")).unwrap(),
        );
        let bytes = std::fs::read(folder.join("to")).unwrap();
        check("file to file", copied, std::thread::spawn(|| bytes));
    });
}

// contract: I2
#[test]
fn a_wrapper_is_not_passed_by() {
    let (_watchdog, _alone) = (watchdog(), alone());
    run(|| {
        let ((a, b), (c, d)) = (tcp_pair(), tcp_pair());
        let (fed, fetched) = (feed(a), fetch(d));
        let most = (3 << 20) + 1;
        assert_eq!(copy(&mut (&b).take(most), &mut &c).unwrap(), most);
        let mut rest = Vec::new();
        (&b).read_to_end(&mut rest).unwrap();
        fed.join().unwrap();
        drop(c);
        assert!(fetched.join().unwrap() == *pattern(most as usize));
        assert!(rest == pattern(BYTES)[most as usize..]);
    });
}

// contract: I2
#[test]
fn both_directions_at_the_same_time_between_slow_ends() {
    let (_watchdog, _alone) = (watchdog(), alone());
    run(|| {
        let ((a, b), (c, d)) = (tcp_pair(), tcp_pair());
        let proxy = |from: &TcpStream, to: &TcpStream| {
            let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
            spawn_local(move || {
                let copied = copy(&mut from, &mut to);
                to.shutdown(std::net::Shutdown::Write).unwrap();
                copied.unwrap()
            })
        };
        let proxies = [proxy(&b, &c), proxy(&c, &b)];
        let talk = |stream: TcpStream| {
            let (mut from, mut to) = stream.into_split();
            let sending = spawn_local(move || to.write_all(pattern(BYTES)).unwrap());
            let mut received = Vec::new();
            let mut part = vec![0; 77_777];
            loop {
                match from.read(&mut part).unwrap() {
                    0 => break,
                    len => received.extend_from_slice(&part[..len]),
                }
                sinew::yield_now().unwrap();
            }
            sending.join().unwrap();
            received
        };
        let other = spawn_local(move || talk(d));
        assert!(talk(a) == pattern(BYTES));
        assert!(other.join().unwrap() == pattern(BYTES));
        for copied in proxies {
            assert_eq!(copied.join().unwrap(), BYTES as u64);
        }
    });
}

// contract: I1
// contract: S12
#[test]
fn limits_cancels_and_ends_are_told() {
    let (_watchdog, _alone) = (watchdog(), alone());
    run(|| {
        let before = open_descriptors();
        {
            // The source falls silent after a part.
            let ((mut a, b), (c, d)) = (tcp_pair(), tcp_pair());
            let fetching = spawn_local(move || {
                let mut bytes = Vec::new();
                (&d).read_to_end(&mut bytes).unwrap();
                bytes.len()
            });
            let sending = spawn_local(move || a.write_all(pattern(2 << 20)).map(|()| a));
            b.set_read_timeout(Some(Duration::from_millis(200)))
                .unwrap();
            let error = copy(&mut &b, &mut &c).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TimedOut);
            let a = sending.join().unwrap().unwrap();
            // A cancel.
            b.set_read_timeout(None).unwrap();
            let copying = spawn_local(move || copy(&mut &b, &mut &c));
            sinew::yield_now().unwrap();
            copying.cancel("enough");
            assert!(sinew::is_cancelled(&copying.join().unwrap().unwrap_err()));
            // All that came before was passed on.
            assert_eq!(fetching.join().unwrap(), 2 << 20);
            drop(a);
        }
        {
            // The target is gone.
            let ((a, b), (c, d)) = (tcp_pair(), tcp_pair());
            let sending = spawn_local(move || while (&a).write_all(&[7; 9_999]).is_ok() {});
            let reading = spawn_local(move || (&d).read_exact(&mut vec![0; 2 << 20]));
            let error = copy(&mut &b, &mut &c).unwrap_err();
            let gone = [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset];
            assert!(gone.contains(&error.kind()), "{error}");
            reading.join().unwrap().unwrap();
            drop(b);
            sending.join().unwrap();
        }
        assert_eq!(open_descriptors(), before);
    });
}

// contract: I4
#[test]
fn a_blocking_duplicate_blocks_no_copy() {
    let (_watchdog, _alone) = (watchdog(), alone());
    run(|| {
        let ((a, b), (c, d)) = (tcp_pair(), tcp_pair());
        sinew::io::set_nonblocking(&b, false).unwrap();
        sinew::io::set_nonblocking(&c, false).unwrap();
        let sending = spawn_local(move || (&a).write_all(pattern(BYTES)).unwrap());
        let fetching = spawn_local(move || {
            let mut bytes = Vec::new();
            (&d).read_to_end(&mut bytes).unwrap();
            bytes
        });
        assert_eq!(copy(&mut &b, &mut &c).unwrap(), BYTES as u64);
        drop(c);
        sending.join().unwrap();
        assert!(fetching.join().unwrap() == pattern(BYTES));
    });
}
