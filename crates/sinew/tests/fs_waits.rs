//! Files and the thread that must not block: what waits where, how much of it there can be, and what a cancel finds in each phase. A
//! program of its own, for the pool and the limit of descriptors are the process's.

mod fs_rig;
mod io_rig;

use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fs_rig::{Folder, Leased, leased, pattern};
use io_rig::{skipped, stress, watchdog};
use sinew::fs::{self, File, OpenOptions};
use sinew::task::TaskPool;
use sinew::time::now;
use sinew::{JoinHandle, run, sleep, spawn_local, timeout, yield_now};

const QUEUE_LIMIT: usize = 4;

/// One test at a time, with a pool of one thread and a short queue.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    let guard = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let pool = || TaskPool::builder().threads(1).queue_limit(QUEUE_LIMIT);
    if fs::pool_stats().is_none() {
        fs::use_pool(pool().name("test-fs").build().unwrap()).unwrap();
    }
    let refused = fs::use_pool(pool().build().unwrap()).unwrap_err();
    assert!(!refused.stats().is_closed, "there is one already");
    guard
}

fn stats() -> sinew::task::PoolStats {
    fs::pool_stats().unwrap()
}

/// Lets coroutines and the pool go on until something is the case.
fn until(what: impl Fn() -> bool) {
    while !what() {
        yield_now().unwrap();
        std::thread::yield_now();
    }
}

/// An opening that holds the pool's only thread until the lease is released.
fn hold_up(lease: &Leased) -> JoinHandle<std::io::Result<File>> {
    let path = lease.path.clone();
    let opening = spawn_local(move || File::open(path));
    until(|| lease.is_awaited());
    opening
}

/// Fills the queue; each of these calls makes a file.
fn fill_queue(folder: &Folder) -> Vec<(PathBuf, JoinHandle<std::io::Result<()>>)> {
    let calls = (0..QUEUE_LIMIT).map(|number| {
        let path = folder.join(&format!("queued-{number}"));
        let made = path.clone();
        (path, spawn_local(move || fs::write(made, "")))
    });
    let calls = calls.collect();
    until(|| stats().queued == QUEUE_LIMIT);
    calls
}

// contract: I6
#[test]
fn others_run_while_the_disk_is_waited_for() {
    let _watchdog = watchdog();
    let _alone = alone();
    let folder = Folder::new("others");
    run(|| {
        let lease = leased(&folder, "leased");
        let opening = hold_up(&lease);
        let queued = fill_queue(&folder);
        let more = folder.join("more");
        let waiting = spawn_local(move || fs::write(more, ""));
        for _ in 0..1_000 {
            yield_now().unwrap();
        }
        assert!(!opening.is_finished() && !waiting.is_finished());
        lease.release();
        let mut text = String::new();
        opening
            .join()
            .unwrap()
            .unwrap()
            .read_to_string(&mut text)
            .unwrap();
        assert_eq!(text, "leased");
        for (path, call) in queued {
            call.join().unwrap().unwrap();
            assert!(path.exists());
        }
        waiting.join().unwrap().unwrap();
    });
}

// contract: I6
#[test]
fn nobody_takes_it_for_a_deadlock() {
    let _watchdog = watchdog();
    let _alone = alone();
    let folder = Folder::new("long");
    let lease = leased(&folder, "leased");
    let path = lease.path.clone();
    let (_never, pause) = std::sync::mpsc::channel::<()>();
    let releasing = std::thread::spawn(move || {
        while !lease.is_awaited() {
            std::thread::yield_now();
        }
        // Longer than it takes until a scheduler that sleeps is looked at. Nobody sends.
        let _paused = pause.recv_timeout(Duration::from_millis(100)).is_err();
        lease.release();
    });
    drop(run(|| File::open(path)).unwrap());
    releasing.join().unwrap();
}

// contract: I6
// contract: S12
#[test]
fn a_cancel_in_each_phase() {
    let _watchdog = watchdog();
    let _alone = alone();
    let folder = Folder::new("phases");
    run(|| {
        // Before the call.
        let early = folder.join("early");
        let made = early.clone();
        let call = spawn_local(move || {
            sinew::park().unwrap_err();
            fs::write(made, "")
        });
        yield_now().unwrap();
        call.cancel("early");
        assert!(sinew::is_cancelled(&call.join().unwrap().unwrap_err()));
        let lease = leased(&folder, "leased");
        let begun = hold_up(&lease);
        let queued = fill_queue(&folder);
        // While it waits for room in the queue.
        let late = folder.join("late");
        let made = late.clone();
        let call = spawn_local(move || fs::write(made, ""));
        yield_now().unwrap();
        call.cancel("late");
        assert!(sinew::is_cancelled(&call.join().unwrap().unwrap_err()));
        // While it is queued: at once, though the thread is held up, and never begun.
        let mut files = vec![early, late];
        for (path, call) in queued {
            call.cancel("queued");
            assert!(sinew::is_cancelled(&call.join().unwrap().unwrap_err()));
            files.push(path);
        }
        // When it was begun: it is waited for, and what it came to is told.
        begun.cancel("begun");
        for _ in 0..100 {
            yield_now().unwrap();
        }
        assert!(!begun.is_finished());
        lease.release();
        begun.join().unwrap().unwrap();
        fs::metadata(folder.path()).unwrap();
        assert_eq!(stats().queued, 0);
        assert!(files.iter().all(|path| !path.exists()));
    });
}

