//! Folders without an index, links that lead out, and names that would like to be markup.

mod harness;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use harness::Served;

fn listing() -> Served {
    Served::with(|config| config.listing = true)
}

fn folder(served: &Served) -> PathBuf {
    served.folder.path().join("served/empty")
}

/// The links of a page, in their order.
fn links(page: &str) -> Vec<&str> {
    let after = page.split("href=\"").skip(1);
    after.filter_map(|rest| rest.split('"').next()).collect()
}

#[test]
fn a_folder_is_listed_only_if_that_was_asked_for() {
    let without = Served::new();
    assert_eq!(without.get("/empty/", "").status, 404);
    assert_eq!(without.get("/empty", "").status, 404);
    let served = listing();
    let page = served.get("/empty/", "");
    assert_eq!(page.status, 200);
    assert_eq!(page.field("content-type"), Some("text/html; charset=utf-8"));
    assert_eq!(
        page.field("content-security-policy"),
        Some("default-src 'none'")
    );
    // An index goes before the list.
    assert_eq!(served.get("/", "").body, b"<p>root</p>");
    assert_eq!(served.get("/with%20index/", "").body, b"<p>inner</p>");
    assert_eq!(served.get("/absent/", "").status, 404);
    let head = served.ask("HEAD /empty/ HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(head.field("content-length"), page.field("content-length"));
}

#[test]
fn every_link_leads_to_what_it_names() {
    let served = listing();
    let here = folder(&served);
    let names: [&[u8]; 16] = [
        b"plain.txt",
        b"with space",
        b"<script>alert(1)</script>".split_last().expect("bytes").1,
        b"\"onload=\"x",
        b"it's&amp;",
        b"100%25",
        b"question?mark",
        b"hash#mark",
        b"javascript:alert(1)",
        b"http:",
        b"\xff\xfe",
        b"line\nfeed\rx",
        b"tab\tand\x7f",
        "\u{202e}txt.exe".as_bytes(),
        "\u{e4}\u{1f600}".as_bytes(),
        b"semi;colon,comma",
    ];
    for (number, name) in names.iter().enumerate() {
        // No name may have a slash.
        let name: Vec<u8> = name
            .iter()
            .map(|&byte| if byte == b'/' { b'_' } else { byte })
            .collect();
        fs::write(here.join(OsStr::from_bytes(&name)), number.to_string()).expect("writes");
    }
    fs::create_dir(here.join("sub<b>")).expect("a folder");
    let response = served.get("/empty/", "");
    let page = String::from_utf8(response.body).expect("text");
    let links = links(&page);
    // The parent, the folder, then the files.
    assert_eq!(links.len(), 2 + names.len(), "{page}");
    assert_eq!(links[..2], ["../", "sub%3Cb%3E/"]);
    let mut seen: Vec<usize> = Vec::new();
    for link in &links[2..] {
        let safe = |byte: u8| byte.is_ascii_alphanumeric() || b"%-._~".contains(&byte);
        assert!(link.bytes().all(safe), "{link}");
        let file = served.get(&format!("/empty/{link}"), "");
        assert_eq!(file.status, 200, "{link}");
        seen.push(
            String::from_utf8(file.body)
                .expect("a number")
                .parse()
                .expect("a number"),
        );
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..names.len()).collect::<Vec<_>>());
    assert_eq!(served.get("/empty/sub%3Cb%3E/", "").status, 200);
    // Nothing of a name is markup, and nothing can hide in it.
    for text in ["<script", "<b>", "\"onload", "\u{202e}", "\r", "\x7f"] {
        assert!(!page.contains(text), "{text:?} in {page}");
    }
    assert!(page.contains("&lt;script&gt;") && page.contains("&quot;onload=&quot;x"));
    assert!(page.contains("it&#39;s&amp;amp;"));
}

#[test]
fn the_title_is_escaped_too() {
    let served = listing();
    fs::create_dir(folder(&served).join("<i>&")).expect("a folder");
    let page = served.get("/empty/%3Ci%3E&/", "");
    let page = String::from_utf8(page.body).expect("text");
    assert!(page.contains("<h1>/empty/&lt;i&gt;&amp;/</h1>"), "{page}");
    assert!(!page.contains("<i>"));
}

