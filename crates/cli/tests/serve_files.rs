//! Files that are slow, and names that lead to what is no file: nobody else waits for the one, nobody at all hears of the other.
#![expect(
    unsafe_code,
    reason = "takes a lease on a file, for which there is no safe call"
)]

mod harness;

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use harness::{Served, pace, pattern};
use rustix::fs::{CWD, FileType, Mode, inotify};
use rustix::io::ReadWriteFlags;

/// One test at a time: one of them counts what the process's pool does.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Hears of everyone who opens what is at a path.
struct Ear(rustix::fd::OwnedFd);

impl Ear {
    fn at(path: &Path) -> Self {
        let ear = inotify::init(inotify::CreateFlags::NONBLOCK).expect("an ear");
        inotify::add_watch(&ear, path, inotify::WatchFlags::OPEN).expect("a watch");
        Self(ear)
    }

    fn has_heard(&self) -> bool {
        let mut buffer = [MaybeUninit::uninit(); 1024];
        inotify::Reader::new(&self.0, &mut buffer).next().is_ok()
    }
}

fn node(path: &Path, kind: FileType, device: u64) -> rustix::io::Result<()> {
    rustix::fs::mknodat(CWD, path, kind, Mode::from_raw_mode(0o600), device)
}

/// Asks for `name` in all ways that look at it.
fn ask_for(served: &Served, name: &str) {
    for _ in 0..3 {
        for target in [
            format!("/{name}"),
            format!("/to_{name}"),
            format!("/{name}/"),
        ] {
            assert_eq!(served.get(&target, "").status, 404, "{target}");
        }
        let listing = served.get("/", "");
        assert!(!String::from_utf8_lossy(&listing.body).contains(name));
    }
}

#[test]
fn a_file_is_opened_and_heard_of() {
    let _alone = alone();
    // Otherwise the silence in the other tests says nothing.
    let served = Served::new();
    let path = served.folder.path().join("served/heard");
    fs::write(&path, "text").expect("a file");
    let ear = Ear::at(&path);
    assert!(!ear.has_heard());
    assert_eq!(served.get("/heard", "").body, b"text");
    assert!(ear.has_heard());
}

#[test]
fn the_writer_of_a_fifo_hears_nothing() {
    let _alone = alone();
    for follow in [false, true] {
        let served = Served::with(|config| (config.listing, config.follow) = (true, follow));
        let folder = served.folder.path().join("served");
        // It leads nowhere, and would be the answer for the folder.
        let _none = fs::remove_file(folder.join("index.html"));
        let path = folder.join("fifo");
        node(&path, FileType::Fifo, 0).expect("a FIFO");
        symlink("fifo", folder.join("to_fifo")).expect("a link");
        let ear = Ear::at(&path);
        ask_for(&served, "fifo");
        assert!(!ear.has_heard());
        let writer = {
            let path = path.clone();
            // Waits for a reader in open(2).
            thread::spawn(move || {
                OpenOptions::new()
                    .write(true)
                    .open(path)?
                    .write_all(b"line")
            })
        };
        ask_for(&served, "fifo");
        assert!(!writer.is_finished());
        let mut text = String::new();
        let mut reader = File::open(&path).expect("the one reader");
        reader.read_to_string(&mut text).expect("reads");
        writer.join().expect("no panic").expect("was not disturbed");
        assert_eq!(text, "line");
    }
}

#[test]
fn devices_and_sockets_are_not_opened() {
    let _alone = alone();
    for follow in [false, true] {
        let served = Served::with(|config| (config.listing, config.follow) = (true, follow));
        let folder = served.folder.path().join("served");
        let _none = fs::remove_file(folder.join("index.html"));
        let path = folder.join("device");
        symlink("device", folder.join("to_device")).expect("a link");
        let null = rustix::fs::makedev(1, 3);
        if let Err(error) = node(&path, FileType::CharacterDevice, null) {
            println!("skipped: no device can be made here: {error}");
            return;
        }
        let ear = Ear::at(&path);
        ask_for(&served, "device");
        assert!(!ear.has_heard());
        // As this would be.
        drop(File::open(&path).map_err(|_no_devices_here| ()));
        assert!(ear.has_heard() || File::open(&path).is_err());
    }
}

