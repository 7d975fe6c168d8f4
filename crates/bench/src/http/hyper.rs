//! HTTP by hyper on tokio's `current_thread` runtime: a task for each connection.

use std::convert::Infallible;
use std::io;
use std::net;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use super::{BODY, PATH};
use crate::side::tokio::runtime;

/// Serves for ever.
pub(super) fn serve(listener: net::TcpListener) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let runtime = runtime().map_err(io::Error::other)?;
    runtime.block_on(async {
        let listener = TcpListener::from_std(listener)?;
        loop {
            let (stream, _peer) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let connection =
                http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(answer));
            tokio::spawn(connection);
        }
    })
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let found = request.uri().path() == PATH;
    let body = if found { BODY.as_bytes() } else { b"" };
    let mut response = Response::new(Full::new(Bytes::from_static(body)));
    let text = HeaderValue::from_static("text/plain");
    response.headers_mut().insert(CONTENT_TYPE, text);
    if !found {
        *response.status_mut() = StatusCode::NOT_FOUND;
    }
    Ok(response)
}
