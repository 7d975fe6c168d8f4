//! Lives of coroutines from the fuzzer's bytes, against the model that the tests use.
//!
//! The body is `crates/sinew/tests/coroutine_rig`, which `coroutine_lives.rs` beside it tries under proptest.

#![no_main]

#[path = "../../crates/sinew/tests/coroutine_rig/mod.rs"]
mod coroutine_rig;

use coroutine_rig::{compare, decode};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Err(text) = compare(&decode(bytes)) {
        panic!("{text}");
    }
});
