//! HTTP by `may_minihttp` on may with one worker: a coroutine for each connection.

use std::io;
use std::net::TcpListener;

use may_minihttp::{HttpServer, HttpService, Request, Response};

use super::{BODY, PATH};
use crate::server::{announce, settle};

#[derive(Clone)]
struct Text;

impl HttpService for Text {
    fn call(
        &mut self,
        request: Request<'_, '_, '_>,
        response: &mut Response<'_>,
    ) -> io::Result<()> {
        match request.path() == PATH {
            true => {
                response.header("Content-Type: text/plain").body(BODY);
            }
            false => {
                response.status_code(404, "Not Found");
            }
        }
        Ok(())
    }
}

/// Serves for ever.
pub(super) fn serve() -> io::Result<()> {
    settle()?;
    may::config().set_workers(1);
    // It binds by itself and does not say where, so the port is one that was free a moment ago.
    let address = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?;
    let server = HttpServer(Text).start(address)?;
    announce(address.port())?;
    server
        .join()
        .map_err(|_panic| io::Error::other("the server panicked"))
}
