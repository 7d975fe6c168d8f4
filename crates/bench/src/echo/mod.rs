//! TCP echo over loopback. The client keeps one request of 64 bytes under way on each connection.

mod bare;
mod client;
#[cfg(feature = "peers")]
mod may;
mod sinew;
#[cfg(feature = "peers")]
mod tokio;

use std::io;

use client::Client;

use crate::meter::Sample;
use crate::server::{self, BARE_LOOP, BUFFER_BYTES, Protocol, prepare};
use crate::workload::Load;

/// Bytes of a request, and of its reply.
const MESSAGE_BYTES: usize = 64;

/// Serves in this process until its input ends.
pub(crate) fn serve(side: &str) -> io::Result<()> {
    match side {
        BARE_LOOP => bare::serve(prepare()?),
        "sinew" => sinew::serve(prepare()?),
        #[cfg(feature = "peers")]
        "tokio" => tokio::serve(prepare()?),
        #[cfg(feature = "peers")]
        "may" => may::serve(),
        _ => Err(io::Error::other("no such server")),
    }
}

/// Has a server do the work and asks for its CPU time before and after.
pub(crate) fn measure(side: &str, load: Load) -> Result<Sample, String> {
    server::measure::<Client>(Protocol::Echo, side, load)
}

/// Has a server hold connections and asks for its memory before and after.
pub(crate) fn measure_idle(side: &str, load: Load) -> Result<Sample, String> {
    server::measure_idle::<Client>(Protocol::Echo, side, load)
}
