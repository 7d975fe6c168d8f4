//! The load generator against a real server and against servers that misbehave.

mod harness;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
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

/// A server that answers as many requests as `per_connection` on each connection, by their numbers, in the order in which they came,
/// then closes without a word. It says how many requests it had seen at most before it answered the first of them.
fn counting(per_connection: usize, at_once: usize) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
    let address = listener.local_addr().expect("an address");
    let together = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&together);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let seen = Arc::clone(&seen);
            thread::spawn(move || {
                let mut left = per_connection;
                let (mut input, mut ended) = (Vec::new(), false);
                while left > 0 && !ended {
                    // Waits until so many have come: who sends them one by one waits for ever.
                    let mut piece = [0; 512];
                    while !ended && count_heads(&input) < at_once.min(left) {
                        let count = stream.read(&mut piece).unwrap_or(0);
                        ended = count == 0;
                        input.extend_from_slice(&piece[..count]);
                    }
                    let whole = count_heads(&input);
                    seen.fetch_max(whole, Ordering::Relaxed);
                    for _ in 0..whole.min(left) {
                        let end = input.windows(4).position(|end| end == b"\r\n\r\n");
                        input.drain(..end.expect("a head") + 4);
                        left -= 1;
                        let body = "x".repeat(per_connection - left);
                        let head =
                            format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
                        if stream
                            .write_all(format!("{head}{body}").as_bytes())
                            .is_err()
                        {
                            return;
                        }
                    }
                }
                // An orderly end, even if more has come.
                let _gone = stream.shutdown(Shutdown::Write);
                while stream.read(&mut [0; 512]).is_ok_and(|count| count > 0) {}
            });
        }
    });
    (address, together)
}

fn count_heads(input: &[u8]) -> usize {
    input.windows(4).filter(|end| end == b"\r\n\r\n").count()
}

#[test]
fn a_pipeline_is_as_deep_as_it_says() {
    let (address, together) = counting(usize::MAX, 8);
    let report = run(Config {
        pipeline: 8,
        // Of several, the last requests would not come in eights on each.
        connections: 1,
        requests: Some(160),
        ..config(address, "/")
    });
    assert_eq!(
        (report.succeeded, report.errors.total(), report.reconnects),
        (160, 0, 0)
    );
    assert_eq!(together.load(Ordering::Relaxed), 8);
    assert_eq!(report.pipeline, 8);
    assert!(report.to_string().contains("8 requests at a time"));
}

#[test]
fn what_a_pipeline_had_sent_is_sent_again_when_the_server_closes() {
    // Three answers, of 1, 2 and 3 bytes, then the end: every request is answered once in the end.
    let (address, _) = counting(3, 1);
    let report = run(Config {
        pipeline: 8,
        connections: 1,
        requests: Some(60),
        ..config(address, "/")
    });
    assert_eq!((report.succeeded, report.errors.total()), (60, 0));
    assert_eq!(report.body_bytes, 20 * (1 + 2 + 3));
    assert_eq!(report.reconnects, 19);
}

#[test]
fn a_pipeline_over_the_real_server() {
    let served = Served::new();
    for (path, body_bytes, requests) in [("/ten.txt", 10, 4_000), ("/big.bin", 3_000_000, 40)] {
        let report = run(Config {
            pipeline: 16,
            body_bytes: Some(body_bytes),
            requests: Some(requests),
            ..config(served.address, path)
        });
        assert_eq!(
            (report.succeeded, report.errors.total()),
            (requests, 0),
            "{path}"
        );
        assert_eq!(report.body_bytes, requests * body_bytes);
        assert_eq!(report.reconnects, 0);
    }
    assert_eq!(served.stop().answers, 4_040);
}

#[test]
fn errors_in_a_pipeline_are_told_apart() {
    let piped = |address| Config {
        pipeline: 5,
        ..config(address, "/")
    };
    let served = Served::new();
    let mut absent = piped(served.address);
    absent.target = format!("http://{}/absent", served.address)
        .parse()
        .expect("a URL");
    assert_eq!(run(absent).errors.status, 20);
    let garbage = peer(|_| Some(b"SSH-2.0-server\r\n".to_vec()));
    assert_eq!(run(piped(garbage)).errors.protocol, 20);
    let silent = peer(|_| None);
    assert_eq!(run(piped(silent)).errors.reset, 20);
    // A byte too many is the beginning of the next answer, which is none then.
    let more = peer(|_| Some(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nab".to_vec()));
    let report = run(piped(more));
    assert_eq!(report.succeeded + report.errors.protocol, 20);
    assert!(report.errors.protocol >= 4, "{report:?}");
    let short = peer(|number| {
        (number == 0).then(|| b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfour".to_vec())
    });
    let mut hurried = piped(short);
    hurried.timeout = Duration::from_millis(200);
    hurried.requests = Some(20);
    let report = run(hurried);
    assert_eq!(
        (report.succeeded, report.errors.total()),
        (0, 20),
        "{report:?}"
    );
    assert!(report.errors.timeout >= 4, "{report:?}");
}

#[test]
fn the_latency_of_a_pipelined_request_is_its_own() {
    // Each answer takes 20 ms, and ten are asked for at once: the last has waited for ten of them.
    let slow = peer(|_| {
        for _ in 0..4 {
            harness::pace();
        }
        Some(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec())
    });
    let report = run(Config {
        pipeline: 10,
        connections: 1,
        requests: Some(10),
        ..config(slow, "/")
    });
    assert_eq!(report.succeeded, 10);
    let latency = report.latency_us.expect("something succeeded");
    assert!(
        latency.min >= 20_000.0 && latency.max >= 200_000.0,
        "{latency:?}"
    );
    // They were sent together and answered one after the other.
    assert!(latency.max - latency.min >= 175_000.0, "{latency:?}");
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
    assert!(refuse(|config| config.pipeline = 0).contains("pipeline is zero"));
    assert!(refuse(|config| config.pipeline = 1025).contains("above 1024"));
    let long = format!("http://127.0.0.1/{}", "x".repeat(70_000));
    let mut config = config(address, "/");
    config.target = long.parse().expect("a URL");
    let long = rt::run(|| load::run(config, |_| {})).expect_err("refused");
    assert!(long.to_string().contains("64 KiB"));
    let unknown = refuse(|config| config.target = "http://host.invalid/".parse().expect("a URL"));
    assert!(unknown.contains("host.invalid"), "{unknown}");
}
