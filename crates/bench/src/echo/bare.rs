//! An echo server that is nothing but a loop over epoll: what any runtime on epoll pays at least.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, RawFd};

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};

use super::BUFFER_BYTES;

/// How many events are taken at a time.
const EVENTS: usize = 1024;

/// Serves for ever.
pub(super) fn serve(listener: TcpListener) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    let listener_data = EventData::new_u64(listener.as_raw_fd() as u64);
    epoll::add(&epoll, &listener, listener_data, EventFlags::IN)?;
    let mut streams: HashMap<RawFd, TcpStream> = HashMap::new();
    let mut events: Vec<Event> = Vec::with_capacity(EVENTS);
    loop {
        events.clear();
        epoll::wait(&epoll, spare_capacity(&mut events), None)?;
        for event in &events {
            let fd = event.data.u64() as RawFd;
            if fd == listener.as_raw_fd() {
                let (stream, _peer) = listener.accept()?;
                stream.set_nonblocking(true)?;
                stream.set_nodelay(true)?;
                let data = EventData::new_u64(stream.as_raw_fd() as u64);
                epoll::add(&epoll, &stream, data, EventFlags::IN)?;
                streams.insert(stream.as_raw_fd(), stream);
            } else if let Some(stream) = streams.get_mut(&fd)
                && !echo(stream)?
            {
                streams.remove(&fd);
            }
        }
    }
}

/// Sends back what has come; false at the end of the stream.
fn echo(stream: &mut TcpStream) -> io::Result<bool> {
    let mut buffer = [0; BUFFER_BYTES];
    match stream.read(&mut buffer) {
        Ok(0) => Ok(false),
        // The client never has more under way than a socket's buffer holds.
        Ok(length) => stream.write_all(&buffer[..length]).map(|()| true),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(true),
        Err(error) if error.kind() == ErrorKind::ConnectionReset => Ok(false),
        Err(error) => Err(error),
    }
}
