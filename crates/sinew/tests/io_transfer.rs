//! A copy that is ended anywhere: what it says was written is what the peer has, and the rest is not lost.

mod fs_rig;
mod io_rig;

use std::cell::Cell;
use std::io::{self, Read, Write};
use std::rc::Rc;
use std::sync::OnceLock;
use std::time::Duration;

use fs_rig::Folder;
use io_rig::{tcp_pair, watchdog};
use sinew::fs::{File, OpenOptions};
use sinew::io::{Transfer, pipe};
use sinew::net::UnixStream;
use sinew::{go_local, is_cancelled, run, sleep, spawn_local};

/// Enough to go on by the kernel for a while.
const BYTES: usize = (4 << 20) + 321;

fn pattern() -> &'static [u8] {
    static PATTERN: OnceLock<Vec<u8>> = OnceLock::new();
    PATTERN.get_or_init(|| fs_rig::pattern(BYTES))
}

fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Sends the pattern.
fn feed(mut to: impl Write + 'static) {
    go_local(move || {
        // The other side may be gone before.
        let _gone = to.write_all(pattern());
    });
}

/// Reads to the end, now quick and now slow.
fn fetch(mut from: impl Read + 'static, mut seed: u64) -> sinew::JoinHandle<Vec<u8>> {
    spawn_local(move || {
        let mut bytes = Vec::new();
        let mut piece = vec![0; 200_000];
        loop {
            match from.read(&mut piece).unwrap() {
                0 => return bytes,
                len => bytes.extend_from_slice(&piece[..len]),
            }
            if random(&mut seed).is_multiple_of(4) {
                sleep(Duration::from_micros(random(&mut seed) % 300)).unwrap();
            }
        }
    })
}

/// Ends a transfer a few times at random, then lets it go to its end or not. How often it was ended, and how often with something kept.
fn ended_anywhere<R, W>(
    mut reader: R,
    mut writer: W,
    peer: sinew::JoinHandle<Vec<u8>>,
    seed: &mut u64,
) -> (u64, u64)
where
    R: Read + 'static,
    W: Write + 'static,
{
    let times = random(seed) % 6;
    let goes_on = random(seed).is_multiple_of(2);
    let seeds = (random(seed), random(seed));
    let counts = Rc::new(Cell::new((0, 0)));
    let counted = Rc::clone(&counts);
    let mut state = seeds.0;
    let copying = spawn_local(move || {
        let mut transfer = Transfer::new();
        for _ in 0..times {
            let time = Duration::from_micros(random(&mut state) % 2_000);
            let mut ended = None;
            let _elapsed = sinew::timeout(time, || {
                ended = Some(transfer.run(&mut reader, &mut writer));
            });
            match ended.unwrap() {
                Ok(copied) => assert_eq!(copied, BYTES as u64),
                Err(error) => {
                    assert!(is_cancelled(&error), "{error}");
                    let (ends, kept) = counted.get();
                    let keeps = u64::from(!transfer.unwritten().is_empty());
                    counted.set((ends + 1, kept + keeps));
                }
            }
        }
        let mut rest = transfer.unwritten().to_vec();
        if goes_on {
            assert_eq!(
                transfer.run(&mut reader, &mut writer).unwrap(),
                BYTES as u64
            );
            rest.clear();
        }
        drop(writer);
        // What the reader still has follows what was kept.
        reader.read_to_end(&mut rest).unwrap();
        (transfer.copied() as usize, rest)
    });
    let (told, rest) = copying.join().unwrap();
    let seen = peer.join().unwrap();
    assert_eq!(seen.len(), told);
    assert!(seen == pattern()[..told]);
    assert!(rest == pattern()[told..]);
    counts.get()
}

