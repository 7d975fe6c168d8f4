//! Refuses to be compiled for shadow stacks (Intel CET), which the switch does not keep.
//!
//! `rustc` has no `cfg` for them, so its flags are looked at: the target feature `shstk`, and `-Z cf-protection` for
//! returns. What a target specification of one's own asks for is not seen here, but in each process, before its first coroutine.

/// What in these flags, separated as cargo does it, asks for shadow stacks.
pub(crate) fn demand(flags: &str) -> Option<&str> {
    flags.split('\u{1f}').find(|flag| {
        let features = flag
            .strip_prefix("-Ctarget-feature=")
            .or_else(|| flag.strip_prefix("target-feature="));
        let protection = flag
            .strip_prefix("-Zcf-protection=")
            .or_else(|| flag.strip_prefix("cf-protection="));
        features.is_some_and(|features| features.split(',').any(|feature| feature == "+shstk"))
            || protection.is_some_and(|kind| ["full", "return", "yes", "y", "on"].contains(&kind))
    })
}

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=CARGO_ENCODED_RUSTFLAGS");
    let flags = std::env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    if let Some(flag) = demand(&flags) {
        println!(
            "cargo::error=`{flag}` asks for shadow stacks, which sinew's switch does not keep: compile without it \
             (`cf-protection=branch` is supported)"
        );
    }
}
