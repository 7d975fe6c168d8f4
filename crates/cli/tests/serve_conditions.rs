//! Validators, preconditions, and ranges on condition, against files whose age is known.

mod harness;

use std::fs;

use harness::{Response, Served, age, settle};

/// When every file of the harness changed last.
const THEN: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
const BEFORE: &str = "Sun, 06 Nov 1994 08:49:36 GMT";

fn tag(response: &Response) -> String {
    response.field("etag").expect("a tag").to_owned()
}

#[test]
fn validators_stand_in_every_answer_about_a_file() {
    let served = Served::new();
    let whole = served.get("/ten.txt", "");
    let tag = tag(&whole);
    assert!(
        tag.starts_with('"') && tag.ends_with('"'),
        "{tag} is strong"
    );
    assert_eq!(whole.field("last-modified"), Some(THEN));
    let part = served.get("/ten.txt", "Range: bytes=0-1\r\n");
    let head = served.ask("HEAD /ten.txt HTTP/1.1\r\nHost: a\r\n\r\n");
    let same = served.get("/ten.txt", &format!("If-None-Match: {tag}\r\n"));
    for (response, status) in [(part, 206), (head, 200), (same, 304)] {
        assert_eq!(response.status, status);
        assert_eq!(response.field("etag"), Some(&*tag), "{status}");
        assert_eq!(response.field("last-modified"), Some(THEN), "{status}");
    }
    for target in ["/absent", "/with%20index"] {
        let response = served.get(target, "");
        assert_eq!(response.field("etag"), None, "{target}");
        assert_eq!(response.field("last-modified"), None, "{target}");
    }
}

#[test]
fn a_file_that_changes_gets_another_tag() {
    let served = Served::new();
    let path = served.folder.path().join("served/ten.txt");
    let first = tag(&served.get("/ten.txt", ""));
    assert_eq!(tag(&served.get("/ten.txt", "")), first);
    // Another length, with the same time.
    fs::write(&path, "0123456789a").expect("writes");
    settle(&path);
    let second = served.get("/ten.txt", &format!("If-None-Match: {first}\r\n"));
    assert_eq!((second.status, second.body.len()), (200, 11));
    let second = tag(&second);
    // Another file, with the same time and length.
    let other = served.folder.path().join("served/other");
    fs::write(&other, "0123456789b").expect("writes");
    settle(&other);
    fs::rename(&other, &path).expect("renames");
    age(&path);
    let third = tag(&served.get("/ten.txt", ""));
    assert!(first != second && second != third && third != first);
    // The same file, with the same time and length, and other bytes.
    fs::write(&path, "9876543210b").expect("writes");
    settle(&path);
    let fourth = served.get("/ten.txt", &format!("If-None-Match: {third}\r\n"));
    assert_eq!((fourth.status, &*fourth.body), (200, &b"9876543210b"[..]));
    let third = tag(&fourth);
    // A time that has just passed may be that of another change still.
    fs::write(&path, "0123456789c").expect("writes");
    let fresh = served.get("/ten.txt", &format!("If-None-Match: {third}\r\n"));
    assert_eq!((fresh.status, fresh.body.last()), (200, Some(&b'c')));
    if let Some(tag) = fresh.field("etag") {
        // The test was slow; the next tick has come.
        assert_ne!(tag, third);
    }
    assert_eq!(fresh.field("last-modified"), None);
}

