//! Redis by the redis crate, in coroutines that share one connection: no async runtime.
//!
//!     cargo run -p sinew-ecosystem --example redis [SOCKET]
//!
//! Without the socket of a server it starts one of its own.
#![expect(clippy::print_stdout, reason = "an example tells what it does")]
#![allow(
    clippy::large_stack_frames,
    reason = "futures of whole conversations are large, and the stacks here are"
)]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, RedisConnectionInfo};
use sinew::future::SendAsync;
use sinew::net::UnixStream;
use sinew::{Builder, JoinHandle, block_on, run};
use sinew_ecosystem::Server;

/// Debug builds of async crates have large frames.
const STACK_BYTES: usize = 1 << 20;

/// Who asks, for which database. What drives the connection borrows it.
static INFO: LazyLock<RedisConnectionInfo> = LazyLock::new(RedisConnectionInfo::default);

/// Connects. The same goes for a `TcpStream`. The crate wants a stream that could be sent to other threads.
///
/// Commands time out after half a second, by the timers of the runtime that the crate is built with, unless
/// `set_response_timeout` says otherwise; smol's need no more than a feature of the crate.
pub(crate) fn connect(
    socket: &Path,
) -> Result<(MultiplexedConnection, JoinHandle<()>), Box<dyn Error>> {
    let stream = SendAsync::new(UnixStream::connect(socket)?);
    let (connection, driver) = block_on(MultiplexedConnection::new(&INFO, stream))??;
    let driving = Builder::new()
        .stack_size(STACK_BYTES)
        // Ends when the last clone of the connection goes.
        .spawn_local(move || block_on(driver).unwrap_or(()))
        .map_err(|_| "no coroutine")?;
    Ok((connection, driving))
}

fn talk(socket: &Path) -> Result<(), Box<dyn Error>> {
    let (mut connection, driving) = connect(socket)?;
    let counters: Vec<_> = (1..=10_u32)
        .map(|n| {
            let mut connection = connection.clone();
            Builder::new()
                .stack_size(STACK_BYTES)
                .spawn_local(move || block_on(connection.incr::<_, _, u32>("total", n)))
        })
        .collect();
    for counter in counters {
        counter.map_err(|_| "no coroutine")?.join()???;
    }
    let total: u32 = block_on(connection.get("total"))??;
    println!("ten coroutines counted to {total}");
    drop(connection);
    driving.join()?;
    Ok(())
}

/// The example.
pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    example(std::env::args_os().nth(1).map(PathBuf::from))
}

pub(crate) fn example(given: Option<PathBuf>) -> Result<(), Box<dyn Error>> {
    let own = match given {
        Some(_) => None,
        None => Some(Server::redis()?),
    };
    let socket = own.as_ref().map(|server| server.socket().to_owned());
    let socket = given.or(socket).ok_or("no server")?;
    run(|| {
        let talking = Builder::new()
            .stack_size(STACK_BYTES)
            .spawn_local(move || talk(&socket).map_err(|error| error.to_string()));
        Ok(talking.map_err(|_| "no coroutine")?.join()??)
    })
}
