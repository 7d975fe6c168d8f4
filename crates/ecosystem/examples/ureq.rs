//! HTTP and HTTPS by ureq, over our streams: its agent with a transport and a resolver that suspend the coroutine, not the thread.
//!
//!     cargo run -p sinew-ecosystem --example ureq [URL]
//!
//! Without a URL (of `http`: this example trusts no authority) it asks a server of its own.
#![expect(clippy::print_stdout, reason = "an example tells what it does")]

use std::error::Error as StdError;
use std::fmt::Debug;
use std::io::{self, BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sinew::net::{TcpListener, TcpStream, lookup_host};
use sinew::tls::{TlsConnector, TlsStream, Transport as _};
use sinew::{Builder, run, time};
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport, time::Duration,
};
use ureq::{Agent, Error};

/// Debug builds have large frames.
const STACK_BYTES: usize = 512 << 10;

/// Makes connections, with TLS for `https`.
#[derive(Debug)]
struct Connections {
    tls: Option<TlsConnector>,
}

#[derive(Debug)]
enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// A connection, with ureq's buffers.
#[derive(Debug)]
struct Connection {
    stream: Stream,
    buffers: LazyBuffers,
}

/// Names by sinew's resolver, which does not block the thread.
#[derive(Debug)]
struct Names;

/// When a timeout of ureq's is over.
fn end(timeout: &NextTimeout) -> Option<Instant> {
    match timeout.after {
        Duration::Exact(after) => time::now().checked_add(after),
        Duration::NotHappening => None,
    }
}

/// What ended by a timeout of ureq's is that.
fn blame(timeout: &NextTimeout) -> impl Fn(io::Error) -> Error {
    let reason = timeout.reason;
    move |error| match error.kind() {
        io::ErrorKind::TimedOut => Error::Timeout(reason),
        _ => Error::Io(error),
    }
}

impl Resolver for Names {
    fn resolve(&self, uri: &Uri, _: &Config, _: NextTimeout) -> Result<ResolvedSocketAddrs, Error> {
        let host = uri.host().ok_or(Error::HostNotFound)?;
        let is_tls = uri.scheme_str() == Some("https");
        let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        // An address of version 6 stands in brackets.
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let mut found = self.empty();
        for address in lookup_host((host, port))?.take(16) {
            found.push(address);
        }
        if found.is_empty() {
            return Err(Error::HostNotFound);
        }
        Ok(found)
    }
}

impl Connections {
    /// Shakes hands if the address says `https`.
    fn secure(&self, details: &ConnectionDetails<'_>, stream: TcpStream) -> Result<Stream, Error> {
        if !details.needs_tls() {
            return Ok(Stream::Plain(stream));
        }
        let tls = self.tls.as_ref().ok_or(Error::TlsRequired)?;
        let host = details.uri.host().ok_or(Error::HostNotFound)?;
        let shaken = match end(&details.timeout) {
            Some(until) => tls.connect_deadline(host, stream, until),
            None => tls.connect(host, stream),
        };
        Ok(Stream::Tls(Box::new(
            shaken.map_err(blame(&details.timeout))?,
        )))
    }
}

impl Connector for Connections {
    type Out = Connection;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        _: Option<()>,
    ) -> Result<Option<Connection>, Error> {
        let (until, blame) = (end(&details.timeout), blame(&details.timeout));
        let mut refused = Error::ConnectionFailed;
        for address in &details.addrs {
            let connected = match until {
                Some(until) => TcpStream::connect_deadline(address, until),
                None => TcpStream::connect(address),
            };
            let stream = match connected {
                Ok(stream) => stream,
                Err(error) => {
                    refused = blame(error);
                    continue;
                }
            };
            if details.config.no_delay() {
                stream.set_nodelay(true)?;
            }
            let stream = self.secure(details, stream)?;
            let config = &details.config;
            let buffers = LazyBuffers::new(config.input_buffer_size(), config.output_buffer_size());
            return Ok(Some(Connection { stream, buffers }));
        }
        Err(refused)
    }
}

impl Transport for Connection {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        let timeout = timeout.for_write();
        let (until, blame) = (end(&timeout), blame(&timeout));
        let mut rest = &self.buffers.output()[..amount];
        while !rest.is_empty() {
            let written = match &self.stream {
                Stream::Plain(stream) => stream.write_until(rest, until),
                Stream::Tls(stream) => stream.write_until(rest, until),
            };
            rest = &rest[written.map_err(&blame)?..];
        }
        Ok(())
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        let timeout = timeout.for_read();
        let place = self.buffers.input_append_buf();
        let read = match &self.stream {
            Stream::Plain(stream) => stream.read_until(place, end(&timeout)),
            Stream::Tls(stream) => stream.read_until(place, end(&timeout)),
        };
        let len = read.map_err(blame(&timeout))?;
        self.buffers.input_appended(len);
        Ok(len > 0)
    }

    fn is_open(&mut self) -> bool {
        let stream = match &self.stream {
            Stream::Plain(stream) => stream,
            Stream::Tls(stream) => stream.get_ref(),
        };
        // Nothing to read, not even an end. Asked without a wait: ureq holds a lock of std's meanwhile, and whoever came for that
        // would block the thread, and with it the one who holds it.
        let mut asked = [PollFd::new(stream, PollFlags::IN)];
        poll(&mut asked, Some(&Timespec::default())) == Ok(0)
    }

    fn is_tls(&self) -> bool {
        matches!(self.stream, Stream::Tls(_))
    }
}

/// An agent whose requests suspend the coroutine that makes them.
pub(crate) fn agent(config: Config, tls: Option<TlsConnector>) -> Agent {
    Agent::with_parts(config, Connections { tls }, Names)
}

/// Answers the requests of one connection with what they asked for.
pub(crate) fn serve<S>(stream: &S) -> io::Result<()>
where
    for<'s> &'s S: io::Read + Write,
{
    let mut lines = BufReader::new(stream).lines();
    while let Some(first) = lines.next() {
        let first = first?;
        while lines
            .next()
            .transpose()?
            .is_some_and(|line| !line.is_empty())
        {}
        let body = format!("you asked: {first}\n");
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
        (&mut &*stream).write_all((head + &body).as_bytes())?;
    }
    Ok(())
}

fn serve_all(listener: &TcpListener) -> io::Result<()> {
    loop {
        let (stream, _) = listener.accept()?;
        sinew::go_local(move || serve(&stream));
    }
}

fn ask(url: &str) -> Result<(), Error> {
    let agent = agent(Config::default(), None);
    for _ in 0..2 {
        // The second time by the same connection.
        print!("{}", agent.get(url).call()?.body_mut().read_to_string()?);
    }
    Ok(())
}

/// The example.
pub(crate) fn main() -> Result<(), Box<dyn StdError>> {
    example(std::env::args().nth(1))
}

pub(crate) fn example(url: Option<String>) -> Result<(), Box<dyn StdError>> {
    run(|| {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address: SocketAddr = listener.local_addr()?;
        let serving = sinew::spawn_local(move || serve_all(&listener));
        let url = url.unwrap_or_else(|| format!("http://{address}/from/a/coroutine"));
        let asking = Builder::new()
            .stack_size(STACK_BYTES)
            .spawn_local(move || ask(&url))
            .map_err(|_| "no coroutine")?;
        let result = asking.join()?;
        serving.cancel("all is said");
        let _cancelled = serving.join();
        Ok(result?)
    })
}
