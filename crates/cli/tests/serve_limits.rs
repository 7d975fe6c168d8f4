//! Clients that are slow, silent, too many or cut off; and how the server ends.

mod harness;

use std::fs::File;
use std::io::{Read, Write};
use std::time::Duration;

use harness::{SAFETY, Served};

/// More than the buffers of a connection hold.
const LARGE: u64 = 64 * 1024 * 1024;

const GET: &str = "GET /ten.txt HTTP/1.1\r\nHost: a\r\n\r\n";

/// Sends one byte of `bytes` at a time, again and again, until the server has had enough.
fn trickle(client: &harness::Client, bytes: &[u8], interval: Duration) {
    let mut stream = client.stream.try_clone().expect("a second handle");
    let answer = client.stream.try_clone().expect("a third handle");
    answer.set_read_timeout(Some(interval)).expect("a timeout");
    for byte in bytes.iter().cycle() {
        if stream.write_all(&[*byte]).is_err() {
            return;
        }
        // Waiting for an answer is what spaces the bytes.
        let mut first = [0];
        if answer.peek(&mut first).is_ok() {
            return;
        }
    }
}

#[test]
fn a_head_that_trickles_is_cut_by_one_deadline() {
    let served = Served::with(|config| config.header_timeout = Duration::from_millis(300));
    let mut client = served.connect();
    client.send(b"GET / HTTP/1.1\r\nHost: a\r\nX: ");
    trickle(&client, b"y", Duration::from_millis(20));
    client
        .stream
        .set_read_timeout(Some(SAFETY))
        .expect("a timeout");
    let response = client.response(false);
    assert_eq!((response.status, response.closes()), (408, true));
}

#[test]
fn blank_lines_do_not_move_the_deadline() {
    let served = Served::with(|config| config.header_timeout = Duration::from_millis(300));
    let mut client = served.connect();
    trickle(&client, b"\r\n", Duration::from_millis(20));
    client
        .stream
        .set_read_timeout(Some(SAFETY))
        .expect("a timeout");
    assert_eq!(client.response(false).status, 408);
}

#[test]
fn a_body_that_trickles_is_cut_as_well() {
    let served = Served::with(|config| config.header_timeout = Duration::from_millis(300));
    for framing in [
        "Content-Length: 60000\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\nfff0\r\n",
    ] {
        let mut client = served.connect();
        client.send(format!("GET / HTTP/1.1\r\nHost: a\r\n{framing}").as_bytes());
        trickle(&client, b"y", Duration::from_millis(20));
        client
            .stream
            .set_read_timeout(Some(SAFETY))
            .expect("a timeout");
        assert_eq!(client.response(false).status, 408, "{framing:?}");
    }
}

#[test]
fn an_idle_connection_is_closed_without_a_word() {
    let served = Served::with(|config| config.idle_timeout = Duration::from_millis(100));
    assert!(served.connect().is_closed());
    let mut client = served.connect();
    client.send(GET.as_bytes());
    assert_eq!(client.response(false).status, 200);
    assert!(client.is_closed());
}

#[test]
fn a_client_that_leaves_in_the_middle_gets_nothing() {
    let served = Served::new();
    for part in [
        "G",
        "GET / HTTP/1.1\r\nHost: a\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nx",
    ] {
        let mut client = served.connect();
        client.send(part.as_bytes());
        client.end_sending();
        assert!(client.is_closed(), "{part:?}");
    }
    assert_eq!(served.stop().answers, 0);
}

