//! Files that are none on a disk, options that few use, threads that cannot be had. A program of its own, for the pool is the process's.
#![allow(
    unsafe_code,
    reason = "pseudo-terminals, event descriptors and limits of the process"
)]

mod fs_rig;
mod io_rig;

use std::io::{Read, Seek, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use fs_rig::{Folder, both};
use io_rig::watchdog;
use sinew::event::Event;
use sinew::fs::{self, File, OpenOptions};
use sinew::task::{Outcome, TaskPool};
use sinew::{run, sleep, spawn_local, timeout};

// contract: I6
#[test]
fn a_terminals_end_is_one() {
    let _watchdog = watchdog();
    both(|| {
        // SAFETY: only numbers.
        let number = unsafe { libc::posix_openpt(libc::O_RDWR | libc::O_NOCTTY) };
        assert!(number >= 0, "{}", std::io::Error::last_os_error());
        // SAFETY: new, and nobody else's.
        let mut master = unsafe { std::fs::File::from_raw_fd(number) };
        let mut name = [0; 64];
        // SAFETY: only numbers.
        assert_eq!(unsafe { libc::grantpt(number) }, 0);
        // SAFETY: only numbers.
        assert_eq!(unsafe { libc::unlockpt(number) }, 0);
        // SAFETY: a buffer of this length.
        let named = unsafe { libc::ptsname_r(number, name.as_mut_ptr(), name.len()) };
        assert_eq!(named, 0);
        // SAFETY: ptsname_r(3) has put a string there.
        let name = unsafe { std::ffi::CStr::from_ptr(name.as_ptr()) };
        let options = &mut OpenOptions::new();
        let options = options.read(true).write(true).custom_flags(libc::O_NOCTTY);
        let mut terminal = options.open(name.to_str().unwrap()).unwrap();
        // The second of them ends the input: nothing is before it in the line.
        master.write_all(b"text\x04\x04").unwrap();
        let mut text = String::new();
        let read = timeout(Duration::from_secs(10), || {
            terminal.read_to_string(&mut text)
        });
        assert_eq!(read.unwrap().unwrap(), 4);
        assert_eq!(text, "text");
    });
}

// contract: I6
#[test]
fn an_event_descriptor_takes_no_thread() {
    let _watchdog = watchdog();
    let events: Vec<File> = (0..40)
        .map(|_| {
            // SAFETY: only numbers.
            let number = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
            assert!(number >= 0);
            // SAFETY: new, and nobody else's.
            File::from(unsafe { OwnedFd::from_raw_fd(number) })
        })
        .collect();
    run(|| {
        let writers: Vec<File> = events.iter().map(|one| one.try_clone().unwrap()).collect();
        let wait = |mut event: File| {
            spawn_local(move || {
                let mut count = [0; 8];
                event
                    .read_exact(&mut count)
                    .map(|()| u64::from_ne_bytes(count))
            })
        };
        let waiting: Vec<_> = events.into_iter().map(wait).collect();
        sleep(Duration::from_millis(5)).unwrap();
        let looked = timeout(Duration::from_secs(5), || fs::metadata("/"));
        assert!(looked.unwrap().unwrap().is_dir());
        waiting[0].cancel("enough");
        for (number, mut writer) in writers.iter().enumerate() {
            writer
                .write_all(&(number as u64 + 1).to_ne_bytes())
                .unwrap();
        }
        for (number, waiting) in waiting.into_iter().enumerate() {
            let count = waiting.join().unwrap();
            match number {
                0 => assert!(sinew::is_cancelled(&count.unwrap_err())),
                _ => assert_eq!(count.unwrap(), number as u64 + 1),
            }
        }
    });
}

// contract: I6
#[test]
fn no_offset_means_the_position() {
    let _watchdog = watchdog();
    let folder = Folder::new("offset");
    std::fs::write(folder.join("file"), "0123456789").unwrap();
    both(|| {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(folder.join("file"))
            .unwrap();
        for offset in [u64::MAX, u64::MAX - 1, i64::MAX as u64 + 1] {
            let error = file.read_at(&mut [0; 4], offset).unwrap_err();
            assert_eq!(
                error.raw_os_error().or(Some(libc::EINVAL)),
                Some(libc::EINVAL)
            );
            assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{error}");
            let error = file.write_at(b"x", offset).unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{error}");
        }
        assert_eq!(file.stream_position().unwrap(), 0);
    });
    assert_eq!(std::fs::read(folder.join("file")).unwrap(), b"0123456789");
}

// contract: I6
#[test]
fn a_path_alone_can_be_opened() {
    let _watchdog = watchdog();
    let folder = Folder::new("paths");
    std::fs::write(folder.join("file"), "text").unwrap();
    both(|| {
        for name in ["file", "."] {
            let options = &mut OpenOptions::new();
            let options = options.read(true).custom_flags(libc::O_PATH);
            let mut path = options.open(folder.join(name)).unwrap();
            assert_eq!(path.metadata().unwrap().is_dir(), name == ".");
            let again = format!("/proc/self/fd/{}", path.as_raw_fd());
            assert_eq!(fs::metadata(again).unwrap().is_dir(), name == ".");
            let error = path.read(&mut [0]).unwrap_err();
            assert!(error.to_string().contains("reading"), "{error}");
        }
    });
}

/// Set in a process of its own: the pool and the limits are the process's, and stay.
const ROLE: &str = "SINEW_TEST_ALONE";

/// Runs the test in such a process; false there.
fn is_done_elsewhere(test: &str) -> bool {
    if std::env::var_os(ROLE).is_some() {
        return false;
    }
    let mut again = Command::new(std::env::current_exe().unwrap());
    let output = again
        .args(["--exact", test])
        .env(ROLE, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    true
}

// contract: I6
#[test]
fn fewer_threads_are_made_if_there_cannot_be_all() {
    let _watchdog = watchdog();
    if is_done_elsewhere("fewer_threads_are_made_if_there_cannot_be_all") {
        return;
    }
    run(|| {
        let sizes = std::fs::read_to_string("/proc/self/statm").unwrap();
        let pages: u64 = sizes.split(' ').next().unwrap().parse().unwrap();
        // Room for a few stacks of threads, two mebibytes each, and not for sixteen.
        let limit = pages * 4096 + (12 << 20);
        let limit = libc::rlimit {
            rlim_cur: limit,
            rlim_max: limit,
        };
        // SAFETY: a valid limit.
        let set = unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) };
        assert_eq!(set, 0);
        assert!(fs::metadata("/").unwrap().is_dir());
        let threads = fs::pool_stats().unwrap().threads;
        assert!((1..16).contains(&threads), "{threads}");
    });
}

