//! Every case runs in both ways of opening.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;

use super::*;

/// A folder `inside` beside a file `secret`.
fn tree() -> tempfile::TempDir {
    let base = tempfile::tempdir().expect("a folder");
    let inside = base.path().join("inside");
    fs::create_dir_all(inside.join("sub/deep")).expect("folders");
    fs::write(base.path().join("secret"), "secret").expect("a file");
    fs::create_dir(base.path().join("inside-not")).expect("a folder");
    fs::write(base.path().join("inside-not/secret"), "secret").expect("a file");
    fs::write(inside.join("plain"), "plain").expect("a file");
    fs::write(inside.join("sub/deep/file"), "deeper").expect("a file");
    let link = |target: &str, name: &str| symlink(target, inside.join(name)).expect("a link");
    link("plain", "to_plain");
    link("sub/deep", "to_deep");
    link("to_plain", "to_to_plain");
    link("../sub/deep/file", "sub/around");
    link("../secret", "out");
    link("..", "up");
    link("../inside-not", "beside");
    link("/", "root");
    link("loop", "loop");
    link("nowhere", "dangling");
    let absolute =
        |target: PathBuf, name: &str| symlink(target, inside.join(name)).expect("a link");
    absolute(inside.join("plain"), "absolute_in");
    absolute(base.path().join("secret"), "absolute_out");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        inside.join("fifo"),
        rustix::fs::FileType::Fifo,
        Mode::from_raw_mode(0o600),
        0,
    )
    .expect("a FIFO");
    drop(UnixListener::bind(inside.join("socket")).expect("a socket"));
    base
}

/// What can be told at once is the same.
fn agrees(folder: &Folder, name: &str, looked: &Result<Found, OpenError>) {
    let version = |found: &Result<Found, OpenError>| found.as_ref().ok().map(Found::version);
    if let Some(at_once) = folder.look_at_once(name.as_bytes()) {
        assert_eq!(version(&at_once), version(looked), "{name}");
    }
}

fn both(base: &tempfile::TempDir) -> [Folder; 2] {
    let path = base.path().join("inside");
    let kernel = Folder::open(&path, false).expect("opens");
    let walked = Folder {
        kernel_resolves: false,
        ..Folder::open(&path, false).expect("opens")
    };
    [kernel, walked]
}

#[test]
fn opens_what_stays_inside() {
    let base = tree();
    let table = [
        ("plain", 5),
        ("sub/deep/file", 6),
        ("to_plain", 5),
        ("to_to_plain", 5),
        ("to_deep/file", 6),
        ("sub/around", 6),
        ("absolute_in", 5),
        ("up/inside/plain", 5),
    ];
    for folder in both(&base) {
        for (name, size) in table {
            let opened = folder.look(name.as_bytes());
            agrees(&folder, name, &opened);
            assert!(
                matches!(&opened, Ok(found) if !found.is_folder() && found.facts().size == size),
                "{name}: {opened:?}"
            );
        }
        for name in ["", "sub", "to_deep"] {
            assert!(
                folder
                    .look(name.as_bytes())
                    .is_ok_and(|found| found.is_folder()),
                "{name}"
            );
        }
    }
}

#[test]
fn opens_nothing_else() {
    let base = tree();
    let long = "x".repeat(300);
    let secret = base.path().join("secret");
    let table = [
        "absent",
        "plain/x",
        "out",
        "up/secret",
        "beside/secret",
        "root/etc/passwd",
        "absolute_out",
        "loop",
        "dangling",
        "fifo",
        "socket",
        "../secret",
        "sub/../../secret",
        "/etc/passwd",
        &long,
        "up",
        "root",
        secret.to_str().expect("text"),
    ];
    for folder in both(&base) {
        for name in table {
            let opened = folder.look(name.as_bytes());
            agrees(&folder, name, &opened);
            assert!(
                matches!(opened, Err(OpenError::Missing)),
                "{name}: {opened:?}"
            );
        }
    }
}

#[test]
fn links_lead_anywhere_if_they_may() {
    let base = tree();
    let folder = Folder::open(&base.path().join("inside"), true).expect("opens");
    for name in [
        "plain",
        "out",
        "up/secret",
        "beside/secret",
        "absolute_out",
        "root/etc/passwd",
    ] {
        let opened = folder.look(name.as_bytes());
        agrees(&folder, name, &opened);
        assert!(
            matches!(&opened, Ok(found) if !found.is_folder()),
            "{name}: {opened:?}"
        );
    }
    for name in ["", "up", "root"] {
        let opened = folder.look(name.as_bytes());
        agrees(&folder, name, &opened);
        assert!(
            matches!(&opened, Ok(found) if found.is_folder()),
            "{name}: {opened:?}"
        );
    }
    for name in ["absent", "loop", "dangling", "fifo", "socket"] {
        let opened = folder.look(name.as_bytes());
        agrees(&folder, name, &opened);
        assert!(
            matches!(opened, Err(OpenError::Missing)),
            "{name}: {opened:?}"
        );
    }
}

