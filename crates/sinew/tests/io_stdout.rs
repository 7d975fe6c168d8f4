//! The standard output and error output: of this program, started anew by its tests with ones of their choice.

mod io_rig;

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use io_rig::watchdog;
use sinew::{run, spawn_local, yield_now};

const CHILD: &str = "SINEW_TEST_WRITES_STDOUT";
const BYTES: usize = 1 << 20;

/// What the child does: it writes much, while another coroutine counts its turns and tells of them.
#[test]
fn the_child() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    run(|| {
        let output = rustix::stdio::stdout();
        let was_nonblocking = sinew::io::is_nonblocking(output).unwrap();
        let writing = spawn_local(|| sinew::io::stdout().write_all(&[1; BYTES]));
        let mut turns = 0;
        while !writing.is_finished() && turns < 1_000 {
            turns += 1;
            yield_now().unwrap();
        }
        sinew::io::stderr().write_all(b"TURNS\n").unwrap();
        writing.join().unwrap().unwrap();
        assert_eq!(sinew::io::is_nonblocking(output).unwrap(), was_nonblocking);
    });
}

/// What the other child does: its output is full.
#[test]
fn the_child_with_a_limit() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    run(|| {
        let timeout = Some(Duration::from_millis(1));
        let mut output = sinew::io::stdout().with_timeout(timeout);
        let error = output.write_all(&[1; BYTES]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        let writing = spawn_local(|| sinew::io::stdout().write_all(&[1; BYTES]).unwrap_err());
        yield_now().unwrap();
        writing.cancel("enough");
        assert!(sinew::is_cancelled(&writing.join().unwrap()));
        sinew::io::stderr().write_all(b"LIMITED\n").unwrap();
    });
    // A plain thread has limits too.
    let timeout = Some(Duration::from_millis(1));
    let mut output = sinew::io::stdout().with_timeout(timeout);
    assert_eq!(output.write(&[1]).unwrap_err().kind(), ErrorKind::TimedOut);
    sinew::io::stderr().write_all(b"THREAD\n").unwrap();
    // The harness would wait for its own output.
    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)
        .unwrap();
}

fn child(test: &str, output: impl Into<Stdio>) -> std::process::Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", test, "--nocapture"])
        .env(CHILD, "1")
        .stdout(output)
        .stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Reads what it says until this has come.
fn hear(from: &mut impl Read, word: &str) {
    let mut heard = Vec::new();
    while !String::from_utf8_lossy(&heard).contains(word) {
        let mut byte = [0];
        from.read_exact(&mut byte)
            .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&heard)));
        heard.push(byte[0]);
    }
}

fn count(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| **byte == 1).count()
}

// contract: I9
#[test]
fn a_pipe_that_is_full_keeps_nobody_from_running() {
    let _watchdog = watchdog();
    let mut child = child("the_child", Stdio::piped());
    // Nobody has read its output yet.
    hear(child.stderr.as_mut().unwrap(), "TURNS");
    let mut bytes = Vec::new();
    child
        .stdout
        .take()
        .unwrap()
        .read_to_end(&mut bytes)
        .unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(count(&bytes), BYTES);
}

// contract: I9
#[test]
fn a_file_and_nothing_are_written_too() {
    let _watchdog = watchdog();
    let path = std::env::temp_dir().join(format!("sinew-stdout-{}", std::process::id()));
    let mut one = child("the_child", File::create(&path).unwrap());
    assert!(one.wait().unwrap().success());
    assert_eq!(count(&std::fs::read(&path).unwrap()), BYTES);
    std::fs::remove_file(&path).unwrap();
    let mut other = child("the_child", Stdio::null());
    assert!(other.wait().unwrap().success());
}

// contract: I9
// contract: S12
#[test]
fn a_limit_and_a_cancel_end_the_write() {
    let _watchdog = watchdog();
    let mut child = child("the_child_with_a_limit", Stdio::piped());
    hear(child.stderr.as_mut().unwrap(), "LIMITED");
    hear(child.stderr.as_mut().unwrap(), "THREAD");
    child.wait().unwrap();
}
