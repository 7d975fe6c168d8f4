//! PostgreSQL by tokio-postgres, in coroutines: no async runtime.
//!
//!     cargo run -p sinew-ecosystem --example postgres [SOCKET]
//!
//! Without the socket of a server it starts one of its own.
#![expect(clippy::print_stdout, reason = "an example tells what it does")]
#![allow(
    clippy::large_stack_frames,
    reason = "futures of whole conversations are large, and the stacks here are"
)]

use std::error::Error;
use std::path::{Path, PathBuf};

use sinew::future::Async;
use sinew::net::UnixStream;
use sinew::{Builder, JoinHandle, block_on, run};
use sinew_ecosystem::Server;
use tokio_postgres::{Client, Config, NoTls};

/// Debug builds of async crates have large frames.
const STACK_BYTES: usize = 1 << 20;

/// Runs what drives the connection, until the client has gone and all is said.
pub(crate) type Driving = JoinHandle<Result<(), tokio_postgres::Error>>;

/// Connects. The same goes for a `TcpStream`.
pub(crate) fn connect(socket: &Path) -> Result<(Client, Driving), Box<dyn Error>> {
    let stream = Async::new(UnixStream::connect(socket)?);
    let mut config = Config::new();
    config.user("postgres").dbname("postgres");
    let (client, connection) = block_on(config.connect_raw(stream, NoTls))??;
    let driving = Builder::new()
        .stack_size(STACK_BYTES)
        .spawn_local(move || block_on(connection).unwrap_or(Ok(())))
        .map_err(|_| "no coroutine")?;
    Ok((client, driving))
}

fn talk(socket: &Path) -> Result<(), Box<dyn Error>> {
    let (client, driving) = connect(socket)?;
    block_on(
        client
            .batch_execute("create temporary table squares (n bigint primary key, square bigint)"),
    )??;
    let insert = block_on(client.prepare("insert into squares values ($1, $2)"))??;
    for n in 1..=10_i64 {
        block_on(client.execute(&insert, &[&n, &(n * n)]))??;
    }
    let row = block_on(client.query_one("select sum(square)::bigint from squares", &[]))??;
    println!("the sum of ten squares is {}", row.get::<_, i64>(0));
    drop(client);
    driving.join()??;
    Ok(())
}

/// The example.
pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    example(std::env::args_os().nth(1).map(PathBuf::from))
}

pub(crate) fn example(given: Option<PathBuf>) -> Result<(), Box<dyn Error>> {
    let own = match given {
        Some(_) => None,
        None => Some(Server::postgres()?),
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
