//! The conformance script: what is sent, what must come back, and whether the connection goes on.
//!
//! Every row is sent at once, in pieces of seven bytes, and byte by byte, each time followed by one more request. Where the
//! connection goes on, that request is answered; where it does not, nothing follows the last answer. Sections are those of
//! RFC 9112, unless they begin with S, which are of RFC 9110.

mod harness;

use std::io::Write;

use harness::{Client, Served};

/// What follows the answers of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    /// The next request is answered.
    Goes,
    /// The connection is closed.
    Ends,
}
use Then::{Ends, Goes};

/// One row: a section, what is sent, the statuses that come, and what then.
type Row = (&'static str, &'static str, &'static [u16], Then);

const NEXT: &[u8] = b"GET /ten.txt?next HTTP/1.1\r\nHost: a\r\n\r\n";

const REQUEST_LINES: [Row; 38] = [
    (
        "3",
        "GET /ten.txt HTTP/1.1\r\nHost: a\r\n\r\n",
        &[200],
        Goes,
    ),
    (
        "2.2",
        "\r\nGET /ten.txt HTTP/1.1\r\nHost: a\r\n\r\n",
        &[200],
        Goes,
    ),
    (
        "2.2",
        "\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        &[200],
        Goes,
    ),
    ("2.2", "\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", &[400], Ends),
    ("2.2", "GET / HTTP/1.1\nHost: a\n\n", &[400], Ends),
    ("2.2", "GET / HTTP/1.1\rHost: a\r\r", &[400], Ends),
    ("2.2", "GET / HTTP/1.1\r\nHost: a\r\n\n", &[400], Ends),
    ("2.2", "GET / HTTP/1.1\r\nHost: a\r\n\r\r\n", &[400], Ends),
    ("2.2", " GET / HTTP/1.1\r\nHost: a\r\n\r\n", &[400], Ends),
    ("2.3", "GET / HTTP/1.0\r\n\r\n", &[200], Ends),
    ("2.3", "GET / HTTP/1.2\r\nHost: a\r\n\r\n", &[505], Ends),
    ("2.3", "GET / HTTP/2.0\r\nHost: a\r\n\r\n", &[505], Ends),
    ("2.3", "GET / HTTP/0.9\r\nHost: a\r\n\r\n", &[505], Ends),
    ("2.3", "GET / HTTP/1.01\r\nHost: a\r\n\r\n", &[400], Ends),
    ("2.3", "GET / http/1.1\r\nHost: a\r\n\r\n", &[400], Ends),
    ("2.3", "GET / HTTP 1.1\r\nHost: a\r\n\r\n", &[400], Ends),
    ("2.3", "GET /\r\n\r\n", &[400], Ends),
    ("2.3", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &[505], Ends),
    ("3", "GET  / HTTP/1.1\r\nHost: a\r\n\r\n", &[400], Ends),
    ("3", "GET / HTTP/1.1 \r\nHost: a\r\n\r\n", &[400], Ends),
    ("3", "GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n", &[400], Ends),
    ("3", "GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", &[400], Ends),
    ("3", "GET /\u{0} HTTP/1.1\r\nHost: a\r\n\r\n", &[400], Ends),
    ("3.1", "get / HTTP/1.1\r\nHost: a\r\n\r\n", &[501], Goes),
    ("3.1", "FOO!# / HTTP/1.1\r\nHost: a\r\n\r\n", &[501], Goes),
    ("3.1", "G[T / HTTP/1.1\r\nHost: a\r\n\r\n", &[400], Ends),
    (
        "3.2.1",
        "GET ten.txt HTTP/1.1\r\nHost: a\r\n\r\n",
        &[400],
        Goes,
    ),
    (
        "3.2.1",
        "GET /ten.txt#x HTTP/1.1\r\nHost: a\r\n\r\n",
        &[400],
        Ends,
    ),
    (
        "3.2.2",
        "GET http://b/ten.txt HTTP/1.1\r\nHost: a\r\n\r\n",
        &[200],
        Goes,
    ),
    (
        "3.2.2",
        "GET http://b HTTP/1.1\r\nHost: a\r\n\r\n",
        &[200],
        Goes,
    ),
    (
        "3.2.2",
        "GET http:///x HTTP/1.1\r\nHost: a\r\n\r\n",
        &[400],
        Goes,
    ),
    (
        "3.2.2",
        "GET ftp://b/x HTTP/1.1\r\nHost: a\r\n\r\n",
        &[400],
        Goes,
    ),
    (
        "3.2.3",
        "GET b:80 HTTP/1.1\r\nHost: a\r\n\r\n",
        &[400],
        Goes,
    ),
    (
        "3.2.3",
        "CONNECT b:80 HTTP/1.1\r\nHost: a\r\n\r\n",
        &[405],
        Goes,
    ),
    (
        "3.2.4",
        "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
        &[204],
        Goes,
    ),
    (
        "3.2.4",
        "OPTIONS / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
        &[204],
        Goes,
    ),
    ("3.2.4", "GET * HTTP/1.1\r\nHost: a\r\n\r\n", &[400], Goes),
    (
        "S9.3.8",
        "TRACE / HTTP/1.1\r\nHost: a\r\n\r\n",
        &[405],
        Goes,
    ),
];

const FIELDS: [Row; 29] = [
    ("S7.2", "GET / HTTP/1.1\r\n\r\n", &[400], Ends),
    (
        "S7.2",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
        &[400],
        Ends,
    ),
    (
        "S7.2",
        "GET / HTTP/1.1\r\nHost: a\r\nhost: b\r\n\r\n",
        &[400],
        Ends,
    ),
    ("S7.2", "GET / HTTP/1.1\r\nHost:\r\n\r\n", &[200], Goes),
    ("S7.2", "GET / HTTP/1.1\r\nHost: a b\r\n\r\n", &[400], Ends),
    ("S7.2", "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", &[400], Ends),
    ("S7.2", "GET / HTTP/1.1\r\nHost: a@b\r\n\r\n", &[400], Ends),
    (
        "S7.2",
        "GET / HTTP/1.1\r\nHost: [::1]:8080\r\n\r\n",
        &[200],
        Goes,
    ),
    (
        "S7.2",
        "GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n",
        &[400],
        Ends,
    ),
    (
        "5",
        "GET / HTTP/1.1\r\nhOsT:a\r\nA:\r\nB: \t c \t\r\n\r\n",
        &[200],
        Goes,
    ),
    (
        "5",
        "GET / HTTP/1.1\r\nHost: a\r\nA: \u{e4}\r\n\r\n",
        &[200],
        Goes,
    ),
    ("5", "GET / HTTP/1.1\r\nHost: a\r\nA\r\n\r\n", &[400], Ends),
    (
        "5",
        "GET / HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n",
        &[400],
        Ends,
    ),
    (
        "5",
        "GET / HTTP/1.1\r\nHost: a\r\nA(b): c\r\n\r\n",
        &[400],
        Ends,
    ),
    (
        "5",
        "GET / HTTP/1.1\r\nHost: a\r\nA: \u{0}\r\n\r\n",
        &[400],
        Ends,
    ),
    (
        "5",
        "GET / HTTP/1.1\r\nHost: a\r\nA: \u{7f}\r\n\r\n",
        &[400],
        Ends,
    ),
    (
        "5",
        "GET / HTTP/1.1\r\nHost: a\r\nA: b\rX: c\r\n\r\n",
        &[400],
        Ends,
    ),
    ("5.1", "GET / HTTP/1.1\r\nHost : a\r\n\r\n", &[400], Ends),
    (
        "5.1",
        "GET / HTTP/1.1\r\nHost: a\r\nA\t: b\r\n\r\n",
        &[400],
        Ends,
    ),
    (
        "5.2",
        "GET / HTTP/1.1\r\nHost: a\r\n b: c\r\n\r\n",
        &[400],
        Ends,
    ),
    (
        "5.2",
        "GET / HTTP/1.1\r\nHost: a\r\nA: b\r\n\tc\r\n\r\n",
        &[400],
        Ends,
    ),
    ("5.2", "GET / HTTP/1.1\r\n Host: a\r\n\r\n", &[400], Ends),
    (
        "9.3",
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        &[200],
        Ends,
    ),
    (
        "9.3",
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: x , CLOSE\r\n\r\n",
        &[200],
        Ends,
    ),
    (
        "9.3",
        "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
        &[200],
        Goes,
    ),
    (
        "9.3",
        "GET / HTTP/1.0\r\nConnection: keep-alive, close\r\n\r\n",
        &[200],
        Ends,
    ),
    (
        "S10.1.1",
        "GET / HTTP/1.1\r\nHost: a\r\nExpect: tea\r\n\r\n",
        &[417],
        Ends,
    ),
    (
        "S10.1.1",
        "GET / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n\r\n",
        &[200],
        Goes,
    ),
    (
        "S10.1.1",
        "GET / HTTP/1.0\r\nExpect: 100-continue\r\nConnection: keep-alive\r\n\r\n",
        &[200],
        Goes,
    ),
];

/// Bodies; every one follows the same request line.
const BODIES: [Row; 61] = [
    ("6.2", "Content-Length: 0\r\n\r\n", &[200], Goes),
    ("6.2", "Content-Length: 5\r\n\r\nGET /", &[200], Goes),
    ("6.2", "Content-Length: 005\r\n\r\nhello", &[200], Goes),
    (
        "6.3",
        "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
        &[200],
        Goes,
    ),
    (
        "6.3",
        "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        &[400],
        Ends,
    ),
    (
        "6.3",
        "Content-Length: 5\r\nContent-Length: 05\r\n\r\nhello",
        &[200],
        Goes,
    ),
    ("6.3", "Content-Length: 5, 5\r\n\r\nhello", &[400], Ends),
    ("6.3", "Content-Length: 5,6\r\n\r\nhello", &[400], Ends),
    ("6.2", "Content-Length: +5\r\n\r\nhello", &[400], Ends),
    ("6.2", "Content-Length: -5\r\n\r\nhello", &[400], Ends),
    ("6.2", "Content-Length: 0x5\r\n\r\nhello", &[400], Ends),
    ("6.2", "Content-Length: 5.0\r\n\r\nhello", &[400], Ends),
    ("6.2", "Content-Length: 5 5\r\n\r\nhello", &[400], Ends),
    ("6.2", "Content-Length: \"5\"\r\n\r\nhello", &[400], Ends),
    ("6.2", "Content-Length:\r\n\r\nhello", &[400], Ends),
    (
        "6.2",
        "Content-Length: 18446744073709551616\r\n\r\nhello",
        &[400],
        Ends,
    ),
    (
        "6.2",
        "Content-Length: 18446744073709551621\r\n\r\nhello",
        &[400],
        Ends,
    ),
    (
        "6.2",
        "Content-Length: 9223372036854775808\r\n\r\nhello",
        &[413],
        Ends,
    ),
    ("6.2", "Content-Length: 65537\r\n\r\nhello", &[413], Ends),
    ("5.1", "Content-Length : 5\r\n\r\nhello", &[400], Ends),
    ("5.2", "Content-Length:\r\n 5\r\n\r\nhello", &[400], Ends),
    (
        "7.1",
        "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        &[200],
        Goes,
    ),
    (
        "7.1",
        "Transfer-Encoding: CHUNKED\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        &[200],
        Goes,
    ),
    (
        "7.1",
        "Transfer-Encoding: chunked\r\n\r\n12\r\nGET / HTTP/1.1\r\n\r\n\r\n0\r\n\r\n",
        &[200],
        Goes,
    ),
    (
        "7.1",
        "Transfer-Encoding: chunked\r\n\r\n0005\r\nhello\r\n000\r\n\r\n",
        &[200],
        Goes,
    ),
    (
        "7.1.1",
        "Transfer-Encoding: chunked\r\n\r\n5;a=b;c=\"d\"\r\nhello\r\n0;e\r\n\r\n",
        &[200],
        Goes,
    ),
    (
        "7.1.1",
        "Transfer-Encoding: chunked\r\n\r\n5;a=\u{e4}\r\nhello\r\n0\r\n\r\n",
        &[200],
        Goes,
    ),
    (
        "7.1.1",
        "Transfer-Encoding: chunked\r\n\r\n5;a\nb\r\nhello\r\n0\r\n\r\n",
        &[400],
        Ends,
    ),
    (
        "7.1.1",
        "Transfer-Encoding: chunked\r\n\r\n5;a\rb\r\nhello\r\n0\r\n\r\n",
        &[400],
        Ends,
    ),
    (
        "7.1.1",
        "Transfer-Encoding: chunked\r\n\r\n5 x\r\nhello\r\n0\r\n\r\n",
        &[400],
        Ends,
    ),
    (
        "7.1.2",
        "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nA: b\r\nC: d\r\n\r\n",
        &[200],
        Goes,
    ),
    (
        "7.1.2",
        "Transfer-Encoding: chunked\r\n\r\n0\r\nContent-Length: 9\r\n\r\n",
        &[200],
        Goes,
    ),
    (
        "7.1.2",
        "Transfer-Encoding: chunked\r\n\r\n0\r\n folded\r\n\r\n",
        &[400],
        Ends,
    ),
    (
        "7.1.2",
        "Transfer-Encoding: chunked\r\n\r\n0\r\nA: b\n\r\n",
        &[400],
        Ends,
    ),
    (
        "7.1.2",
        "Transfer-Encoding: chunked\r\n\r\n0\r\nA: \u{0}\r\n\r\n",
        &[400],
        Ends,
    ),
    (
        "7.1",
        "Transfer-Encoding: chunked\r\n\r\n5\nhello\n0\n\n",
        &[400],
        Ends,
    ),
    (
        "7.1",
        "Transfer-Encoding: chunked\r\n\r\n5\r\nhello0\r\n\r\n",
        &[400],
        Ends,
    ),
    (
        "7.1",
        "Transfer-Encoding: chunked\r\n\r\n4\r\nhello\r\n0\r\n\r\n",
        &[400],
        Ends,
    ),
    (
        "7.1",
        "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\n0\r\n\r\n",
        &[400],
        Ends,
    ),
    (
        "7.1",
        "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\n",
        &[400],
        Ends,
    ),
    (
        "7.1",
        "Transfer-Encoding: chunked\r\n\r\n5\rhello\r\n0\r\n\r\n",
        &[400],
        Ends,
    ),
    (
        "7.1",
        "Transfer-Encoding: chunked\r\n\r\n\r\nhello\r\n0\r\n\r\n",
        &[400],
        Ends,
    ),
    (
        "7.1",
        "Transfer-Encoding: chunked\r\n\r\n+5\r\nhello\r\n0\r\n\r\n",
        &[400],
        Ends,
    ),
    (
        "7.1",
        "Transfer-Encoding: chunked\r\n\r\n-5\r\nhello\r\n0\r\n\r\n",
        &[400],
        Ends,
    ),
    (
        "7.1",
        "Transfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n",
        &[400],
        Ends,
    ),
    (
        "7.1",
        "Transfer-Encoding: chunked\r\n\r\n 5\r\nhello\r\n0\r\n\r\n",
        &[400],
        Ends,
    ),
    (
        "7.1",
        "Transfer-Encoding: chunked\r\n\r\n5_0\r\nhello\r\n0\r\n\r\n",
        &[400],
        Ends,
    ),
    (
        "7.1",
        "Transfer-Encoding: chunked\r\n\r\n10000000000000000\r\nhello\r\n0\r\n\r\n",
        &[400],
        Ends,
    ),
    (
        "7.1",
        "Transfer-Encoding: chunked\r\n\r\n10000000000000005\r\nhello\r\n0\r\n\r\n",
        &[400],
        Ends,
    ),
    (
        "6.1",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        &[400],
        Ends,
    ),
    (
        "6.1",
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        &[400],
        Ends,
    ),
    (
        "6.1",
        "Content-Length: 0\r\nTransfer-Encoding: xchunked\r\n\r\n",
        &[400],
        Ends,
    ),
    (
        "6.1",
        "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        &[501],
        Ends,
    ),
    (
        "6.1",
        "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
        &[501],
        Ends,
    ),
    (
        "6.1",
        "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        &[501],
        Ends,
    ),
    ("6.1", "Transfer-Encoding: identity\r\n\r\n", &[501], Ends),
    (
        "6.1",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        &[501],
        Ends,
    ),
    (
        "6.1",
        "Transfer-Encoding: \u{b}chunked\r\n\r\n0\r\n\r\n",
        &[400],
        Ends,
    ),
    (
        "6.1",
        "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        &[400],
        Ends,
    ),
    (
        "6.1",
        "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
        &[400],
        Ends,
    ),
    (
        "6.1",
        "Transfer-Encoding: chunked\n\r\n0\r\n\r\n",
        &[400],
        Ends,
    ),
];

/// Several requests on one connection.
const SEQUENCES: [Row; 6] = [
    (
        "9.3.2",
        "GET /ten.txt HTTP/1.1\r\nHost: a\r\n\r\nGET /absent HTTP/1.1\r\nHost: a\r\n\r\nPOST / HTTP/1.1\r\nHost: a\r\n\
         Content-Length: 4\r\n\r\nbodyGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        &[200, 404, 405, 200],
        Goes,
    ),
    (
        "9.3.2",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n\r\n\
         GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        &[405, 200],
        Goes,
    ),
    (
        "9.6",
        "GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n\
         GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        &[200, 200],
        Ends,
    ),
    (
        "11.2",
        "GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n\
         0\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        &[200, 400],
        Ends,
    ),
    (
        "11.2",
        "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 45\r\n\r\nGET /secret HTTP/1.1\r\nHost: a\r\nX: 0123456789a\r\n",
        &[200],
        Goes,
    ),
    (
        "S14.2",
        "GET /ten.txt HTTP/1.1\r\nHost: a\r\nRange: bytes=1-2\r\n\r\nGET /ten.txt HTTP/1.1\r\nHost: a\r\nRange: bytes=99-\r\n\r\n",
        &[206, 416],
        Goes,
    ),
];

/// Sends in pieces; a server that has closed does not take the rest.
fn send(client: &mut Client, bytes: &[u8], piece: usize) {
    for piece in bytes.chunks(piece) {
        if client.stream.write_all(piece).is_err() {
            return;
        }
    }
}

fn play(served: &Served, row: Row, piece: usize) {
    let (section, sent, statuses, then) = row;
    let mut client = served.connect();
    send(&mut client, &[sent.as_bytes(), NEXT].concat(), piece);
    client.end_sending_if_open();
    for (number, &status) in statuses.iter().enumerate() {
        let response = client.response(false);
        assert_eq!(response.status, status, "{section} {sent:?} by {piece}");
        let last = number + 1 == statuses.len();
        assert_eq!(
            response.closes(),
            last && then == Ends,
            "{section} {sent:?}"
        );
    }
    if then == Goes {
        let next = client.response(false);
        assert_eq!(
            (next.status, next.body.as_slice()),
            (200, b"0123456789".as_slice()),
            "{section} {sent:?}"
        );
    }
    assert!(
        client.is_closed(),
        "{section} {sent:?} by {piece}: more follows"
    );
}

fn play_all(rows: &[Row], before: &str) {
    let served = Served::new();
    for &(section, sent, statuses, then) in rows {
        let sent: &'static str = format!("{before}{sent}").leak();
        for piece in [usize::MAX, 7, 1] {
            play(&served, (section, sent, statuses, then), piece);
        }
    }
}

#[test]
fn request_lines() {
    play_all(&REQUEST_LINES, "");
}

#[test]
fn header_fields() {
    play_all(&FIELDS, "");
}

#[test]
fn bodies_and_what_smuggles_requests() {
    play_all(&BODIES, "GET /ten.txt HTTP/1.1\r\nHost: a\r\n");
}

#[test]
fn sequences() {
    play_all(&SEQUENCES, "");
}

#[test]
fn leave_to_send_a_body() {
    let served = Served::new();
    for method in ["GET", "HEAD"] {
        for framed in ["Content-Length: 5", "Transfer-Encoding: chunked"] {
            let mut client = served.connect();
            let head = format!(
                "{method} /ten.txt HTTP/1.1\r\nHost: a\r\n{framed}\r\nExpect: 100-continue\r\n\r\n"
            );
            client.send(head.as_bytes());
            // Only then is the body sent.
            assert_eq!(client.response(true).status, 100, "{head}");
            let body = if framed.starts_with('C') {
                "hello"
            } else {
                "5\r\nhello\r\n0\r\n\r\n"
            };
            client.send(body.as_bytes());
            assert_eq!(client.response(method == "HEAD").status, 200);
            client.send(NEXT);
            assert_eq!(client.response(false).status, 200);
        }
    }
    // A final answer instead, after which nobody knows what comes.
    for (framed, status) in [("Content-Length: 5", 405), ("Content-Length: 65537", 405)] {
        let mut client = served.connect();
        client.send(
            format!("PUT / HTTP/1.1\r\nHost: a\r\n{framed}\r\nExpect: 100-continue\r\n\r\n")
                .as_bytes(),
        );
        let response = client.response(false);
        assert_eq!((response.status, response.closes()), (status, true));
        client.end_sending();
        assert!(client.is_closed());
    }
    let mut large = served.connect();
    large.send(
        b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 65537\r\nExpect: 100-continue\r\n\r\n",
    );
    assert_eq!(large.response(false).status, 413);
}

#[test]
fn a_head_answer_has_no_body_and_is_followed_by_the_next() {
    let served = Served::new();
    let lines = ["", "Content-Length: 3\r\n", "Connection: keep-alive\r\n"];
    for (number, line) in lines.into_iter().enumerate() {
        for target in ["/ten.txt", "/absent", "/with%20index", "*"] {
            let mut client = served.connect();
            let body = if number == 1 { "abc" } else { "" };
            client
                .send(format!("HEAD {target} HTTP/1.1\r\nHost: a\r\n{line}\r\n{body}").as_bytes());
            client.send(NEXT);
            let head = client.response(true);
            assert!(head.field("content-length").is_some(), "{target}");
            assert_eq!(client.response(false).body, b"0123456789", "{target}");
        }
    }
}
