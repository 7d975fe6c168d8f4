//! Keeps the compiler's version for the head of a report.

use std::process::Command;

fn main() {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(rustc)
        .arg("--version")
        .output()
        .ok()
        .and_then(|output| String::from_utf8(output.stdout).ok());
    let version = version.as_deref().map_or("unknown", str::trim);
    println!("cargo::rustc-env=SINEW_BENCH_RUSTC={version}");
    println!("cargo::rerun-if-changed=build.rs");
}
