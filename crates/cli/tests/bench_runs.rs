//! `sinew bench` as a person meets it. What it measures is tested where it is measured; no figure is looked at here.

use std::fs;
use std::process::{Command, Output};

fn bench(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sinew"))
        .arg("bench")
        .args(arguments)
        .output()
        .expect("starts")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("is text")
}

#[test]
fn a_quick_run_prints_figures_and_writes_them_as_json() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("figures.json");
    let path = file.to_str().expect("a path that is text");
    let output = bench(&[
        "--quick",
        "--runs",
        "2",
        "--only",
        "resume,yield-2",
        "--json",
        path,
    ]);
    let printed = text(&output.stdout);
    assert!(output.status.success(), "{printed}");
    for name in [
        "quick:",
        "resume:",
        "sinew-context",
        "corosensei",
        "yield-2:",
    ] {
        assert!(printed.contains(name), "{name} is missing in {printed}");
    }
    assert!(!printed.contains("spawn:"), "{printed}");
    let written = fs::read(&file).expect("was written");
    let report: serde_json::Value = serde_json::from_slice(&written).expect("is JSON");
    let rows = &report["outcomes"][0]["rows"];
    let samples = rows[0]["figure"]["samples"].as_array();
    assert_eq!(samples.map(Vec::len), Some(2), "{report}");
}

#[test]
fn an_unknown_workload_exits_with_2_and_names_those_there_are() {
    let output = bench(&["--quick", "--only", "nonsense"]);
    assert_eq!(output.status.code(), Some(2));
    let complaint = text(&output.stderr);
    assert!(
        complaint.contains("nonsense") && complaint.contains("pingpong"),
        "{complaint}"
    );
}

#[test]
fn an_incomplete_page_is_not_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("page.md");
    let path = file.to_str().expect("a path that is text");
    for extra in [&["--quick"][..], &["--only", "resume"]] {
        let output = bench(&[&["--write", path], extra].concat());
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    }
    assert!(!file.exists());
}

#[test]
fn a_file_that_cannot_be_written_is_named() {
    let path = "/no/such/folder/figures.json";
    let output = bench(&["--quick", "--runs", "1", "--only", "resume", "--json", path]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).contains(path),
        "{}",
        text(&output.stderr)
    );
}
