//! Files and directories: what std's do, in a coroutine and on a plain thread.

mod fs_rig;
mod io_rig;

use std::collections::BTreeSet;
use std::io::{self, ErrorKind, IoSlice, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use fs_rig::{Folder, both, pattern};
use io_rig::watchdog;
use sinew::fs::{self, File, OpenOptions};
use sinew::{run, spawn_local};

// contract: I6
// contract: I11
#[test]
fn a_file_is_written_and_read() {
    let _watchdog = watchdog();
    both(|| {
        let folder = Folder::new("written");
        let path = folder.join("file");
        for len in [0, 1, 4_095, 4_096, (1 << 20) - 1, 1 << 20, (3 << 20) + 7] {
            let bytes = pattern(len);
            fs::write(&path, &bytes).unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), bytes);
            assert!(fs::read(&path).unwrap() == bytes, "{len} bytes");
            let copy = folder.join("copy");
            assert_eq!(fs::copy(&path, &copy).unwrap(), len as u64);
            assert!(std::fs::read(&copy).unwrap() == bytes, "{len} bytes copied");
            let mut read = Vec::new();
            File::open(&path).unwrap().read_to_end(&mut read).unwrap();
            assert!(read == bytes, "{len} bytes by a file");
        }
        fs::write(&path, "grüße").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "grüße");
        fs::write(&path, [0xff]).unwrap();
        let error = fs::read_to_string(&path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
        assert!(error.to_string().contains("written"), "{error}");
    });
}

// contract: I6
#[test]
fn a_file_that_says_it_is_empty() {
    let _watchdog = watchdog();
    both(|| {
        assert!(
            fs::read_to_string("/proc/self/status")
                .unwrap()
                .contains("Pid:")
        );
        let folder = Folder::new("proc");
        let copy = folder.join("copy");
        assert!(fs::copy("/proc/self/status", &copy).unwrap() > 0);
        assert!(std::fs::read_to_string(&copy).unwrap().contains("Pid:"));
        assert_eq!(fs::read("/dev/null").unwrap(), b"");
        fs::write("/dev/null", b"nowhere").unwrap();
        let mut zeros = [1; 10];
        let mut zero = File::open("/dev/zero").unwrap();
        zero.read_exact(&mut zeros).unwrap();
        assert_eq!(zeros, [0; 10]);
    });
}

