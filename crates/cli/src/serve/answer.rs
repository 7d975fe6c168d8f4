//! What a request is answered with.
//!
//! Owns: the way from a request to the bytes of its answer, and to its line in the log.
//!
//! Invariants:
//! - I1: an answer is put whole, with the length that its head promises, or the connection fails.
//! - I2: each answer is counted and logged once, after it was put.
//! - I3: for a small file nothing is allocated, once the buffers have their size.

use std::io;
use std::mem;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use rustix::io::Errno;
use sinew_http::{Method, Range, Request, ResponseHead, Slice, Status, Verdict};

use super::Service;
use super::connection::Next;
use super::files::Opened;
use super::folder::{Facts, Found, OpenError};
use super::listing;
use super::log::Entry;
use super::path::Name;
use super::wire::Outgoing;
use crate::rt::{self, File};

/// The file that stands for its folder.
const INDEX: &str = "index.html";

/// The methods that are offered.
const ALLOW: (&str, &str) = ("Allow", "GET, HEAD, OPTIONS");

/// How an answer must be framed, and what the log says of its request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame<'r> {
    /// Whether the connection stays open after it.
    pub(super) keep: bool,
    /// Whether the client is an HTTP/1.0 one.
    pub(super) old: bool,
    /// Whether only the head is wanted.
    pub(super) head_only: bool,
    /// The request line.
    pub(super) line: &'r [u8],
    pub(super) referer: &'r [u8],
    pub(super) agent: &'r [u8],
}

impl Frame<'_> {
    /// For an answer after which the connection is closed.
    pub(super) fn closing() -> Self {
        Self {
            keep: false,
            old: false,
            head_only: false,
            line: b"",
            referer: b"",
            agent: b"",
        }
    }
}

/// The answers of one connection.
#[derive(Debug)]
pub(super) struct Answers<'a> {
    service: &'a Service,
    pub(super) outgoing: Outgoing<'a>,
    head: Vec<u8>,
    name: Name,
    /// The client, as the log names it; empty without a log.
    peer: String,
}

impl<'a> Answers<'a> {
    pub(super) fn new(service: &'a Service, outgoing: Outgoing<'a>, peer: IpAddr) -> Self {
        let peer = match &service.log {
            Some(_) => peer.to_string(),
            None => String::new(),
        };
        Self {
            service,
            outgoing,
            head: Vec::new(),
            name: Name::default(),
            peer,
        }
    }

    /// Answers a request whose body was read off, or why not; `keep` is whether the connection may stay.
    pub(super) fn give(
        &mut self,
        request: &Request<'_>,
        read: Result<(), Status>,
        keep: bool,
    ) -> io::Result<Next> {
        let logged = self.service.log.is_some();
        let field = |name| request.single(name).filter(|_| logged).unwrap_or(b"");
        let frame = Frame {
            keep: request.keep_alive && read.is_ok() && keep,
            old: request.old,
            head_only: request.method == Method::Head,
            line: request.line,
            referer: field("referer"),
            agent: field("user-agent"),
        };
        match (request.method, read) {
            (Method::Get | Method::Head, Ok(())) => self.send_named(request, frame),
            (Method::Get | Method::Head, Err(status)) => self.refuse(status, frame),
            // What is not offered is so whatever the body's length.
            (_, Err(status)) if status != Status::ContentTooLarge => self.refuse(status, frame),
            (Method::Options, _) => self.send_options(frame),
            (Method::Unknown, _) => self.refuse(Status::NotImplemented, frame),
            (_, _) => self.refuse(Status::MethodNotAllowed, frame),
        }
    }

    /// Answers a GET or HEAD with what its target names.
    fn send_named(&mut self, request: &Request<'_>, frame: Frame<'_>) -> io::Result<Next> {
        let mut name = mem::take(&mut self.name);
        let next = match name.set(request.target) {
            Ok(()) => self.send_name(&mut name, request, frame),
            Err(_bad) => self.refuse(Status::BadRequest, frame),
        };
        self.name = name;
        next
    }

    /// Opens what the name leads to. What was answered before does not wait for that.
    fn find(&mut self, name: &Name) -> io::Result<Result<Opened, OpenError>> {
        let outgoing = &mut self.outgoing;
        self.service.files.find(&name.bytes, || outgoing.flush())
    }

