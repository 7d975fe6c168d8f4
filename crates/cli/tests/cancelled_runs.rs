//! The server and the load generator in coroutines that are told to stop, and many connections at once.

mod harness;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use harness::{Client, SAFETY, Served};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sinew_cli::load;
use sinew_cli::rt::{self, CancelToken};
use sinew_cli::serve::{AccessLog, Config, Server};

const CROWD: usize = 1_000;

/// A server's folder and configuration, on a port that was free.
fn config() -> (tempfile::TempDir, Config) {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("ten.txt"), "0123456789").expect("a file");
    std::fs::write(folder.path().join("big.bin"), vec![7; 8_000_000]).expect("a file");
    let config = Config {
        folder: folder.path().to_owned(),
        address: SocketAddr::from(([127, 0, 0, 1], 0)),
        idle_timeout: SAFETY,
        header_timeout: SAFETY,
        write_timeout: SAFETY,
        grace: SAFETY,
        ..Config::default()
    };
    (folder, config)
}

fn ask(address: SocketAddr, path: &str) -> rt::TcpStream {
    let mut stream = rt::connect(address, SAFETY).expect("connects");
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("sends");
    let mut start = [0; 15];
    stream.read_exact(&mut start).expect("an answer");
    assert_eq!(&start, b"HTTP/1.1 200 OK");
    stream
}

#[test]
fn a_cancelled_server_cuts_its_connections_and_ends() {
    let (_folder, config) = config();
    let address = rt::run(|| {
        let server = Server::bind(config).expect("binds");
        let address = server.local_addr();
        let never = CancelToken::new();
        let running = rt::spawn_local(move || server.run(&never));
        // One is idle after its answer, one does not take the whole of a large answer.
        let mut idle = ask(address, "/ten.txt");
        let mut stuck = ask(address, "/big.bin");
        running.cancel("the test is over");
        let error = running
            .join()
            .expect("no panic")
            .expect_err("it was cut short");
        assert!(rt::is_cancelled(&error), "{error}");
        let mut rest = Vec::new();
        idle.read_to_end(&mut rest).expect("an orderly end");
        assert!(rest.ends_with(b"0123456789"));
        let taken = stuck.read_to_end(&mut rest);
        assert!(taken.is_err() || rest.len() < 8_000_000, "it was not cut");
        address
    });
    // The run has returned, so nothing of the server lives; its port is free.
    TcpListener::bind(address).expect("binds again");
}

/// Runs the load generator until it has reported `reports` times, and cancels it then.
fn cancelled_load(address: SocketAddr, reports: usize) {
    let mut config = load::Config::new(format!("http://{address}/ten.txt").parse().expect("a URL"));
    config.duration = Some(Duration::from_secs(3600));
    config.timeout = Duration::from_secs(3600);
    let error = rt::run(|| {
        let run = rt::spawn_local(move || {
            let mut seen = 0;
            load::run(config, |_| {
                seen += 1;
                if seen == reports {
                    let me = sinew::current().expect("a coroutine");
                    me.cancel_token().cancel("the test is over");
                }
            })
        });
        run.join().expect("no panic").expect_err("it was cut short")
    });
    assert!(rt::is_cancelled(&error), "{error}");
}

#[test]
fn a_cancelled_load_run_ends_whatever_its_connections_do() {
    let served = Served::new();
    cancelled_load(served.address, 2);
    assert!(served.stop().answers > 0);

    // Connects, and is never answered.
    let silent = TcpListener::bind("127.0.0.1:0").expect("binds");
    cancelled_load(silent.local_addr().expect("an address"), 2);

    // Nobody listens: the connections pause.
    let nobody = silent.local_addr().expect("an address");
    drop(silent);
    cancelled_load(nobody, 2);
}

/// Both ends of a thousand connections are in this process.
fn raise_the_limit_of_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    setrlimit(Resource::Nofile, raised).expect("up to the maximum is allowed");
}

