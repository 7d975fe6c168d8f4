//! The client that loads every echo server alike.
//!
//! Invariants
//! - I1. A connection has at most one request under way; between two exchanges it has none.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};

use super::MESSAGE_BYTES;
use crate::server;

/// How many events are taken at a time.
const EVENTS: usize = 1024;

struct Connection {
    stream: TcpStream,
    /// How much of the reply has come.
    received: usize,
    reply: [u8; MESSAGE_BYTES],
    /// What is under way.
    request: [u8; MESSAGE_BYTES],
}

impl Connection {
    /// Sends a request like no other: its number is in it.
    fn send(&mut self, number: u64) -> io::Result<()> {
        self.request[..8].copy_from_slice(&number.to_ne_bytes());
        self.received = 0;
        // One message always fits into the socket's buffer.
        self.stream.write_all(&self.request)
    }

    /// Takes what has come; true when that completes the reply.
    fn receive(&mut self) -> io::Result<bool> {
        match self.stream.read(&mut self.reply[self.received..]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(length) => self.received += length,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        }
        if self.received < MESSAGE_BYTES {
            return Ok(false);
        }
        if self.reply != self.request {
            return Err(io::Error::other("a reply was not what had been sent"));
        }
        Ok(true)
    }
}

pub(super) struct Client {
    epoll: OwnedFd,
    connections: Vec<Connection>,
    /// Requests sent so far.
    sent: u64,
}

impl server::Client for Client {
    fn connect(port: u16, connections: usize) -> io::Result<Self> {
        let mut client = Self {
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            connections: Vec::with_capacity(connections),
            sent: 0,
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
                reply: [0; MESSAGE_BYTES],
                request: [b'.'; MESSAGE_BYTES],
            });
        }
        Ok(client)
    }

    fn exchange(&mut self, requests: u64) -> io::Result<u64> {
        let mut unsent = requests;
        for connection in &mut self.connections {
            if unsent > 0 {
                unsent -= 1;
                self.sent += 1;
                connection.send(self.sent)?;
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
                    self.sent += 1;
                    connection.send(self.sent)?;
                }
            }
        }
        Ok(replies)
    }
}
