//! Crawls a site: a coroutine for each page, a few at a time, all in a group that the first failure cancels.
//!
//!     cargo run --example crawl
//!
//! The site is served by the program itself, on a port of the loopback, so that it needs nothing but itself.
#![allow(dead_code, reason = "a test runs parts of it")]
#![expect(clippy::print_stdout, reason = "a program for a terminal")]

use std::collections::{BTreeSet, HashMap};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use sinew::net::{TcpListener, TcpStream};
use sinew::sync::channel;
use sinew::task::{CancelOn, GroupStats, TaskGroup};
use sinew::{Error, ErrorKind, go_local};

/// Pages by their paths.
pub(crate) type Site = HashMap<String, String>;

/// Answers requests for the site's pages until it is cancelled. A path that it does not have is a 404.
fn serve(listener: &TcpListener, site: &Arc<Site>) -> io::Result<()> {
    loop {
        let (stream, _) = listener.accept()?;
        let site = site.clone();
        go_local(move || answer(stream, &site));
    }
}

fn answer(mut stream: TcpStream, site: &Site) -> io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let first = lines.next().transpose()?.unwrap_or_default();
    let path = first.split(' ').nth(1).unwrap_or("/");
    // The rest of the head is not looked at.
    while lines
        .next()
        .transpose()?
        .is_some_and(|line| !line.is_empty())
    {}
    let (status, body) = match site.get(path) {
        Some(page) => ("200 OK", page.as_str()),
        None => ("404 Not Found", ""),
    };
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
}

/// Fetches a page.
fn fetch(server: SocketAddr, path: &str) -> Result<String, Error> {
    let mut stream = TcpStream::connect(server)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {server}\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    match text.split_once("\r\n\r\n") {
        Some((head, body)) if head.starts_with("HTTP/1.1 200 ") => Ok(body.to_owned()),
        _ => Err(Error::new(ErrorKind::NotFound, format!("no page {path}"))),
    }
}

/// The paths that a page links to.
fn links(page: &str) -> impl Iterator<Item = &str> {
    let quoted = page.split("href=\"").skip(1);
    quoted.filter_map(|rest| Some(rest.split_once('"')?.0))
}

/// Fetches everything that can be reached from `/`, no more than `limit` pages at a time. What was found comes with how the pages ended.
///
/// # Errors
///
/// The first page that could not be fetched: the others are cancelled then.
pub(crate) fn crawl(
    server: SocketAddr,
    limit: usize,
) -> Result<(BTreeSet<String>, GroupStats), Error> {
    let group = TaskGroup::builder()
        .limit(limit)
        .cancel_on(CancelOn::FAILED)
        .build();
    let (found, pages) = channel::unbounded();
    let mut seen = BTreeSet::from(["/".to_owned()]);
    let mut waiting = vec!["/".to_owned()];
    let mut under_way = 0;
    while under_way > 0 || !waiting.is_empty() {
        if under_way < limit
            && let Some(path) = waiting.pop()
        {
            let found = found.clone();
            let fetched = group.spawn(move |_| {
                let page = fetch(server, &path);
                // Whoever crawls waits for each of them, fetched or not.
                let links = page
                    .as_deref()
                    .map(|page| links(page).map(str::to_owned).collect());
                let _told = found.send(links.unwrap_or_else(|_| Vec::new()));
                page.map(drop)
            });
            match fetched {
                Ok(_) => under_way += 1,
                // One that has told what it found, and whose end is not counted yet.
                Err(refused) if refused.is_again() => sinew::yield_now()?,
                // Closed by the first failure, which is told below.
                Err(_) => break,
            }
            if under_way < limit && !waiting.is_empty() {
                continue;
            }
        }
        let new: Vec<String> = match under_way {
            0 => continue,
            _ => pages.recv()?,
        };
        under_way -= 1;
        if group.stats().is_closed {
            break;
        }
        waiting.extend(new.into_iter().filter(|path| seen.insert(path.clone())));
    }
    group.wait()?;
    match group.first_error() {
        Some(error) => Err(error),
        None => Ok((seen, group.stats())),
    }
}

/// A site of so many pages, of which each links to a few others.
pub(crate) fn site(pages: usize) -> Site {
    let path = |n: usize| match n {
        0 => "/".to_owned(),
        n => format!("/{n}"),
    };
    let page = |n: usize| {
        let next = [2 * n + 1, 2 * n + 2, n / 2];
        let links = next.into_iter().filter(|&next| next < pages);
        links
            .map(|next| format!("<a href=\"{}\">{next}</a>\n", path(next)))
            .collect::<String>()
    };
    (0..pages).map(|n| (path(n), page(n))).collect()
}

/// Serves a site and crawls it.
///
/// # Errors
///
/// As [`crawl`].
pub(crate) fn serve_and_crawl(
    site: Site,
    limit: usize,
) -> Result<(BTreeSet<String>, GroupStats), Error> {
    sinew::run(|| {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let site = Arc::new(site);
        let server = sinew::spawn_local(move || serve(&listener, &site));
        let crawled = crawl(address, limit);
        server.cancel("the crawl is over");
        crawled
    })
}

fn main() -> Result<(), Error> {
    let (pages, stats) = serve_and_crawl(site(200), 8)?;
    println!("{} pages, {} fetched", pages.len(), stats.succeeded);
    let mut broken = site(200);
    broken.remove("/77");
    let error =
        serve_and_crawl(broken, 8).map_or_else(|error| error.to_string(), |_| "none".into());
    println!("with a page missing: {error}");
    Ok(())
}
