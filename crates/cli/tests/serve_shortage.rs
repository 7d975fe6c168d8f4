//! Descriptors run out, of which the server keeps some itself. One test: it uses up those of the process.

mod harness;

use std::fs::{self, File};

use harness::{Client, Served};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Uses up all descriptors but so many.
fn use_up_all_but(free: usize) -> Vec<File> {
    let mut used = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        used.push(file);
    }
    used.truncate(used.len() - free);
    used
}

fn get(client: &mut Client, target: &str) -> (u16, Vec<u8>) {
    client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
    let response = client.response(false);
    (response.status, response.body)
}

#[test]
fn kept_files_give_their_descriptors_up_for_others() {
    let few = Rlimit {
        current: Some(128),
        ..getrlimit(Resource::Nofile)
    };
    setrlimit(Resource::Nofile, few).expect("fewer are always allowed");
    let served = Served::with(|config| config.listing = true);
    let folder = served.folder.path().join("served");
    for name in ["one", "two", "three", "empty/a", "empty/b"] {
        fs::write(folder.join(name), name).expect("a file");
    }
    let mut client = served.connect();
    for free in 0..5 {
        for name in ["one", "two", "three", "ten.txt"] {
            assert_eq!(get(&mut client, &format!("/{name}")).0, 200);
        }
        // Whatever it is that fails for want of one more.
        for target in ["/empty/a", "/empty/", "/big.bin"] {
            let used = use_up_all_but(free);
            let (status, body) = get(&mut client, target);
            assert_eq!(status, 200, "{target} with {free}");
            assert!(!body.is_empty());
            drop(used);
            for name in ["one", "two", "three", "ten.txt"] {
                assert_eq!(get(&mut client, &format!("/{name}")).0, 200);
            }
        }
    }
    // With none at all it says so, and goes on later.
    let (_, none) = (get(&mut client, "/one"), use_up_all_but(0));
    for _ in 0..3 {
        let status = get(&mut client, "/two").0;
        assert!(matches!(status, 200 | 503), "{status}");
    }
    drop(none);
    assert_eq!(get(&mut client, "/three").0, 200);
}
