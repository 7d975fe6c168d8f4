//! The echo server on sinew: a coroutine for each connection.

use std::io::{self, Read, Write};
use std::net;

use sinew::net::{TcpListener, TcpStream};

use super::BUFFER_BYTES;

/// Serves for ever.
pub(super) fn serve(listener: net::TcpListener) -> io::Result<()> {
    sinew::run(|| {
        let listener = TcpListener::from_std(listener)?;
        loop {
            let (stream, _peer) = listener.accept()?;
            stream.set_nodelay(true)?;
            sinew::go_local(move || echo(stream));
        }
    })
}

fn echo(mut stream: TcpStream) -> io::Result<()> {
    let mut buffer = [0; BUFFER_BYTES];
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            length => stream.write_all(&buffer[..length])?,
        }
    }
}
