//! rustls alone, with its own blocking `StreamOwned`, over our streams. (`sinew::tls` can do more: both directions at once, limits on the
//! handshake, calls that can be cancelled; see the example `tls_echo`.)
//!
//!     cargo run -p sinew-ecosystem --example rustls_stream
#![expect(clippy::print_stdout, reason = "an example tells what it does")]
#![allow(
    clippy::large_stack_frames,
    reason = "rustls hands its connections out by value; the stacks here are large"
)]

use std::error::Error;
use std::io::{Read, Write};
use std::sync::Arc;

use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection, StreamOwned};
use sinew::net::UnixStream;
use sinew::{Builder, run};
use sinew_ecosystem::self_made;

/// Debug builds have large frames.
const STACK_BYTES: usize = 256 << 10;

/// Serves one connection: answers in capitals.
pub(crate) fn serve<S: Read + Write>(
    config: Arc<ServerConfig>,
    stream: S,
) -> Result<(), Box<dyn Error>> {
    let mut stream = StreamOwned::new(ServerConnection::new(config)?, stream);
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    stream.write_all(text.to_uppercase().as_bytes())?;
    stream.conn.send_close_notify();
    stream.flush()?;
    Ok(())
}

/// Asks.
pub(crate) fn ask<S: Read + Write>(
    config: Arc<ClientConfig>,
    stream: S,
    text: &str,
) -> Result<String, Box<dyn Error>> {
    let connection = ClientConnection::new(config, "localhost".try_into()?)?;
    let mut stream = StreamOwned::new(connection, stream);
    stream.write_all(text.as_bytes())?;
    stream.conn.send_close_notify();
    stream.flush()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// The example.
pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let (server, client) = self_made()?;
    run(|| {
        let (one, other) = UnixStream::pair()?;
        let builder = Builder::new().stack_size(STACK_BYTES);
        let serving = builder
            .spawn_local(move || serve(server.into(), one).map_err(|error| error.to_string()))
            .map_err(|_| "no coroutine")?;
        let asking = builder
            .spawn_local(move || {
                ask(client.into(), other, "hello in secret").map_err(|error| error.to_string())
            })
            .map_err(|_| "no coroutine")?;
        println!("{}", asking.join()??);
        serving.join()??;
        Ok(())
    })
}
