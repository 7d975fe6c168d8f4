//! HTTP/2 by hyper, server and client: many requests at once over one connection, no async runtime.
//!
//!     cargo run -p sinew-ecosystem --example http2
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
use hyper::client::conn::http2::SendRequest;
use hyper::service::service_fn;
use hyper::{Request, Response, client, server};
use sinew::future::hyper::{Executor, Timer};
use sinew::future::{Async, sleep_async};
use sinew::net::{TcpListener, TcpStream};
use sinew::{Builder, block_on, run};

/// Debug builds of hyper have large frames.
const STACK_BYTES: usize = 1 << 20;

fn executor() -> Executor {
    Executor::new().stack_size(STACK_BYTES)
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    // So that several are under way at the same time.
    sleep_async(Duration::from_millis(5)).await;
    let text = format!("you asked for {}", request.uri().path());
    Ok(Response::new(Full::from(text)))
}

/// Serves each connection in a coroutine of its own, and each of its requests in another.
pub(crate) fn serve(listener: &TcpListener) -> std::io::Result<()> {
    loop {
        let (stream, _) = listener.accept()?;
        executor_run(async move {
            let serving = server::conn::http2::Builder::new(executor())
                .timer(Timer::new())
                .keep_alive_interval(Duration::from_secs(10))
                .serve_connection(Async::new(stream), service_fn(answer));
            if let Err(error) = serving.await {
                println!("a connection failed: {error}");
            }
        });
    }
}

fn executor_run(future: impl Future<Output = ()> + 'static) {
    hyper::rt::Executor::execute(&executor(), future);
}

/// Connects; clones of what it returns make requests over the one connection.
pub(crate) fn connect(address: SocketAddr) -> Result<SendRequest<Full<Bytes>>, Box<dyn Error>> {
    let stream = Async::new(TcpStream::connect(address)?);
    let shaking = client::conn::http2::Builder::new(executor()).handshake(stream);
    let (sender, connection) = block_on(shaking)??;
    executor_run(async move {
        if let Err(error) = connection.await {
            println!("the connection failed: {error}");
        }
    });
    Ok(sender)
}

/// Makes a request and returns the answer's body.
pub(crate) fn ask(
    sender: &mut SendRequest<Full<Bytes>>,
    address: SocketAddr,
    path: &str,
) -> Result<String, Box<dyn Error>> {
    let request = Request::get(format!("http://{address}{path}")).body(Full::default())?;
    let body = block_on(async {
        let response = sender.send_request(request).await?;
        response.into_body().collect().await
    })??;
    Ok(String::from_utf8(body.to_bytes().to_vec())?)
}

fn talk(address: SocketAddr) -> Result<(), Box<dyn Error>> {
    let sender = connect(address)?;
    let asking: Vec<_> = (1..=3)
        .map(|number| {
            let mut sender = sender.clone();
            Builder::new().stack_size(STACK_BYTES).spawn_local(move || {
                ask(&mut sender, address, &format!("/{number}")).map_err(|error| error.to_string())
            })
        })
        .collect();
    for asking in asking {
        println!("{}", asking.map_err(|_| "no coroutine")?.join()??);
    }
    Ok(())
}

/// The example.
pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    run(|| {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let builder = Builder::new().stack_size(STACK_BYTES);
        let serving = builder
            .spawn_local(move || serve(&listener))
            .map_err(|_| "no coroutine")?;
        let talking = builder
            .spawn_local(move || talk(address).map_err(|error| error.to_string()))
            .map_err(|_| "no coroutine")?;
        let result = talking.join()?;
        serving.cancel("all is said");
        let _cancelled = serving.join();
        Ok(result?)
    })
}
