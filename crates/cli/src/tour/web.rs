//! The server and the load generator of this program, against each other.
//!
//! Owns: a server on a thread and a scheduler of its own, for the length of a step.

use std::fs;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use sinew::sync::channel::{Receiver, unbounded};
use sinew::{sleep, spawn_local};

use super::figures::{bytes, grouped};
use super::stage::{ensure, same};
use super::{Check, Failure, Stage};
use crate::load::{self, Report, Target};
use crate::rt::{self, CancelToken};
use crate::serve::{self, Server, Summary};

/// How many coroutines fetch files at a time.
const FETCHERS: usize = 64;
/// How many connections the load generator keeps busy.
const CONNECTIONS: usize = 32;
/// No more files than that are fetched, and none that is larger.
const FILES_MAX: usize = 2_000;
const FILE_BYTES_MAX: u64 = 4 << 20;
/// How deep folders are searched.
const DEPTH_MAX: usize = 16;
/// No answer takes longer, unless something is wrong.
const PATIENCE: Duration = Duration::from_secs(20);
/// The file for the load generator is the one nearest to this size.
const LOADED_BYTES: u64 = 4 << 10;

/// A file of the served folder.
#[derive(Debug, Clone)]
struct Page {
    file: PathBuf,
    /// Its path on the server, encoded.
    path: String,
    bytes: u64,
}

/// Fetches every file.
pub(super) fn fetching(stage: &mut Stage<'_>) -> Check {
    let folder = Folder::choose()?;
    let pages = folder.pages()?;
    let count = pages.len();
    let total: u64 = pages.iter().map(|page| page.bytes).sum();
    stage.say(format!("the folder: {}", folder.path.display()));
    let served = Served::start(&folder.path)?;
    let address = served.address;
    let fetched = sinew::run(|| {
        let (sender, pages_left) = unbounded();
        for page in pages {
            sender
                .send(page)
                .map_err(|error| Failure::new(error.to_string()))?;
        }
        sender.close();
        let fetchers: Vec<_> = (0..FETCHERS)
            .map(|_| {
                let pages_left = pages_left.clone();
                spawn_local(move || fetch_all(address, &pages_left))
            })
            .collect();
        // In the middle of it: the deepest stacks of the tour are those of the server.
        sleep(Duration::from_millis(5))?;
        stage.figures.look();
        let mut fetched = 0;
        for fetcher in fetchers {
            fetched += fetcher.join()??;
        }
        Ok::<usize, Failure>(fetched)
    });
    let summary = served.stop()?;
    let fetched = fetched?;
    stage.say(format!(
        "{} files, {}, fetched by {FETCHERS} coroutines: every status is 200, every byte as on the \
         disk",
        grouped(fetched as u64),
        bytes(total as usize)
    ));
    same("files fetched", fetched, count)?;
    same(
        "answers by the server's count",
        summary.answers,
        count as u64,
    )?;
    same("panics in the server", summary.panics, 0)
}

/// Fetches what is left, one connection for each.
fn fetch_all(address: SocketAddr, pages: &Receiver<Page>) -> Result<usize, Failure> {
    let mut fetched = 0;
    for page in pages {
        let wanted = fs::read(&page.file)?;
        let seen = fetch(address, &page.path)
            .map_err(|error| Failure::new(format!("{}: {error}", page.path)))?;
        ensure(seen == wanted, || {
            format!("{} came otherwise than it is on the disk", page.path)
        })?;
        fetched += 1;
    }
    Ok(fetched)
}

