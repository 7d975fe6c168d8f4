//! What the server answers, status by status.

mod harness;

use std::os::unix::fs::symlink;

use harness::{Served, pattern};

#[test]
fn files_folders_and_types() {
    const HTML: &str = "text/html; charset=utf-8";
    const TEXT: &str = "text/plain; charset=utf-8";
    let served = Served::new();
    let table = [
        ("/", HTML, "<p>root</p>"),
        ("/index.html?v=1", HTML, "<p>root</p>"),
        ("/with%20index/", HTML, "<p>inner</p>"),
        ("//with%20index///index.html", HTML, "<p>inner</p>"),
        ("/ten.txt", TEXT, "0123456789"),
        ("/none.bin", "application/octet-stream", ""),
        ("/a%20b%25.css", "text/css; charset=utf-8", "p {}"),
        ("http://elsewhere/ten.txt", TEXT, "0123456789"),
    ];
    for (target, kind, body) in table {
        let response = served.get(target, "");
        assert_eq!(response.status, 200, "{target}");
        assert_eq!(response.field("content-type"), Some(kind), "{target}");
        assert_eq!(String::from_utf8_lossy(&response.body), body, "{target}");
        assert!(!response.closes(), "{target}");
    }
    let response = served.get("/big.bin", "");
    assert!(response.body == pattern(3_000_000), "a large file differs");
}

#[test]
fn what_is_not_there() {
    let served = Served::new();
    let names = [
        "empty/",
        "empty",
        "absent",
        "absent/",
        "ten.txt/",
        "ten.txt/x",
        "TEN.txt",
    ];
    for name in names {
        let response = served.get(&format!("/{name}"), "");
        assert_eq!(response.status, 404, "{name}");
        assert_eq!(response.body, b"404 Not Found\n", "{name}");
        assert!(!response.closes(), "{name}");
    }
}

#[test]
fn a_folder_without_its_slash_redirects_within_this_host() {
    let served = Served::new();
    let response = served.get("//with%20index?x", "");
    assert_eq!(response.status, 301);
    assert_eq!(response.field("location"), Some("/with%20index/"));
}

#[test]
fn nothing_outside_by_any_spelling() {
    let served = Served::new();
    let folder = served.folder.path().join("served");
    symlink("../secret.txt", folder.join("link")).expect("a link");
    symlink("..", folder.join("up")).expect("a link");
    symlink("/", folder.join("root")).expect("a link");
    symlink(
        served.folder.path().join("secret.txt"),
        folder.join("absolute"),
    )
    .expect("a link");
    symlink("ten.txt", folder.join("inside")).expect("a link");
    symlink(folder.join("ten.txt"), folder.join("absolute_inside")).expect("a link");
    let refused = [
        "/../secret.txt",
        "/%2e%2e/secret.txt",
        "/%2E%2e/secret.txt",
        "/.%2e/secret.txt",
        "/..%2fsecret.txt",
        "/..%5csecret.txt",
        "/..\\secret.txt",
        "/with%20index/../../secret.txt",
        "/x/../../secret.txt",
        "/up/../secret.txt",
        "/%00",
        "/ten.txt%00.html",
        "/%2fetc/passwd",
        "/%",
        "/%zz",
        "secret.txt",
        "*",
        "http:///x",
        "file:///etc/passwd",
    ];
    for target in refused {
        assert_eq!(served.get(target, "").status, 400, "{target}");
    }
    let absent = [
        "/%252e%252e/secret.txt",
        "//etc/passwd",
        "/link",
        "/up/secret.txt",
        "/absolute",
        "/root/etc/passwd",
        "/.../secret.txt",
        "/..;/secret.txt",
        "/%c0%ae%c0%ae/secret.txt",
        "/%e0%80%ae./secret.txt",
        "http://a/up/secret.txt",
    ];
    for target in absent {
        let response = served.get(target, "");
        assert_eq!(response.status, 404, "{target}");
        assert!(
            !response.body.windows(6).any(|window| window == b"secret"),
            "{target}"
        );
    }
    for target in ["/inside", "/absolute_inside"] {
        assert_eq!(served.get(target, "").body, b"0123456789", "{target}");
    }
}

