//! The binary as a person meets it: messages, exit statuses, signals.

mod harness;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use harness::{SAFETY, Served};
use rustix::process::{Pid, Signal, kill_process};

fn sinew(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sinew"))
        .args(arguments)
        .output()
        .expect("starts")
}

/// A server in a process of its own, the address it has printed, and the rest of its output.
fn start(arguments: &[&str]) -> (Child, String, BufReader<ChildStdout>) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_sinew"))
        .arg("serve")
        .args(arguments)
        .args(["--addr", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut line = String::new();
    output.read_line(&mut line).expect("a line");
    let (_, address) = line.trim_end().split_once("http://").expect(&line);
    (child, address.to_owned(), output)
}

fn interrupt(child: &Child) {
    kill_process(Pid::from_child(child), Signal::INT).expect("signals");
}

#[test]
fn bad_input_is_named_and_exits_with_2() {
    let table: [(&[&str], &str); 17] = [
        (&["load", "no-url"], "no-url"),
        (&["load", "https://a/"], "https"),
        (&["load", "http://a:70000/"], "65535"),
        (&["load", "http://host.invalid/"], "host.invalid"),
        (
            &["load", "http://a/", "--connections", "0"],
            "--connections",
        ),
        (&["load", "http://a/", "--connections", "-1"], "-1"),
        (&["load", "http://a/", "--requests", "0"], "--requests"),
        (&["load", "http://a/", "--duration", "soon"], "soon"),
        (&["load", "http://a/", "-c", "4000000000"], "4000000000"),
        (&["serve", "/no/such/folder"], "/no/such/folder"),
        (&["serve", "/etc/hostname"], "/etc/hostname"),
        (&["serve", "--addr", "nowhere"], "nowhere"),
        (&["serve", "--idle-timeout", "0s"], "0s"),
        (&["serve", "--max-connections", "0"], "--max-connections"),
        (
            &["serve", "--addr", "127.0.0.1:0", "--access-log", "/etc"],
            "/etc",
        ),
        (&["load", "http://a/", "--pipeline", "0"], "--pipeline"),
        (&["load", "http://a/", "--pipeline", "1025"], "--pipeline"),
    ];
    for (arguments, part) in table {
        let output = sinew(arguments);
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
        assert!(
            message.contains(part) && !message.contains("panicked"),
            "{message}"
        );
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}

#[test]
fn a_used_address_is_named() {
    let used = TcpListener::bind("127.0.0.1:0").expect("binds");
    let address = used.local_addr().expect("an address").to_string();
    let output = sinew(&["serve", "--addr", &address]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(message.contains(&address), "{message}");
}

#[test]
fn json_on_standard_output_and_nothing_else() {
    let served = Served::new();
    let url = format!("http://{}/ten.txt", served.address);
    let output = sinew(&[
        "load",
        &url,
        "--requests",
        "30",
        "--connections",
        "3",
        "--json",
    ]);
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stderr.is_empty(), "no progress bar off a terminal");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(
        (&json["succeeded"], &json["body_bytes"]),
        (&30.into(), &300.into())
    );
    assert!(json["latency_us"]["p99.9"].is_f64());

    let output = sinew(&["load", &url, "--requests", "30"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.contains("30 requests in") && text.contains("p99.9"),
        "{text}"
    );
}

#[test]
fn no_success_is_a_failure() {
    let served = Served::new();
    let url = format!("http://{}/absent", served.address);
    let output = sinew(&["load", &url, "--requests", "3", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(json["errors"]["status"], 3);
}

#[test]
fn the_first_interrupt_finishes_what_is_in_flight() {
    let folder = tempfile::tempdir().expect("a folder");
    let size = 64 * 1024 * 1024;
    let file = std::fs::File::create(folder.path().join("large")).expect("a file");
    file.set_len(size).expect("grows");
    let (mut child, address, mut output) = start(&[folder.path().to_str().expect("text")]);
    let mut client = begin_download(&address);
    interrupt(&child);
    let mut all = Vec::new();
    client.read_to_end(&mut all).expect("a whole answer");
    assert!(all.len() as u64 > size);
    assert_eq!(child.wait().expect("ends").code(), Some(0));
    let mut rest = String::new();
    output.read_to_string(&mut rest).expect("a last line");
    assert_eq!(rest, "served 1 requests on 1 connections\n");
}

#[test]
fn the_second_interrupt_ends_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = std::fs::File::create(folder.path().join("large")).expect("a file");
    file.set_len(64 * 1024 * 1024).expect("grows");
    let path = folder.path().to_str().expect("text");
    let (mut child, address, _output) = start(&[path, "--grace", "1h"]);
    let _client = begin_download(&address);
    let mut idle = TcpStream::connect(&address).expect("connects");
    idle.set_read_timeout(Some(SAFETY)).expect("a timeout");
    idle.write_all(b"GET /x HTTP/1.1\r\nHost: a\r\n\r\n")
        .expect("sends");
    let mut first = [0];
    idle.read_exact(&mut first).expect("an answer");
    interrupt(&child);
    // The idle connection ends when the first interrupt has arrived.
    idle.read_to_end(&mut Vec::new()).expect("the end");
    interrupt(&child);
    assert_eq!(child.wait().expect("ends").code(), Some(130));
}

/// Asks for `/large` and waits for the first byte.
fn begin_download(address: &str) -> TcpStream {
    let mut client = TcpStream::connect(address).expect("connects");
    client.set_read_timeout(Some(SAFETY)).expect("a timeout");
    client
        .write_all(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
        .expect("sends");
    let mut first = [0];
    client.peek(&mut first).expect("the answer has begun");
    client
}

#[test]
fn running_out_of_descriptors_is_waited_out() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("index.html"), "here").expect("a file");
    let mut child = Command::new("sh")
        .args([
            "-c",
            "ulimit -n 24; exec \"$0\" serve \"$1\" --addr 127.0.0.1:0",
        ])
        .arg(env!("CARGO_BIN_EXE_sinew"))
        .arg(folder.path())
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut line = String::new();
    output.read_line(&mut line).expect("a line");
    let (_, address) = line.trim_end().split_once("http://").expect(&line);
    let ask = |client: &mut TcpStream| {
        client.set_read_timeout(Some(SAFETY)).expect("a timeout");
        client
            .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            .expect("sends");
        let mut answer = [0; 12];
        client.read_exact(&mut answer).expect("an answer");
        answer
    };
    // All connect, for the kernel accepts; the server has descriptors for some.
    let mut crowd: Vec<_> = (0..40)
        .map(|_| TcpStream::connect(address).expect("connects"))
        .collect();
    let mut last = crowd.pop().expect("forty");
    drop(crowd);
    assert_eq!(&ask(&mut last), b"HTTP/1.1 200");
    interrupt(&child);
    assert_eq!(child.wait().expect("ends").code(), Some(0));
}

#[test]
fn a_log_on_standard_output_has_nothing_else_beside_it() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("file"), "here").expect("a file");
    let mut child = Command::new(env!("CARGO_BIN_EXE_sinew"))
        .arg("serve")
        .arg(folder.path())
        .args(["--addr", "127.0.0.1:0", "--listing", "--access-log"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut errors = BufReader::new(child.stderr.take().expect("a pipe"));
    let mut line = String::new();
    errors.read_line(&mut line).expect("a line");
    let (_, address) = line.trim_end().split_once("http://").expect(&line);
    for (path, status) in [("file", "200"), ("", "200"), ("absent", "404")] {
        let mut client = TcpStream::connect(address).expect("connects");
        client.set_read_timeout(Some(SAFETY)).expect("a timeout");
        let request = format!("GET /{path} HTTP/1.0\r\nUser-Agent: me\r\n\r\n");
        client.write_all(request.as_bytes()).expect("sends");
        let mut answer = String::new();
        client.read_to_string(&mut answer).expect("an answer");
        assert_eq!(answer.get(9..12), Some(status), "{path}");
    }
    interrupt(&child);
    assert_eq!(child.wait().expect("ends").code(), Some(0));
    let mut log = String::new();
    let mut output = child.stdout.take().expect("a pipe");
    output.read_to_string(&mut log).expect("a log");
    let lines: Vec<_> = log.lines().collect();
    assert_eq!(lines.len(), 3, "{log}");
    for (line, path) in lines.iter().zip(["file", "", "absent"]) {
        assert!(line.starts_with("127.0.0.1 - - ["), "{line}");
        assert!(
            line.contains(&format!("\"GET /{path} HTTP/1.0\"")) && line.ends_with("\"-\" \"me\""),
            "{line}"
        );
    }
    let mut rest = String::new();
    errors.read_to_string(&mut rest).expect("a last line");
    assert_eq!(rest, "served 3 requests on 3 connections\n");
}

#[test]
fn a_pipeline_from_the_command_line() {
    let served = Served::new();
    let url = format!("http://{}/ten.txt", served.address);
    let output = sinew(&[
        "load",
        &url,
        "--requests",
        "300",
        "--connections",
        "3",
        "--pipeline",
        "16",
        "--json",
    ]);
    assert_eq!(output.status.code(), Some(0));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(
        (&json["succeeded"], &json["pipeline"]),
        (&300.into(), &16.into())
    );
}
