//! The access log: what stands in it, and that nobody waits for it.

mod harness;

use std::fs::{self, File};
use std::io::Read;
use std::path::PathBuf;

use harness::Served;
use sinew_cli::serve::AccessLog;

/// A server with a log, and where that is.
fn logging(folder: &tempfile::TempDir) -> (Served, PathBuf) {
    let path = folder.path().join("access.log");
    let log = AccessLog::File(path.clone());
    (Served::with(|config| config.access_log = Some(log)), path)
}

/// A line without its time.
fn timeless(line: &str) -> String {
    let (peer, rest) = line.split_once(" [").expect(line);
    let (time, rest) = rest.split_once("] ").expect(line);
    assert_eq!(time.len(), 26, "{line}");
    format!("{peer} {rest}")
}

#[test]
fn one_line_for_each_answer_in_the_combined_format() {
    let folder = tempfile::tempdir().expect("a folder");
    let (served, path) = logging(&folder);
    let table = [
        (
            "GET /ten.txt HTTP/1.1\r\nHost: a\r\n\r\n",
            r#""GET /ten.txt HTTP/1.1" 200 10 "-" "-""#,
        ),
        (
            "HEAD /ten.txt HTTP/1.1\r\nHost: a\r\n\r\n",
            r#""HEAD /ten.txt HTTP/1.1" 200 - "-" "-""#,
        ),
        (
            "GET /ten.txt HTTP/1.0\r\nReferer: http://a/\r\nUser-Agent: me/1 (\"x\")\r\nRange: bytes=1-2\r\n\r\n",
            r#""GET /ten.txt HTTP/1.0" 206 2 "http://a/" "me/1 (\"x\")""#,
        ),
        (
            "GET /absent HTTP/1.1\r\nHost: a\r\n\r\n",
            r#""GET /absent HTTP/1.1" 404 14 "-" "-""#,
        ),
        (
            "GET /ten.txt HTTP/1.1\r\nHost: a\r\nIf-None-Match: *\r\n\r\n",
            r#""GET /ten.txt HTTP/1.1" 304 - "-" "-""#,
        ),
        (
            "BREW / HTTP/1.1\r\nHost: a\r\n\r\n",
            r#""BREW / HTTP/1.1" 501 20 "-" "-""#,
        ),
        (
            "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
            r#""OPTIONS * HTTP/1.1" 204 - "-" "-""#,
        ),
        // Not a request at all; nothing that it holds ends the line or the field.
        (
            "GET /\"\\\x01 x\r\n\r\n",
            r#""GET /\"\\\x01 x" 400 16 "-" "-""#,
        ),
        (
            "GET / HTTP/1.1\nHost: a\n\n",
            r#""GET / HTTP/1.1" 400 16 "-" "-""#,
        ),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nUser-Agent: \u{e4}\r\n\r\nabc",
            r#""POST / HTTP/1.1" 405 23 "-" "\xc3\xa4""#,
        ),
    ];
    for (request, _) in table {
        served.ask(request);
    }
    let summary = served.stop();
    assert_eq!((summary.answers, summary.log_dropped), (10, 0));
    let log = fs::read_to_string(path).expect("a log");
    let lines: Vec<_> = log.lines().map(timeless).collect();
    let expected: Vec<_> = table
        .iter()
        .map(|(_, line)| format!("127.0.0.1 - - {line}"))
        .collect();
    assert_eq!(lines, expected);
}

#[test]
fn a_log_is_continued() {
    let folder = tempfile::tempdir().expect("a folder");
    for round in 1..=2 {
        let (served, path) = logging(&folder);
        let mut client = served.connect();
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(500).as_bytes());
        for _ in 0..500 {
            assert_eq!(client.response(false).status, 200);
        }
        drop(client);
        assert_eq!(served.stop().log_dropped, 0);
        let log = fs::read_to_string(path).expect("a log");
        assert_eq!(log.lines().count(), 500 * round);
    }
}

#[test]
fn a_log_that_nobody_takes_is_dropped_and_counted_and_the_server_goes_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("pipe");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0)
        .expect("a FIFO");
    // With a reader that does not read, writing blocks when the pipe is full.
    let mut reader = File::options()
        .read(true)
        .write(true)
        .open(&path)
        .expect("opens");
    let log = AccessLog::File(path);
    let served = Served::with(|config| {
        config.access_log = Some(log);
        config.grace = std::time::Duration::from_millis(50);
    });
    let request = format!(
        "GET /none.bin HTTP/1.1\r\nHost: a\r\nUser-Agent: {}\r\n\r\n",
        "x".repeat(4000)
    );
    let mut client = served.connect();
    // Over a megabyte of lines, while nobody reads a byte of them.
    for _ in 0..100 {
        client.send(request.repeat(4).as_bytes());
        for _ in 0..4 {
            assert_eq!(client.response(false).status, 200);
        }
    }
    drop(client);
    let summary = served.stop();
    assert_eq!(summary.answers, 400);
    assert!((350..=400).contains(&summary.log_dropped), "{summary:?}");
    // The thread ends once someone reads.
    let mut piece = vec![0; 1 << 16];
    assert!(reader.read(&mut piece).expect("reads") > 0);
}

#[test]
fn a_log_that_cannot_be_opened_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    for (path, part) in [
        (folder.path().to_path_buf(), "directory"),
        (folder.path().join("no/log"), "No such"),
    ] {
        let config = sinew_cli::serve::Config {
            folder: folder.path().to_path_buf(),
            address: ([127, 0, 0, 1], 0).into(),
            access_log: Some(AccessLog::File(path.clone())),
            ..Default::default()
        };
        let error = sinew_cli::rt::run(|| sinew_cli::serve::Server::bind(config).map(|_| ()));
        let text = error.expect_err("refused").to_string();
        assert!(
            text.contains(part) && text.contains(&*path.to_string_lossy()),
            "{text}"
        );
    }
}

#[test]
fn a_full_disk_loses_lines_and_no_answers() {
    let served =
        Served::with(|config| config.access_log = Some(AccessLog::File("/dev/full".into())));
    for _ in 0..3 {
        assert_eq!(served.get("/ten.txt", "").status, 200);
    }
    let summary = served.stop();
    assert_eq!((summary.answers, summary.log_dropped), (3, 3));
}
