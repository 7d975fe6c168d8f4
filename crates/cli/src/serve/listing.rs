//! A page that lists a folder.
//!
//! Owns: which entries are shown, in which order, and their spelling: once percent-encoded as a link, once escaped as text.
//!
//! Invariants:
//! - I1: an entry is shown only if asking for its link can answer with it: a file or folder inside the served one, or
//!   wherever links may lead. Names that begin with a dot are not shown, nor those that no target can spell.
//! - I2: nothing of a name stands in the page unescaped.

use std::fmt::Write;
use std::io;
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, Dir, DirEntry, FileType, Mode, OFlags};

use super::folder::{Facts, Folder, Found};
use super::path::{Name, encoded};

/// No more entries than these are shown.
const ENTRIES_MAX: usize = 10_000;

struct Entry {
    name: Vec<u8>,
    /// `None` for a folder.
    file: Option<(u64, u64)>,
}

/// The page of the folder of that name. It takes as long as the disk: a thread of the pool's makes it.
///
/// # Errors
/// The folder cannot be read.
pub(super) fn page(root: &Folder, name: &[u8], folder: &Found) -> io::Result<Vec<u8>> {
    let mut entries = Vec::new();
    let mut full = false;
    let mut inside = Name::default();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let readable = rustix::fs::openat(folder, c".", flags, Mode::empty())?;
    for entry in Dir::new(readable)? {
        let entry = entry?;
        if !can_be_asked_for(entry.file_name().to_bytes()) {
            continue;
        }
        if entries.len() == ENTRIES_MAX {
            full = true;
            break;
        }
        inside.bytes.clear();
        inside.bytes.extend_from_slice(name);
        inside.push(entry.file_name().to_bytes());
        entries.extend(look_at(root, &inside, folder, &entry));
    }
    // Folders first.
    entries.sort_by(|one, other| {
        (one.file.is_some(), &one.name).cmp(&(other.file.is_some(), &other.name))
    });
    Ok(render(name, &entries, full).into_bytes())
}

// INVARIANT: I1.
fn can_be_asked_for(name: &[u8]) -> bool {
    !name.starts_with(b".") && !name.contains(&b'\\')
}

/// What an entry is, without opening what a reader might be waited for.
fn look_at(root: &Folder, inside: &Name, folder: &Found, entry: &DirEntry) -> Option<Entry> {
    let name = entry.file_name().to_bytes().to_vec();
    let file = match entry.file_type() {
        FileType::Directory => None,
        FileType::RegularFile => {
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            let stat = rustix::fs::statat(folder, entry.file_name(), flags).ok()?;
            let facts = Facts::of(&stat);
            Some((facts.size, facts.validators.modified))
        }
        // A link may lead anywhere, and some systems say of nothing what it is.
        FileType::Symlink | FileType::Unknown => {
            let found = root.look(&inside.bytes).ok()?;
            let facts = found.facts();
            (!found.is_folder()).then_some((facts.size, facts.validators.modified))
        }
        _ => return None,
    };
    Some(Entry { name, file })
}

fn render(name: &[u8], entries: &[Entry], full: bool) -> String {
    let mut page = String::with_capacity(512 + 200 * entries.len());
    let title = Escaped(name);
    let slash = if name.is_empty() { "" } else { "/" };
    let head = format_args!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>/{title}{slash}</title>\n\
         <h1>/{title}{slash}</h1>\n<table>\n"
    );
    let mut add = |text: std::fmt::Arguments<'_>| {
        let _never_fails = page.write_fmt(text);
    };
    add(head);
    if !name.is_empty() {
        // Seen from here, which the browser resolves; the server knows no `..`.
        add(format_args!("<tr><td><a href=\"../\">../</a>\n"));
    }
    for Entry { name, file } in entries {
        let (link, text) = (encoded_segment(name), Escaped(name));
        match file {
            None => add(format_args!("<tr><td><a href=\"{link}/\">{text}/</a>\n")),
            Some((size, modified)) => add(format_args!(
                "<tr><td><a href=\"{link}\">{text}</a><td align=\"right\">{size}<td>{}\n",
                Day(*modified)
            )),
        }
    }
    add(format_args!("</table>\n"));
    if full {
        add(format_args!("<p>Only {ENTRIES_MAX} entries are shown.\n"));
    }
    page
}

/// A name as a relative link. It holds no colon that could make it a scheme, and no slash.
fn encoded_segment(name: &[u8]) -> impl std::fmt::Display + '_ {
    encoded(name)
}

/// A date, or nothing where the format has none.
struct Day(u64);

impl std::fmt::Display for Day {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const LAST_SECOND: u64 = 253_402_300_800;
        if self.0 >= LAST_SECOND {
            return Ok(());
        }
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(self.0);
        write!(out, "{}", httpdate::HttpDate::from(time))
    }
}

/// Bytes as text of a page.
struct Escaped<'a>(&'a [u8]);

impl std::fmt::Display for Escaped<'_> {
    // INVARIANT: I2.
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for character in String::from_utf8_lossy(self.0).chars() {
            match character {
                '&' => out.write_str("&amp;")?,
                '<' => out.write_str("&lt;")?,
                '>' => out.write_str("&gt;")?,
                '"' => out.write_str("&quot;")?,
                '\'' => out.write_str("&#39;")?,
                // Characters that could not be seen, or would change the direction of what follows.
                character if character.is_control() || is_direction(character) => {
                    out.write_char(char::REPLACEMENT_CHARACTER)?;
                }
                character => out.write_char(character)?,
            }
        }
        Ok(())
    }
}

fn is_direction(character: char) -> bool {
    matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
