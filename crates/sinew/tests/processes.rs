//! Child processes, their pipes and their ends.
#![expect(unsafe_code, reason = "sends signals")]

mod io_rig;

use std::io::{ErrorKind, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use io_rig::{raise_descriptor_limit, stress, watchdog};
use sinew::process::{Child, Command, Stdio};
use sinew::time::now;
use sinew::{run, scope, spawn_local, yield_now};

const MOMENT: Duration = Duration::from_millis(1);

/// The children are the process's: one test at a time, for some count them.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// In a coroutine and on a plain thread.
fn both(f: impl Fn()) {
    let (_watchdog, _alone) = (watchdog(), alone());
    f();
    run(f);
}

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

/// One that ends when it is killed, or when its input does.
fn endless() -> Child {
    Command::new("cat").stdin(Stdio::piped()).spawn().unwrap()
}

/// The children of this process that the kernel still knows, running or not.
fn children() -> Vec<String> {
    let me = std::process::id().to_string();
    let entries = std::fs::read_dir("/proc").unwrap();
    let stats = entries.filter_map(|entry| {
        let stat = std::fs::read_to_string(entry.ok()?.path().join("stat")).ok()?;
        // Behind the name, which may hold anything: the state and the parent.
        let rest = stat.rsplit_once(')')?.1.to_owned();
        (rest.split_whitespace().nth(1) == Some(&me)).then_some(stat)
    });
    stats.collect()
}

fn kill(child: &Child, signal: i32) {
    // SAFETY: no preconditions; the child has not been waited for.
    let killed = unsafe { libc::kill(child.id().cast_signed(), signal) };
    assert_eq!(killed, 0);
}

// contract: I9
// contract: I11
#[test]
fn a_child_is_started_and_waited_for() {
    both(|| {
        let mut child = shell("exit 7").spawn().unwrap();
        let status = child.wait().unwrap();
        assert_eq!(status.code(), Some(7));
        assert_eq!(child.wait().unwrap(), status, "again");
        assert_eq!(child.try_wait().unwrap(), Some(status));
        assert!(shell("exit 0").status().unwrap().success());
        let mut child = endless();
        assert_eq!(child.try_wait().unwrap(), None);
        child.kill().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
        child.kill().unwrap();
        // The end of its input comes with the wait.
        assert!(endless().wait().unwrap().success());
        let error = Command::new("/nowhere/to/be/found").spawn().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(
            error.to_string().contains("/nowhere/to/be/found"),
            "{error}"
        );
        assert_eq!(children(), [""; 0]);
    });
}

// contract: I9
// contract: I11
#[test]
fn a_wait_has_a_limit() {
    both(|| {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let input = child.stdin.take();
        for limited in [
            child.wait_timeout(MOMENT),
            child.wait_timeout(Duration::ZERO),
            child.wait_deadline(now() - MOMENT),
            child.wait_deadline(now() + MOMENT),
        ] {
            assert_eq!(limited.unwrap_err().kind(), ErrorKind::TimedOut);
        }
        assert_eq!(child.try_wait().unwrap(), None, "it goes on");
        drop(input);
        assert!(
            child
                .wait_timeout(Duration::from_secs(60))
                .unwrap()
                .success()
        );
        // What is there is not refused by a deadline.
        assert!(child.wait_deadline(now() - MOMENT).unwrap().success());
    });
}

// contract: I9
#[test]
fn others_run_while_a_child_is_waited_for() {
    let (_watchdog, _alone) = (watchdog(), alone());
    run(|| {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let input = child.stdin.take().unwrap();
        let waiting = spawn_local(move || child.wait().unwrap());
        for _ in 0..100 {
            yield_now().unwrap();
        }
        assert!(!waiting.is_finished());
        drop(input);
        assert!(waiting.join().unwrap().success());
    });
}

// contract: I9
// contract: I11
#[test]
fn bytes_go_through_its_pipes() {
    both(|| {
        let mut child = Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut input, mut output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        output.set_timeout(Some(MOMENT)).unwrap();
        let error = output.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        output.set_timeout(None).unwrap();
        input.write_all(b"hello").unwrap();
        let mut text = [0; 5];
        output.read_exact(&mut text).unwrap();
        assert_eq!(&text, b"hello");
        // More than the pipes hold: it waits until somebody reads.
        input.set_timeout(Some(MOMENT)).unwrap();
        let error = io_rig::write_until_error(&input);
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        child.kill().unwrap();
        child.wait().unwrap();
        let error = io_rig::write_until_error(&input);
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
        let mut rest = Vec::new();
        output.read_to_end(&mut rest).unwrap();
        assert!(rest.iter().all(|byte| *byte == 7));
    });
}

// contract: I9
// contract: I11
#[test]
fn all_output_is_collected_though_both_pipes_fill() {
    both(|| {
        let script = "head -c 300000 /dev/zero; head -c 300000 /dev/zero >&2; \
                      head -c 300000 /dev/zero; echo end >&2; exit 3";
        let output = shell(script).output().unwrap();
        assert_eq!(output.status.code(), Some(3));
        assert_eq!(output.stdout.len(), 600_000);
        assert_eq!(output.stderr.len(), 300_004);
        assert!(output.stderr.ends_with(b"end\n"));
        // The input is empty unless it was set, and what was set stays so.
        let mut command = Command::new("cat");
        assert_eq!(command.output().unwrap().stdout, b"");
        command.stdout(Stdio::null());
        assert_eq!(command.output().unwrap().stdout, b"");
        let output = shell("echo $NAME; pwd")
            .env("NAME", "it")
            .current_dir("/")
            .output();
        assert_eq!(output.unwrap().stdout, b"it\n/\n");
    });
}

// contract: I9
// contract: S12
#[test]
fn a_cancelled_wait_leaves_the_child_alone() {
    let (_watchdog, _alone) = (watchdog(), alone());
    run(|| {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let input = child.stdin.take();
        let waiting = spawn_local(move || {
            let error = child.wait().unwrap_err();
            (child, error)
        });
        yield_now().unwrap();
        waiting.cancel("enough");
        let (mut child, error) = waiting.join().unwrap();
        assert!(sinew::is_cancelled(&error));
        assert_eq!(child.try_wait().unwrap(), None);
        drop(input);
        assert!(child.wait().unwrap().success());

        // And with its output: it is killed, as was asked for.
        let mut command = shell("echo begun; exec cat");
        command.stdin(Stdio::piped()).kill_on_drop(true);
        let collecting = spawn_local(move || {
            let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
            // Not closed: it would end by that.
            let input = child.stdin.take();
            let output = child.wait_with_output();
            drop(input);
            output.unwrap_err()
        });
        yield_now().unwrap();
        collecting.cancel("enough");
        assert!(sinew::is_cancelled(&collecting.join().unwrap()));
        while !children().is_empty() {
            std::thread::yield_now();
        }
    });
}

// contract: I9
#[test]
fn no_child_is_left_unreaped() {
    both(|| {
        // Waited for, all at once.
        let count = 200 * stress();
        let mut waited = Vec::new();
        for _ in 0..count {
            let mut child = Command::new("cat");
            waited.push(child.stdin(Stdio::piped()).spawn().unwrap());
        }
        let inputs: Vec<_> = waited.iter_mut().map(|child| child.stdin.take()).collect();
        drop(inputs);
        if sinew::in_coroutine() {
            scope(|s| {
                for child in &mut waited {
                    s.spawn(|| assert!(child.wait().unwrap().success()));
                }
            });
        } else {
            for child in &mut waited {
                assert!(child.wait().unwrap().success());
            }
        }
        assert_eq!(children(), [""; 0]);
        // Dropped: some have ended, some end later, some are killed.
        let mut later = Vec::new();
        for number in 0..count {
            let mut child = endless();
            match number % 3 {
                0 => kill(&child, libc::SIGTERM),
                1 => later.push(child.stdin.take()),
                _ => {}
            }
            drop(child);
        }
        drop(later);
        while !children().is_empty() {
            std::thread::yield_now();
        }
        let mut command = Command::new("cat");
        let mut child = command.stdin(Stdio::piped()).kill_on_drop(true).spawn();
        let input = child.as_mut().unwrap().stdin.take();
        drop(child);
        while !children().is_empty() {
            std::thread::yield_now();
        }
        drop(input);
    });
}

// contract: I9
#[test]
fn a_thousand_children_that_end_at_once() {
    const CHILDREN: usize = 1_000;
    let (_watchdog, _alone) = (watchdog(), alone());
    raise_descriptor_limit();
    run(|| {
        // All of them read one pipe.
        let (reader, writer) = std::io::pipe().unwrap();
        let mut all: Vec<_> = (0..CHILDREN)
            .map(|_| {
                Command::new("cat")
                    .stdin(reader.try_clone().unwrap())
                    .spawn()
                    .unwrap()
            })
            .collect();
        drop((reader, writer));
        // Half of them are waited for, the others dropped.
        let dropped = all.split_off(CHILDREN / 2);
        let waiting: Vec<_> = all
            .into_iter()
            .map(|mut child| spawn_local(move || child.wait().unwrap().success()))
            .collect();
        drop(dropped);
        for one in waiting {
            assert!(one.join().unwrap());
        }
        while !children().is_empty() {
            std::thread::yield_now();
        }
    });
}