fn rounds() -> usize {
    std::env::var("SINEW_STRESS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(1)
}

/// Each kind of pair, many times; in each something is seen to end in the middle.
fn many_times(what: &str, mut once: impl FnMut(&mut u64) -> (u64, u64) + 'static) {
    let _watchdog = watchdog();
    let what = what.to_owned();
    run(move || {
        let mut seed = 0x9e37_79b9_7f4a_7c15 ^ what.len() as u64;
        let mut all = (0, 0);
        for _ in 0..20 * rounds() {
            let (ended, kept) = once(&mut seed);
            all = (all.0 + ended, all.1 + kept);
        }
        assert!(all.0 > 0, "{what}: {all:?}");
    });
}

// contract: S12
#[test]
fn from_socket_to_socket() {
    many_times("socket to socket", |seed| {
        let ((a, b), (c, d)) = (tcp_pair(), tcp_pair());
        feed(a);
        ended_anywhere(b, c, fetch(d, random(seed)), seed)
    });
}

// contract: S12
#[test]
fn between_a_pipe_and_sockets() {
    many_times("socket to pipe", |seed| {
        let ((a, b), (from, to)) = (UnixStream::pair().unwrap(), pipe().unwrap());
        feed(a);
        ended_anywhere(b, to, fetch(from, random(seed)), seed)
    });
    many_times("pipe to socket", |seed| {
        let ((from, to), (c, d)) = (pipe().unwrap(), tcp_pair());
        feed(to);
        ended_anywhere(from, c, fetch(d, random(seed)), seed)
    });
    many_times("pipe to pipe", |seed| {
        let ((from, to), (far, near)) = (pipe().unwrap(), pipe().unwrap());
        feed(to);
        ended_anywhere(from, near, fetch(far, random(seed)), seed)
    });
}

// contract: S12
#[test]
fn from_a_file() {
    let folder = Rc::new(Folder::new("transfers"));
    std::fs::write(folder.join("from"), pattern()).unwrap();
    let (from, to) = (folder.join("from"), folder.join("to"));
    let path = from.clone();
    many_times("file to socket", move |seed| {
        let (c, d) = tcp_pair();
        ended_anywhere(File::open(&path).unwrap(), c, fetch(d, random(seed)), seed)
    });
    many_times("file to file", move |seed| {
        let mut options = OpenOptions::new();
        let writer = options
            .write(true)
            .create(true)
            .truncate(true)
            .open(&to)
            .unwrap();
        let (reader, path) = (File::open(&from).unwrap(), to.clone());
        // It is read when all was written.
        let peer = spawn_local(move || {
            sinew::park().unwrap();
            std::fs::read(path).unwrap()
        });
        let unparker = peer.unparker();
        let writer = Ending(writer, unparker);
        ended_anywhere(reader, writer, peer, seed)
    });
}

/// A writer whose end is told.
struct Ending(File, sinew::Unparker);

impl Write for Ending {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.1.unpark();
    }
}

/// Takes three bytes at a time, and fails now and then.
struct Mean<'a>(&'a mut Vec<u8>, u32);

impl Write for Mean<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.1 += 1;
        match self.1 % 5 {
            0 => Err(io::ErrorKind::Interrupted.into()),
            3 => Err(io::ErrorKind::StorageFull.into()),
            4 => Ok(0),
            _ => self.0.write(&bytes[..bytes.len().min(3)]),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

// contract: I1
#[test]
fn a_writer_that_fails_again_and_again_gets_everything() {
    let bytes = &pattern()[..100_000];
    let (mut reader, mut got) = (bytes, Vec::new());
    let mut writer = Mean(&mut got, 0);
    let mut transfer = Transfer::new();
    let mut failures = 0;
    while let Err(error) = transfer.run(&mut reader, &mut writer) {
        let kinds = [io::ErrorKind::StorageFull, io::ErrorKind::WriteZero];
        assert!(kinds.contains(&error.kind()), "{error}");
        let taken = transfer.copied() as usize;
        assert_eq!(writer.0.len(), taken);
        assert_eq!(
            bytes.len() - reader.len(),
            taken + transfer.unwritten().len()
        );
        failures += 1;
    }
    assert!(failures > 1_000);
    assert_eq!(transfer.copied(), 100_000);
    assert!(got == bytes);
    assert!(transfer.unwritten().is_empty());
}
