//! One door for CI.
fn main() {}
