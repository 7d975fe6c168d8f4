//! Time for futures, what hyper makes of it, and streams that are sent.

use std::future::{Future, poll_fn};
use std::io::{self, Read, Write};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::rt::{Executor as _, Timer as _};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use sinew::future::hyper::{Executor, Timer};
use sinew::future::{SendAsync, SleepFuture, sleep_async, sleep_until_async};
use sinew::net::{TcpListener, UnixStream};
use sinew::{Builder, WaitError, block_on, block_on_timeout, run, spawn_local, time, yield_now};

/// Debug builds of hyper have large frames.
const STACK_BYTES: usize = 1 << 20;

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn is_anywhere<T: Send + Sync + Unpin + 'static>() {}

// contract: A2
#[test]
fn a_sleep_is_over_in_time_and_never_before() {
    is_anywhere::<SleepFuture>();
    run(|| {
        let sleeps: Vec<_> = (0..200_u64)
            .map(|number| {
                let length = Duration::from_micros(number * 97 % 20_000);
                spawn_local(move || {
                    let begun = time::now();
                    block_on(sleep_async(length)).unwrap();
                    assert!(begun.elapsed() >= length);
                })
            })
            .collect();
        for sleep in sleeps {
            sleep.join().unwrap();
        }
        let begun = time::now();
        block_on(sleep_until_async(begun)).unwrap();
        // One that is given up.
        let given_up = block_on_timeout(sleep_async(Duration::MAX), Duration::from_millis(1));
        assert_eq!(given_up, Err(WaitError::Timeout));
    });
    // Any executor, any thread; polled on one and awaited on another.
    let mut sleep = sleep_async(Duration::from_millis(20));
    let begun = time::now();
    let woken = Arc::new(Count::default());
    let waker = Waker::from(woken.clone());
    let mut context = Context::from_waker(&waker);
    assert_eq!(Pin::new(&mut sleep).poll(&mut context), Poll::Pending);
    std::thread::spawn(move || smol::block_on(sleep))
        .join()
        .unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(19));
    assert_eq!(woken.0.load(Ordering::Relaxed), 0);
}

// contract: A2
#[test]
fn hypers_timer_can_be_reset() {
    let timer = Timer::new();
    let begun = timer.now();
    let mut sleep = timer.sleep(Duration::from_secs(1_000));
    let place = &raw const *sleep;
    run(|| {
        let mut polled = poll_fn(|context| Poll::Ready(sleep.as_mut().poll(context).is_pending()));
        assert_eq!(block_on(&mut polled), Ok(true));
        timer.reset(&mut sleep, begun + Duration::from_millis(10));
        assert!(std::ptr::addr_eq(place, &raw const *sleep), "a new box");
        block_on(sleep.as_mut()).unwrap();
        assert!(begun.elapsed() >= Duration::from_millis(10));
        timer.reset(&mut sleep, time::now() + Duration::from_secs(1_000));
        assert_eq!(
            block_on_timeout(sleep.as_mut(), Duration::ZERO),
            Err(WaitError::Timeout)
        );
    });
}

// contract: I10, A2
#[test]
fn a_client_that_does_not_end_its_head_is_given_up_in_time() {
    const LIMIT: Duration = Duration::from_millis(50);
    run(|| {
        let listener = std::rc::Rc::new(TcpListener::bind("127.0.0.1:0").unwrap());
        let address = listener.local_addr().unwrap();
        let serve = move || {
            let (stream, _) = listener.accept().unwrap();
            let begun = time::now();
            let answer = |_: Request<hyper::body::Incoming>| async {
                Ok::<_, std::convert::Infallible>(Response::new(Full::<Bytes>::from("yes")))
            };
            let connection = http1::Builder::new()
                .timer(Timer::new())
                .header_read_timeout(LIMIT)
                .serve_connection(sinew::future::Async::new(stream), service_fn(answer));
            (block_on(connection).unwrap(), begun.elapsed())
        };
        for text in [
            "GET / HTTP/1.1\r\nhost: ",
            "GET / HTTP/1.1\r\nhost: x\r\n\r\n",
        ] {
            let serve = serve.clone();
            let serving = Builder::new()
                .stack_size(STACK_BYTES)
                .spawn_local(serve)
                .unwrap();
            let mut slow = sinew::net::TcpStream::connect(address).unwrap();
            slow.write_all(text.as_bytes()).unwrap();
            let mut answer = Vec::new();
            slow.read_to_end(&mut answer).unwrap();
            let (result, took) = serving.join().unwrap();
            assert!(took >= LIMIT, "{took:?}");
            // The second asked, was answered, and did not ask again.
            let was_answered = answer.starts_with(b"HTTP/1.1 200");
            assert_eq!(was_answered, text.ends_with("\r\n\r\n"));
            if !was_answered {
                assert!(result.unwrap_err().is_timeout());
            }
        }
    });
}