/// Has the next open(2) of the file wait until the lease is given back.
fn lease(file: &File, kind: i32) -> std::io::Result<()> {
    // SAFETY: the descriptor is open, and the call has no pointer.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, kind) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

#[test]
fn nobody_waits_for_a_file_that_opens_slowly() {
    let _alone = alone();
    let served = Served::new();
    let path = served.folder.path().join("served/slow");
    fs::write(&path, "slow").expect("a file");
    let asked_back = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(libc::SIGIO, Arc::clone(&asked_back)).expect("a flag");
    let file = OpenOptions::new().write(true).open(&path).expect("opens");
    if let Err(error) = lease(&file, libc::F_WRLCK) {
        println!("skipped: there are no leases here: {error}");
        return;
    }
    let mut waiting: Vec<_> = (0..4).map(|_| served.connect()).collect();
    for client in &mut waiting {
        // The first of the two is not held up either.
        let first = b"GET /ten.txt HTTP/1.1\r\nHost: a\r\n\r\n".as_slice();
        let second = b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n".as_slice();
        client.send(&[first, second].concat());
        assert_eq!(client.response(false).status, 200);
    }
    // The kernel asks for the lease once somebody is opening.
    while !asked_back.load(Ordering::Acquire) {
        pace();
    }
    for _ in 0..20 {
        assert_eq!(served.get("/ten.txt", "").status, 200);
    }
    // All of that was before the kernel lost its patience with the lease.
    for client in &waiting {
        client.stream.set_nonblocking(true).expect("sets");
        let peeked = client.stream.peek(&mut [0]).map_err(|error| error.kind());
        assert_eq!(peeked, Err(ErrorKind::WouldBlock));
        client.stream.set_nonblocking(false).expect("sets");
    }
    lease(&file, libc::F_UNLCK).expect("gives it back");
    for client in &mut waiting {
        assert_eq!(client.response(false).body, b"slow");
    }
}

/// Throws a file out of the kernel's cache; `false` if it stays.
fn chill(path: &Path) -> bool {
    let file = File::open(path).expect("opens");
    file.sync_all().expect("is written");
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("advises");
    let mut buffer = [0];
    let slices = &mut [IoSliceMut::new(&mut buffer)];
    rustix::io::preadv2(&file, slices, 0, ReadWriteFlags::NOWAIT).is_err()
}

fn pool_calls() -> u64 {
    let stats = sinew::fs::pool_stats();
    stats.map_or(0, |stats| stats.submitted)
}

#[test]
fn what_is_not_cached_is_read_elsewhere() {
    let _alone = alone();
    let served = Served::new();
    let path = served.folder.path().join("served/cold");
    let body = pattern(300_000);
    fs::write(&path, &body).expect("a file");
    // It is kept from now on: what follows is the reading alone.
    assert!(served.get("/cold", "").body == body);
    if !chill(&path) {
        println!("skipped: this file system keeps everything in memory");
        return;
    }
    let before = pool_calls();
    assert!(served.get("/cold", "").body == body);
    assert!(pool_calls() > before);
}

#[test]
fn a_name_is_what_it_leads_to_now() {
    let _alone = alone();
    let served = Served::new();
    let folder = served.folder.path().join("served");
    let ask = |target: &str| {
        let response = served.get(target, "");
        (response.status, response.body)
    };
    fs::write(folder.join("one"), "one").expect("a file");
    fs::write(folder.join("two"), "two!").expect("a file");
    symlink("one", folder.join("link")).expect("a link");
    assert_eq!(ask("/link"), (200, b"one".to_vec()));
    fs::remove_file(folder.join("link")).expect("removes");
    assert_eq!(ask("/link").0, 404);
    symlink("two", folder.join("link")).expect("a link");
    assert_eq!(ask("/link"), (200, b"two!".to_vec()));
    // In the same version, as the clock's tick may have it: what is there is read all the same.
    for text in ["xxxx", "yyyy", "zzzz"] {
        let mut file = OpenOptions::new().write(true).open(folder.join("two"));
        file.as_mut()
            .expect("opens")
            .write_all(text.as_bytes())
            .expect("writes");
        assert_eq!(ask("/link"), (200, text.as_bytes().to_vec()));
    }
    fs::rename(folder.join("one"), folder.join("two")).expect("renames");
    assert_eq!(ask("/link"), (200, b"one".to_vec()));
}

#[test]
fn no_more_descriptors_are_held_than_are_kept() {
    let _alone = alone();
    let served = Served::new();
    let folder = served.folder.path().join("served");
    for number in 0..3_000 {
        fs::write(folder.join(format!("{number}")), format!("{number}")).expect("a file");
    }
    let mut client = served.connect();
    for number in 0..3_000 {
        client.send(format!("GET /{number} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
        assert_eq!(client.response(false).body, format!("{number}").as_bytes());
    }
    let open = fs::read_dir("/proc/self/fd")
        .expect("is there")
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    let held = open.filter(|path| path.starts_with(&folder)).count();
    assert!((1..=1_025).contains(&held), "{held}");
}
