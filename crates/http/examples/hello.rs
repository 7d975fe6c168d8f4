//! A web server in a dozen lines: a coroutine for each connection, plain reads and writes, answers from memory.
//!
//! ```text
//! cargo run --release -p sinew-http --example hello
//! curl http://127.0.0.1:8080/you
//! ```

use std::io;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use sinew::net::TcpListener;
use sinew_http::{Date, Limits, Status, serve};

fn main() -> io::Result<()> {
    sinew::run(|| {
        let listener = TcpListener::bind("127.0.0.1:8080")?;
        let date = Rc::new(Date::new(now));
        for stream in listener.incoming() {
            let (mut stream, date) = (stream?, Rc::clone(&date));
            sinew::go_local(move || {
                // Whoever says nothing for so long is sent away.
                stream.set_read_timeout(Some(Duration::from_secs(30)))?;
                stream.set_write_timeout(Some(Duration::from_secs(30)))?;
                serve(&mut stream, Limits::default(), &date, |request, reply| {
                    let path = String::from_utf8_lossy(request.target);
                    reply.send(
                        Status::Ok,
                        "text/plain; charset=utf-8",
                        format!("hello, {path}\n").as_bytes(),
                    )
                })
                .map(drop)
            });
        }
        Ok(())
    })
}

#[expect(clippy::disallowed_methods, reason = "answers have a date")]
fn now() -> SystemTime {
    SystemTime::now()
}