#[test]
fn a_thousand_connections_are_kept_at_once() {
    raise_the_limit_of_descriptors();
    let served = Served::new();
    let mut clients: Vec<Client> = (0..CROWD).map(|_| served.connect()).collect();
    for _ in 0..2 {
        for client in &mut clients {
            client.send(b"GET /ten.txt HTTP/1.1\r\nHost: a\r\n\r\n");
        }
        for client in &mut clients {
            let response = client.response(false);
            assert_eq!(
                (response.status, &*response.body),
                (200, &b"0123456789"[..])
            );
            assert!(!response.closes());
        }
    }
    // All of them are idle now, and end by the drain.
    served.fire();
    assert!(clients.iter_mut().all(Client::is_closed));
    let summary = served.stop();
    assert_eq!(summary.connections, CROWD as u64);
    assert_eq!(summary.answers, 2 * CROWD as u64);
    assert_eq!((summary.cut, summary.panics), (0, 0));
}

#[test]
fn the_load_generator_keeps_a_thousand_connections() {
    raise_the_limit_of_descriptors();
    let served = Served::new();
    let mut config = load::Config::new(
        format!("http://{}/ten.txt", served.address)
            .parse()
            .expect("a URL"),
    );
    config.connections = CROWD;
    config.duration = None;
    config.requests = Some(5 * CROWD as u64);
    config.body_bytes = Some(10);
    config.timeout = SAFETY;
    let report = rt::run(|| load::run(config, |_| {})).expect("runs");
    assert_eq!(report.succeeded, 5 * CROWD as u64);
    assert_eq!((report.errors.total(), report.reconnects), (0, 0));
    assert_eq!(served.stop().connections, CROWD as u64);
}

#[test]
fn requests_that_come_together_leave_others_their_turn() {
    const TOGETHER: usize = 600;
    let (folder, mut config) = config();
    let log = folder.path().join("log");
    config.access_log = Some(AccessLog::File(log.clone()));
    rt::run(|| {
        let server = Server::bind(config).expect("binds");
        let address = server.local_addr();
        let shutdown = CancelToken::new();
        let token = shutdown.clone();
        let running = rt::spawn_local(move || server.run(&shutdown));
        let mut greedy = ask(address, "/ten.txt");
        let mut modest = ask(address, "/ten.txt");
        // Both are with the kernel before the server runs again: it finds two clients with something to do.
        let request = b"HEAD /ten.txt?greedy HTTP/1.1\r\nHost: a\r\n\r\n";
        greedy
            .write_all(&request.repeat(TOGETHER))
            .expect("it fits");
        let request = b"GET /ten.txt?modest HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        modest.write_all(request).expect("it fits");
        modest.set_read_timeout(Some(SAFETY)).expect("a timeout");
        let mut answers = Vec::new();
        modest.read_to_end(&mut answers).expect("an answer");
        token.cancel("the test is over");
        running.join().expect("no panic").expect("an orderly end");
    });
    // The log has the answers in the order in which they were given.
    let log = std::fs::read_to_string(log).expect("a log");
    let before = log.lines().take_while(|line| !line.contains("modest"));
    let before = before.filter(|line| line.contains("greedy")).count();
    assert!(before < 100, "{before} answers to another came first");
}

#[test]
fn without_a_grace_connections_are_cut_at_once() {
    let (_folder, mut config) = config();
    config.grace = Duration::ZERO;
    let summary = rt::run(|| {
        let server = Server::bind(config).expect("binds");
        let address = server.local_addr();
        let shutdown = CancelToken::new();
        let token = shutdown.clone();
        let running = rt::spawn_local(move || server.run(&shutdown));
        let _stuck = ask(address, "/big.bin");
        token.cancel("no grace");
        running.join().expect("no panic").expect("an orderly end")
    });
    assert_eq!((summary.connections, summary.cut), (1, 1));
}