    fn send_name(
        &mut self,
        name: &mut Name,
        request: &Request<'_>,
        frame: Frame<'_>,
    ) -> io::Result<Next> {
        match self.find(name)? {
            Ok(Opened::File(..)) if name.folder => self.refuse(Status::NotFound, frame),
            Ok(Opened::File(file, facts)) => self.send_file(name, file, &facts, request, frame),
            Ok(Opened::Folder(folder)) => {
                let bytes = name.push(INDEX);
                let index = self.find(name)?;
                let is_file = matches!(index, Ok(Opened::File(..)));
                if (is_file || self.service.config.listing) && !name.folder {
                    name.pop(bytes);
                    return self.redirect(&name.folder_target(), frame);
                }
                if let Ok(Opened::File(file, facts)) = index {
                    return self.send_file(name, file, &facts, request, frame);
                }
                name.pop(bytes);
                match index {
                    Ok(_) | Err(OpenError::Missing) if self.service.config.listing => {
                        self.send_listing(name, folder, frame)
                    }
                    Ok(_) | Err(OpenError::Missing) => self.refuse(Status::NotFound, frame),
                    Err(error) => self.refuse(error.status(), frame),
                }
            }
            Err(error) => self.refuse(error.status(), frame),
        }
    }

    fn send_file(
        &mut self,
        name: &Name,
        file: Arc<File>,
        facts: &Facts,
        request: &Request<'_>,
        frame: Frame<'_>,
    ) -> io::Result<Next> {
        let next = self.put_file(name, &file, facts, request, frame);
        self.service.files.done(file);
        next
    }

    fn put_file(
        &mut self,
        name: &Name,
        file: &File,
        facts: &Facts,
        request: &Request<'_>,
        frame: Frame<'_>,
    ) -> io::Result<Next> {
        match facts.validators.judge(request) {
            Verdict::Proceed => {}
            Verdict::NotModified => return self.send_not_modified(facts, frame),
            Verdict::Failed => return self.refuse(Status::PreconditionFailed, frame),
        }
        let whole = Slice {
            start: 0,
            length: facts.size,
        };
        let (status, slice) = match range_of(request, facts).map(|range| range.within(facts.size)) {
            None => (Status::Ok, whole),
            Some(Some(slice)) => (Status::PartialContent, slice),
            Some(None) => return self.refuse_range(facts.size, frame),
        };
        self.head.clear();
        let mut head = ResponseHead::new(&mut self.head, status, &self.service.date);
        content_type(&mut head, &name.bytes);
        head.length(slice.length).line("Accept-Ranges", "bytes");
        validators(&mut head, facts, self.service);
        if status == Status::PartialContent {
            head.content_range(slice.start, slice.start + slice.length - 1, facts.size);
        }
        head.connection(frame.keep, frame.old).end();
        self.outgoing.put(&self.head)?;
        let before = self.outgoing.taken();
        let put = match frame.head_only {
            true => Ok(()),
            false => self.outgoing.put_file(file, slice),
        };
        let next = self.sent(status, self.outgoing.taken() - before, frame);
        if let Err(error) = put {
            // INVARIANT: I1. The length is promised already: only closing says that it was not kept.
            self.outgoing.flush()?;
            return Err(error);
        }
        Ok(next)
    }

    fn send_not_modified(&mut self, facts: &Facts, frame: Frame<'_>) -> io::Result<Next> {
        self.head.clear();
        let status = Status::NotModified;
        let mut head = ResponseHead::new(&mut self.head, status, &self.service.date);
        validators(&mut head, facts, self.service);
        head.connection(frame.keep, frame.old).end();
        self.outgoing.put(&self.head)?;
        Ok(self.sent(status, 0, frame))
    }

    fn send_options(&mut self, frame: Frame<'_>) -> io::Result<Next> {
        self.head.clear();
        let status = Status::NoContent;
        let mut head = ResponseHead::new(&mut self.head, status, &self.service.date);
        head.line(ALLOW.0, ALLOW.1);
        head.connection(frame.keep, frame.old).end();
        self.outgoing.put(&self.head)?;
        Ok(self.sent(status, 0, frame))
    }

    fn send_listing(&mut self, name: &Name, folder: Found, frame: Frame<'_>) -> io::Result<Next> {
        self.outgoing.flush()?;
        let folder = Arc::new(folder);
        let make = || {
            let (root, folder) = (Arc::clone(self.service.files.folder()), Arc::clone(&folder));
            let bytes = name.bytes.clone();
            rt::off_loop(move || listing::page(&root, &bytes, &folder)).flatten()
        };
        let short = |error: &io::Error| matches!(reason(error), OpenError::Exhausted);
        let page = match make() {
            // Some of the descriptors are those of kept files.
            Err(error) if short(&error) => self.service.files.forget().and_then(|()| make()),
            page => page,
        };
        let page = match page {
            Ok(page) => page,
            Err(error) if rt::is_cancelled(&error) => return Err(error),
            Err(error) => return self.refuse(reason(&error).status(), frame),
        };
        let lines = [
            ("Content-Type", "text/html; charset=utf-8"),
            // The page has names that anyone may have chosen.
            ("Content-Security-Policy", "default-src 'none'"),
            ("X-Content-Type-Options", "nosniff"),
        ];
        self.send_bytes(Status::Ok, &lines, &page, frame)
    }

