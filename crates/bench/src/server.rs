//! Servers under load: the CPU time of the server for each request.
//!
//! The server runs in a process of its own on the first CPU, the client on the second; with only one CPU they share it. The
//! client is the same for every server of a kind, and checks each reply.
//!
//! The server says `port N`. Then, whenever a line comes in, it says `cpu NANOSECONDS`; at the end of its
//! input it ends.

use std::io;
use std::net::TcpListener;
use std::process;
use std::thread;

use crate::child::{self, Conversation};
use crate::machine;
use crate::meter::{Sample, cpu_time};
use crate::workload::Load;
use crate::{echo, http};

/// Bytes that a server is ready to read at once.
pub(crate) const BUFFER_BYTES: usize = 1024;
/// Requests on each connection before the measured ones.
const WARM_UP_ROUNDS: u64 = 2;
/// The name of the server that is no runtime.
pub(crate) const BARE_LOOP: &str = "a bare epoll loop";

/// What is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Echo,
    Http,
}

impl Protocol {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::Http => "http",
        }
    }

    pub(crate) fn parse(name: &str) -> Option<Self> {
        let all = [Self::Echo, Self::Http];
        all.into_iter().find(|protocol| protocol.name() == name)
    }
}

/// Whoever loads a server.
pub(crate) trait Client: Sized {
    /// Opens so many connections.
    fn connect(port: u16, connections: usize) -> io::Result<Self>;

    /// Sends so many requests over all connections, one at a time on each, and returns how many right replies came.
    fn exchange(&mut self, requests: u64) -> io::Result<u64>;
}

/// Serves in this process until its input ends.
pub(crate) fn serve(protocol: Protocol, side: &str) -> Result<(), String> {
    let served = match protocol {
        Protocol::Echo => echo::serve(side),
        Protocol::Http => http::serve(side),
    };
    served.map_err(|error| error.to_string())
}

/// A bound listener whose port the parent knows, on the server's CPU.
pub(crate) fn prepare() -> io::Result<TcpListener> {
    settle()?;
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    announce(listener.local_addr()?.port())?;
    Ok(listener)
}

/// Moves to the server's CPU.
pub(crate) fn settle() -> io::Result<()> {
    if let Some(&first) = machine::allowed_cpus()?.first() {
        machine::pin(first)?;
    }
    machine::raise_descriptor_limit()
}

/// Tells the parent the port, and begins to answer what it asks.
pub(crate) fn announce(port: u16) -> io::Result<()> {
    child::report(&format!("port {port}"))?;
    thread::spawn(answer);
    Ok(())
}

/// Says the CPU time whenever it is asked for.
#[expect(clippy::exit, reason = "the servers have no other end")]
fn answer() {
    for line in io::stdin().lines() {
        let said = line.and_then(|_| child::report(&format!("cpu {}", cpu_time().as_nanos())));
        if said.is_err() {
            break;
        }
    }
    process::exit(0);
}

/// Has a server do the work and asks for its CPU time before and after.
pub(crate) fn measure<C: Client>(
    protocol: Protocol,
    side: &str,
    load: Load,
) -> Result<Sample, String> {
    try_measure::<C>(protocol, side, load).map_err(|error| error.to_string())
}

fn try_measure<C: Client>(protocol: Protocol, side: &str, load: Load) -> io::Result<Sample> {
    machine::raise_descriptor_limit()?;
    let mut server = Conversation::serve(protocol, side)?;
    // Pinned only now, or the server could not choose its own.
    if let Some(&last) = machine::allowed_cpus()?.get(1) {
        machine::pin(last)?;
    }
    let port = ask(&mut server, None, "port ")?;
    let mut client = C::connect(port as u16, load.tasks as usize)?;
    client.exchange(load.tasks * WARM_UP_ROUNDS)?;
    let before = ask(&mut server, Some("before"), "cpu ")?;
    let done = client.exchange(load.operations())?;
    let after = ask(&mut server, Some("after"), "cpu ")?;
    Ok(Sample {
        done,
        values: vec![(after - before) as f64 / done as f64],
    })
}

/// Says a line to the server, if there is one to say, and reads a number from what comes back.
fn ask(server: &mut Conversation, line: Option<&str>, answer: &str) -> io::Result<u64> {
    if let Some(line) = line {
        server.say(line)?;
    }
    let said = server.hear()?;
    let number = said
        .strip_prefix(answer)
        .and_then(|number| number.parse().ok());
    number.ok_or_else(|| io::Error::other(format!("the server said: {said}")))
}
