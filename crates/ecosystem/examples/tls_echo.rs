//! TLS by `sinew::tls`: a server that echoes, and a client that trusts the authority of its certificate.
//!
//!     cargo run -p sinew-ecosystem --example tls_echo
#![expect(clippy::print_stdout, reason = "an example tells what it does")]

use std::error::Error;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::time::Duration;

use sinew::net::{TcpListener, TcpStream};
use sinew::tls::{TlsAcceptor, TlsConnector};
use sinew::{Builder, run};
use sinew_ecosystem::self_made;

/// Debug builds have large frames.
const STACK_BYTES: usize = 256 << 10;

/// A handshake that takes longer is given up.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);

fn echo(acceptor: &TlsAcceptor, stream: TcpStream) -> io::Result<()> {
    let mut stream = acceptor.accept_timeout(stream, HANDSHAKE_LIMIT)?;
    let mut piece = [0; 1024];
    loop {
        match stream.read(&mut piece)? {
            0 => return stream.shutdown(Shutdown::Write),
            len => stream.write_all(&piece[..len])?,
        }
    }
}

fn serve(acceptor: &TlsAcceptor, listener: &TcpListener) -> io::Result<()> {
    loop {
        let (stream, _) = listener.accept()?;
        let acceptor = acceptor.clone();
        // The handshake too is the connection's: a slow one keeps no other from being accepted.
        let connection = Builder::new().stack_size(STACK_BYTES).go_local(move || {
            if let Err(error) = echo(&acceptor, stream) {
                println!("a connection failed: {error}");
            }
        });
        connection.map_err(|_| io::Error::other("no coroutine"))?;
    }
}

fn talk(connector: &TlsConnector, address: SocketAddr) -> io::Result<()> {
    let stream = TcpStream::connect(address)?;
    let mut stream = connector.connect_timeout("localhost", stream, HANDSHAKE_LIMIT)?;
    stream.write_all(b"hello in secret\n")?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    print!("{answer}");
    Ok(())
}

/// The example.
pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let (server, client) = self_made()?;
    let (acceptor, connector) = (TlsAcceptor::new(server), TlsConnector::new(client));
    run(|| {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let builder = Builder::new().stack_size(STACK_BYTES);
        let serving = builder
            .spawn_local(move || serve(&acceptor, &listener))
            .map_err(|_| "no coroutine")?;
        let talking = builder
            .spawn_local(move || talk(&connector, address))
            .map_err(|_| "no coroutine")?;
        let result = talking.join()?;
        serving.cancel("all is said");
        let _cancelled = serving.join();
        Ok(result?)
    })
}