    fn refuse_range(&mut self, size: u64, frame: Frame<'_>) -> io::Result<Next> {
        let every = format!("bytes */{size}");
        let lines = [("Content-Range", every.as_str())];
        self.send_text(Status::RangeNotSatisfiable, &lines, frame)
    }

    fn redirect(&mut self, target: &str, frame: Frame<'_>) -> io::Result<Next> {
        self.send_text(Status::MovedPermanently, &[("Location", target)], frame)
    }

    pub(super) fn refuse(&mut self, status: Status, frame: Frame<'_>) -> io::Result<Next> {
        match status {
            Status::MethodNotAllowed => self.send_text(status, &[ALLOW], frame),
            Status::ServiceUnavailable => self.send_text(status, &[("Retry-After", "1")], frame),
            _ => self.send_text(status, &[], frame),
        }
    }

    /// Sends a line of text that says the status.
    fn send_text(
        &mut self,
        status: Status,
        lines: &[(&str, &str)],
        frame: Frame<'_>,
    ) -> io::Result<Next> {
        const TYPE: (&str, &str) = ("Content-Type", "text/plain; charset=utf-8");
        let body = format!("{} {}\n", status.code(), status.phrase());
        let mut all = vec![TYPE];
        all.extend_from_slice(lines);
        self.send_bytes(status, &all, body.as_bytes(), frame)
    }

    fn send_bytes(
        &mut self,
        status: Status,
        lines: &[(&str, &str)],
        body: &[u8],
        frame: Frame<'_>,
    ) -> io::Result<Next> {
        self.head.clear();
        let mut head = ResponseHead::new(&mut self.head, status, &self.service.date);
        for (name, value) in lines {
            head.line(name, value);
        }
        head.length(body.len() as u64);
        head.connection(frame.keep, frame.old).end();
        self.outgoing.put(&self.head)?;
        if frame.head_only {
            return Ok(self.sent(status, 0, frame));
        }
        self.outgoing.put(body)?;
        Ok(self.sent(status, body.len() as u64, frame))
    }

    // INVARIANT: I2.
    fn sent(&self, status: Status, bytes: u64, frame: Frame<'_>) -> Next {
        self.service.count_answer();
        if let Some(log) = &self.service.log {
            let entry = Entry {
                peer: &self.peer,
                line: frame.line,
                status: status.code(),
                bytes,
                referer: frame.referer,
                agent: frame.agent,
            };
            log.add(&entry, &self.service.date);
        }
        if frame.keep { Next::Keep } else { Next::Close }
    }
}

/// Why the system did not do it.
fn reason(error: &io::Error) -> OpenError {
    Errno::from_io_error(error).map_or(OpenError::Failed, OpenError::from)
}

impl OpenError {
    fn status(&self) -> Status {
        match self {
            Self::Missing => Status::NotFound,
            Self::Exhausted => Status::ServiceUnavailable,
            Self::Failed => Status::InternalServerError,
        }
    }
}

/// The one range that is wanted, if the file is the one that it was meant for.
fn range_of(request: &Request<'_>, facts: &Facts) -> Option<Range> {
    let wanted =
        request.has_range && request.method == Method::Get && facts.validators.fit_range(request);
    Range::parse(request.single("range").filter(|_| wanted)?)
}

/// Says what tells this version of the file from others, as far as that is certain by now.
fn validators(head: &mut ResponseHead<'_>, facts: &Facts, service: &Service) {
    let age = facts.age(service.date.now());
    if age.tag_is_certain {
        head.line("ETag", facts.validators.tag.as_str());
    }
    if age.date_is_certain {
        head.date("Last-Modified", facts.validators.modified);
    }
}

fn content_type(head: &mut ResponseHead<'_>, name: &[u8]) {
    let file = name.rsplit(|&byte| byte == b'/').next().unwrap_or(name);
    let file = String::from_utf8_lossy(file);
    let guess = mime_guess::from_path(Path::new(&*file)).first_raw();
    match guess.unwrap_or("application/octet-stream") {
        text if text.starts_with("text/") => {
            head.joined("Content-Type", &[text, "; charset=utf-8"]);
        }
        other => {
            head.line("Content-Type", other);
        }
    }
}
