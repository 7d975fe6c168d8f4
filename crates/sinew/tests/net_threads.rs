//! Sockets and threads: shared by two schedulers, moved from one to the other, used by plain threads meanwhile.

mod io_rig;

use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use io_rig::{read_byte, stress, tcp_pair, watchdog};
use sinew::net::{TcpListener, TcpStream, UnixStream};
use sinew::{run, spawn_local, yield_now};

fn assert_shared<T: Send + Sync>() {}

// contract: I3
#[test]
fn sockets_may_be_shared() {
    assert_shared::<TcpStream>();
    assert_shared::<TcpListener>();
    assert_shared::<UnixStream>();
    assert_shared::<sinew::net::UnixListener>();
    assert_shared::<sinew::net::OwnedReadHalf<TcpStream>>();
    assert_shared::<sinew::net::OwnedWriteHalf<TcpStream>>();
}

// contract: I3
// Two schedulers and a plain thread read one stream: each byte goes to one of them, none waits for ever.
#[test]
fn one_stream_read_by_two_schedulers_and_a_thread() {
    let _watchdog = watchdog();
    let bytes = 300_000 * stress();
    let (a, b) = tcp_pair();
    let (a, total, sum) = (
        Arc::new(a),
        Arc::new(AtomicUsize::new(0)),
        Arc::new(AtomicUsize::new(0)),
    );
    let read_all = |a: Arc<TcpStream>| {
        let (total, sum) = (total.clone(), sum.clone());
        move || {
            let mut buffer = [0; 333];
            loop {
                let len = (&*a).read(&mut buffer).unwrap();
                if len == 0 {
                    return;
                }
                total.fetch_add(len, Relaxed);
                let part: usize = buffer[..len].iter().map(|&byte| usize::from(byte)).sum();
                sum.fetch_add(part, Relaxed);
            }
        }
    };
    let mut threads = Vec::new();
    for _ in 0..2 {
        let (one, two) = (read_all(a.clone()), read_all(a.clone()));
        threads.push(std::thread::spawn(move || {
            run(|| {
                let other = spawn_local(two);
                one();
                other.join().unwrap();
            });
        }));
    }
    threads.push(std::thread::spawn(read_all(a.clone())));
    let mut sent = 0;
    let chunk: Vec<u8> = (0..1_000).map(|n| (n % 251) as u8).collect();
    let mut expected = 0;
    while sent < bytes {
        let part = &chunk[..1 + sent % 997];
        (&b).write_all(part).unwrap();
        sent += part.len();
        expected += part.iter().map(|&byte| usize::from(byte)).sum::<usize>();
    }
    b.shutdown(Shutdown::Write).unwrap();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!((total.load(Relaxed), sum.load(Relaxed)), (sent, expected));
}

// contract: I3
// One scheduler reads what the other has had echoed: both directions of one socket, on two threads.
#[test]
fn one_stream_read_here_and_written_there() {
    let _watchdog = watchdog();
    let bytes = (2 << 20) * stress();
    let (a, b) = tcp_pair();
    let a = Arc::new(a);
    let echo = std::thread::spawn(move || {
        run(|| {
            let (mut from, mut to) = b.into_split();
            sinew::io::copy(&mut from, &mut to).unwrap()
        })
    });
    let writer = a.clone();
    let writing = std::thread::spawn(move || {
        run(|| {
            let chunk = [5; 4_000];
            let mut left = bytes;
            while left > 0 {
                left -= (&*writer).write(&chunk[..left.min(4_000)]).unwrap();
            }
            writer.shutdown(Shutdown::Write).unwrap();
        });
    });
    let mut back = Vec::new();
    run(|| (&*a).read_to_end(&mut back).unwrap());
    writing.join().unwrap();
    assert_eq!(echo.join().unwrap(), bytes as u64);
    assert_eq!(back.len(), bytes);
    assert!(back.iter().all(|&byte| byte == 5));
}

// contract: I3
// contract: I4
// A socket that one scheduler has waited for goes to another thread's, and back.
#[test]
fn a_socket_moves_between_schedulers() {
    let _watchdog = watchdog();
    run(|| {
        let (mut a, mut b) = UnixStream::pair().unwrap();
        for round in 0..50 {
            let reading = spawn_local(move || (read_byte(&a).unwrap(), a));
            yield_now().unwrap();
            b.write_all(&[round]).unwrap();
            let (byte, stream) = reading.join().unwrap();
            assert_eq!(byte, round);
            let thread = std::thread::spawn(move || {
                run(|| {
                    let mut again = stream.try_clone().unwrap();
                    let reading = spawn_local(move || (read_byte(&stream).unwrap(), stream));
                    yield_now().unwrap();
                    again.write_all(b"to b").unwrap();
                    reading.join().unwrap()
                })
            });
            b.write_all(b"t").unwrap();
            let mut text = [0; 4];
            b.read_exact(&mut text).unwrap();
            let (byte, stream) = thread.join().unwrap();
            assert_eq!((byte, &text), (b't', b"to b"));
            a = stream;
        }
    });
}

// contract: I11
#[test]
fn plain_threads_block_until_it_is_there() {
    let _watchdog = watchdog();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        assert_eq!(stream.peek(&mut [0; 4]).unwrap(), 1);
        let byte = read_byte(&stream).unwrap();
        (&stream).write_all(&vec![byte; 4 << 20]).unwrap();
    });
    let client = TcpStream::connect(address).unwrap();
    sinew::sleep(Duration::from_millis(5)).unwrap();
    (&client).write_all(b"q").unwrap();
    let mut back = Vec::new();
    (&client).read_to_end(&mut back).unwrap();
    assert_eq!(back.len(), 4 << 20);
    server.join().unwrap();
}
