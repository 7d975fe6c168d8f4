//! A loop over epoll that answers each empty line with the same text: what any server on epoll pays at least.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, SystemTime};

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};

use super::sinew::now;
use super::{BODY, BUFFER_BYTES};

/// How many events are taken at a time.
const EVENTS: usize = 1024;

/// The one answer, with the date of some second.
struct Answer {
    made: SystemTime,
    bytes: Vec<u8>,
}

impl Answer {
    fn new(made: SystemTime) -> Self {
        let date = httpdate::fmt_http_date(made);
        let length = BODY.len();
        let head = format!(
            "HTTP/1.1 200 OK\r\nDate: {date}\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n\r\n"
        );
        Self {
            made,
            bytes: (head + BODY).into_bytes(),
        }
    }

    fn refresh(&mut self) {
        let now = now();
        if now
            .duration_since(self.made)
            .is_ok_and(|age| age >= Duration::from_secs(1))
        {
            *self = Self::new(now);
        }
    }
}

/// Serves for ever.
pub(super) fn serve(listener: TcpListener) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    let listener_data = EventData::new_u64(listener.as_raw_fd() as u64);
    epoll::add(&epoll, &listener, listener_data, EventFlags::IN)?;
    let mut streams: HashMap<RawFd, TcpStream> = HashMap::new();
    let mut events: Vec<Event> = Vec::with_capacity(EVENTS);
    let mut reply = Answer::new(now());
    loop {
        events.clear();
        epoll::wait(&epoll, spare_capacity(&mut events), None)?;
        reply.refresh();
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
                && !answer(stream, &reply.bytes)?
            {
                streams.remove(&fd);
            }
        }
    }
}

/// Answers what has come; false at the end of the stream.
fn answer(stream: &mut TcpStream, reply: &[u8]) -> io::Result<bool> {
    let mut buffer = [0; BUFFER_BYTES];
    match stream.read(&mut buffer) {
        Ok(0) => Ok(false),
        // The client sends a request at once, and never two.
        Ok(length) if buffer[..length].ends_with(b"\r\n\r\n") => {
            stream.write_all(reply).map(|()| true)
        }
        Ok(_) => Err(io::Error::other("a request was cut")),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(true),
        Err(error) if error.kind() == ErrorKind::ConnectionReset => Ok(false),
        Err(error) => Err(error),
    }
}
