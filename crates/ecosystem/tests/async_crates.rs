//! Async crates that know nothing of sinew, in coroutines, over our streams, without their runtimes: hyper with HTTP/2, tokio-postgres, redis.
#![allow(
    clippy::large_stack_frames,
    reason = "pinned connections are large, and the stacks here are"
)]

#[path = "../examples/http2.rs"]
mod http2;
#[path = "../examples/postgres.rs"]
#[allow(dead_code, reason = "a part of it is used")]
mod postgres;
#[path = "../examples/redis.rs"]
#[allow(dead_code, reason = "a part of it is used")]
mod redis_example;
mod tls_rig;

use std::io::{self, Write};
use std::rc::Rc;
use std::time::Duration;

use redis::AsyncCommands;
use sinew::net::{TcpListener, UnixStream};
use sinew::{Builder, JoinHandle, WaitError, block_on, block_on_timeout, run};
use sinew_ecosystem::Server;
use tls_rig::{Random, stress, watchdog};
use tokio_postgres::NoTls;
use tokio_postgres::error::SqlState;

/// Debug builds of async crates have large frames.
const STACK_BYTES: usize = 1 << 20;

fn spawn<T: 'static>(f: impl FnOnce() -> T + 'static) -> JoinHandle<T> {
    let builder = Builder::new().stack_size(STACK_BYTES);
    builder.spawn_local(f).unwrap()
}

/// The server, unless it is not installed: then it says so.
fn or_skip(server: io::Result<Server>) -> Option<Server> {
    match server {
        Ok(server) => Some(server),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let asked_not_to = std::env::var_os("SINEW_NO_SKIPS").is_some();
            assert!(!asked_not_to, "{error}");
            // Not by a macro: the harness keeps what those print of a test that passes.
            let notice = format!("SKIPPED: {error}\n");
            io::stderr().write_all(notice.as_bytes()).unwrap();
            None
        }
        Err(error) => panic!("{error}"),
    }
}

// contract: A2, I10
#[test]
fn the_example_of_http2_runs() {
    let _watchdog = watchdog();
    http2::main().unwrap();
}

// contract: A2, I10
#[test]
fn many_requests_at_once_over_one_connection_of_hypers() {
    let _watchdog = watchdog();
    const REQUESTS: usize = 60;
    run(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let serving = spawn(move || http2::serve(&listener).unwrap_err());
        let asking = spawn(move || {
            let sender = http2::connect(address).unwrap();
            let begun = sinew::time::now();
            let asking: Vec<_> = (0..REQUESTS)
                .map(|number| {
                    let mut sender = sender.clone();
                    spawn(move || {
                        let path = format!("/{number}");
                        let answer = http2::ask(&mut sender, address, &path).unwrap();
                        assert_eq!(answer, format!("you asked for {path}"));
                    })
                })
                .collect();
            for one in asking {
                one.join().unwrap();
            }
            begun.elapsed()
        });
        // Each answer takes 5 ms.
        assert!(asking.join().unwrap() >= Duration::from_millis(5));
        serving.cancel("done");
        assert!(sinew::is_cancelled(&serving.join().unwrap()));
    });
}

