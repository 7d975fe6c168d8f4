//! HTTP over loopback: a text of 13 bytes for each request, kept alive, one request at a time on each connection.
//!
//! Every server has to say `Date`, `Content-Type` and `Content-Length`. The bare loop knows nothing of HTTP: it counts empty
//! lines, and shows what the system calls cost.

mod bare;
mod client;
#[cfg(feature = "peers")]
mod hyper;
#[cfg(feature = "peers")]
mod may;
mod sinew;

use std::io;

use client::Client;

use crate::meter::Sample;
use crate::server::{self, BARE_LOOP, BUFFER_BYTES, Protocol, prepare};
use crate::workload::Load;

/// What is asked for.
const PATH: &str = "/plaintext";
/// What has to come.
const BODY: &str = "Hello, World!";

/// Serves in this process until its input ends.
pub(crate) fn serve(side: &str) -> io::Result<()> {
    match side {
        BARE_LOOP => bare::serve(prepare()?),
        "sinew" => sinew::serve(prepare()?),
        #[cfg(feature = "peers")]
        "hyper on tokio" => hyper::serve(prepare()?),
        #[cfg(feature = "peers")]
        "may_minihttp" => may::serve(),
        _ => Err(io::Error::other("no such server")),
    }
}

/// Has a server do the work and asks for its CPU time before and after.
pub(crate) fn measure(side: &str, load: Load) -> Result<Sample, String> {
    server::measure::<Client>(Protocol::Http, side, load)
}
