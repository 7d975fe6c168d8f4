//! HTTP/1.1 as bytes: where requests end, what they say, how answers begin.
//!
//! This crate opens no socket, reads no clock and knows no runtime. The file server of the `sinew` command, the benchmarks and the
//! examples put their own reading and writing around it; [`serve()`] is the shortest such loop, over any
//! [`Read`](std::io::Read) and [`Write`](std::io::Write), for those who need no deadlines of their own.
//!
//! | file | owns |
//! |---|---|
//! | `head` | where a head ends, however it is cut into pieces, and the limits of its size |
//! | `request` | what a head says, and every reason to refuse it |
//! | `input` | the bytes that have come: heads and bodies, one after the other |
//! | `chunked` | the chunked coding |
//! | `condition` | entity tags and preconditions |
//! | `range` | byte ranges |
//! | `response` | heads of answers |
//! | `serve` | a loop that answers requests from memory |
//! | `date` | the date as text, twice: for answers and for logs |
//! | `status` | status codes |
//!
//! Invariants
//! - I1. The answer to a sequence of bytes does not depend on how it is cut into pieces.
//! - I2. What has two readings is refused, and nothing after it is read as a request.
//! - I3. Nothing is allocated for a request, once the buffers have their size.

mod chunked;
mod condition;
mod date;
mod head;
mod input;
mod range;
mod request;
mod response;
mod serve;
mod status;

pub use chunked::{Decoder, Malformed, Piece};
pub use condition::{EntityTag, Validators, Verdict};
pub use date::Date;
pub use head::Extent;
pub use input::{BodyReader, Input, Limits, Reading};
pub use range::{Range, Slice};
pub use request::{Body, Method, Request};
pub use response::ResponseHead;
pub use serve::{End, Reply, Sent, serve};
pub use status::Status;