// contract: A2
#[test]
fn postgres_answers_many_coroutines_over_one_connection() {
    let _watchdog = watchdog();
    let Some(server) = or_skip(Server::postgres()) else {
        return;
    };
    let socket = server.socket().to_owned();
    postgres::example(Some(socket.clone())).unwrap();
    run(|| {
        let all = spawn(move || {
            let (client, driving) = postgres::connect(&socket).unwrap();
            let client = Rc::new(client);
            let asking: Vec<_> = (0..20_i64)
                .map(|number| {
                    let client = client.clone();
                    spawn(move || {
                        for round in 0..10 * i64::try_from(stress()).unwrap() {
                            // From a few bytes to more than a socket's buffer.
                            let text = "x".repeat(1 << (round % 20));
                            let asked = "select $1::bigint * 2, $2::text";
                            let row = block_on(client.query_one(asked, &[&number, &text]));
                            let row = row.unwrap().unwrap();
                            assert_eq!(row.get::<_, i64>(0), number * 2);
                            assert!(row.get::<_, &str>(1) == text);
                        }
                    })
                })
                .collect();
            for one in asking {
                one.join().unwrap();
            }
            // An error of the server's is one, and the connection goes on.
            let error = block_on(client.execute("select 1 / 0", &[]))
                .unwrap()
                .unwrap_err();
            assert_eq!(error.code(), Some(&SqlState::DIVISION_BY_ZERO));
            // A query that is given up is cancelled by another connection.
            let begun = sinew::time::now();
            let asleep = client.batch_execute("select pg_sleep(600)");
            let limit = Duration::from_millis(50);
            assert_eq!(
                block_on_timeout(asleep, limit).map(drop),
                Err(WaitError::Timeout)
            );
            let stream = sinew::future::Async::new(UnixStream::connect(&socket).unwrap());
            block_on(client.cancel_token().cancel_query_raw(stream, NoTls))
                .unwrap()
                .unwrap();
            block_on(client.batch_execute("select 1")).unwrap().unwrap();
            assert!(begun.elapsed() < Duration::from_secs(100));
            // The server goes in the middle of a query: an error, and not for ever.
            let last = client.clone();
            let cut = spawn(move || {
                block_on(last.batch_execute("select pg_sleep(600)"))
                    .unwrap()
                    .unwrap_err()
            });
            sinew::yield_now().unwrap();
            drop(server);
            let error = cut.join().unwrap();
            let is_told = error
                .code()
                .is_some_and(|code| code.code().starts_with("57P"));
            assert!(
                is_told || error.is_closed() || error.code().is_none(),
                "{error:?}"
            );
            assert!(driving.join().unwrap().is_err());
        });
        all.join().unwrap();
    });
}

// contract: A2
#[test]
fn redis_answers_many_coroutines_over_one_connection() {
    let _watchdog = watchdog();
    let Some(server) = or_skip(Server::redis()) else {
        return;
    };
    let socket = server.socket().to_owned();
    redis_example::example(Some(socket.clone())).unwrap();
    run(|| {
        let all = spawn(move || {
            let (mut connection, driving) = redis_example::connect(&socket).unwrap();
            // Half a second is its default: too little for a busy machine.
            connection.set_response_timeout(Duration::from_secs(100));
            let rounds = 50 * stress();
            let counting: Vec<_> = (0..20_u64)
                .map(|number| {
                    let mut connection = connection.clone();
                    spawn(move || {
                        for round in 0..rounds {
                            block_on(connection.incr::<_, _, u64>("count", 1))
                                .unwrap()
                                .unwrap();
                            let mut bytes = vec![0; 1 << (round % 17)];
                            Random(number).fill(&mut bytes);
                            let key = format!("bytes {number}");
                            let back: Vec<u8> = block_on(async {
                                redis::pipe()
                                    .set(&key, &bytes)
                                    .ignore()
                                    .get(&key)
                                    .query_async::<(Vec<u8>,)>(&mut connection)
                                    .await
                            })
                            .unwrap()
                            .unwrap()
                            .0;
                            assert!(back == bytes);
                        }
                    })
                })
                .collect();
            for one in counting {
                one.join().unwrap();
            }
            let count: usize = block_on(connection.get("count")).unwrap().unwrap();
            assert_eq!(count, 20 * rounds);
            // An error of the server's is one, and the connection goes on.
            let wrong = block_on(connection.incr::<_, _, u64>("bytes 1", 1)).unwrap();
            assert!(wrong.is_err());
            // Timeouts: the crate's, and ours.
            connection.set_response_timeout(Duration::from_millis(30));
            let begun = sinew::time::now();
            let late = block_on(connection.blpop::<_, ()>("nothing", 0.0)).unwrap();
            assert!(late.unwrap_err().is_timeout());
            assert!(begun.elapsed() >= Duration::from_millis(30));
            // The server goes: an error, and not for ever.
            let (mut another, driving_another) = redis_example::connect(&socket).unwrap();
            another.set_response_timeout(Duration::from_secs(100));
            let limit = Duration::from_millis(30);
            let waiting = block_on_timeout(another.blpop::<_, ()>("nothing", 0.0), limit);
            assert!(matches!(waiting, Err(WaitError::Timeout)));
            drop(server);
            assert!(block_on(another.get::<_, ()>("count")).unwrap().is_err());
            drop((connection, another));
            driving.join().unwrap();
            driving_another.join().unwrap();
        });
        all.join().unwrap();
    });
}
