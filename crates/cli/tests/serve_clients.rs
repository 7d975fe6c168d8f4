//! The server under clients that others have written: curl and wrk.

mod harness;

use std::process::{Command, Output};

use harness::{Served, pattern};

/// Whether the program is there; without it the test says that it is left out, or fails where nothing may be.
#[expect(clippy::print_stdout, reason = "what is left out says so")]
fn is_installed(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        let why = format!("{program} is not installed (Debian: {program})");
        assert!(std::env::var_os("SINEW_NO_SKIPS").is_none(), "{why}");
        println!("SKIPPED: {why}");
    }
    found
}

fn curl(arguments: &[&str]) -> Output {
    let output = Command::new("curl")
        .args([
            "--silent",
            "--show-error",
            "--max-time",
            "60",
            "--noproxy",
            "*",
        ])
        .args(arguments)
        .output();
    output.expect("curl starts")
}

/// What curl prints; it must have succeeded.
fn said(arguments: &[&str]) -> String {
    let output = curl(arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

const STATUS: &str = "%{http_code}";

#[test]
fn curl_gets_files_parts_and_redirects() {
    if !is_installed("curl") {
        return;
    }
    let served = Served::new();
    let url = |path: &str| format!("http://{}{path}", served.address);
    assert_eq!(said(&[&url("/ten.txt")]), "0123456789");
    assert_eq!(said(&["--http1.0", &url("/ten.txt")]), "0123456789");
    assert_eq!(said(&["--range", "2-4", &url("/ten.txt")]), "234");
    assert_eq!(said(&["--range", "-3", &url("/ten.txt")]), "789");
    assert!(curl(&[&url("/big.bin")]).stdout == pattern(3_000_000));
    let head = said(&["--head", &url("/ten.txt")]);
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains("Content-Length: 10\r\n"));
    assert_eq!(said(&["--location", &url("/with%20index")]), "<p>inner</p>");
    assert_eq!(
        said(&[
            "--location",
            "-w",
            " %{num_redirects}",
            &url("//with%20index")
        ]),
        "<p>inner</p> 1"
    );
    // Several on one connection.
    let all = said(&[
        "-w",
        "%{num_connects}",
        &url("/ten.txt"),
        &url("/"),
        &url("/absent"),
    ]);
    assert_eq!(all, "01234567891<p>root</p>0404 Not Found\n0");
    let outside = said(&["--path-as-is", "-w", STATUS, &url("/../secret.txt")]);
    assert_eq!(outside, "400 Bad Request\n400");
}

#[test]
fn curl_asks_on_condition() {
    if !is_installed("curl") {
        return;
    }
    let served = Served::new();
    let url = format!("http://{}/ten.txt", served.address);
    let folder = tempfile::tempdir().expect("a folder");
    let tag = folder.path().join("tag");
    let tag = tag.to_str().expect("text");
    assert_eq!(
        said(&["--etag-save", tag, "-w", STATUS, &url]),
        "0123456789200"
    );
    assert_eq!(said(&["--etag-compare", tag, "-w", STATUS, &url]), "304");
    let same = [
        "--time-cond",
        "Sun, 06 Nov 1994 08:49:37 GMT",
        "-w",
        STATUS,
        &url,
    ];
    assert_eq!(said(&same), "304");
    let newer = [
        "--time-cond",
        "Sun, 06 Nov 1994 08:49:36 GMT",
        "-w",
        STATUS,
        &url,
    ];
    assert_eq!(said(&newer), "0123456789200");
    // A download that goes on where another was cut.
    let part = folder.path().join("part");
    std::fs::write(&part, "0123").expect("writes");
    let path = part.to_str().expect("text");
    said(&["--continue-at", "-", "--output", path, &url]);
    assert_eq!(std::fs::read(&part).expect("reads"), b"0123456789");
}

#[test]
fn curl_sends_what_nobody_takes() {
    if !is_installed("curl") {
        return;
    }
    let served = Served::new();
    let url = format!("http://{}/ten.txt", served.address);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("upload");
    std::fs::write(&file, vec![b'x'; 3_000_000]).expect("writes");
    let file = file.to_str().expect("text");
    // It waits for leave first, and gets the final answer instead.
    let upload = ["--upload-file", file, "-w", STATUS, &url];
    assert_eq!(said(&upload), "405 Method Not Allowed\n405");
    let chunked = [
        "-H",
        "Transfer-Encoding: chunked",
        "--data",
        "abc",
        "-w",
        STATUS,
        &url,
    ];
    assert_eq!(said(&chunked), "405 Method Not Allowed\n405");
    let get = [
        "-X",
        "GET",
        "-H",
        "Transfer-Encoding: chunked",
        "--data",
        "abc",
        "-w",
        STATUS,
        &url,
    ];
    assert_eq!(said(&get), "0123456789200");
    let options = ["-X", "OPTIONS", "--request-target", "*", "-w", STATUS, &url];
    assert_eq!(said(&options), "204");
    assert_eq!(served.stop().panics, 0);
}

#[test]
fn wrk_finds_no_error() {
    if !is_installed("wrk") {
        return;
    }
    let served = Served::new();
    let url = format!("http://{}/ten.txt", served.address);
    let output = Command::new("wrk")
        .args(["-t1", "-c32", "-d1s", &url])
        .output()
        .expect("starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    assert!(
        !text.contains("Socket errors") && !text.contains("Non-2xx"),
        "{text}"
    );
    let requests = text
        .lines()
        .find_map(|line| line.trim().split_once(" requests in"));
    let requests: u64 = requests.expect(&text).0.parse().expect(&text);
    assert!(requests > 0);
    let summary = served.stop();
    // Those under way at the end were answered, too.
    assert!(
        (requests..=requests + 32).contains(&summary.answers),
        "{text} {summary:?}"
    );
    // One more is there only to see whether the server is.
    assert!((32..=33).contains(&summary.connections), "{summary:?}");
}
