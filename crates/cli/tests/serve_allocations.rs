//! A connection that is warm allocates nothing for a request: not for its head, not for the file, not for the log.

#[path = "../../sinew/tests/memory_rig/mod.rs"]
mod memory_rig;

use std::fs;
use std::io::{Read, Write};
use std::time::{Duration, SystemTime};

use memory_rig::requests;
use sinew_cli::rt::{self, CancelToken};
use sinew_cli::serve::{AccessLog, Config, Server};

/// Rounds that are counted.
const ROUNDS: usize = 500;

/// How often the server's thread allocates in so many rounds with this request, once everything is warm. Server and client
/// are coroutines of one thread, and the client allocates nothing.
fn calls_with(log: bool, request: &str, status: &str) -> usize {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("file.txt");
    fs::write(&file, "0123456789").expect("a file");
    let then = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
    let opened = fs::File::options().write(true).open(&file);
    opened
        .and_then(|file| file.set_modified(then))
        .expect("a time");
    let config = Config {
        folder: folder.path().to_path_buf(),
        address: ([127, 0, 0, 1], 0).into(),
        access_log: log.then(|| AccessLog::File(folder.path().join("log"))),
        ..Config::default()
    };
    rt::run(|| {
        let server = Server::bind(config).expect("binds");
        let address = server.local_addr();
        let token = CancelToken::new();
        let shutdown = token.clone();
        let server = rt::spawn_local(move || server.run(&shutdown).map(|_| ()));
        let mut stream = rt::connect(address, Duration::from_secs(60)).expect("connects");
        let mut reply = [0; 1024];
        let mut round = || {
            stream.write_all(request.as_bytes()).expect("sends");
            let length = stream.read(&mut reply).expect("reads");
            // It is small enough to come at once.
            assert!(reply[..length].starts_with(status.as_bytes()));
        };
        for _ in 0..100 {
            round();
        }
        let before = requests();
        for _ in 0..ROUNDS {
            round();
        }
        let calls = requests() - before;
        drop(stream);
        token.cancel("the test is over");
        server.join().expect("no panic").expect("runs");
        calls
    })
}

/// The date is formatted anew in each second, and a buffer of the log may grow. Nothing is done per request.
const FEW: usize = ROUNDS / 5;

#[test]
fn a_request_allocates_nothing() {
    let table = [
        (
            "GET /file.txt HTTP/1.1\r\nHost: a\r\nUser-Agent: x\r\nAccept: */*\r\n\r\n",
            "HTTP/1.1 200 ",
        ),
        (
            "HEAD /file.txt HTTP/1.1\r\nHost: a\r\n\r\n",
            "HTTP/1.1 200 ",
        ),
        (
            "GET /file.txt HTTP/1.1\r\nHost: a\r\nRange: bytes=1-2\r\n\r\n",
            "HTTP/1.1 206 ",
        ),
        (
            "GET /file.txt HTTP/1.1\r\nHost: a\r\nIf-None-Match: \"x\", *\r\n\r\n",
            "HTTP/1.1 200 ",
        ),
        (
            "GET /file.txt HTTP/1.1\r\nHost: a\r\nIf-None-Match: *\r\n\r\n",
            "HTTP/1.1 304 ",
        ),
        (
            "GET /file.txt HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
            "HTTP/1.1 200 ",
        ),
    ];
    for (request, status) in table {
        for log in [false, true] {
            let calls = calls_with(log, request, status);
            assert!(
                calls < FEW,
                "{calls} calls in {ROUNDS} rounds of {request:?}, log: {log}"
            );
        }
    }
}
