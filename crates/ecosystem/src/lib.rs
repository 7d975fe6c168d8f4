//! Crates that know nothing of sinew, unmodified, in its coroutines: TLS, WebSocket, HTTP and databases. The examples are to be copied;
//! the tests run them, and more.
