//! A target that requires shadow stacks is refused when the crate is compiled.

use std::process::Command;

#[path = "../build.rs"]
#[expect(
    dead_code,
    clippy::print_stdout,
    reason = "its `main` is cargo's, and talks to it"
)]
mod build_script;

// contract: C22
#[test]
fn flags_that_ask_for_shadow_stacks_are_recognised() {
    let split = |flags: &str| flags.replace(' ', "\u{1f}");
    for flags in [
        "-Ctarget-feature=+shstk",
        "-C target-feature=+avx,+shstk",
        "--cfg loom -Zcf-protection=full",
        "-Z cf-protection=return",
    ] {
        assert!(build_script::demand(&split(flags)).is_some(), "{flags}");
    }
    for flags in [
        "",
        "-Ctarget-feature=-shstk",
        "-Ctarget-feature=+avx -Cforce-frame-pointers=yes",
        "-Zcf-protection=branch",
        "-Zcf-protection=none",
        "-Ctarget-cpu=native",
    ] {
        assert_eq!(build_script::demand(&split(flags)), None, "{flags}");
    }
}

// contract: C22
#[test]
fn such_a_build_fails_and_says_why() {
    let build = |flags: &str| {
        let output = Command::new(env!("CARGO"))
            .args([
                "check",
                "--offline",
                "--quiet",
                "--package",
                "sinew-context",
            ])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .env("CARGO_ENCODED_RUSTFLAGS", flags)
            .env_remove("RUSTFLAGS")
            .env("CARGO_TARGET_DIR", env!("CARGO_TARGET_TMPDIR"))
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.success(), text)
    };
    let (built, text) = build("-Ctarget-feature=+shstk");
    assert!(!built && text.contains("asks for shadow stacks"), "{text}");
    // The same build without the flag, so that it is the flag that is refused.
    let (built, text) = build("");
    assert!(built, "{text}");
}
