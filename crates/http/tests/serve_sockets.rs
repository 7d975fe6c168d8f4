//! The loop over our sockets, and over memory: batches, limits on writing, a client that is slow or gone.

use std::io::{self, Read, Write};
use std::rc::Rc;
use std::time::UNIX_EPOCH;

use sinew::net::{Shutdown, TcpListener, TcpStream};
use sinew::{run, spawn_local};
use sinew_http::{Date, End, Limits, Status, serve};

fn hello(stream: &mut (impl Read + Write)) -> io::Result<End> {
    let date = Date::new(|| UNIX_EPOCH);
    serve(stream, Limits::default(), &date, |request, reply| {
        reply.send(Status::Ok, "text/plain", request.target)
    })
}

const REPLY: &str = "HTTP/1.1 200 OK\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\nContent-Type: text/plain\r\n\
                     Content-Length: 2\r\n\r\n/a";

// contract: I10
#[test]
fn a_thousand_connections_at_once_over_our_sockets() {
    const CLIENTS: usize = 1_000;
    const REQUESTS: usize = 5;
    run(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let served = Rc::new(std::cell::Cell::new(0));
        let server = spawn_local({
            let served = Rc::clone(&served);
            move || {
                for _ in 0..CLIENTS {
                    let (mut stream, _) = listener.accept().unwrap();
                    let served = Rc::clone(&served);
                    sinew::go_local(move || {
                        let end = hello(&mut stream)?;
                        assert_eq!(end, End::Client);
                        served.set(served.get() + 1);
                        Ok::<(), io::Error>(())
                    });
                }
            }
        });
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                spawn_local(move || {
                    let mut stream = TcpStream::connect(address).unwrap();
                    for _ in 0..REQUESTS {
                        stream
                            .write_all(b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n")
                            .unwrap();
                        let mut reply = [0; REPLY.len()];
                        stream.read_exact(&mut reply).unwrap();
                        assert_eq!(String::from_utf8_lossy(&reply), REPLY);
                    }
                    stream.shutdown(Shutdown::Write).unwrap();
                    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
                })
            })
            .collect();
        for client in clients {
            client.join().unwrap();
        }
        server.join().unwrap();
        assert_eq!(served.get(), CLIENTS);
    });
}

/// Counts reads and writes; the input comes in the given pieces.
struct Counted {
    pieces: Vec<Vec<u8>>,
    reads: usize,
    writes: Vec<usize>,
    fail_after: usize,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.reads += 1;
        if self.pieces.is_empty() {
            return Ok(0);
        }
        let piece = self.pieces.remove(0);
        buffer[..piece.len()].copy_from_slice(&piece);
        Ok(piece.len())
    }
}

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.writes.len() == self.fail_after {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        self.writes.push(bytes.len());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

// contract: I10
#[test]
fn one_read_and_one_write_for_each_batch() {
    let request = b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut stream = Counted {
        pieces: vec![request.repeat(16), request.repeat(3), request.to_vec()],
        reads: 0,
        writes: Vec::new(),
        fail_after: usize::MAX,
    };
    assert_eq!(hello(&mut stream).unwrap(), End::Client);
    assert_eq!(stream.reads, 4);
    let batches = [16, 3, 1].map(|requests| requests * REPLY.len());
    assert_eq!(stream.writes, batches);
    // A client that is gone ends it with its error.
    stream.pieces = vec![request.to_vec(), request.to_vec()];
    stream.fail_after = 4;
    let error = hello(&mut stream).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
}

// contract: I10
#[test]
fn a_refusal_is_the_last_word() {
    let mut stream = Counted {
        pieces: vec![b"GET /a HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\nHost: a\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n".to_vec()],
        reads: 0,
        writes: Vec::new(),
        fail_after: usize::MAX,
    };
    assert_eq!(hello(&mut stream).unwrap(), End::Answered);
    assert_eq!((stream.reads, stream.writes.len()), (1, 1));
}
