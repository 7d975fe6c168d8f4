//! An HTTP server and a client by hyper, in coroutines: no async runtime, one coroutine for each connection.
//!
//!     cargo run -p sinew --features hyper --example hyper_server
//!
//! It serves a few requests of its own, says what came of them, and ends.
#![expect(clippy::print_stdout, reason = "an example tells what it does")]
#![allow(
    clippy::large_stack_frames,
    reason = "a pinned connection of hyper's is large, and the stacks here are"
)]

use std::convert::Infallible;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, client, server};
use sinew::future::Async;
use sinew::future::hyper::Timer;
use sinew::net::{TcpListener, TcpStream};
use sinew::{Builder, block_on, go_local, run};

/// Debug builds of hyper have large frames.
const STACK_BYTES: usize = 1 << 20;

async fn hello(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let text = format!(
        "hello from coroutine, you asked for {}\n",
        request.uri().path()
    );
    Ok(Response::new(Full::from(text)))
}

fn serve(listener: &TcpListener, connections: usize) -> std::io::Result<()> {
    for _ in 0..connections {
        let (stream, _) = listener.accept()?;
        let connection = move || {
            let serving = server::conn::http1::Builder::new()
                .timer(Timer::new())
                .header_read_timeout(Duration::from_secs(10))
                .serve_connection(Async::new(stream), service_fn(hello));
            if let Ok(Err(error)) = block_on(serving) {
                println!("a connection failed: {error}");
            }
        };
        Builder::new()
            .stack_size(STACK_BYTES)
            .go_local(connection)
            .map_err(|_| std::io::Error::other("no coroutine"))?;
    }
    Ok(())
}

fn ask(address: std::net::SocketAddr, path: &str) -> Result<String, Box<dyn std::error::Error>> {
    let stream = Async::new(TcpStream::connect(address)?);
    let (mut sender, connection) = block_on(client::conn::http1::handshake(stream))??;
    go_local(move || {
        // Ends when the sender goes.
        let _ = block_on(connection);
    });
    let request = Request::get(path)
        .header("host", "localhost")
        .body(Full::<Bytes>::default())?;
    let body = block_on(async {
        let response = sender.send_request(request).await?;
        response.into_body().collect().await
    })??;
    Ok(String::from_utf8(body.to_bytes().to_vec())?)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    run(|| {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        go_local(move || serve(&listener, 3));
        for path in ["/one", "/two", "/three"] {
            print!("{}", ask(address, path)?);
        }
        Ok(())
    })
}