#[test]
fn validators_are_handed_out_once_they_are_certain() {
    let base = tree();
    let facts = |name: &str| {
        let stat = rustix::fs::stat(base.path().join("inside").join(name)).expect("is there");
        Facts::of(&stat)
    };
    let set = |seconds: u64, nanos: u32| {
        let file = fs::File::options()
            .write(true)
            .open(base.path().join("inside/plain"));
        let time = UNIX_EPOCH + Duration::new(seconds, nanos);
        file.and_then(|file| file.set_modified(time))
            .expect("a time");
        facts("plain")
    };
    let plain = set(1_000, 900_000_000);
    assert_eq!((plain.size, plain.validators.modified), (5, 1_000));
    let table = [
        (1_000, 900, false, false),
        (1_000, 949, false, false),
        (1_000, 950, true, false),
        (1_001, 49, true, false),
        (1_001, 50, true, true),
        (2_000, 0, true, true),
        // It was set to a time to come.
        (999, 0, true, false),
    ];
    for (seconds, millis, tag, date) in table {
        let now = UNIX_EPOCH + Duration::from_secs(seconds) + Duration::from_millis(millis);
        let age = Age {
            tag_is_certain: tag,
            date_is_certain: date,
        };
        assert_eq!(plain.age(now), age, "{seconds}.{millis}");
    }
    // Another nanosecond, another length, another file: another tag.
    let later = set(1_000, 900_000_001);
    assert_ne!(plain.validators.tag, later.validators.tag);
    let path = base.path().join("inside/plain");
    fs::write(&path, "plainer").expect("writes");
    assert_ne!(set(1_000, 900_000_000).validators.tag, plain.validators.tag);
    fs::rename(&path, base.path().join("old")).expect("renames");
    fs::write(&path, "plain").expect("writes");
    assert_ne!(set(1_000, 900_000_000).validators.tag, plain.validators.tag);
}

#[test]
fn a_missing_folder_and_a_file_are_not_folders() {
    let base = tree();
    assert!(Folder::open(&base.path().join("absent"), false).is_err());
    assert!(Folder::open(&base.path().join("secret"), false).is_err());
}

#[test]
fn the_folder_that_was_opened_stays_the_one_served() {
    let base = tree();
    let [kernel, _] = both(&base);
    fs::rename(base.path().join("inside"), base.path().join("moved")).expect("renames");
    fs::create_dir(base.path().join("inside")).expect("a folder");
    fs::write(base.path().join("inside/plain"), "another file").expect("a file");
    assert!(
        kernel
            .look(b"plain")
            .is_ok_and(|found| found.facts().size == 5)
    );
}

#[test]
fn the_walk_follows_no_link() {
    let base = tree();
    let [_, folder] = both(&base);
    assert!(walk(&folder.descriptor, Path::new("sub/deep/file")).is_ok());
    for name in ["to_plain", "to_deep/file", "up/secret", "out", "../secret"] {
        let place = walk(&folder.descriptor, Path::new(name));
        // The place of a link itself is no file.
        let found = place.map_err(OpenError::from).and_then(Found::of);
        assert!(found.is_err(), "{name}");
    }
}

#[test]
fn a_link_that_is_swapped_meanwhile_leads_nowhere() {
    let base = tree();
    let inside = base.path().join("inside");
    fs::create_dir(inside.join("flip")).expect("a folder");
    fs::write(inside.join("flip/secret"), "harmless").expect("a file");
    symlink("..", inside.join("flop")).expect("a link");
    let folders = both(&base);
    let exchange = rustix::fs::RenameFlags::EXCHANGE;
    std::thread::scope(|scope| {
        let swapper = scope.spawn(|| {
            for _ in 0..20_000 {
                let (flip, flop) = (inside.join("flip"), inside.join("flop"));
                let here = rustix::fs::CWD;
                rustix::fs::renameat_with(here, flip, here, flop, exchange).expect("swaps");
            }
        });
        while !swapper.is_finished() {
            for folder in &folders {
                // "secret" outside has six bytes, the harmless one eight.
                if let Ok(found) = folder.look(b"flip/secret") {
                    assert_eq!(found.facts().size, 8);
                }
            }
        }
    });
}
