//! A server on a thread of its own, and a client that speaks raw bytes.
#![allow(dead_code, reason = "each test binary uses its part of the harness")]
#![allow(
    unreachable_pub,
    reason = "a module of several test binaries, exported from none"
)]

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

use sinew_cli::rt::{self, CancelToken};
use sinew_cli::serve::{Config, Server, Summary};
use tempfile::TempDir;

/// A limit that only a hang exceeds.
pub const SAFETY: Duration = Duration::from_secs(60);

/// A running server and its folder.
pub struct Served {
    pub folder: TempDir,
    pub address: SocketAddr,
    token: CancelToken,
    thread: Option<JoinHandle<Summary>>,
}

impl Served {
    /// Serves the files of [`tree`] with the limits that `adjust` sets.
    pub fn with(adjust: impl FnOnce(&mut Config)) -> Self {
        let folder = tree();
        let mut config = Config {
            folder: folder.path().join("served"),
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            // Nothing ends by these unless a test says so.
            idle_timeout: SAFETY,
            header_timeout: SAFETY,
            write_timeout: SAFETY,
            grace: SAFETY,
            ..Config::default()
        };
        adjust(&mut config);
        let token = CancelToken::new();
        let shutdown = token.clone();
        let (sender, receiver) = mpsc::channel();
        let thread = thread::spawn(move || {
            rt::run(|| {
                let server = Server::bind(config).expect("binds");
                sender.send(server.local_addr()).expect("the test waits");
                server.run(&shutdown).expect("runs")
            })
        });
        let address = receiver.recv().expect("the server starts");
        Self {
            folder,
            address,
            token,
            thread: Some(thread),
        }
    }

    /// A server with limits that no test reaches.
    pub fn new() -> Self {
        Self::with(|_| {})
    }

    pub fn connect(&self) -> Client {
        let stream = TcpStream::connect(self.address).expect("connects");
        stream.set_read_timeout(Some(SAFETY)).expect("a timeout");
        stream.set_write_timeout(Some(SAFETY)).expect("a timeout");
        stream.set_nodelay(true).expect("no delay");
        Client {
            stream,
            input: Vec::new(),
        }
    }

    /// One request on a connection of its own.
    pub fn ask(&self, request: &str) -> Response {
        let mut client = self.connect();
        client.send(request.as_bytes());
        client.response(request.starts_with("HEAD "))
    }

    /// A GET with further header lines.
    pub fn get(&self, target: &str, lines: &str) -> Response {
        self.ask(&format!("GET {target} HTTP/1.1\r\nHost: a\r\n{lines}\r\n"))
    }

    /// Begins the end without waiting for it.
    pub fn fire(&self) {
        self.token.cancel("the test is over");
    }

    /// Whether the server has returned.
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Ends the server and tells what it did.
    pub fn stop(mut self) -> Summary {
        self.fire();
        self.thread
            .take()
            .expect("still there")
            .join()
            .expect("no panic")
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.fire();
        if let Some(thread) = self.thread.take() {
            let summary = thread.join();
            if !thread::panicking() {
                assert_eq!(summary.expect("no panic").panics, 0);
            }
        }
    }
}

/// An answer, taken apart.
#[derive(Debug, PartialEq, Eq)]
pub struct Response {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Response {
    /// The value of a header line that stands there once.
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut values = self.head.lines().skip(1).filter_map(|line| {
            let (field, value) = line.split_once(": ")?;
            field.eq_ignore_ascii_case(name).then_some(value)
        });
        let value = values.next();
        assert_eq!(values.next(), None, "{name} stands there twice");
        value
    }

    pub fn closes(&self) -> bool {
        self.field("connection") == Some("close")
    }
}

/// A raw connection.
pub struct Client {
    pub stream: TcpStream,
    input: Vec<u8>,
}

