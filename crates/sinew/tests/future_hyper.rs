//! Real async crates in coroutines, on our sockets: hyper's client and server, tokio's and futures' reading and writing.

use std::cell::Cell;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io::{Read, Write};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, client, server};
use sinew::future::Async;
use sinew::net::{TcpListener, TcpStream, UnixStream};
use sinew::{
    Builder, WaitError, block_on, block_on_timeout, go_local, run, sleep, spawn_local, yield_now,
};

/// Debug builds of hyper have large frames.
const STACK_BYTES: usize = 1 << 20;

fn spawn_deep<T: 'static>(f: impl FnOnce() -> T + 'static) -> sinew::JoinHandle<T> {
    Builder::new()
        .stack_size(STACK_BYTES)
        .spawn_local(f)
        .unwrap()
}

/// Answers with the body in capitals, after a wait that suspends.
async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let pause = spawn_local(|| sleep(Duration::from_micros(100)));
    pause.await.unwrap().unwrap();
    let text = String::from_utf8_lossy(&body).to_uppercase();
    Ok(Response::new(Full::from(format!("{path}: {text}"))))
}

/// Serves connections until it is cancelled.
fn serve(listener: TcpListener) {
    while let Ok((stream, _)) = listener.accept() {
        spawn_deep(move || {
            let connection = server::conn::http1::Builder::new()
                .serve_connection(Async::new(stream), service_fn(answer));
            // A client that goes away in the middle is an error here, and a cancel another.
            let _ = block_on(connection);
        });
    }
}

fn request(path: &str, body: String) -> Request<Full<Bytes>> {
    Request::post(path)
        .header("host", "localhost")
        .body(Full::from(body))
        .unwrap()
}

// contract: A2
#[test]
fn hyper_serves_and_asks_in_coroutines() {
    const CLIENTS: usize = 20;
    const REQUESTS: usize = 20;
    run(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = spawn_local(move || serve(listener));
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                spawn_deep(move || {
                    let stream = TcpStream::connect(address).unwrap();
                    let shaken = block_on(client::conn::http1::handshake(Async::new(stream)));
                    let (mut sender, connection) = shaken.unwrap().unwrap();
                    let driving = spawn_deep(move || block_on(connection));
                    for number in 0..REQUESTS {
                        // From a few bytes to more than a socket's buffer.
                        let text = "x".repeat(1 << (number % 19));
                        let asked = request(&format!("/{client}/{number}"), text.clone());
                        let answered = block_on_timeout(
                            async {
                                let response = sender.send_request(asked).await.unwrap();
                                response.into_body().collect().await.unwrap().to_bytes()
                            },
                            Duration::from_secs(60),
                        );
                        let expected = format!("/{client}/{number}: {}", text.to_uppercase());
                        assert!(answered.unwrap() == expected.as_bytes());
                    }
                    drop(sender);
                    driving.join().unwrap().unwrap().unwrap();
                })
            })
            .collect();
        for client in clients {
            client.join().unwrap();
        }
        server.cancel("done");
        server.join().unwrap();
    });
}

// contract: A2
#[test]
fn hyper_serves_a_client_that_blocks_on_another_thread() {
    let (told, port) = std::sync::mpsc::channel();
    let client = std::thread::spawn(move || {
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", port.recv().unwrap())).unwrap();
        let text =
            "POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\nconnection: close\r\n\r\nhi";
        // Byte by byte: every read of the server's is short.
        for byte in text.as_bytes() {
            stream.write_all(std::slice::from_ref(byte)).unwrap();
        }
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    });
    run(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        told.send(listener.local_addr().unwrap().port()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        let serving = spawn_deep(move || {
            let connection = server::conn::http1::Builder::new()
                .serve_connection(Async::new(stream), service_fn(answer));
            block_on(connection)
        });
        serving.join().unwrap().unwrap().unwrap();
    });
    assert!(client.join().unwrap().ends_with("/a: HI"));
}