#[test]
fn a_reader_that_does_not_read_is_cut() {
    let served = Served::with(|config| config.write_timeout = Duration::from_millis(200));
    enlarge(&served, LARGE);
    let mut client = served.connect();
    client.send(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut first = [0; 1];
    client
        .stream
        .peek(&mut first)
        .expect("the answer has begun");
    // The server ends while nothing is read: it has given up on the answer.
    let summary = served.stop();
    assert_eq!(
        summary.cut, 0,
        "the write timeout, not the grace, has ended it"
    );
    assert!((client.rest().len() as u64) < LARGE);
}

#[test]
fn a_reader_that_takes_a_little_now_and_then_is_cut() {
    let served = Served::with(|config| config.write_timeout = Duration::from_millis(300));
    enlarge(&served, LARGE);
    let mut client = served.connect();
    client.send(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut some = [0; 16];
    client
        .stream
        .read_exact(&mut some)
        .expect("the answer has begun");
    served.fire();
    let mut rounds = 0;
    while !served.has_ended() {
        client.stream.read_exact(&mut some).expect("there is more");
        harness::pace();
        rounds += 1;
        assert!(rounds < 10_000, "16 bytes now and then keep the connection");
    }
    assert_eq!(
        served.stop().cut,
        0,
        "the write timeout, not the grace, has ended it"
    );
}

#[test]
fn a_file_that_shrinks_closes_the_connection_short() {
    let served = Served::new();
    enlarge(&served, LARGE);
    let mut client = served.connect();
    client.send(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut some = [0; 1024];
    client.stream.read_exact(&mut some).expect("the beginning");
    let path = served.folder.path().join("served/large");
    File::options()
        .write(true)
        .open(path)
        .expect("opens")
        .set_len(10)
        .expect("shrinks");
    assert!((client.rest().len() as u64) < LARGE);
}

#[test]
fn too_many_connections() {
    let served = Served::with(|config| config.connections_max = 3);
    let mut held: Vec<_> = (0..3).map(|_| served.connect()).collect();
    for client in &mut held {
        client.send(GET.as_bytes());
        assert_eq!(client.response(false).status, 200);
    }
    let mut fourth = served.connect();
    let response = fourth.response(false);
    assert_eq!((response.status, response.closes()), (503, true));
    assert!(response.field("retry-after").is_some());
    assert!(fourth.is_closed());
    for client in &mut held {
        client.send(GET.as_bytes());
        assert_eq!(
            client.response(false).status,
            200,
            "those within the limit go on"
        );
    }
    // A connection's place is given back before its socket is closed.
    let mut last = held.pop().expect("three are held");
    last.end_sending();
    assert!(last.is_closed());
    assert_eq!(served.get("/ten.txt", "").status, 200);
}

#[test]
fn idle_connections_end_at_once_and_what_is_in_flight_is_finished() {
    let served = Served::new();
    enlarge(&served, LARGE);
    let mut download = served.connect();
    download.send(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut first = [0; 1];
    download
        .stream
        .peek(&mut first)
        .expect("the answer has begun");
    let mut idle = served.connect();
    idle.send(GET.as_bytes());
    assert_eq!(idle.response(false).status, 200);
    let mut fresh = served.connect();
    // With the first answer here, the server has the half of the second head as well.
    let mut asking = served.connect();
    asking.send(format!("{GET}GET /ten.txt HTTP/1.1\r\n").as_bytes());
    assert_eq!(asking.response(false).status, 200);

    served.fire();
    assert!(idle.is_closed());
    assert!(fresh.is_closed());
    assert!(!served.has_ended(), "a download is in flight");
    asking.send(b"Host: a\r\n\r\n");
    let answer = asking.response(false);
    assert_eq!((answer.status, answer.closes()), (200, true));
    assert!(asking.is_closed());
    let head = download.response(true);
    assert_eq!(
        head.field("content-length"),
        Some(LARGE.to_string().as_str())
    );
    assert_eq!(download.rest().len() as u64, LARGE);
    assert_eq!(served.stop().cut, 0);
}

#[test]
fn nothing_is_accepted_after_the_end_has_begun() {
    let served = Served::new();
    let address = served.address;
    served.stop();
    assert!(std::net::TcpStream::connect(address).is_err());
}

#[test]
fn the_grace_bounds_the_end() {
    let served = Served::with(|config| {
        config.grace = Duration::from_millis(200);
        config.write_timeout = 10 * SAFETY;
    });
    enlarge(&served, LARGE);
    let mut client = served.connect();
    client.send(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut first = [0; 1];
    client
        .stream
        .peek(&mut first)
        .expect("the answer has begun");
    assert_eq!(served.stop().cut, 1);
}

/// A sparse file `large`.
fn enlarge(served: &Served, size: u64) {
    let path = served.folder.path().join("served/large");
    File::create(path)
        .expect("creates")
        .set_len(size)
        .expect("grows");
}