// contract: I6
#[test]
fn a_file_has_a_position_and_is_read_and_written_anywhere() {
    let _watchdog = watchdog();
    both(|| {
        let folder = Folder::new("position");
        let path = folder.join("file");
        let mut file = File::create_new(&path).unwrap();
        assert_eq!(file.write(b"0123456789").unwrap(), 10);
        assert_eq!(file.stream_position().unwrap(), 10);
        file.write_all_at(b"xy", 3).unwrap();
        assert_eq!(file.stream_position().unwrap(), 10, "it does not move");
        let mut three = [0; 3];
        file.read_exact_at(&mut three, 2).unwrap();
        assert_eq!(&three, b"2xy");
        assert_eq!(file.read_at(&mut three, 10).unwrap(), 0);
        assert_eq!(file.seek(SeekFrom::End(-2)).unwrap(), 8);
        let mut clone = file.try_clone().unwrap();
        assert_eq!(clone.read(&mut three).unwrap(), 2);
        assert_eq!(&three[..2], b"89");
        assert_eq!(file.stream_position().unwrap(), 10, "it is shared");
        file.rewind().unwrap();
        let slices = [IoSlice::new(b"a"), IoSlice::new(b""), IoSlice::new(b"bc")];
        assert_eq!(file.write_vectored(&slices).unwrap(), 3);
        assert_eq!(file.seek(SeekFrom::Current(-1)).unwrap(), 2);
        let error = file.seek(SeekFrom::Current(-3)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        file.set_len(5).unwrap();
        file.sync_data().unwrap();
        file.sync_all().unwrap();
        assert_eq!(file.metadata().unwrap().len(), 5);
        assert_eq!(std::fs::read(&path).unwrap(), b"abcxy");
        // Through one that is shared.
        (&file).rewind().unwrap();
        let mut text = String::new();
        (&file).read_to_string(&mut text).unwrap();
        assert_eq!(text, "abcxy");
        file.close().unwrap();
        drop(clone);
    });
}

// contract: I6
#[test]
fn a_file_of_std_comes_in_and_goes_out() {
    let _watchdog = watchdog();
    both(|| {
        let folder = Folder::new("std");
        let path = folder.join("file");
        std::fs::write(&path, "text").unwrap();
        let mut file = File::from_std(std::fs::File::open(&path).unwrap()).unwrap();
        let mut two = [0; 2];
        file.read_exact(&mut two).unwrap();
        assert!(!sinew::io::is_nonblocking(&file).unwrap());
        let mut file = file.into_std().unwrap();
        assert!(!sinew::io::is_nonblocking(&file).unwrap());
        let mut rest = String::new();
        file.read_to_string(&mut rest).unwrap();
        assert_eq!((&two, rest.as_str()), (b"te", "xt"));
        // A child gets one in blocking mode.
        let input = File::open(&path).unwrap();
        let output = std::process::Command::new("cat").stdin(input).output();
        assert_eq!(output.unwrap().stdout, b"text");
        let output = File::create(folder.join("out")).unwrap();
        let mut echo = sinew::process::Command::new("echo");
        assert!(echo.arg("hi").stdout(output).status().unwrap().success());
        assert_eq!(fs::read(folder.join("out")).unwrap(), b"hi\n");
    });
}

// contract: I6
#[test]
fn options_are_stds() {
    let _watchdog = watchdog();
    both(|| {
        let folder = Folder::new("options");
        let path = folder.join("file");
        let error = OpenOptions::new().write(true).open(&path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        let mut create = OpenOptions::new();
        create.write(true).create_new(true).mode(0o600);
        create.open(&path).unwrap().write_all(b"1").unwrap();
        let error = create.open(&path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let mut append = OpenOptions::new().append(true).open(&path).unwrap();
        append.write_all(b"2").unwrap();
        assert_eq!(append.read(&mut [0]).unwrap_err().raw_os_error(), None);
        assert_eq!(fs::read(&path).unwrap(), b"12");
        let mut truncate = OpenOptions::new();
        drop(truncate.write(true).truncate(true).open(&path).unwrap());
        assert_eq!(fs::metadata(&path).unwrap().len(), 0);
        let link = folder.join("link");
        fs::symlink(&path, &link).unwrap();
        let mut no_link = OpenOptions::new();
        no_link.read(true).custom_flags(libc::O_NOFOLLOW);
        assert!(no_link.open(&link).is_err());
        assert!(
            OpenOptions::new().open(&path).is_err(),
            "neither read nor write"
        );
    });
}

/// All that is below a directory.
fn walk(path: &Path, found: &mut BTreeSet<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        assert_eq!(entry.path().file_name().unwrap(), entry.file_name());
        assert_eq!(entry.metadata()?.ino(), entry.ino());
        found.insert(entry.path());
        if entry.file_type()?.is_dir() {
            walk(&entry.path(), found)?;
        }
    }
    Ok(())
}

// contract: I6
#[test]
fn directories_are_made_walked_and_removed() {
    let _watchdog = watchdog();
    both(|| {
        let folder = Folder::new("walked");
        let deep = folder.join("a/b/c");
        assert!(fs::create_dir(&deep).is_err());
        fs::create_dir_all(&deep).unwrap();
        fs::create_dir_all(&deep).unwrap();
        let error = fs::create_dir(&deep).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        let mut expected: BTreeSet<_> = ["a", "a/b", "a/b/c"].map(|name| folder.join(name)).into();
        // More than one step reads.
        for number in 0..600 {
            let path = deep.join(number.to_string());
            fs::write(&path, "").unwrap();
            expected.insert(path);
        }
        fs::symlink("nowhere", folder.join("link")).unwrap();
        expected.insert(folder.join("link"));
        let mut found = BTreeSet::new();
        walk(folder.path(), &mut found).unwrap();
        assert!(found == expected, "{} entries", found.len());
        let error = fs::remove_dir(folder.join("a")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DirectoryNotEmpty);
        fs::remove_dir_all(folder.join("a")).unwrap();
        assert!(!fs::exists(folder.join("a")).unwrap());
        let private = folder.join("private");
        fs::DirBuilder::new().mode(0o700).create(&private).unwrap();
        assert_eq!(fs::metadata(&private).unwrap().mode() & 0o777, 0o700);
        fs::remove_dir(&private).unwrap();
    });
}

// contract: I6
#[test]
fn names_links_and_permissions() {
    let _watchdog = watchdog();
    both(|| {
        let folder = Folder::new("names");
        let [one, two, link] = ["one", "two", "link"].map(|name| folder.join(name));
        fs::write(&one, "text").unwrap();
        fs::hard_link(&one, &two).unwrap();
        assert_eq!(fs::metadata(&two).unwrap().nlink(), 2);
        fs::remove_file(&one).unwrap();
        fs::rename(&two, &one).unwrap();
        fs::symlink("one", &link).unwrap();
        assert_eq!(fs::read_link(&link).unwrap(), Path::new("one"));
        assert_eq!(
            fs::canonicalize(&link).unwrap(),
            std::fs::canonicalize(&one).unwrap()
        );
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert!(fs::metadata(&link).unwrap().is_file());
        fs::set_permissions(&one, fs::Permissions::from_mode(0o640)).unwrap();
        assert_eq!(fs::metadata(&one).unwrap().mode() & 0o777, 0o640);
        fs::copy(&one, &two).unwrap();
        assert_eq!(fs::metadata(&two).unwrap().mode() & 0o777, 0o640);
        let file = OpenOptions::new().write(true).open(&one).unwrap();
        file.set_permissions(fs::Permissions::from_mode(0o600))
            .unwrap();
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        file.set_modified(time).unwrap();
        let metadata = file.metadata().unwrap();
        assert_eq!(metadata.mode() & 0o777, 0o600);
        assert_eq!(metadata.modified().unwrap(), time);
        let (user, group) = (metadata.uid(), metadata.gid());
        fs::chown(&one, Some(user), Some(group)).unwrap();
    });
}

// contract: I6
#[test]
fn errors_name_the_path_and_keep_their_kind() {
    let _watchdog = watchdog();
    both(|| {
        let folder = Folder::new("errors");
        let missing = folder.join("missing");
        let other = folder.join("other");
        let errors: Vec<io::Error> = vec![
            fs::read(&missing).unwrap_err(),
            fs::read_to_string(&missing).unwrap_err(),
            fs::copy(&missing, &other).unwrap_err(),
            fs::rename(&missing, &other).unwrap_err(),
            fs::hard_link(&missing, &other).unwrap_err(),
            fs::remove_file(&missing).unwrap_err(),
            fs::remove_dir(&missing).unwrap_err(),
            fs::remove_dir_all(&missing).unwrap_err(),
            fs::metadata(&missing).unwrap_err(),
            fs::symlink_metadata(&missing).unwrap_err(),
            fs::canonicalize(&missing).unwrap_err(),
            fs::read_link(&missing).unwrap_err(),
            fs::read_dir(&missing).unwrap_err(),
            fs::create_dir(missing.join("below")).unwrap_err(),
            fs::write(missing.join("below"), "").unwrap_err(),
            fs::symlink(&other, missing.join("below")).unwrap_err(),
            fs::set_permissions(&missing, fs::Permissions::from_mode(0o600)).unwrap_err(),
            fs::chown(&missing, None, None).unwrap_err(),
            File::open(&missing).unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::NotFound);
            assert!(error.to_string().contains("missing"), "{error}");
        }
        assert!(fs::exists(folder.join("name\0with")).is_err());
        // The calls of an open file too.
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let error = (&full).write(b"x").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StorageFull);
        assert!(error.to_string().contains("/dev/full"), "{error}");
        let mut directory = File::open(folder.path()).unwrap();
        let error = directory.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::IsADirectory);
        assert!(error.to_string().contains("errors"), "{error}");
        let error = fs::copy(folder.path(), &other).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(!fs::exists(&other).unwrap());
    });
}

