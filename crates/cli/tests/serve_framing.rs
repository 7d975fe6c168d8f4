//! Where one request ends and the next begins: pipelining, bodies, smuggling.

mod harness;

use std::fs;

use harness::Served;

const GET: &str = "GET /ten.txt HTTP/1.1\r\nHost: a\r\n\r\n";

#[test]
fn a_hundred_pipelined_requests_in_order() {
    let served = Served::new();
    for number in 0..100 {
        let name = served.folder.path().join(format!("served/{number}.txt"));
        fs::write(name, format!("file {number}")).expect("a file");
    }
    let all: String = (0..100)
        .map(|number| {
            let method = if number % 7 == 3 { "HEAD" } else { "GET" };
            format!("{method} /{number}.txt HTTP/1.1\r\nHost: a\r\n\r\n")
        })
        .collect();
    let mut client = served.connect();
    client.send(all.as_bytes());
    for number in 0..100 {
        let head_only = number % 7 == 3;
        let response = client.response(head_only);
        let body = if head_only {
            String::new()
        } else {
            format!("file {number}")
        };
        assert_eq!(
            (response.status, response.body),
            (200, body.into_bytes()),
            "{number}"
        );
    }
    client.end_sending();
    assert!(client.is_closed());
}

#[test]
fn answers_to_pipelined_large_files_do_not_need_a_reader_between() {
    let served = Served::new();
    let mut client = served.connect();
    client.send(
        "GET /big.bin HTTP/1.1\r\nHost: a\r\n\r\n"
            .repeat(5)
            .as_bytes(),
    );
    for _ in 0..5 {
        assert!(client.response(false).body == harness::pattern(3_000_000));
    }
}

#[test]
fn a_head_byte_by_byte() {
    let served = Served::new();
    let mut client = served.connect();
    for _ in 0..3 {
        for byte in format!("\r\n{GET}").bytes() {
            client.send(&[byte]);
        }
        assert_eq!(client.response(false).body, b"0123456789");
    }
}

#[test]
fn every_split_of_two_requests() {
    let served = Served::new();
    let body =
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
    let both = format!("{body}{GET}");
    let mut client = served.connect();
    for split in 1..both.len() {
        let (first, second) = both.as_bytes().split_at(split);
        client.send(first);
        client.send(second);
        assert_eq!(client.response(false).status, 405, "{split}");
        assert_eq!(client.response(false).status, 200, "{split}");
    }
}

#[test]
fn keep_alive_and_close() {
    let served = Served::new();
    let table = [
        ("HTTP/1.1", "", false, None),
        ("HTTP/1.1", "Connection: close\r\n", true, Some("close")),
        ("HTTP/1.1", "Connection: x, CLOSE\r\n", true, Some("close")),
        ("HTTP/1.0", "", true, Some("close")),
        (
            "HTTP/1.0",
            "Connection: keep-alive\r\n",
            false,
            Some("keep-alive"),
        ),
    ];
    for (version, lines, closes, connection) in table {
        let request = format!("GET /ten.txt {version}\r\nHost: a\r\n{lines}\r\n");
        let mut client = served.connect();
        client.send(request.as_bytes());
        let response = client.response(false);
        assert_eq!(response.field("connection"), connection, "{request:?}");
        assert_eq!(response.body, b"0123456789");
        if closes {
            assert!(client.is_closed(), "{request:?}");
        } else {
            client.send(request.as_bytes());
            assert_eq!(client.response(false).status, 200, "{request:?}");
        }
    }
}

#[test]
fn a_request_after_close_is_not_answered() {
    let served = Served::new();
    let mut client = served.connect();
    client.send(format!("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n{GET}").as_bytes());
    assert_eq!(client.response(false).status, 200);
    assert!(client.is_closed());
}

#[test]
fn bodies_are_read_off_exactly() {
    let served = Served::new();
    let long = format!("Content-Length: 65536\r\n\r\n{}", "GET ".repeat(16_384));
    let table = [
        "Content-Length: 0\r\n\r\n",
        "Content-Length: 5\r\n\r\nGET /",
        "Content-Length: 4\r\nContent-Length: 4\r\n\r\n\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n12;x=y\r\nGET / HTTP/1.1\r\n\r\n\r\n0\r\nT: x\r\n\r\n",
        long.as_str(),
    ];
    for (number, framed) in table.iter().enumerate() {
        for (method, status) in [("GET", 200), ("POST", 405), ("BREW", 501)] {
            let mut client = served.connect();
            client
                .send(format!("{method} /ten.txt HTTP/1.1\r\nHost: a\r\n{framed}{GET}").as_bytes());
            assert_eq!(client.response(false).status, status, "{method} {number}");
            assert_eq!(
                client.response(false).body,
                b"0123456789",
                "{method} {number}"
            );
            client.end_sending();
            assert!(client.is_closed(), "{method} {number}");
        }
    }
}

#[test]
fn what_has_two_readings_is_refused_and_nothing_after_it_is_answered() {
    let served = Served::new();
    let table = [
        (
            400,
            "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        ),
        (
            400,
            "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        ),
        (400, "Content-Length: 5\r\nContent-Length: 6\r\n\r\n"),
        (400, "Content-Length: 5, 5\r\n\r\n"),
        (400, "Content-Length: +0\r\n\r\n"),
        (400, "Content-Length: 0x0\r\n\r\n"),
        (400, "Content-Length: \r\n\r\n"),
        (400, "Content-Length: 99999999999999999999\r\n\r\n"),
        (400, "Content-Length : 0\r\n\r\n"),
        (400, "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n"),
        (400, "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n"),
        (400, "Transfer-Encoding: chunked\r\n\r\n0\n\n"),
        (400, "Transfer-Encoding: chunked\r\n\r\n-1\r\n\r\n"),
        (400, "Transfer-Encoding: chunked\r\n\r\nx\r\n\r\n"),
        (
            400,
            "Transfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n",
        ),
        (501, "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"),
        (501, "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n"),
        (501, "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
        (
            501,
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
        ),
        (400, "Transfer-Encoding: \u{b}chunked\r\n\r\n0\r\n\r\n"),
        (413, "Content-Length: 65537\r\n\r\n"),
    ];
    for (status, framed) in table {
        let mut client = served.connect();
        client.send(format!("GET /ten.txt HTTP/1.1\r\nHost: a\r\n{framed}{GET}").as_bytes());
        client.end_sending();
        assert_eq!(client.response(false).status, status, "{framed:?}");
        assert!(client.is_closed(), "{framed:?}");
    }
    let mut old = served.connect();
    old.send(b"GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
    assert_eq!(old.response(false).status, 400);
    assert!(old.is_closed());
}

#[test]
fn an_endless_chunked_body_is_cut_off() {
    let served = Served::new();
    let mut client = served.connect();
    client.send(b"GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    let chunk = format!("1000\r\n{}\r\n", "x".repeat(0x1000));
    for _ in 0..17 {
        client.send(chunk.as_bytes());
    }
    assert_eq!(client.response(false).status, 413);
    client.end_sending();
    assert!(client.is_closed());
}

#[test]
fn a_client_that_asks_before_sending_gets_the_final_answer() {
    let served = Served::new();
    let mut client = served.connect();
    client.send(b"PUT /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n");
    let response = client.response(false);
    assert_eq!((response.status, response.closes()), (405, true));
    client.end_sending();
    assert!(client.is_closed());
}