#[test]
fn preconditions_in_their_order() {
    let served = Served::new();
    let tag = tag(&served.get("/ten.txt", ""));
    let (ours, weak) = (tag.as_str(), format!("W/{tag}"));
    let table: [(u16, &[(&str, &str)]); 20] = [
        (304, &[("If-None-Match", ours)]),
        (304, &[("If-None-Match", &weak)]),
        (304, &[("If-None-Match", "*")]),
        (200, &[("If-None-Match", "\"other\"")]),
        (304, &[("If-Modified-Since", THEN)]),
        (200, &[("If-Modified-Since", BEFORE)]),
        (200, &[("If-Modified-Since", "never")]),
        (200, &[("If-Match", ours)]),
        (200, &[("If-Match", "*")]),
        (412, &[("If-Match", &weak)]),
        (412, &[("If-Match", "\"other\"")]),
        (200, &[("If-Unmodified-Since", THEN)]),
        (412, &[("If-Unmodified-Since", BEFORE)]),
        // A tag goes before a date.
        (
            200,
            &[("If-None-Match", "\"other\""), ("If-Modified-Since", THEN)],
        ),
        (
            304,
            &[("If-None-Match", ours), ("If-Modified-Since", BEFORE)],
        ),
        (200, &[("If-Match", ours), ("If-Unmodified-Since", BEFORE)]),
        (
            412,
            &[("If-Match", "\"other\""), ("If-Unmodified-Since", THEN)],
        ),
        // What must hold goes before what is known already.
        (412, &[("If-None-Match", ours), ("If-Match", "\"other\"")]),
        (304, &[("If-None-Match", ours), ("If-Match", ours)]),
        // Both go before the range, even one that cannot be.
        (304, &[("If-None-Match", ours), ("Range", "bytes=99-")]),
    ];
    for (status, fields) in table {
        let lines: String = fields
            .iter()
            .map(|(name, value)| format!("{name}: {value}\r\n"))
            .collect();
        for method in ["GET", "HEAD"] {
            let request = format!("{method} /ten.txt HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
            let mut client = served.connect();
            client.send(request.as_bytes());
            let response = client.response(method == "HEAD");
            assert_eq!(response.status, status, "{request}");
            assert!(!response.closes());
            if status == 304 {
                assert!(response.body.is_empty());
            }
            // Nothing of a body came with it.
            client.send(b"GET /ten.txt HTTP/1.1\r\nHost: a\r\n\r\n");
            assert_eq!(client.response(false).body, b"0123456789", "{request}");
        }
    }
    // What is not there has no state that could be compared.
    assert_eq!(served.get("/absent", "If-None-Match: *\r\n").status, 404);
    assert_eq!(served.get("/absent", "If-Match: *\r\n").status, 404);
}

#[test]
fn ranges_on_condition() {
    let served = Served::new();
    let tag = tag(&served.get("/ten.txt", ""));
    let weak = format!("W/{tag}");
    let table = [
        (206, tag.as_str()),
        (206, THEN),
        (200, &weak),
        (200, "\"other\""),
        (200, BEFORE),
        (200, "Sun, 06 Nov 1994 08:49:38 GMT"),
        (200, "*"),
    ];
    for (status, value) in table {
        let lines = format!("Range: bytes=2-4\r\nIf-Range: {value}\r\n");
        let response = served.get("/ten.txt", &lines);
        assert_eq!(response.status, status, "{value}");
        let body: &[u8] = if status == 206 { b"234" } else { b"0123456789" };
        assert_eq!(response.body, body, "{value}");
    }
    // A range that cannot be is only looked at if it is meant for this file.
    let lines = "Range: bytes=99-\r\nIf-Range: \"other\"\r\n";
    assert_eq!(served.get("/ten.txt", lines).status, 200);
    // Several ranges are answered by the whole.
    let several = served.get("/ten.txt", "Range: bytes=0-1,4-5\r\n");
    assert_eq!((several.status, several.body.len()), (200, 10));
}

#[test]
fn times_that_no_date_can_say() {
    let served = Served::new();
    let path = served.folder.path().join("served/ten.txt");
    for seconds in [-1, -1_000_000_000, 253_402_300_800, 9_000_000_000_000] {
        let times = rustix::fs::Timestamps {
            last_access: rustix::fs::Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
            last_modification: rustix::fs::Timespec {
                tv_sec: seconds,
                tv_nsec: 999_999_999,
            },
        };
        let here = rustix::fs::CWD;
        let flags = rustix::fs::AtFlags::empty();
        if rustix::fs::utimensat(here, &path, &times, flags).is_err() {
            continue;
        }
        age(&path);
        let response = served.get("/ten.txt", "");
        assert_eq!(
            (response.status, response.body.len()),
            (200, 10),
            "{seconds}"
        );
        assert_eq!(response.field("last-modified"), None, "{seconds}");
        let tag = response.field("etag").expect("a tag");
        let again = served.get("/ten.txt", &format!("If-None-Match: {tag}\r\n"));
        assert_eq!(again.status, 304, "{seconds}");
    }
}
