//! Crates that know nothing of sinew, unmodified, in its coroutines: TLS, WebSocket, HTTP and databases. The examples are to be copied;
//! the tests run them, and more. Here is what they need beside that.

mod certificates;
mod server;

pub use certificates::self_made;
pub use server::Server;

/// The guide's listings are examples that run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/ecosystem.md")]
struct Guide;
