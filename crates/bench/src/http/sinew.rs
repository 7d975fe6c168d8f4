//! HTTP on sinew: a coroutine for each connection, which runs the loop of `sinew-http`.

use std::io;
use std::net;
use std::rc::Rc;
use std::time::SystemTime;

use sinew::net::TcpListener;
use sinew_http::{Date, Limits, Status};

use super::{BODY, PATH};

/// Serves for ever.
pub(super) fn serve(listener: net::TcpListener) -> io::Result<()> {
    sinew::run(|| {
        let listener = TcpListener::from_std(listener)?;
        let date = Rc::new(Date::new(now));
        loop {
            let (stream, _peer) = listener.accept()?;
            stream.set_nodelay(true)?;
            let date = Rc::clone(&date);
            sinew::go_local(move || answer(stream, &date));
        }
    })
}

fn answer(mut stream: sinew::net::TcpStream, date: &Date) -> io::Result<()> {
    let limits = Limits::default();
    let served = sinew_http::serve(&mut stream, limits, date, |request, reply| {
        match request.target == PATH.as_bytes() {
            true => reply.send(Status::Ok, "text/plain", BODY.as_bytes()),
            false => reply.send(Status::NotFound, "text/plain", b""),
        }
    });
    served.map(|_end| ())
}

#[expect(clippy::disallowed_methods, reason = "answers have a date")]
pub(super) fn now() -> SystemTime {
    SystemTime::now()
}
