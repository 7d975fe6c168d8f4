//! Tables of heads, accepted and refused.

use proptest::prelude::*;

use super::*;
use crate::{Input, Limits};

/// What a test looks at, without the borrows.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    body: Body,
    keep_alive: bool,
    waits_to_send: bool,
}

fn parse(head: &str) -> Result<Seen, Status> {
    let mut input = Input::new(Limits::default());
    input.room()[..head.len()].copy_from_slice(head.as_bytes());
    input.add(head.len());
    let extent = match input.find_head()? {
        Some(extent) if extent.bytes == head.len() => extent,
        _ => return Err(Status::BadRequest),
    };
    let request = Request::parse(input.head(extent), extent)?;
    Ok(Seen {
        body: request.body,
        keep_alive: request.keep_alive,
        waits_to_send: request.waits_to_send,
    })
}

fn with(lines: &str) -> Result<Seen, Status> {
    parse(&format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n"))
}

#[test]
fn request_lines() {
    let table = [
        ("GET / HTTP/1.1", None),
        ("GET http://a/b HTTP/1.1", None),
        ("HEAD /a HTTP/1.0", None),
        ("POST / HTTP/1.1", None),
        ("BREW / HTTP/1.1", None),
        ("OPTIONS * HTTP/1.1", None),
        ("GET / HTTP/2.0", Some(Status::VersionNotSupported)),
        ("GET / HTTP/1.2", Some(Status::VersionNotSupported)),
        ("GET / HTTP/0.9", Some(Status::VersionNotSupported)),
        ("GET / HTTP/11", Some(Status::BadRequest)),
        ("GET / HTTP/1.10", Some(Status::BadRequest)),
        ("GET / http/1.1", Some(Status::BadRequest)),
        ("GET /", Some(Status::BadRequest)),
        ("GET", Some(Status::BadRequest)),
        ("GET  / HTTP/1.1", Some(Status::BadRequest)),
        ("GET /  HTTP/1.1", Some(Status::BadRequest)),
        ("GET /a b HTTP/1.1", Some(Status::BadRequest)),
        ("GET / HTTP/1.1 ", Some(Status::BadRequest)),
        (" GET / HTTP/1.1", Some(Status::BadRequest)),
        ("GET\t/ HTTP/1.1", Some(Status::BadRequest)),
        ("G(T / HTTP/1.1", Some(Status::BadRequest)),
        ("GET /a#b HTTP/1.1", Some(Status::BadRequest)),
        ("GET /\u{e4} HTTP/1.1", Some(Status::BadRequest)),
        ("GET /\u{0} HTTP/1.1", Some(Status::BadRequest)),
        ("GET / HTTP/1.1\rX: y", Some(Status::BadRequest)),
    ];
    for (line, refused) in table {
        let outcome = parse(&format!("{line}\r\nHost: a\r\n\r\n"));
        assert_eq!(outcome.err(), refused, "{line:?}");
    }
}

#[test]
fn hosts() {
    let head = |version: &str, hosts: &str| parse(&format!("GET / HTTP/{version}\r\n{hosts}\r\n"));
    assert!(head("1.1", "Host: a.example:80\r\n").is_ok());
    assert!(head("1.1", "hOsT:[::1]:80\r\n").is_ok());
    assert!(head("1.1", "Host:\r\n").is_ok());
    assert!(head("1.0", "").is_ok());
    for (version, hosts) in [
        ("1.1", ""),
        ("1.1", "Host: a\r\nHost: a\r\n"),
        ("1.0", "Host: a\r\nHost: b\r\n"),
        ("1.1", "Host: a b\r\n"),
        ("1.1", "Host: a,b\r\n"),
        ("1.1", "Host: a/b\r\n"),
        ("1.1", "Host: user@a\r\n"),
    ] {
        assert_eq!(
            head(version, hosts),
            Err(Status::BadRequest),
            "{version} {hosts:?}"
        );
    }
}

#[test]
fn header_lines_are_strict() {
    for lines in [
        "A : b\r\n",
        "A\t: b\r\n",
        " A: b\r\n",
        "A: b\r\n c\r\n",
        "A: b\r\n\tc\r\n",
        "A\r\n",
        ": b\r\n",
        "A(b): c\r\n",
        "A: b\rc\r\n",
        "A: \u{0}\r\n",
        "A: b\u{7f}\r\n",
        "\u{e4}: b\r\n",
    ] {
        assert_eq!(with(lines), Err(Status::BadRequest), "{lines:?}");
    }
    assert!(with("A:b\r\nB:\t c \t\r\nC:\r\nD: \u{e4}\r\n").is_ok());
}

#[test]
fn framings() {
    let bad = Err(Status::BadRequest);
    let unknown = Err(Status::NotImplemented);
    let table = [
        ("", Ok(Body::Length(0))),
        ("Content-Length: 0\r\n", Ok(Body::Length(0))),
        ("Content-Length: 007\r\n", Ok(Body::Length(7))),
        (
            "Content-Length: 5\r\nContent-Length: 5\r\n",
            Ok(Body::Length(5)),
        ),
        ("Content-Length: 5\r\nContent-Length: 6\r\n", bad),
        ("Content-Length: 5, 5\r\n", bad),
        ("Content-Length: +5\r\n", bad),
        ("Content-Length: -5\r\n", bad),
        ("Content-Length: 5 5\r\n", bad),
        ("Content-Length: 0x5\r\n", bad),
        ("Content-Length:\r\n", bad),
        ("Content-Length: 18446744073709551616\r\n", bad),
        ("Transfer-Encoding: chunked\r\n", Ok(Body::Chunked)),
        ("Transfer-Encoding: Chunked\r\n", Ok(Body::Chunked)),
        ("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", bad),
        ("Content-Length: 0\r\nTransfer-Encoding: chunked\r\n", bad),
        ("Content-Length: 0\r\nTransfer-Encoding: gzip\r\n", bad),
        ("Transfer-Encoding: gzip\r\n", unknown),
        ("Transfer-Encoding: gzip, chunked\r\n", unknown),
        ("Transfer-Encoding: chunked, identity\r\n", unknown),
        (
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            unknown,
        ),
        (
            "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n",
            unknown,
        ),
        ("Transfer-Encoding: xchunked\r\n", unknown),
        ("Transfer-Encoding: \"chunked\"\r\n", unknown),
        ("Transfer-Encoding:\r\n", bad),
    ];
    for (lines, expected) in table {
        assert_eq!(
            with(lines).map(|request| request.body),
            expected,
            "{lines:?}"
        );
    }
    let old = parse("GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n");
    assert_eq!(old, Err(Status::BadRequest));
}

#[test]
fn connection_options() {
    let table = [
        ("1.1", "", true),
        ("1.1", "Connection: close\r\n", false),
        ("1.1", "Connection: Close\r\n", false),
        ("1.1", "Connection: foo, close\r\n", false),
        ("1.1", "Connection: foo\r\nConnection: close\r\n", false),
        ("1.1", "Connection: keep-alive\r\n", true),
        ("1.0", "", false),
        ("1.0", "Connection: Keep-Alive\r\n", true),
        ("1.0", "Connection: keep-alive, close\r\n", false),
    ];
    for (version, lines, keep_alive) in table {
        let head = format!("GET / HTTP/{version}\r\nHost: a\r\n{lines}\r\n");
        let request = parse(&head).expect(&head);
        assert_eq!(request.keep_alive, keep_alive, "{head:?}");
    }
}

#[test]
fn expectations() {
    let seen = with("Expect: 100-Continue\r\n").expect("known");
    assert!(seen.waits_to_send);
    assert_eq!(with("Expect: tea\r\n"), Err(Status::ExpectationFailed));
    let old = parse("GET / HTTP/1.0\r\nExpect: 100-continue\r\n\r\n").expect("well formed");
    assert!(!old.waits_to_send);
}

#[test]
fn many_header_lines() {
    for count in [2, 47, 48, 98] {
        let lines: String = (1..count).map(|n| format!("A{n}: b\r\n")).collect();
        assert!(with(&lines).is_ok(), "{count}");
        assert!(
            with(&format!("{lines}Content-Length: 7\r\n"))
                .is_ok_and(|seen| seen.body == Body::Length(7))
        );
    }
    let lines = "A: b\r\n".repeat(100);
    assert_eq!(with(&lines), Err(Status::HeaderFieldsTooLarge));
}

#[test]
fn values_are_found_by_name_in_their_order() {
    let head = b"GET / HTTP/1.1\r\nHost: a\r\nx-a:1\r\nX-A: \t2: \t \r\nX-AB: 3\r\nX-A:\r\n\r\n";
    let mut input = Input::new(Limits::default());
    input.room()[..head.len()].copy_from_slice(head);
    input.add(head.len());
    let extent = input.find_head().expect("well formed").expect("whole");
    let request = Request::parse(input.head(extent), extent).expect("well formed");
    let values: Vec<_> = request.values("X-a").collect();
    assert_eq!(values, [b"1".as_slice(), b"2:", b""]);
    assert_eq!(request.single("x-ab"), Some(b"3".as_slice()));
    assert_eq!(request.single("x-a"), None);
    assert_eq!(request.single("x"), None);
}

/// A head of pieces that are right or nearly so.
fn heads() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        4 => b'a'..=b'z',
        1 => any::<u8>(),
        1 => prop::sample::select(b"\t \r\x7f\x1f \x80:\"(),/".to_vec()),
    ];
    let name = prop::collection::vec(byte.clone(), 0..4);
    let value = prop::collection::vec(byte, 0..40);
    let colon = prop::sample::select(vec![":", ": ", " :", "", ":\t"]);
    let line = (name, colon, value).prop_map(|(name, colon, value)| {
        [&name, colon.as_bytes(), &value, b"\r\n".as_slice()].concat()
    });
    prop::collection::vec(line, 0..4).prop_map(|lines| {
        let lines = lines.concat();
        [b"GET / HTTP/1.1\r\nHost: a\r\n".as_slice(), &lines, b"\r\n"].concat()
    })
}

