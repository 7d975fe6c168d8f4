//! HTTPS by hyper, client and server, over `sinew::tls`, without an async runtime.
//!
//!     cargo run -p sinew-ecosystem --example https
#![expect(clippy::print_stdout, reason = "an example tells what it does")]
#![allow(
    clippy::large_stack_frames,
    reason = "a pinned connection of hyper's is large, and the stacks here are"
)]

use std::convert::Infallible;
use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::SendRequest;
use hyper::service::service_fn;
use hyper::{Request, Response, client, server};
use sinew::future::Async;
use sinew::future::hyper::Timer;
use sinew::net::{TcpListener, TcpStream};
use sinew::tls::{TlsAcceptor, TlsConnector};
use sinew::{Builder, JoinHandle, block_on, run};
use sinew_ecosystem::self_made;

/// Debug builds of hyper and rustls have large frames.
const STACK_BYTES: usize = 1 << 20;

/// How long a client may take to shake hands.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

pub(crate) fn spawn<T: 'static>(f: impl FnOnce() -> T + 'static) -> JoinHandle<T> {
    let builder = Builder::new().stack_size(STACK_BYTES);
    match builder.spawn_local(f) {
        Ok(handle) => handle,
        Err(error) => panic!("{error}"),
    }
}

/// Gives back what it was sent.
async fn echo(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let body = request.into_body().collect().await?;
    Ok(Response::new(Full::from(body.to_bytes())))
}

/// Serves each connection in a coroutine of its own: shakes hands, then lets hyper poll the stream.
pub(crate) fn serve(listener: &TcpListener, acceptor: &TlsAcceptor) -> std::io::Result<Infallible> {
    loop {
        let (stream, peer) = listener.accept()?;
        let acceptor = acceptor.clone();
        drop(spawn(move || -> Result<(), Box<dyn Error>> {
            let stream = acceptor.accept_timeout(stream, HANDSHAKE_MAX)?;
            let serving = server::conn::http1::Builder::new()
                .timer(Timer::new())
                .serve_connection(Async::new(stream), service_fn(echo));
            if let Err(error) = block_on(serving)? {
                println!("the connection with {peer} failed: {error}");
            }
            Ok(())
        }));
    }
}

/// What makes requests over a connection, and the coroutine that drives it.
type Connected = (
    SendRequest<Full<Bytes>>,
    JoinHandle<Result<(), hyper::Error>>,
);

/// Connects to the server of that address, which has to prove that it is `localhost`.
pub(crate) fn connect(
    address: SocketAddr,
    connector: &TlsConnector,
) -> Result<Connected, Box<dyn Error>> {
    let stream = connector.connect("localhost", TcpStream::connect(address)?)?;
    let (sender, connection) = block_on(client::conn::http1::handshake(Async::new(stream)))??;
    let driving = spawn(move || block_on(connection).unwrap_or(Ok(())));
    Ok((sender, driving))
}

/// Posts a body and returns the answer's.
pub(crate) fn post(
    sender: &mut SendRequest<Full<Bytes>>,
    body: Bytes,
) -> Result<Bytes, Box<dyn Error>> {
    let request = Request::post("/")
        .header("host", "localhost")
        .body(Full::from(body))?;
    let answer = block_on(async {
        let response = sender.send_request(request).await?;
        response.into_body().collect().await
    })??;
    Ok(answer.to_bytes())
}

fn talk(address: SocketAddr, connector: &TlsConnector) -> Result<(), Box<dyn Error>> {
    let (mut sender, driving) = connect(address, connector)?;
    for word in ["one", "two", "three"] {
        let answer = post(&mut sender, Bytes::from(word))?;
        println!("{}", String::from_utf8_lossy(&answer));
    }
    drop(sender);
    driving.join()??;
    Ok(())
}

/// The example.
pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let (server, client) = self_made()?;
    run(move || {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let acceptor = TlsAcceptor::new(server);
        let serving = spawn(move || serve(&listener, &acceptor));
        let connector = TlsConnector::new(client);
        let talking = spawn(move || talk(address, &connector).map_err(|error| error.to_string()));
        let result = talking.join()?;
        serving.cancel("all is said");
        let _cancelled = serving.join();
        Ok(result?)
    })
}
