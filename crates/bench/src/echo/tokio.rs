//! The echo server on tokio's `current_thread` runtime: a task for each connection.

use std::io;
use std::net;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::BUFFER_BYTES;
use crate::side::tokio::runtime;

/// Serves for ever.
pub(super) fn serve(listener: net::TcpListener) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let runtime = runtime().map_err(io::Error::other)?;
    runtime.block_on(async {
        let listener = TcpListener::from_std(listener)?;
        loop {
            let (stream, _peer) = listener.accept().await?;
            stream.set_nodelay(true)?;
            tokio::spawn(echo(stream));
        }
    })
}

async fn echo(mut stream: TcpStream) -> io::Result<()> {
    let mut buffer = [0; BUFFER_BYTES];
    loop {
        match stream.read(&mut buffer).await? {
            0 => return Ok(()),
            length => stream.write_all(&buffer[..length]).await?,
        }
    }
}
