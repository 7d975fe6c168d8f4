//! Servers under load: the CPU time of the server for each request, and its memory for each connection.
//!
//! The server runs in a process of its own on the first CPU, the client on the second; with only one CPU they share it. The
//! client is the same for every server of a kind, and checks each reply.
//!
//! The server says `port N`. Then, asked by a line for `cpu` or `resident`, it says that and its CPU time in nanoseconds or its resident
//! memory in bytes; at the end of its input it ends.

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
/// What a server can be asked for.
const CPU: &str = "cpu";
const RESIDENT: &str = "resident";
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

/// Says what it is asked for.
#[expect(clippy::exit, reason = "the servers have no other end")]
fn answer() {
    for line in io::stdin().lines() {
        let said = line.and_then(|line| match line.as_str() {
            RESIDENT => child::report(&format!("{RESIDENT} {}", machine::resident_bytes())),
            _ => child::report(&format!("{CPU} {}", cpu_time().as_nanos())),
        });
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
    let (mut server, port) = start(protocol, side)?;
    let mut client = C::connect(port, load.tasks as usize)?;
    client.exchange(load.tasks * WARM_UP_ROUNDS)?;
    let before = ask(&mut server, CPU)?;
    let done = client.exchange(load.operations())?;
    let after = ask(&mut server, CPU)?;
    Ok(Sample {
        done,
        values: vec![(after - before) as f64 / done as f64],
    })
}

/// Has a server take so many connections, with a request on each, and asks for its memory before and after.
pub(crate) fn measure_idle<C: Client>(
    protocol: Protocol,
    side: &str,
    load: Load,
) -> Result<Sample, String> {
    try_measure_idle::<C>(protocol, side, load).map_err(|error| error.to_string())
}

fn try_measure_idle<C: Client>(protocol: Protocol, side: &str, load: Load) -> io::Result<Sample> {
    let (mut server, port) = start(protocol, side)?;
    // What a server makes at its first connection is not a connection's.
    let mut first = C::connect(port, 1)?;
    first.exchange(1)?;
    let before = ask(&mut server, RESIDENT)?;
    let mut client = C::connect(port, load.tasks as usize)?;
    let done = client.exchange(load.tasks)?;
    let after = ask(&mut server, RESIDENT)?;
    let kib = after.saturating_sub(before) as f64 / 1024.0;
    Ok(Sample {
        done,
        values: vec![kib / done as f64],
    })
}

/// A server in a process of its own, and its port.
fn start(protocol: Protocol, side: &str) -> io::Result<(Conversation, u16)> {
    machine::raise_descriptor_limit()?;
    let mut server = Conversation::serve(protocol, side)?;
    // Pinned only now, or the server could not choose its own.
    if let Some(&last) = machine::allowed_cpus()?.get(1) {
        machine::pin(last)?;
    }
    let port = hear(&mut server, "port")?;
    Ok((server, port as u16))
}

/// Asks the server for a number.
fn ask(server: &mut Conversation, what: &str) -> io::Result<u64> {
    server.say(what)?;
    hear(server, what)
}

/// Reads a number, and what it is, from what the server says.
fn hear(server: &mut Conversation, what: &str) -> io::Result<u64> {
    let said = server.hear()?;
    let number = said
        .strip_prefix(what)
        .and_then(|number| number.trim_start().parse().ok());
    number.ok_or_else(|| io::Error::other(format!("the server said: {said}")))
}