#[test]
fn what_cannot_be_asked_for_is_not_listed() {
    let served = listing();
    let here = folder(&served);
    fs::write(here.join("seen"), "seen").expect("writes");
    fs::write(here.join(".hidden"), "hidden").expect("writes");
    fs::write(here.join("back\\slash"), "").expect("writes");
    symlink("seen", here.join("inside")).expect("a link");
    symlink("../with index", here.join("folder")).expect("a link");
    symlink("../../secret.txt", here.join("outside")).expect("a link");
    symlink("/", here.join("root")).expect("a link");
    symlink("nowhere", here.join("dangling")).expect("a link");
    let fifo = rustix::fs::FileType::Fifo;
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, here.join("fifo"), fifo, mode, 0).expect("a FIFO");
    let page = String::from_utf8(served.get("/empty/", "").body).expect("text");
    assert_eq!(links(&page), ["../", "folder/", "inside", "seen"]);
    // A link to a FIFO waits for nobody.
    symlink("fifo", here.join("to_fifo")).expect("a link");
    let page = String::from_utf8(served.get("/empty/", "").body).expect("text");
    assert!(!page.contains("fifo"));
}

#[test]
fn a_redirect_never_leaves_this_host() {
    let served = listing();
    let here = folder(&served);
    fs::create_dir_all(served.folder.path().join("served/evil.example/x")).expect("folders");
    fs::create_dir(here.join("a\r\nX: y")).expect("a folder");
    let table = [
        ("/empty", "/empty/"),
        ("//empty", "/empty/"),
        ("//evil.example", "/evil.example/"),
        ("///evil.example//x", "/evil.example/x/"),
        ("/evil.example?next=//evil", "/evil.example/"),
        ("http://evil.example/empty", "/empty/"),
        ("http://evil.example//evil.example", "/evil.example/"),
        ("/empty/a%0D%0AX:%20y", "/empty/a%0D%0AX%3A%20y/"),
    ];
    for (target, location) in table {
        let response = served.get(target, "");
        assert_eq!(response.status, 301, "{target}");
        assert_eq!(response.field("location"), Some(location), "{target}");
        assert_eq!(response.field("x"), None);
    }
    for target in [
        "/\\evil.example",
        "/%5cevil.example",
        "/%2fevil.example",
        "/.%2f/evil.example",
    ] {
        assert_eq!(served.get(target, "").status, 400, "{target}");
    }
}

#[test]
fn links_out_of_the_folder_only_if_that_was_asked_for() {
    let follow = Served::with(|config| {
        config.follow = true;
        config.listing = true;
    });
    for served in [&follow, &listing()] {
        let here = folder(served);
        symlink("../../secret.txt", here.join("outside")).expect("a link");
        symlink("../..", here.join("up")).expect("a link");
        let page = String::from_utf8(served.get("/empty/", "").body).expect("text");
        let expected: &[&str] = match std::ptr::eq(served, &follow) {
            true => &["../", "up/", "outside"],
            false => &["../"],
        };
        assert_eq!(links(&page), expected);
    }
    for target in ["/empty/outside", "/empty/up/secret.txt"] {
        assert_eq!(follow.get(target, "").body, b"secret", "{target}");
    }
    // Links were allowed, spellings were not.
    for target in [
        "/../secret.txt",
        "/empty/../../secret.txt",
        "/%2e%2e/secret.txt",
    ] {
        assert_eq!(follow.get(target, "").status, 400, "{target}");
    }
    assert_eq!(follow.get("/etc/passwd", "").status, 404);
    assert_eq!(follow.get("//etc/passwd", "").status, 404);
}

#[test]
fn a_folder_with_more_entries_than_are_shown() {
    let served = listing();
    let here = folder(&served);
    for number in 0..10_001 {
        fs::File::create(here.join(format!("{number}"))).expect("a file");
    }
    let page = String::from_utf8(served.get("/empty/", "").body).expect("text");
    assert_eq!(links(&page).len(), 1 + 10_000);
    assert!(page.contains("Only 10000 entries"));
}