proptest! {
    /// What `httparse` says of header lines is the reference; the request lines are right.
    #[test]
    fn reads_header_lines_as_another_parser_does(head in heads()) {
        let mut input = Input::new(Limits::default());
        input.room()[..head.len()].copy_from_slice(&head);
        input.add(head.len());
        // A head may end early, at a line that is empty.
        let Ok(Some(extent)) = input.find_head() else {
            return Ok(());
        };
        let head = input.head(extent);
        let mut lines = [httparse::EMPTY_HEADER; 8];
        let mut reference = httparse::Request::new(&mut lines);
        let expected = reference.parse(head);
        let lines = head.get(extent.request_line + 2..).expect("there");
        match Fields::gather(lines) {
            Err(_) => prop_assert!(expected.is_err(), "{}", head.escape_ascii()),
            Ok(_) => {
                let whole = httparse::Status::Complete(head.len());
                prop_assert_eq!(expected, Ok(whole), "{}", head.escape_ascii());
                let mut rest = lines;
                for line in &*reference.headers {
                    let (name, value, after) = header_line(rest).expect("well formed");
                    prop_assert_eq!(name, line.name.as_bytes());
                    prop_assert_eq!(value, line.value.trim_ascii());
                    rest = after;
                }
                prop_assert_eq!(rest, b"\r\n");
            }
        }
    }
}

#[test]
fn each_byte_has_the_classes_of_the_grammar() {
    for byte in 0..=u8::MAX {
        let token = byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        let host = byte.is_ascii_alphanumeric() || b"-._~!$&'()*+;=:[]%".contains(&byte);
        let target = byte.is_ascii_graphic() && byte != b'#';
        let value = byte == b'\t' || !byte.is_ascii_control();
        assert_eq!(is(byte, TOKEN), token, "{byte:#x}");
        assert_eq!(is(byte, HOST), host, "{byte:#x}");
        assert_eq!(is(byte, TARGET), target, "{byte:#x}");
        assert_eq!(is(byte, VALUE), value, "{byte:#x}");
    }
}

#[test]
fn a_value_ends_at_the_first_control_character() {
    for length in 0..40 {
        for end in 0..=length {
            for byte in 0..=u8::MAX {
                let mut bytes = [b' ', b'~', 0x80, 0xff, b'\t'].repeat(8);
                bytes.truncate(length);
                if end < length {
                    bytes[end] = byte;
                }
                let expected = if end == length || is(byte, VALUE) {
                    length
                } else {
                    end
                };
                assert_eq!(value_length(&bytes), expected, "{length} {end} {byte:#x}");
            }
        }
    }
}