// contract: A2
#[test]
fn what_hyper_splits_off_runs_in_coroutines() {
    run(|| {
        let (sender, receiver) = sinew::sync::channel::unbounded();
        let executor = Executor::new().stack_size(STACK_BYTES).clone();
        for number in 0..10 {
            let sender = sender.clone();
            executor.execute(async move {
                sleep_async(Duration::from_millis(10 - number)).await;
                sender.send(number).unwrap();
            });
        }
        drop(sender);
        let mut all: Vec<_> = receiver.iter().collect();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..10));
    });
    let outside = std::panic::catch_unwind(|| Executor::new().execute(async {}));
    assert!(outside.is_err());
}

fn read_one(stream: &mut SendAsync<UnixStream>) -> impl Future<Output = io::Result<u8>> {
    use tokio::io::AsyncReadExt;
    async move { stream.read_u8().await }
}

// contract: A2
#[test]
fn a_stream_that_is_sent_works_at_home_only() {
    fn is_send<T: Send>() {}
    is_send::<SendAsync<UnixStream>>();
    run(|| {
        let (one, mut other) = UnixStream::pair().unwrap();
        let mut one = SendAsync::new(one);
        other.write_all(b"x").unwrap();
        assert_eq!(block_on(read_one(&mut one)).unwrap().unwrap(), b'x');
        // Elsewhere it refuses, all of it.
        let mut one = std::thread::spawn(move || {
            use smol::io::AsyncWriteExt;
            let error = smol::block_on(read_one(&mut one)).unwrap_err();
            assert!(error.get_ref().unwrap().is::<WaitError>(), "{error}");
            assert!(smol::block_on(one.write_all(b"x")).is_err());
            assert!(smol::block_on(one.flush()).is_err());
            assert!(smol::block_on(one.close()).is_err());
            assert!(format!("{one:?}").contains("UnixStream"));
            one
        })
        .join()
        .unwrap();
        // Back at home it goes on.
        other.write_all(b"y").unwrap();
        assert_eq!(block_on(read_one(&mut one)).unwrap().unwrap(), b'y');
    });
}

// contract: A2
#[test]
fn a_stream_that_is_waited_for_at_home_may_be_dropped_elsewhere() {
    run(|| {
        for is_run_on in [false, true] {
            let (one, mut other) = UnixStream::pair().unwrap();
            let mut one = SendAsync::new(one);
            let woken = Arc::new(Count::default());
            let waker = Waker::from(woken.clone());
            let mut context = Context::from_waker(&waker);
            assert!(pin!(read_one(&mut one)).poll(&mut context).is_pending());
            let elsewhere = std::thread::spawn(move || {
                if is_run_on {
                    // A scheduler of that thread has nothing to do with it.
                    run(|| drop(one));
                } else {
                    drop(one);
                }
            });
            elsewhere.join().unwrap();
            // It is closed, and a new socket may have its number.
            assert_eq!(other.read(&mut [0]).unwrap(), 0);
            let (mut next, mut peer) = UnixStream::pair().unwrap();
            let reading = spawn_local(move || next.read(&mut [0]).unwrap());
            yield_now().unwrap();
            peer.write_all(b"x").unwrap();
            assert_eq!(reading.join().unwrap(), 1);
        }
    });
}