/// One request on a connection of its own; returns the body.
fn fetch(address: SocketAddr, path: &str) -> Result<Vec<u8>, Failure> {
    let mut stream = rt::connect(address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n");
    let end = end.ok_or_else(|| Failure::new("the answer has no end of its head"))?;
    let head = String::from_utf8_lossy(&answer[..end]).to_lowercase();
    let body = answer.split_off(end + 4);
    ensure(head.starts_with("http/1.1 200 "), || {
        format!("the answer is {}", head.lines().next().unwrap_or_default())
    })?;
    let length = format!("content-length: {}", body.len());
    ensure(head.lines().any(|line| line == length), || {
        format!("the head does not say `{length}`")
    })?;
    Ok(body)
}

/// Keeps the server busy for some seconds.
pub(super) fn loading(stage: &mut Stage<'_>) -> Check {
    let folder = Folder::choose()?;
    let served = Served::start(&folder.path)?;
    let report = put_load(stage, &folder, served.address);
    let summary = served.stop()?;
    let report = report?;
    stage.say(&report);
    let (succeeded, errors) = (report.succeeded, report.errors.total());
    stage.figures.load = Some(report);
    ensure(succeeded > 0, || "no request succeeded".into())?;
    same("wrong statuses, wrong lengths and other errors", errors, 0)?;
    ensure(summary.answers >= succeeded, || {
        format!(
            "the server counts {} answers for {succeeded}",
            summary.answers
        )
    })?;
    same("connections that the server had to cut", summary.cut, 0)?;
    same("panics in the server", summary.panics, 0)
}

fn put_load(
    stage: &mut Stage<'_>,
    folder: &Folder,
    address: SocketAddr,
) -> Result<Report, Failure> {
    let pages = folder.pages()?;
    let page = pages
        .iter()
        .min_by_key(|page| page.bytes.abs_diff(LOADED_BYTES))
        .ok_or_else(|| Failure::new("there is no file to load"))?;
    let span = stage.choose(Duration::from_millis(300), Duration::from_secs(5));
    stage.say(format!(
        "{} bytes of {} for {:.1} s",
        page.bytes,
        page.path,
        span.as_secs_f64()
    ));
    let target: Target = format!("http://{address}{}", page.path).parse()?;
    let config = load::Config {
        connections: CONNECTIONS,
        duration: Some(span),
        timeout: PATIENCE,
        body_bytes: Some(page.bytes),
        ..load::Config::new(target)
    };
    let bar = stage.bar(span.as_millis() as u64, "load");
    let report = rt::run(|| {
        load::run(config, |progress| {
            bar.set_position(progress.elapsed.as_millis() as u64);
        })
    });
    bar.finish_and_clear();
    Ok(report?)
}

/// A server that runs in a thread's own scheduler.
struct Served {
    address: SocketAddr,
    shutdown: CancelToken,
    thread: Option<JoinHandle<std::io::Result<Summary>>>,
}

impl Served {
    fn start(folder: &Path) -> Result<Self, Failure> {
        let config = serve::Config {
            folder: folder.to_owned(),
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            ..serve::Config::default()
        };
        let shutdown = CancelToken::new();
        let (tell, told) = mpsc::channel();
        let fired = shutdown.clone();
        let thread = thread::Builder::new()
            .name("server".into())
            .spawn(move || {
                rt::run(|| {
                    let server = Server::bind(config)?;
                    // The tour waits for it.
                    let _gone = tell.send(server.local_addr());
                    server.run(&fired)
                })
            })?;
        let mut served = Self {
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            shutdown,
            thread: Some(thread),
        };
        if let Ok(address) = told.recv() {
            served.address = address;
            return Ok(served);
        }
        match served.stop() {
            Err(error) => Err(error),
            Ok(_) => Err(Failure::new("the server ended at once")),
        }
    }

    /// Ends it, and tells what it did.
    fn stop(mut self) -> Result<Summary, Failure> {
        self.end()
            .unwrap_or_else(|| Err(Failure::new("the server has ended already")))
    }

    fn end(&mut self) -> Option<Result<Summary, Failure>> {
        self.shutdown.cancel("the step is over");
        let ended = self.thread.take()?.join();
        Some(match ended {
            Ok(summary) => summary.map_err(Failure::from),
            Err(_) => Err(Failure::new("the server panicked")),
        })
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // Only if the step has failed, and has said so.
        let _told = self.end();
    }
}

/// The folder whose files are served.
struct Folder {
    path: PathBuf,
}

impl Folder {
    /// The workspace that this was built from, if it is here; else the current folder.
    fn choose() -> Result<Self, Failure> {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
        let root = crates.and_then(Path::parent);
        let path = match root {
            Some(root) if root.join("Cargo.toml").is_file() => root.to_owned(),
            _ => std::env::current_dir()?,
        };
        Ok(Self { path })
    }

    /// Its files, without hidden ones, build outputs, links and what is very large.
    fn pages(&self) -> Result<Vec<Page>, Failure> {
        let mut pages = Vec::new();
        collect(&self.path, "", 0, &mut pages)?;
        ensure(!pages.is_empty(), || {
            format!(
                "{} has no file to serve: start the tour in a folder with files",
                self.path.display()
            )
        })?;
        Ok(pages)
    }
}

fn collect(folder: &Path, path: &str, depth: usize, pages: &mut Vec<Page>) -> Check {
    // What cannot be read is not served either.
    let entries = fs::read_dir(folder).into_iter().flatten();
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.as_bytes();
        let kind = entry.file_type()?;
        if name.starts_with(b".") || pages.len() >= FILES_MAX {
            continue;
        }
        let path = format!("{path}/{}", serve::encoded(name));
        if kind.is_dir() && name != b"target" && depth < DEPTH_MAX {
            collect(&entry.path(), &path, depth + 1, pages)?;
        } else if kind.is_file() {
            let bytes = entry.metadata()?.len();
            // A backslash in a name is refused by the server, encoded or not.
            let readable = fs::File::open(entry.path()).is_ok();
            if readable && bytes <= FILE_BYTES_MAX && !name.contains(&b'\\') {
                pages.push(Page {
                    file: entry.path(),
                    path,
                    bytes,
                });
            }
        }
    }
    Ok(())
}
