//! The standard input: of this program, started anew by its tests with one of their choice.

mod io_rig;

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

use io_rig::watchdog;
use sinew::process::{Child, Command, Stdio};
use sinew::{run, spawn_local, yield_now};

const CHILD: &str = "SINEW_TEST_READS_STDIN";

/// What the child does: it reads all of its input, while another coroutine counts its turns.
#[test]
fn the_child() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    run(|| {
        let (read, error) = (
            spawn_local(|| {
                let mut bytes = Vec::new();
                sinew::io::stdin().read_to_end(&mut bytes).unwrap();
                bytes.len()
            }),
            spawn_local(|| {
                let timeout = Some(Duration::from_millis(1));
                let mut input = sinew::io::stdin().with_timeout(timeout);
                input.read(&mut []).map(drop)
            }),
        );
        error.join().unwrap().unwrap();
        let mut turns = 0;
        while !read.is_finished() {
            turns += 1;
            if turns == 100 {
                println!("\nTURNS");
            }
            yield_now().unwrap();
        }
        println!("\nREAD {}", read.join().unwrap());
    });
}

/// What the other child does: it has a limit, and is cancelled.
#[test]
fn the_child_with_a_limit() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    run(|| {
        let timeout = Some(Duration::from_millis(1));
        let mut input = sinew::io::stdin().with_timeout(timeout);
        let error = input.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        let reading = spawn_local(|| sinew::io::stdin().read(&mut [0]).unwrap_err());
        yield_now().unwrap();
        reading.cancel("enough");
        assert!(sinew::is_cancelled(&reading.join().unwrap()));
        println!("\nLIMITED");
    });
}

fn child(test: &str, input: impl Into<Stdio>) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", test, "--nocapture"])
        .env(CHILD, "1")
        .stdin(input)
        .stdout(Stdio::piped());
    command.spawn().unwrap()
}

fn text_of(child: Child) -> String {
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    text
}

// contract: I9
#[test]
fn a_pipe_is_read_while_others_run_and_keeps_its_mode() {
    let _watchdog = watchdog();
    run(|| {
        let (reader, writer) = std::io::pipe().unwrap();
        let ours = reader.try_clone().unwrap();
        let mut child = child("the_child", reader);
        let mut output = child.stdout.take().unwrap();
        let mut text = String::new();
        let mut buffer = [0; 256];
        while !text.contains("TURNS") {
            let len = output.read(&mut buffer).unwrap();
            assert!(len > 0, "{text}");
            text.push_str(std::str::from_utf8(&buffer[..len]).unwrap());
        }
        assert!(!sinew::io::is_nonblocking(&ours).unwrap(), "it is shared");
        sinew::io::set_nonblocking(&writer, true).unwrap();
        drop(ours);
        let mut sent = 0;
        while sent < 200_000 {
            sent += sinew::io::write(&writer, &[7; 1000], None).unwrap();
        }
        drop(writer);
        output.read_to_string(&mut text).unwrap();
        assert!(text.contains(&format!("READ {sent}\n")), "{text}");
        assert!(child.wait().unwrap().success());
    });
}

// contract: I9
#[test]
fn a_file_and_nothing_are_read_to_their_ends() {
    let _watchdog = watchdog();
    let me = std::env::current_exe().unwrap();
    let len = me.metadata().unwrap().len();
    let text = text_of(child("the_child", File::open(me).unwrap()));
    assert!(text.contains(&format!("READ {len}\n")), "{text}");
    let text = text_of(child("the_child", Stdio::null()));
    assert!(text.contains("READ 0\n"), "{text}");
}

// contract: I9
#[test]
fn a_limit_and_a_cancel_end_the_read() {
    let _watchdog = watchdog();
    let (reader, mut writer) = std::io::pipe().unwrap();
    let text = text_of(child("the_child_with_a_limit", reader));
    assert!(text.contains("LIMITED\n"), "{text}");
    assert!(writer.write_all(b"x").is_err(), "nobody reads any more");
}