#[test]
fn only_regular_files_and_no_waiting_for_them() {
    let served = Served::new();
    let folder = served.folder.path().join("served");
    let fifo = rustix::fs::FileType::Fifo;
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, folder.join("fifo"), fifo, mode, 0).expect("a FIFO");
    drop(std::os::unix::net::UnixListener::bind(folder.join("socket")).expect("a socket"));
    symlink("/dev/zero", folder.join("zero")).expect("a link");
    for target in ["/fifo", "/socket", "/zero"] {
        assert_eq!(served.get(target, "").status, 404, "{target}");
    }
}

#[test]
fn ranges() {
    let served = Served::new();
    let partial = [
        ("bytes=0-0", "0", "bytes 0-0/10"),
        ("bytes=2-4", "234", "bytes 2-4/10"),
        ("bytes=7-", "789", "bytes 7-9/10"),
        ("bytes=7-100", "789", "bytes 7-9/10"),
        ("bytes=-3", "789", "bytes 7-9/10"),
        ("bytes=-100", "0123456789", "bytes 0-9/10"),
        (
            "bytes=0-99999999999999999999999",
            "0123456789",
            "bytes 0-9/10",
        ),
    ];
    for (range, body, content_range) in partial {
        let response = served.get("/ten.txt", &format!("Range: {range}\r\n"));
        assert_eq!(response.status, 206, "{range}");
        assert_eq!(response.body, body.as_bytes(), "{range}");
        assert_eq!(
            response.field("content-range"),
            Some(content_range),
            "{range}"
        );
    }
    for range in [
        "bytes=10-",
        "bytes=10-20",
        "bytes=-0",
        "bytes=99999999999999999999999-",
    ] {
        let response = served.get("/ten.txt", &format!("Range: {range}\r\n"));
        assert_eq!(response.status, 416, "{range}");
        assert_eq!(
            response.field("content-range"),
            Some("bytes */10"),
            "{range}"
        );
        assert!(!response.closes());
    }
    for range in [
        "bytes=0-1,3-4",
        "bytes=4-2",
        "lines=1-2",
        "bytes=x",
        "bytes=-",
        "bytes=1-2-3",
    ] {
        let response = served.get("/ten.txt", &format!("Range: {range}\r\n"));
        assert_eq!((response.status, response.body.len()), (200, 10), "{range}");
        assert_eq!(response.field("accept-ranges"), Some("bytes"));
        assert_eq!(response.field("content-range"), None);
    }
    assert_eq!(served.get("/none.bin", "Range: bytes=0-\r\n").status, 416);
    let conditional = served.get("/ten.txt", "Range: bytes=0-1\r\nIf-Range: \"x\"\r\n");
    assert_eq!(conditional.status, 200);
    let large = served.get("/big.bin", "Range: bytes=100000-2999998\r\n");
    assert!(
        large.body == pattern(3_000_000)[100_000..2_999_999],
        "a large range differs"
    );
}

