//! The echo server on may with one worker: a coroutine for each connection, on may's default stack.
#![expect(
    unsafe_code,
    reason = "may's spawn is unsafe: a body may not rely on thread-locals across a wait"
)]

use std::io::{self, Read, Write};

use may::coroutine;
use may::net::{TcpListener, TcpStream};

use super::BUFFER_BYTES;
use crate::server::{announce, settle};

/// Serves for ever.
pub(super) fn serve() -> io::Result<()> {
    settle()?;
    may::config().set_workers(1);
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    announce(listener.local_addr()?.port())?;
    // SAFETY: the body uses no thread-local, and little stack.
    let accepting = unsafe { coroutine::spawn(move || accept(&listener)) };
    let served = accepting.join();
    served.map_err(|_panic| io::Error::other("the server panicked"))?
}

fn accept(listener: &TcpListener) -> io::Result<()> {
    loop {
        let (stream, _peer) = listener.accept()?;
        stream.set_nodelay(true)?;
        // SAFETY: the body uses no thread-local, and little more stack than its buffer.
        let _detached = unsafe { coroutine::spawn(move || echo(stream)) };
    }
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