// contract: I6
#[test]
fn a_lock_is_waited_for_and_given_back() {
    let _watchdog = watchdog();
    let folder = Folder::new("lock");
    let path = folder.join("file");
    std::fs::write(&path, "").unwrap();
    let holder = std::fs::File::open(&path).unwrap();
    holder.lock().unwrap();
    run(|| {
        let file = File::open(&path).unwrap();
        assert!(matches!(file.try_lock(), Err(fs::TryLockError::WouldBlock)));
        assert!(matches!(
            file.try_lock_shared(),
            Err(fs::TryLockError::WouldBlock)
        ));
        let waiting = spawn_local(move || file.lock().map(|()| file));
        // No pool holds as many threads.
        let others: Vec<_> = (0..100)
            .map(|_| {
                let file = File::open(&path).unwrap();
                spawn_local(move || file.lock_shared())
            })
            .collect();
        sinew::sleep(Duration::from_millis(5)).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"");
        assert!(!waiting.is_finished());
        for other in others {
            other.cancel("enough");
            assert!(sinew::is_cancelled(&other.join().unwrap().unwrap_err()));
        }
        holder.unlock().unwrap();
        let file = waiting.join().unwrap().unwrap();
        assert!(matches!(
            holder.try_lock(),
            Err(std::fs::TryLockError::WouldBlock)
        ));
        file.unlock().unwrap();
        holder.try_lock().unwrap();
    });
}