// contract: I6
// contract: S12
#[test]
fn a_timeout_in_each_phase() {
    let _watchdog = watchdog();
    let _alone = alone();
    let folder = Folder::new("timeouts");
    run(|| {
        let lease = leased(&folder, "leased");
        let path = lease.path.clone();
        let limit = Duration::from_millis(300);
        let end = now() + limit;
        let begun = spawn_local(move || timeout(limit, || File::open(path)));
        until(|| lease.is_awaited());
        let short = Duration::from_millis(2);
        let queued = folder.join("queued");
        assert!(timeout(short, || fs::write(&queued, "")).is_err());
        until(|| now() > end);
        sleep(short).unwrap();
        assert!(!begun.is_finished());
        lease.release();
        // It came to a file, though late.
        drop(begun.join().unwrap());
        fs::metadata(folder.path()).unwrap();
        assert!(!queued.exists());
    });
}

// contract: I6
#[test]
fn an_unwind_by_force_finds_the_same() {
    let _watchdog = watchdog();
    let _alone = alone();
    let folder = Folder::new("forced");
    run(|| {
        let path = folder.join("file");
        let mut file = File::create_new(&path).unwrap();
        let lease = leased(&folder, "leased");
        let begun = hold_up(&lease);
        // One that is queued is taken back.
        let writing = spawn_local(move || file.write_all(&pattern(1 << 20)));
        until(|| stats().queued == 1);
        sinew::cancel_id_within(writing.id(), "away", Duration::ZERO).unwrap();
        drop(writing.join());
        // One that was begun is waited for: the kernel ends it.
        sinew::cancel_id_within(begun.id(), "away", Duration::ZERO).unwrap();
        for _ in 0..100 {
            yield_now().unwrap();
        }
        assert!(!begun.is_finished());
        lease.release();
        begun.join().unwrap().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"");
    });
}

// contract: I6
#[test]
fn fifos_take_no_thread() {
    let _watchdog = watchdog();
    let _alone = alone();
    let folder = Folder::new("fifos");
    run(|| {
        let fifo = |number: usize| {
            let path = folder.join(&format!("fifo-{number}"));
            let mode = rustix::fs::Mode::from_raw_mode(0o600);
            let kind = rustix::fs::FileType::Fifo;
            rustix::fs::mknodat(rustix::fs::CWD, &path, kind, mode, 0).unwrap();
            path
        };
        let paths: Vec<_> = (0..20).map(fifo).collect();
        let reading: Vec<_> = paths[..10]
            .iter()
            .cloned()
            .map(|path| spawn_local(move || fs::read(path)))
            .collect();
        // To write, which waits for a reader.
        let writing: Vec<_> = paths[10..]
            .iter()
            .cloned()
            .map(|path| spawn_local(move || fs::write(path, pattern(200_000))))
            .collect();
        for number in 0..100 {
            fs::write(folder.join("regular"), number.to_string()).unwrap();
        }
        let mut all = reading.iter().map(|call| call.is_finished());
        assert!(all.by_ref().all(|is_finished| !is_finished));
        assert!(writing.iter().all(|call| !call.is_finished()));
        // A cancel ends both.
        reading[0].cancel("enough");
        writing[0].cancel("enough");
        let mut reading = reading.into_iter();
        let mut writing = writing.into_iter();
        let error = reading.next().unwrap().join().unwrap().unwrap_err();
        assert!(sinew::is_cancelled(&error), "{error}");
        let error = writing.next().unwrap().join().unwrap().unwrap_err();
        assert!(sinew::is_cancelled(&error), "{error}");
        // Neither does one that is copied to.
        let (source, fifo) = (folder.join("regular"), fifo(20));
        let target = fifo.clone();
        let copying = spawn_local(move || fs::copy(source, target));
        fs::metadata(folder.path()).unwrap();
        yield_now().unwrap();
        assert!(!copying.is_finished());
        assert_eq!(fs::read(fifo).unwrap(), b"99");
        assert_eq!(copying.join().unwrap().unwrap(), 2);
        // The others come to their ends when the other sides do.
        for path in &paths[1..10] {
            fs::write(path, pattern(200_000)).unwrap();
        }
        for path in &paths[11..] {
            assert!(fs::read(path).unwrap() == pattern(200_000));
        }
        for call in reading {
            assert!(call.join().unwrap().unwrap() == pattern(200_000));
        }
        for call in writing {
            call.join().unwrap().unwrap();
        }
    });
}