// contract: I6
#[test]
fn a_scheduler_on_the_pools_only_thread_waits_for_no_other() {
    let _watchdog = watchdog();
    if is_done_elsewhere("a_scheduler_on_the_pools_only_thread_waits_for_no_other") {
        return;
    }
    let pool = TaskPool::builder().threads(1).build().unwrap();
    let go = Arc::new(Event::auto());
    let gone = Arc::clone(&go);
    let task = pool.submit(move |_| {
        gone.wait().unwrap();
        let kinds = run(|| {
            let read = spawn_local(|| fs::read("/proc/self/stat").map(|stat| stat.is_empty()));
            assert!(!read.join().unwrap().unwrap());
            let cancelled = spawn_local(|| {
                sleep(Duration::from_secs(60)).unwrap_err();
                fs::metadata("/").map(|_| ())
            });
            sinew::yield_now().unwrap();
            cancelled.cancel("enough");
            let error = cancelled.join().unwrap().unwrap_err();
            assert!(sinew::is_cancelled(&error), "{error}");
            fs::metadata("/").map(|root| root.is_dir())
        });
        Outcome::Success(kinds.unwrap())
    });
    let task = task.unwrap();
    fs::use_pool(pool).unwrap();
    go.set();
    task.wait_timeout(Duration::from_secs(20)).unwrap();
    assert!(task.get().unwrap().unwrap());
}

#[test]
fn a_closed_pool_is_not_taken() {
    let _watchdog = watchdog();
    if is_done_elsewhere("a_closed_pool_is_not_taken") {
        return;
    }
    let pool = TaskPool::builder().threads(1).build().unwrap();
    assert!(pool.close());
    assert!(fs::use_pool(pool).is_err());
    assert!(run(|| fs::metadata("/")).unwrap().is_dir());
}

// contract: I6
#[test]
fn a_file_goes_while_a_thread_works_on_it() {
    let _watchdog = watchdog();
    let folder = Folder::new("gone");
    let bytes = fs_rig::pattern(3 << 20);
    for round in 0..100_u64 {
        let path = folder.join("file");
        let (target, text) = (path.clone(), bytes.clone());
        let count = run(move || {
            let writing = spawn_local(move || {
                let mut file = File::create(target)?;
                let result = file.write_all(&text);
                // It has what is left of the calls that were begun.
                let mut file = file.into_std()?;
                let at = file.stream_position()?;
                assert!(result.is_err() || at == text.len() as u64);
                Ok::<_, std::io::Error>(at)
            });
            sleep(Duration::from_micros(round * 20)).unwrap();
            if round % 2 == 0 {
                writing.cancel("enough");
                return writing.join().ok()?.ok();
            }
            // The end of the scheduler unwinds it by force.
            None
        });
        let written = std::fs::read(&path).unwrap_or_default();
        if let Some(count) = count {
            assert_eq!(written.len() as u64, count, "round {round}");
        }
        assert!(bytes.starts_with(&written));
    }
}
