//! The client that loads every HTTP server alike.
//!
//! Invariants
//! - I1. A connection has at most one request under way; between two exchanges it has none.
//! - I2. A reply counts when it has the status, the header lines and the body that were asked for, and nothing after them.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};

use super::{BODY, PATH};
use crate::server;

/// How many events are taken at a time.
const EVENTS: usize = 1024;
/// No server's reply is longer.
const REPLY_BYTES_MAX: usize = 512;

struct Connection {
    stream: TcpStream,
    /// How much of the reply has come.
    received: usize,
    reply: [u8; REPLY_BYTES_MAX],
}

impl Connection {
    fn send(&mut self, request: &[u8]) -> io::Result<()> {
        self.received = 0;
        // One request always fits into the socket's buffer.
        self.stream.write_all(request)
    }

    /// Takes what has come; true when that completes the reply.
    fn receive(&mut self) -> io::Result<bool> {
        match self.stream.read(&mut self.reply[self.received..]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(length) => self.received += length,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        }
        let reply = &self.reply[..self.received];
        if !reply.ends_with(BODY.as_bytes()) {
            return match self.received < REPLY_BYTES_MAX {
                true => Ok(false),
                false => Err(wrong(reply)),
            };
        }
        match is_right(reply) {
            true => Ok(true),
            false => Err(wrong(reply)),
        }
    }
}

fn wrong(reply: &[u8]) -> io::Error {
    io::Error::other(format!("a reply was `{}`", reply.escape_ascii()))
}

/// Whether it is one whole reply; its end was looked at.
fn is_right(reply: &[u8]) -> bool {
    let (head, end) = reply.split_at(reply.len() - BODY.len());
    let _body = end;
    let Ok(head) = std::str::from_utf8(head) else {
        return false;
    };
    let Some(lines) = head.strip_suffix("\r\n\r\n") else {
        return false;
    };
    let mut lines = lines.split("\r\n");
    let status = lines
        .next()
        .is_some_and(|line| line == "HTTP/1.1 200 OK" || line == "HTTP/1.1 200 Ok");
    let (mut date, mut kind, mut length) = (false, false, false);
    for line in lines {
        let Some((name, value)) = line.split_once(':') else {
            return false;
        };
        date |= name.eq_ignore_ascii_case("date") && value.trim().len() == 29;
        kind |= name.eq_ignore_ascii_case("content-type") && value.trim() == "text/plain";
        length |= name.eq_ignore_ascii_case("content-length") && value.trim() == "13";
    }
    status && date && kind && length
}

pub(super) struct Client {
    epoll: OwnedFd,
    connections: Vec<Connection>,
    request: Vec<u8>,
}

impl server::Client for Client {
    fn connect(port: u16, connections: usize) -> io::Result<Self> {
        let request = format!("GET {PATH} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n");
        let mut client = Self {
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            connections: Vec::with_capacity(connections),
            request: request.into_bytes(),
        };
        for number in 0..connections {
            let stream = TcpStream::connect(("127.0.0.1", port))?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            let data = EventData::new_u64(number as u64);
            epoll::add(&client.epoll, &stream, data, EventFlags::IN)?;
            client.connections.push(Connection {
                stream,
                received: 0,
                reply: [0; REPLY_BYTES_MAX],
            });
        }
        Ok(client)
    }

    fn exchange(&mut self, requests: u64) -> io::Result<u64> {
        let mut unsent = requests;
        for connection in &mut self.connections {
            if unsent > 0 {
                unsent -= 1;
                connection.send(&self.request)?;
            }
        }
        let mut replies = 0;
        let mut events: Vec<Event> = Vec::with_capacity(EVENTS);
        while replies < requests {
            events.clear();
            epoll::wait(&self.epoll, spare_capacity(&mut events), None)?;
            for event in &events {
                let connection = &mut self.connections[event.data.u64() as usize];
                if !connection.receive()? {
                    continue;
                }
                replies += 1;
                if unsent > 0 {
                    unsent -= 1;
                    connection.send(&self.request)?;
                }
            }
        }
        Ok(replies)
    }
}
