//! When a file is opened, kept and closed.

use std::fs;
use std::path::Path;

use super::*;

fn files_of(folder: &Path) -> Files {
    Files::new(Folder::open(folder, false).expect("opens"))
}

fn find(files: &Files, name: &str) -> Option<(Arc<File>, Facts)> {
    match files
        .find(name.as_bytes(), || Ok(()))
        .expect("not cancelled")
    {
        Ok(Opened::File(file, facts)) => Some((file, facts)),
        Ok(Opened::Folder(_)) | Err(_) => None,
    }
}

/// In a folder with the files `a`, `b` and `c`, each with its name in it.
fn with_files(body: impl FnOnce(&Path, Files) + Send + 'static) {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["a", "b", "c"] {
        fs::write(folder.path().join(name), name).expect("a file");
    }
    rt::run(|| body(folder.path(), files_of(folder.path())));
}

#[test]
fn a_file_is_opened_once_in_each_version() {
    with_files(|folder, files| {
        let (first, facts) = find(&files, "a").expect("is there");
        let (again, _) = find(&files, "a").expect("is there");
        assert!(Arc::ptr_eq(&first, &again));
        fs::write(folder.join("a"), "longer").expect("writes");
        let (other, others) = find(&files, "a").expect("is there");
        assert!(!Arc::ptr_eq(&first, &other));
        assert_eq!((facts.size, others.size, files.count()), (1, 6, 1));
        fs::rename(folder.join("b"), folder.join("a")).expect("renames");
        let (_, facts) = find(&files, "a").expect("is there");
        assert_eq!((facts.size, files.count()), (1, 1));
        fs::remove_file(folder.join("a")).expect("removes");
        assert!(find(&files, "a").is_none());
    });
}

#[test]
fn who_lost_the_right_to_a_name_does_not_get_what_is_kept() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    with_files(|folder, files| {
        fs::create_dir(folder.join("sub")).expect("a folder");
        fs::write(folder.join("sub/inside"), "inside").expect("a file");
        assert!(find(&files, "sub/inside").is_some());
        fs::rename(folder.join("sub"), folder.join("away")).expect("renames");
        assert!(find(&files, "sub/inside").is_none());
        symlink("/etc", folder.join("sub")).expect("a link");
        assert!(find(&files, "sub/passwd").is_none());
        // Other permissions make another version, which is opened anew.
        let (first, _) = find(&files, "a").expect("is there");
        let permissions = fs::Permissions::from_mode(0o400);
        fs::set_permissions(folder.join("a"), permissions).expect("sets");
        let (other, _) = find(&files, "a").expect("is there");
        assert!(!Arc::ptr_eq(&first, &other));
    });
}

#[test]
fn what_nobody_asks_for_is_closed() {
    with_files(|_, files| {
        let (a, _) = find(&files, "a").expect("is there");
        let (b, _) = find(&files, "b").expect("is there");
        files.sweep().expect("not cancelled");
        assert_eq!(files.count(), 2);
        assert!(find(&files, "a").is_some());
        files.sweep().expect("not cancelled");
        assert_eq!(
            (files.count(), Arc::strong_count(&a), Arc::strong_count(&b)),
            (1, 2, 1)
        );
        files.sweep().expect("not cancelled");
        assert_eq!((files.count(), Arc::strong_count(&a)), (0, 1));
    });
}

#[test]
fn no_more_are_kept_than_may_be() {
    with_files(|_, files| {
        for limit in [0, 1, 2] {
            files.forget().expect("not cancelled");
            let files = Files {
                limit,
                folder: Arc::clone(files.folder()),
                kept: RefCell::default(),
            };
            for name in ["a", "b", "c", "a", "a", "b"] {
                assert!(find(&files, name).is_some(), "{name}");
                assert!(files.count() <= limit, "{limit}");
            }
        }
    });
}

#[test]
fn no_more_are_kept_than_may_be_if_they_come_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    for name in 0..20 {
        fs::write(folder.path().join(name.to_string()), "text").expect("a file");
    }
    rt::run(|| {
        let mut files = files_of(folder.path());
        files.limit = 4;
        let files = rt::Shared::new(files);
        let ask = |name: usize| {
            let files = rt::Shared::clone(&files);
            rt::spawn_local(move || find(&files, &name.to_string()).is_some())
        };
        let asked: Vec<_> = (0..20).map(ask).collect();
        for one in asked {
            assert!(one.join().expect("no panic"));
        }
        assert!(files.count() <= 4, "{}", files.count());
    });
}

#[test]
fn a_deleted_file_that_is_done_with_is_closed() {
    with_files(|folder, files| {
        let (file, _) = find(&files, "a").expect("is there");
        let watch = Arc::downgrade(&file);
        fs::remove_file(folder.join("a")).expect("removes");
        files.forget().expect("not cancelled");
        let number = std::os::fd::AsRawFd::as_raw_fd(&std::os::fd::AsFd::as_fd(&*file));
        files.done(file);
        assert!(watch.upgrade().is_none());
        let link = format!("{}/{number}", "/proc/self/fd");
        let is_open = || fs::read_link(&link).is_ok_and(|to| to.starts_with(folder));
        while is_open() {
            rt::yield_now().expect("not cancelled");
        }
    });
}
