//! Requests in pieces from the fuzzer's bytes, against a naive reading of them.
//!
//! The body is `crates/http/tests/framing_rig`, which `framing_model.rs` beside it tries with random requests.

#![no_main]

#[path = "../../crates/http/tests/framing_rig/mod.rs"]
mod framing_rig;

use framing_rig::{compare, decode};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Err(text) = compare(&decode(bytes)) {
        panic!("{text}");
    }
});
