//! The load generator against a real server and against servers that misbehave.

mod harness;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::thread;
use std::time::Duration;

use harness::{SAFETY, Served};
use sinew_cli::load::{self, Config, Report};
use sinew_cli::rt;

fn config(address: SocketAddr, path: &str) -> Config {
    let mut config = Config::new(format!("http://{address}{path}").parse().expect("a URL"));
    config.duration = None;
    config.requests = Some(20);
    config.connections = 4;
    config.timeout = SAFETY;
    config
}

fn run(config: Config) -> Report {
    rt::run(|| load::run(config, |_| {})).expect("runs")
}

/// Answers every connection by `answer`, which gets the number of the request on it; an empty
/// answer, or none, closes. Ends with the process.
fn peer(answer: impl Fn(usize) -> Option<Vec<u8>> + Send + Sync + Copy + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            thread::spawn(move || {
                let mut request = Vec::new();
                for number in 0.. {
                    while !request.ends_with(b"\r\n\r\n") {
                        let mut byte = [0];
                        match stream.read(&mut byte) {
                            Ok(1) => request.push(byte[0]),
                            _ => return,
                        }
                    }
                    request.clear();
                    match answer(number) {
                        Some(bytes) if stream.write_all(&bytes).is_ok() => {}
                        _ => return,
                    }
                }
            });
        }
    });
    address
}

#[test]
fn counts_what_the_server_answered() {
    let served = Served::new();
    let report = run(Config {
        body_bytes: Some(10),
        ..config(served.address, "/ten.txt")
    });
    assert_eq!(
        (report.succeeded, report.errors.total(), report.reconnects),
        (20, 0, 0)
    );
    assert_eq!(report.body_bytes, 200);
    assert!(report.bytes > 200);
    let latency = report.latency_us.expect("something succeeded");
    assert!(latency.min > 0.0 && latency.min <= latency.p50 && latency.p50 <= latency.p99);
    assert!(latency.p99 <= latency.p999 && latency.p999 <= latency.max);
    let summary = served.stop();
    assert_eq!(summary.answers, 20);
    assert!((1..=4).contains(&summary.connections), "{summary:?}");
}

#[test]
fn stops_when_the_time_is_up() {
    let served = Served::new();
    let mut config = config(served.address, "/");
    config.requests = None;
    config.duration = Some(Duration::from_millis(300));
    let mut calls = 0;
    let report = rt::run(|| load::run(config, |_| calls += 1)).expect("runs");
    assert!(report.succeeded > 0 && report.errors.total() == 0 && report.unfinished == 0);
    assert!(report.elapsed_seconds >= 0.3);
    assert!(calls >= 1);
    assert_eq!(served.stop().answers, report.succeeded);
}

#[test]
fn tells_errors_apart() {
    let served = Served::new();
    let report = run(config(served.address, "/absent"));
    assert_eq!((report.succeeded, report.errors.status), (0, 20));
    assert_eq!(report.latency_us, None);

    let report = run(Config {
        body_bytes: Some(11),
        ..config(served.address, "/ten.txt")
    });
    assert_eq!((report.succeeded, report.errors.length), (0, 20));

    let short = peer(|number| {
        (number == 0).then(|| b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfour".to_vec())
    });
    let mut hurried = config(short, "/");
    hurried.timeout = Duration::from_millis(200);
    hurried.requests = Some(4);
    assert_eq!(run(hurried).errors.timeout, 4);

    let garbage = peer(|_| Some(b"SSH-2.0-server\r\n".to_vec()));
    assert_eq!(run(config(garbage, "/")).errors.protocol, 20);

    let more = peer(|_| Some(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nab".to_vec()));
    assert_eq!(run(config(more, "/")).errors.protocol, 20);

    let silent = peer(|_| None);
    assert_eq!(run(config(silent, "/")).errors.reset, 20);

    let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
    let nobody = listener.local_addr().expect("an address");
    drop(listener);
    let mut refused = config(nobody, "/");
    refused.requests = Some(8);
    assert_eq!(run(refused).errors.connect, 8);
}

/// A listener that answers each connection once, then closes it.
fn closing(answer: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut request = [0; 1024];
            if stream.read(&mut request).is_ok() && stream.write_all(answer).is_err() {
                return;
            }
        }
    });
    address
}

#[test]
fn a_body_cut_short_is_a_length_error() {
    for answer in [
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfour".as_slice(),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfour",
    ] {
        let report = run(config(closing(answer), "/"));
        assert_eq!(
            (report.succeeded, report.errors.length),
            (0, 20),
            "{answer:?}"
        );
    }
}

#[test]
fn connects_again_when_the_server_closes() {
    for answer in [
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\nfour".as_slice(),
        b"HTTP/1.0 200 OK\r\nContent-Length: 4\r\n\r\nfour",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nfour",
        // Announces nothing and closes all the same.
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfour",
    ] {
        let report = run(config(closing(answer), "/"));
        assert_eq!(
            (report.succeeded, report.errors.total()),
            (20, 0),
            "{answer:?}"
        );
        assert_eq!(report.body_bytes, 80, "{answer:?}");
        // The first connection of each coroutine that got a request at all replaces none.
        assert!(
            (16..20).contains(&report.reconnects),
            "{}",
            report.reconnects
        );
    }
}

#[test]
fn reads_every_framing_and_skips_interim_answers() {
    let address = peer(|number| {
        Some(match number % 3 {
            0 => b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n1;x\r\nd\r\n0\r\nT: x\r\n\r\n"
                .to_vec(),
            1 => b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabcd"
                .to_vec(),
            _ => [b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nX: ".to_vec(), vec![b'x'; 9000], b"\r\n\r\nabcd".to_vec()]
                .concat(),
        })
    });
    let report = run(Config {
        body_bytes: Some(4),
        ..config(address, "/")
    });
    assert_eq!(
        (report.succeeded, report.errors.total(), report.reconnects),
        (20, 0, 0)
    );
}

#[test]
fn a_server_that_never_answers_leaves_unfinished_requests() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
    let mut config = config(listener.local_addr().expect("an address"), "/");
    config.requests = None;
    config.duration = Some(Duration::from_millis(100));
    let report = run(config);
    assert_eq!(
        (report.succeeded, report.errors.total(), report.unfinished),
        (0, 0, 4)
    );
}

#[test]
fn names_what_makes_no_sense() {
    let address = SocketAddr::from(([127, 0, 0, 1], 1));
    let refuse = |adjust: fn(&mut Config)| {
        let mut config = config(address, "/");
        adjust(&mut config);
        rt::run(|| load::run(config, |_| {}))
            .expect_err("refused")
            .to_string()
    };
    assert!(refuse(|config| config.connections = 0).contains("connections is zero"));
    assert!(refuse(|config| config.connections = usize::MAX).contains("above a million"));
    assert!(refuse(|config| config.requests = Some(0)).contains("requests is zero"));
    assert!(refuse(|config| config.requests = None).contains("limits the run"));
    assert!(refuse(|config| config.timeout = Duration::ZERO).contains("timeout is zero"));
    let unknown = refuse(|config| config.target = "http://host.invalid/".parse().expect("a URL"));
    assert!(unknown.contains("host.invalid"), "{unknown}");
}