// contract: I6
#[test]
fn a_shared_position_gives_each_byte_to_one() {
    let _watchdog = watchdog();
    let folder = Folder::new("shared");
    let path = folder.join("file");
    let bytes: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
    std::fs::write(&path, &bytes).unwrap();
    let file = File::open(&path).unwrap();
    let parts = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (file, parts) = (file.try_clone().unwrap(), &parts);
            let read = move || {
                let mut mine = Vec::new();
                loop {
                    let mut buffer = vec![0; 4_000];
                    match (&file).read(&mut buffer).unwrap() {
                        0 => break,
                        len => mine.push(buffer[..len].to_vec()),
                    }
                }
                parts.lock().unwrap().extend(mine);
            };
            scope.spawn(move || if thread == 0 { read() } else { run(read) });
        }
    });
    let mut parts = parts.into_inner().unwrap();
    // The numbers in the file show where a part was.
    parts.sort_by_key(|part| u32::from_le_bytes(part[..4].try_into().unwrap()));
    assert!(parts.concat() == bytes);
}

// contract: I6
#[test]
fn appends_of_many_are_whole() {
    let _watchdog = watchdog();
    let folder = Folder::new("appends");
    let path = folder.join("file");
    let mut options = OpenOptions::new();
    let file = run(|| options.append(true).create(true).open(&path).unwrap());
    std::thread::scope(|scope| {
        for thread in 0..3_u8 {
            let file = &file;
            scope.spawn(move || {
                run(|| {
                    let one = file.try_clone().unwrap();
                    let mine = spawn_local(move || {
                        for _ in 0..100 {
                            (&one).write_all(&[thread; 64]).unwrap();
                        }
                    });
                    mine.join().unwrap();
                });
            });
        }
    });
    let written = std::fs::read(&path).unwrap();
    assert_eq!(written.len(), 3 * 100 * 64);
    for line in written.chunks(64) {
        assert!(line.iter().all(|byte| *byte == line[0]), "torn: {line:?}");
    }
}
