//! A WebSocket server that echoes, and a client, by tungstenite: blocking code, one coroutine for each connection.
//!
//!     cargo run -p sinew-ecosystem --example websocket
#![expect(clippy::print_stdout, reason = "an example tells what it does")]

use std::error::Error;
use std::io::{Read, Write};
use std::net::SocketAddr;

use sinew::net::{TcpListener, TcpStream};
use sinew::{Builder, run};
use tungstenite::{Message, WebSocket, accept, client};

/// Debug builds have large frames.
const STACK_BYTES: usize = 256 << 10;

/// Gives back every message, until the other side closes.
pub(crate) fn echo<S: Read + Write>(stream: S) -> Result<(), Box<dyn Error>> {
    let mut socket = accept(stream).map_err(|error| error.to_string())?;
    loop {
        let answered = match socket.read() {
            Ok(message @ (Message::Text(_) | Message::Binary(_))) => socket.send(message),
            // Pings and the close are answered by tungstenite.
            Ok(_) => socket.flush(),
            Err(error) => Err(error),
        };
        match answered {
            Ok(()) => {}
            Err(tungstenite::Error::ConnectionClosed) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Serves each connection in a coroutine of its own, until it is cancelled.
pub(crate) fn serve(listener: &TcpListener) -> std::io::Result<()> {
    loop {
        let (stream, _) = listener.accept()?;
        let connection = Builder::new().stack_size(STACK_BYTES).go_local(move || {
            if let Err(error) = echo(stream) {
                println!("a connection failed: {error}");
            }
        });
        connection.map_err(|_| std::io::Error::other("no coroutine"))?;
    }
}

/// Connects.
pub(crate) fn connect(address: SocketAddr) -> Result<WebSocket<TcpStream>, Box<dyn Error>> {
    let stream = TcpStream::connect(address)?;
    let url = format!("ws://{address}/");
    let (socket, _) = client(url, stream).map_err(|error| error.to_string())?;
    Ok(socket)
}

fn talk(address: SocketAddr) -> Result<(), Box<dyn Error>> {
    let mut socket = connect(address)?;
    for text in ["hello", "from", "a coroutine"] {
        socket.send(Message::text(text))?;
        println!("{}", socket.read()?.into_text()?);
    }
    socket.close(None)?;
    // What remains is the other side's close.
    while socket.read().is_ok() {}
    Ok(())
}

/// The example.
pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    run(|| {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let builder = Builder::new().stack_size(STACK_BYTES);
        let serving = builder
            .spawn_local(move || serve(&listener))
            .map_err(|_| "no coroutine")?;
        let talking = builder
            .spawn_local(move || talk(address).map_err(|error| error.to_string()))
            .map_err(|_| "no coroutine")?;
        let result = talking.join()?;
        serving.cancel("all is said");
        let _cancelled = serving.join();
        Ok(result?)
    })
}
