//! The URL under load.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::str::FromStr;

use crate::rt;

/// An `http` URL, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    url: String,
    /// As it stands in the URL and in the `Host` header, brackets and port included.
    authority: String,
    host: String,
    port: u16,
    path: String,
}

/// The text is not a URL that can be put under load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetError {
    url: String,
    problem: &'static str,
}

impl fmt::Display for TargetError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "bad URL `{}`: {}",
            self.url.escape_debug(),
            self.problem
        )
    }
}

impl std::error::Error for TargetError {}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(url: &str) -> Result<Self, TargetError> {
        let bad = |problem| TargetError {
            url: url.to_owned(),
            problem,
        };
        if !url.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(bad("it holds a space or a character that must be encoded"));
        }
        let (scheme, rest) = url
            .split_once("://")
            .ok_or_else(|| bad("it must begin with http://"))?;
        if scheme.eq_ignore_ascii_case("https") {
            return Err(bad("https is not supported, only http"));
        }
        if !scheme.eq_ignore_ascii_case("http") {
            return Err(bad("it must begin with http://"));
        }
        let rest = rest.split('#').next().unwrap_or(rest);
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        if authority.contains('@') {
            return Err(bad("a user name in the URL is not supported"));
        }
        let (host, port) = host_and_port(authority).map_err(bad)?;
        let slash = if path.starts_with('/') { "" } else { "/" };
        Ok(Self {
            url: url.to_owned(),
            authority: authority.to_owned(),
            host: host.to_owned(),
            port,
            path: format!("{slash}{path}"),
        })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.url)
    }
}

impl Target {
    /// The addresses of the host, at least one.
    pub(super) fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        // The runtime's error names the host.
        let addresses = rt::resolve(&self.host, self.port)?;
        if addresses.is_empty() {
            let what = format!("the host `{}` has no address", self.host);
            return Err(io::Error::new(io::ErrorKind::NotFound, what));
        }
        Ok(addresses)
    }

    /// The one request that is sent again and again.
    pub(super) fn request(&self) -> Vec<u8> {
        let Self {
            authority, path, ..
        } = self;
        let agent = concat!("sinew-load/", env!("CARGO_PKG_VERSION"));
        format!(
            "GET {path} HTTP/1.1\r\nHost: {authority}\r\nUser-Agent: {agent}\r\nAccept: */*\r\n\r\n"
        )
        .into_bytes()
    }
}

fn host_and_port(authority: &str) -> Result<(&str, u16), &'static str> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or("the bracket is not closed")?;
            if host.parse::<std::net::Ipv6Addr>().is_err() {
                return Err("no IPv6 address stands in the brackets");
            }
            match port.strip_prefix(':') {
                None if port.is_empty() => (host, None),
                None => return Err("something stands between host and port"),
                Some(port) => (host, Some(port)),
            }
        }
        None => match authority.split_once(':') {
            None => (authority, None),
            Some((host, port)) => (host, Some(port)),
        },
    };
    if host.is_empty() {
        return Err("it names no host");
    }
    let port = match port {
        None | Some("") => 80,
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            digits.parse().map_err(|_| "the port is above 65535")?
        }
        Some(_) => return Err("the port is not a number"),
    };
    if port == 0 {
        return Err("the port is zero");
    }
    Ok((host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_urls_apart() {
        let table = [
            ("http://a", "a", "a", 80, "/"),
            ("HTTP://a:81/", "a:81", "a", 81, "/"),
            ("http://a/b?c#d", "a", "a", 80, "/b?c"),
            ("http://a?c", "a", "a", 80, "/?c"),
            ("http://a:/b", "a:", "a", 80, "/b"),
            ("http://[::1]:8080/b", "[::1]:8080", "::1", 8080, "/b"),
            ("http://[::1]", "[::1]", "::1", 80, "/"),
            (
                "http://1.2.3.4:65535",
                "1.2.3.4:65535",
                "1.2.3.4",
                65535,
                "/",
            ),
        ];
        for (url, authority, host, port, path) in table {
            let target: Target = url.parse().expect(url);
            let seen = (
                &*target.authority,
                &*target.host,
                target.port,
                &*target.path,
            );
            assert_eq!(seen, (authority, host, port, path), "{url}");
        }
    }

    #[test]
    fn names_what_is_wrong() {
        let table = [
            ("", "http://"),
            ("a", "http://"),
            ("localhost:8080", "http://"),
            ("ftp://a", "http://"),
            ("https://a", "https"),
            ("http://", "no host"),
            ("http:///a", "no host"),
            ("http://:80", "no host"),
            ("http://a:b", "not a number"),
            ("http://a:-1", "not a number"),
            ("http://a:+1", "not a number"),
            ("http://a:65536", "65535"),
            ("http://a:0", "zero"),
            ("http://[::1", "bracket"),
            ("http://[::1]x", "between"),
            ("http://[a]", "IPv6"),
            ("http://u@a", "user"),
            ("http://a/b c", "space"),
            ("http://a/\r\nX: y", "space"),
            ("http://\u{e4}", "encoded"),
        ];
        for (url, part) in table {
            let error = url.parse::<Target>().expect_err(url).to_string();
            assert!(error.contains(part), "{url}: {error}");
            assert!(
                error.contains(&url.escape_debug().to_string()),
                "{url}: {error}"
            );
        }
    }
}
