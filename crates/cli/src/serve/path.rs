//! From a request target to the name of a file below the served folder.
//!
//! Owns: the decision which targets name anything at all. What a name leads to on the disk, symbolic
//! links included, is decided by `folder`.
//!
//! Invariants:
//! - I1: a target is percent-decoded exactly once; what comes out is never decoded again.
//! - I2: no segment of a [`Name`] is empty, `.` or `..`, or holds `/`, `\` or NUL; a name is
//!   therefore relative and descends only.
//!
//! Source: RFC 9112, section 3.2; RFC 3986, sections 2.1 and 3.3.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, percent_encode};

/// What may stand in a path unencoded: the unreserved characters and the separator.
const ENCODED: AsciiSet = NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'/');

/// A file name as it stands in a path.
pub(crate) fn encoded(name: &[u8]) -> PercentEncode<'_> {
    percent_encode(name, &ENCODED)
}

/// The target does not name a file in any spelling that is accepted.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BadTarget;

/// A relative, descending file name.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Name {
    /// Segments joined by `/`; empty for the folder itself.
    pub(super) bytes: Vec<u8>,
    /// Whether the target ended with `/`, so that only a folder can be meant.
    pub(super) folder: bool,
}

impl Name {
    /// Becomes the path of an origin-form or absolute-form target; a query is ignored. After an error it is no name.
    pub(super) fn set(&mut self, target: &[u8]) -> Result<(), BadTarget> {
        let path = path_of(target)?;
        self.bytes.clear();
        for raw in path.split(|&byte| byte == b'/') {
            let before = self.bytes.len();
            if before > 0 {
                self.bytes.push(b'/');
            }
            let start = self.bytes.len();
            decode(raw, &mut self.bytes)?;
            check(&self.bytes[start..])?;
            if self.bytes.len() == start {
                self.bytes.truncate(before);
            }
        }
        self.folder = self.bytes.is_empty() || path.ends_with(b"/");
        Ok(())
    }

    /// Becomes the name of `file` in the folder of this name; returns what [`pop`](Self::pop) wants.
    pub(super) fn push(&mut self, file: impl AsRef<[u8]>) -> usize {
        let before = self.bytes.len();
        if before > 0 {
            self.bytes.push(b'/');
        }
        self.bytes.extend_from_slice(file.as_ref());
        before
    }

    /// Becomes what it was before.
    pub(super) fn pop(&mut self, bytes: usize) {
        self.bytes.truncate(bytes);
    }

    /// The path of this folder as a target. It starts with exactly one `/`: nobody can make it name
    /// another host.
    pub(super) fn folder_target(&self) -> String {
        format!("/{}/", encoded(&self.bytes))
    }
}

/// Cuts scheme, authority and query off.
fn path_of(target: &[u8]) -> Result<&[u8], BadTarget> {
    let target = match target.first() {
        Some(b'/') => target,
        _ => after_authority(target)?,
    };
    let end = target
        .iter()
        .position(|&byte| byte == b'?')
        .unwrap_or(target.len());
    Ok(&target[..end])
}

fn after_authority(target: &[u8]) -> Result<&[u8], BadTarget> {
    let colon = target
        .iter()
        .position(|&byte| byte == b':')
        .ok_or(BadTarget)?;
    let (scheme, rest) = target.split_at(colon);
    if !scheme.eq_ignore_ascii_case(b"http") && !scheme.eq_ignore_ascii_case(b"https") {
        return Err(BadTarget);
    }
    let rest = rest.strip_prefix(b"://").ok_or(BadTarget)?;
    let end = rest
        .iter()
        .position(|&byte| matches!(byte, b'/' | b'?'))
        .unwrap_or(rest.len());
    if end == 0 {
        return Err(BadTarget);
    }
    Ok(&rest[end..])
}

fn decode(raw: &[u8], out: &mut Vec<u8>) -> Result<(), BadTarget> {
    let mut bytes = raw.iter();
    while let Some(&byte) = bytes.next() {
        out.push(match byte {
            b'%' => hex(bytes.next())? << 4 | hex(bytes.next())?,
            _ => byte,
        });
    }
    Ok(())
}