impl Client {
    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("sends");
    }

    /// Reads one answer by its `Content-Length`; panics on anything else.
    pub fn response(&mut self, head_only: bool) -> Response {
        let end = loop {
            if let Some(at) = self
                .input
                .windows(4)
                .position(|window| window == b"\r\n\r\n")
            {
                break at;
            }
            assert!(self.more(), "closed within a head: {:?}", self.input);
        };
        let head = String::from_utf8(self.input[..end].to_vec()).expect("text");
        self.input.drain(..end + 4);
        let status = head
            .get(9..12)
            .and_then(|code| code.parse().ok())
            .expect("a status");
        let mut response = Response {
            status,
            head,
            body: Vec::new(),
        };
        assert!(response.head.starts_with("HTTP/1.1 "), "{response:?}");
        let dated = response.field("date").is_some();
        assert_eq!(dated, status >= 200, "{response:?}");
        let bodiless = matches!(status, 100..200 | 204 | 304);
        assert!(!bodiless || response.field("content-length").is_none());
        if !head_only && !bodiless {
            let length = response.field("content-length").expect("a length");
            let length = length.parse().expect("a number");
            while self.input.len() < length {
                assert!(self.more(), "closed within a body: {}", response.head);
            }
            response.body = self.input.drain(..length).collect();
        }
        response
    }

    /// Whether the server closes now without another byte.
    pub fn is_closed(&mut self) -> bool {
        self.input.is_empty() && !self.more()
    }

    /// Everything until the server closes.
    pub fn rest(mut self) -> Vec<u8> {
        while self.more() {}
        self.input
    }

    /// The same, where the server may have closed already.
    pub fn end_sending_if_open(&self) {
        let _closed = self.stream.shutdown(Shutdown::Write);
    }

    pub fn end_sending(&self) {
        self.stream.shutdown(Shutdown::Write).expect("shuts down");
    }

    /// Reads on; `false` at the end, orderly or not. Waiting in vain is a failure.
    fn more(&mut self) -> bool {
        let mut piece = vec![0; 64 * 1024];
        match self.stream.read(&mut piece) {
            Ok(count) => {
                self.input.extend_from_slice(&piece[..count]);
                count > 0
            }
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => false,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => true,
            Err(error) => panic!("the server neither answers nor closes: {error}"),
        }
    }
}

/// Makes a client slow.
#[expect(
    clippy::disallowed_methods,
    reason = "the client is no coroutine, and its pace is tested"
)]
pub fn pace() {
    thread::sleep(Duration::from_millis(5));
}

/// Bytes that differ from place to place.
pub fn pattern(length: usize) -> Vec<u8> {
    (0..length)
        .map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect()
}

/// Has a file have changed on 6 November 1994, at 8:49:37, and waits until it has a tag.
pub fn settle(path: &Path) {
    date_back(path);
    age(path);
}

/// Waits until the kernel's clock is past the last touch of a file.
#[expect(
    clippy::disallowed_methods,
    reason = "the kernel dates files by the clock on the wall"
)]
pub fn age(path: &Path) {
    const TICKS: Duration = Duration::from_millis(60);
    let stat = fs::metadata(path).expect("is there");
    let touched = Duration::new(stat.ctime() as u64, stat.ctime_nsec() as u32);
    while SystemTime::UNIX_EPOCH + touched + TICKS > SystemTime::now() {
        pace();
    }
}

fn date_back(path: &Path) {
    let file = fs::File::options().write(true).open(path);
    let then = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
    file.and_then(|file| file.set_modified(then))
        .expect("a time");
}

/// A folder `served`, with a secret beside it.
fn tree() -> TempDir {
    let base = tempfile::tempdir().expect("a folder");
    let served = base.path().join("served");
    let file = |name: &str, bytes: &[u8]| {
        fs::write(served.join(name), bytes).expect("a file");
        date_back(&served.join(name));
    };
    fs::create_dir_all(served.join("with index")).expect("a folder");
    fs::create_dir_all(served.join("empty")).expect("a folder");
    file("index.html", b"<p>root</p>");
    file("with index/index.html", b"<p>inner</p>");
    file("ten.txt", b"0123456789");
    file("none.bin", b"");
    file("a b%.css", b"p {}");
    file("big.bin", &pattern(3_000_000));
    age(&served.join("big.bin"));
    fs::write(base.path().join("secret.txt"), "secret").expect("a file");
    base
}