// contract: A2
#[test]
fn tokio_and_futures_read_and_write_our_streams() {
    run(|| {
        let (one, other) = UnixStream::pair().unwrap();
        let bytes: Vec<u8> = (0..1_000_000_u32).map(|n| n.to_le_bytes()[0]).collect();
        let expected = bytes.clone();
        let writing = spawn_local(move || {
            block_on(async {
                use tokio::io::AsyncWriteExt;
                let mut one = Async::new(one);
                one.write_all(&bytes).await?;
                one.shutdown().await
            })
        });
        let read = block_on(async {
            use smol::io::AsyncReadExt;
            let mut other = Async::new(other);
            let mut read = Vec::new();
            other.read_to_end(&mut read).await.map(|_| read)
        });
        assert!(read.unwrap().unwrap() == expected);
        writing.join().unwrap().unwrap().unwrap();
    });
}

// contract: A2
#[test]
fn a_read_that_is_given_up_leaves_the_stream_usable() {
    run(|| {
        let (one, mut other) = UnixStream::pair().unwrap();
        let mut one = Async::new(one);
        let mut byte = [0];
        for round in 0..10 {
            let reading = poll_fn(|context| one.poll_read(context, &mut byte));
            assert!(matches!(
                block_on_timeout(reading, Duration::from_micros(round * 10)),
                Err(WaitError::Timeout)
            ));
        }
        other.write_all(b"x").unwrap();
        let reading = poll_fn(|context| one.poll_read(context, &mut byte));
        assert_eq!(block_on(reading).unwrap().unwrap(), 1);
        assert_eq!(byte, *b"x");
        // Closed while it is waited for by a future that is still there.
        let mut reading = pin!(poll_fn(|context| one.poll_read(context, &mut byte)));
        let mut polled =
            poll_fn(|context| Poll::Ready(reading.as_mut().poll(context).is_pending()));
        assert_eq!(block_on(&mut polled), Ok(true));
        drop(other);
        assert_eq!(block_on(reading).unwrap().unwrap(), 0);
        let mut one = one.into_inner();
        assert_eq!(one.read(&mut byte).unwrap(), 0);
    });
}

// contract: A2
#[test]
fn without_a_scheduler_it_says_so_and_a_scheduler_that_is_gone_is_forgotten() {
    let (one, mut other) = run(|| UnixStream::pair().unwrap());
    let mut one = Async::new(one);
    let mut byte = [0];
    let mut poll = |run_it: bool, byte: &mut [u8]| {
        let reading = poll_fn(|context| one.poll_read(context, byte));
        if run_it {
            run(|| block_on_timeout(reading, Duration::ZERO))
        } else {
            block_on_timeout(reading, Duration::ZERO)
        }
    };
    let error = poll(false, &mut byte).unwrap().unwrap_err();
    assert!(
        error.to_string().contains("waiting is not possible here"),
        "{error}"
    );
    // Left in the table of one scheduler, polled on another.
    assert!(matches!(poll(true, &mut byte), Err(WaitError::Timeout)));
    assert!(matches!(poll(true, &mut byte), Err(WaitError::Timeout)));
    other.write_all(b"x").unwrap();
    assert_eq!(poll(true, &mut byte).unwrap().unwrap(), 1);
    assert!(matches!(poll(true, &mut byte), Err(WaitError::Timeout)));
}

// contract: A2
#[test]
fn what_is_always_ready_lets_others_run() {
    run(|| {
        let ticks = Rc::new(Cell::new(0_u32));
        let ticking = ticks.clone();
        let ticker = spawn_local(move || {
            while yield_now().is_ok() {
                ticking.set(ticking.get() + 1);
            }
        });
        let (sender, receiver) = sinew::sync::channel::unbounded();
        let (one, other) = UnixStream::pair().unwrap();
        block_on(async {
            for number in 0..10_000 {
                sender.send_async(number).await.unwrap();
                receiver.recv_async().await.unwrap();
            }
        })
        .unwrap();
        let by_channel = ticks.replace(0);
        assert!(by_channel > 50, "{by_channel} ticks");
        let mut one = Async::new(one);
        block_on(async {
            let mut byte = [0];
            for _ in 0..10_000 {
                poll_fn(|context| one.poll_write(context, b"x"))
                    .await
                    .unwrap();
                // The system call alone: it gives nobody a turn.
                assert_eq!(rustix::io::read(&other, &mut byte).unwrap(), 1);
            }
        })
        .unwrap();
        assert!(ticks.get() > 50, "{} ticks", ticks.get());
        ticker.cancel("done");
        ticker.join().unwrap();
        go_local(|| ());
    });
}