fn hex(digit: Option<&u8>) -> Result<u8, BadTarget> {
    match digit {
        Some(digit @ b'0'..=b'9') => Ok(digit - b'0'),
        Some(digit @ (b'a'..=b'f' | b'A'..=b'F')) => Ok((digit | 0x20) - b'a' + 10),
        _ => Err(BadTarget),
    }
}

// INVARIANT: I2, except that the caller drops empty segments.
fn check(segment: &[u8]) -> Result<(), BadTarget> {
    let dots = segment == b"." || segment == b"..";
    if dots || segment.iter().any(|byte| matches!(byte, b'/' | b'\\' | 0)) {
        return Err(BadTarget);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Name {
        fn parse(target: &[u8]) -> Result<Self, BadTarget> {
            let mut name = Self::default();
            name.set(target).map(|()| name)
        }
    }

    #[test]
    fn accepts() {
        let table: [(&str, &str, bool); 18] = [
            ("/", "", true),
            ("/a", "a", false),
            ("/a/b.txt", "a/b.txt", false),
            ("/a/", "a", true),
            ("//a", "a", false),
            ("//etc//passwd", "etc/passwd", false),
            ("/a//b/", "a/b", true),
            ("/a?b=/../c", "a", false),
            ("/?x", "", true),
            ("/a%20b", "a b", false),
            ("/%41%2e%2E%2etxt", "A...txt", false),
            ("/...", "...", false),
            ("/.hidden", ".hidden", false),
            ("/%252e%252e/x", "%2e%2e/x", false),
            ("/a%3fb", "a?b", false),
            ("http://host/a/b?c", "a/b", false),
            ("HTTP://host:80", "", true),
            ("http://host?q", "", true),
        ];
        for (target, bytes, folder) in table {
            let name = Name {
                bytes: bytes.into(),
                folder,
            };
            assert_eq!(Name::parse(target.as_bytes()), Ok(name), "{target}");
        }
    }

    #[test]
    fn refuses() {
        let table = [
            "",
            "*",
            "a",
            "host:80",
            "/..",
            "/../a",
            "/a/..",
            "/a/../b",
            "/.",
            "/./a",
            "/a/.",
            "/%2e",
            "/%2e%2e/a",
            "/.%2e/a",
            "/%2E./a",
            "/%2f",
            "/a%2Fb",
            "/..%2fa",
            "/%5c",
            "/a\\b",
            "/..\\a",
            "/%00",
            "/a%00.txt",
            "/%",
            "/%2",
            "/%zz",
            "/%+1",
            "/a%",
            "http://",
            "http:///a",
            "http:/a",
            "file:///etc/passwd",
            "ftp://host/a",
        ];
        for target in table {
            assert_eq!(Name::parse(target.as_bytes()), Err(BadTarget), "{target}");
        }
    }

    #[test]
    fn names_are_relative_and_descend_for_every_short_target() {
        let alphabet = [
            b"/".as_slice(),
            b".",
            b"%2e",
            b"%2f",
            b"%5c",
            b"%00",
            b"%25",
            b"a",
            b"\\",
            b"?",
        ];
        let mut accepted = 0;
        for number in 0..alphabet.len().pow(5) {
            let mut target = b"/".to_vec();
            let mut rest = number;
            for _ in 0..5 {
                target.extend_from_slice(alphabet[rest % alphabet.len()]);
                rest /= alphabet.len();
            }
            let Ok(name) = Name::parse(&target) else {
                continue;
            };
            accepted += 1;
            assert!(!name.bytes.contains(&0) && !name.bytes.contains(&b'\\'));
            if !name.bytes.is_empty() {
                for segment in name.bytes.split(|&byte| byte == b'/') {
                    assert!(!matches!(segment, b"" | b"." | b".."), "{target:?}");
                }
            }
        }
        assert!(accepted > 1_000, "{accepted}");
    }

    #[test]
    fn a_folder_target_names_this_host_only() {
        let name = Name::parse(b"//evil.example/%0d%0aX: y/").expect("accepted");
        assert_eq!(name.folder_target(), "/evil.example/%0D%0AX%3A%20y/");
    }
}