#[test]
fn head_says_what_get_would_and_has_no_body() {
    let served = Served::new();
    let targets = ["/", "/big.bin", "/absent", "/with%20index", "/%00"];
    let mut client = served.connect();
    for target in targets {
        client.send(format!("HEAD {target} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
        let head = client.response(true);
        // A body would be taken for the head of this answer.
        client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
        let get = client.response(false);
        assert_eq!(head.status, get.status, "{target}");
        for field in [
            "content-length",
            "content-type",
            "location",
            "accept-ranges",
        ] {
            assert_eq!(head.field(field), get.field(field), "{target} {field}");
        }
    }
    let ranged = served.ask("HEAD /ten.txt HTTP/1.1\r\nHost: a\r\nRange: bytes=1-2\r\n\r\n");
    assert_eq!(
        (ranged.status, ranged.field("content-length")),
        (200, Some("10"))
    );
    let mut refused = served.connect();
    refused.send(b"HEAD / HTTP/1.1\r\n\r\n");
    assert_eq!(refused.response(true).status, 400);
    assert!(refused.is_closed());
}

#[test]
fn methods() {
    let served = Served::new();
    for method in ["POST", "PUT", "DELETE", "PATCH", "TRACE", "CONNECT"] {
        let response = served.ask(&format!("{method} / HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(response.status, 405, "{method}");
        assert_eq!(
            response.field("allow"),
            Some("GET, HEAD, OPTIONS"),
            "{method}"
        );
        assert!(!response.closes(), "{method}");
    }
    for method in ["BREW", "get", "PROPFIND", "G!"] {
        let response = served.ask(&format!("{method} / HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(response.status, 501, "{method}");
    }
}

#[test]
fn malformed_heads_are_refused_and_the_connection_closed() {
    let served = Served::new();
    let table = [
        (400, "GET / HTTP/1.1\r\n\r\n"),
        (400, "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n"),
        (400, "GET / HTTP/1.1\nHost: a\n\n"),
        (400, "GET / HTTP/1.1\r\nHost: a\n\r\n"),
        (400, "GET / HTTP/1.1\r\nHost : a\r\n\r\n"),
        (400, "GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n"),
        (400, "GET / HTTP/1.1\r\nHost: a\r\nA\r\n\r\n"),
        (400, "GET / HTTP/1.1\r\nHost: a\r\nA: \0\r\n\r\n"),
        (400, "GET /\r\n\r\n"),
        (400, "GET  / HTTP/1.1\r\nHost: a\r\n\r\n"),
        (400, "G(T / HTTP/1.1\r\nHost: a\r\n\r\n"),
        (400, "\u{16}\u{3}\u{1}\r\n\r\n"),
        (417, "GET / HTTP/1.1\r\nHost: a\r\nExpect: tea\r\n\r\n"),
        (505, "GET / HTTP/2.0\r\nHost: a\r\n\r\n"),
        (505, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    ];
    for (status, head) in table {
        let mut client = served.connect();
        client.send(head.as_bytes());
        let response = client.response(false);
        assert_eq!(response.status, status, "{head:?}");
        assert!(response.closes() && client.is_closed(), "{head:?}");
    }
}

#[test]
fn sizes_of_heads() {
    let served = Served::with(|config| {
        config.header_bytes_max = 12_000;
        config.headers_max = 10;
    });
    let head = |line: usize, rest: usize| {
        let line = format!("GET /{} HTTP/1.1\r\nHost: a\r\n", "x".repeat(line - 14));
        let padding = rest - line.len() - "X: \r\n\r\n".len();
        format!("{line}X: {}\r\n\r\n", "y".repeat(padding))
    };
    // The request line at its limit names no file; one byte more is too long.
    let table = [
        (404, head(255, 12_000)),
        (431, head(255, 12_001)),
        (431, head(255, 50_000)),
        (414, head(8_193, 12_000)),
        (414, head(11_900, 12_000)),
        (414, head(40_000, 41_000)),
        (404, head(8_192, 12_000)),
        (
            200,
            format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "A: b\r\n".repeat(9)),
        ),
        (
            431,
            format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "A: b\r\n".repeat(10)),
        ),
    ];
    for (number, (status, head)) in table.iter().enumerate() {
        let response = served.ask(head);
        assert_eq!(response.status, *status, "case {number}");
        assert_eq!(response.closes(), *status > 404, "case {number}");
    }
}

#[test]
fn a_request_line_is_measured_before_it_ends() {
    let served = Served::new();
    let line = |bytes: usize| format!("GET /{} HTTP/1.1", "x".repeat(bytes - 14));
    // Nothing more comes: the answer cannot wait for the end of the line.
    assert_eq!(served.ask(&line(8_194)).status, 414);

    // With the first answer here, the server has the line with half of its end as well.
    let mut client = served.connect();
    let first = "GET /ten.txt HTTP/1.1\r\nHost: a\r\n\r\n";
    client.send(format!("{first}{}\r", line(8_192)).as_bytes());
    assert_eq!(client.response(false).status, 200);
    client.send(b"\nHost: a\r\n\r\n");
    assert_eq!(client.response(false).status, 404);
}