// contract: I6
// contract: I11
#[test]
fn a_limit_holds_on_a_plain_thread_too() {
    let _watchdog = watchdog();
    let _alone = alone();
    let folder = Folder::new("threads");
    let path = folder.join("fifo");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &path, kind, mode, 0).unwrap();
    let short = Duration::from_millis(1);
    let writing = timeout(short, || fs::write(&path, "x").unwrap_err().kind());
    let reading = timeout(short, || fs::read(&path).unwrap_err().kind());
    assert!(writing.is_err() && reading.is_err());
    fs::write(folder.join("file"), "x").unwrap();
    let long = Duration::from_secs(60);
    assert_eq!(
        timeout(long, || fs::read(folder.join("file")))
            .unwrap()
            .unwrap(),
        b"x"
    );
}

// contract: I6
#[test]
fn what_is_cached_is_read_in_place() {
    let _watchdog = watchdog();
    let _alone = alone();
    let folder = Folder::new("cached");
    let path = folder.join("file");
    let bytes = pattern(1 << 20);
    std::fs::write(&path, &bytes).unwrap();
    let probe = std::fs::File::open(&path).unwrap();
    let mut eight = [0; 8];
    let slices = &mut [std::io::IoSliceMut::new(&mut eight)];
    let flags = rustix::io::ReadWriteFlags::NOWAIT;
    if rustix::io::preadv2(&probe, slices, 0, flags) != Ok(8) {
        return skipped("cached reads", "this file system cannot");
    }
    run(|| {
        let mut file = File::open(&path).unwrap();
        let lease = leased(&folder, "leased");
        let begun = hold_up(&lease);
        let before = stats().submitted;
        let mut read = vec![0; bytes.len()];
        file.read_exact(&mut read).unwrap();
        assert!(read == bytes);
        let mut four = [0; 4];
        file.read_exact_at(&mut four, 70_000).unwrap();
        assert_eq!(four, bytes[70_000..70_004]);
        // The pool's only thread was held up all the time.
        assert_eq!(stats().submitted, before);
        lease.release();
        begun.join().unwrap().unwrap();
    });
}

// contract: I6
#[test]
fn out_of_descriptors_and_back() {
    let _watchdog = watchdog();
    let _alone = alone();
    let folder = Folder::new("descriptors");
    run(|| {
        let path = folder.join("file");
        fs::write(&path, "text").unwrap();
        let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        let was = limit.current;
        limit.current = Some(64);
        rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
        let mut files = Vec::new();
        let error = loop {
            match File::open(&path) {
                Ok(file) => files.push(file),
                Err(error) => break error,
            }
        };
        assert!(error.to_string().contains("descriptors"), "{error}");
        assert!(fs::read(&path).is_err());
        assert!(fs::read_dir(folder.path()).is_err());
        assert!(files[0].try_clone().is_err());
        // What needs none goes on, and one that comes back is used.
        assert_eq!(fs::metadata(&path).unwrap().len(), 4);
        files.pop().unwrap().close().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"text");
        limit.current = was;
        rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
    });
}

// contract: I6
// contract: S12
#[test]
fn cancels_at_random_times_lose_nothing() {
    let _watchdog = watchdog();
    let _alone = alone();
    let folder = Folder::new("random");
    let path = folder.join("file");
    run(|| {
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .open(&path)
            .unwrap();
        let file = std::rc::Rc::new(file);
        let (mut written, mut cancelled) = (0, 0);
        for round in 0..100 * stress() {
            let calls: Vec<_> = (0..8_u8)
                .map(|number| {
                    let file = file.clone();
                    spawn_local(move || (&*file).write(&[number; 16]))
                })
                .collect();
            for _ in 0..round % 7 {
                yield_now().unwrap();
            }
            for call in calls.iter().skip(round % 3).step_by(2) {
                call.cancel("some of them");
            }
            for call in calls {
                match call.join() {
                    Ok(Ok(len)) => written += len,
                    Ok(Err(error)) if sinew::is_cancelled(&error) => cancelled += 1,
                    Ok(Err(error)) => panic!("{error}"),
                    // Cancelled before it started.
                    Err(_) => cancelled += 1,
                }
            }
        }
        // What was told is what was done, to the byte.
        assert_eq!(fs::metadata(&path).unwrap().len(), written as u64);
        assert!(written > 0 && cancelled > 0, "{written} {cancelled}");
        assert_eq!(
            fs::read(folder.join("none")).unwrap_err().kind(),
            ErrorKind::NotFound
        );
    });
}
