//! A naive reading of HTTP/1.1: the whole input is there, every rule stands on its own, nothing is fast.

use sinew_http::Limits;

/// A request that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exchange {
    pub line: Vec<u8>,
    pub head_only: bool,
    pub keep: bool,
}

/// Why no more is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The input ended between two requests.
    Client,
    /// It ended within one.
    Cut,
    /// The last request said so.
    Close,
    /// What came is refused with a status.
    Refused(u16),
}

type Read<T> = Result<T, Ending>;

const BAD: Ending = Ending::Refused(400);

/// Reads everything.
pub fn read(input: &[u8], limits: &Limits) -> (Vec<Exchange>, Ending) {
    let mut exchanges = Vec::new();
    let mut rest = input;
    loop {
        while let Some(after) = rest.strip_prefix(b"\r\n") {
            rest = after;
        }
        if rest.is_empty() {
            return (exchanges, Ending::Client);
        }
        match request(rest, limits) {
            Err(ending) => return (exchanges, ending),
            Ok((exchange, bytes)) => {
                rest = &rest[bytes..];
                let keep = exchange.keep;
                exchanges.push(exchange);
                if !keep {
                    return (exchanges, Ending::Close);
                }
            }
        }
    }
}

fn request(input: &[u8], limits: &Limits) -> Read<(Exchange, usize)> {
    // Whatever follows: no head begins so.
    if input[0] != b'\r' && !token(&input[..1]) {
        return Err(BAD);
    }
    let lines = head_lines(input, limits)?;
    let head_bytes: usize = lines.iter().map(|line| line.len() + 2).sum::<usize>() + 2;
    if lines.len() - 1 > limits.headers {
        return Err(Ending::Refused(431));
    }
    let old = request_line(lines[0])?;
    let mut fields = Vec::new();
    for line in &lines[1..] {
        fields.push(field(line)?);
    }
    let all = |wanted: &str| -> Vec<&str> {
        let wanted = fields.iter().filter(|(name, _)| *name == wanted);
        wanted.map(|(_, value)| value.as_str()).collect()
    };
    let lengths = all("content-length");
    let digits = |text: &&str| !text.is_empty() && text.chars().all(|c| c.is_ascii_digit());
    if !lengths.iter().all(digits) {
        return Err(BAD);
    }
    let lengths: Result<Vec<u64>, _> = lengths.iter().map(|text| text.parse()).collect();
    let mut lengths = lengths.map_err(|_| BAD)?;
    lengths.dedup();
    if lengths.len() > 1 {
        return Err(BAD);
    }
    let hosts = all("host");
    let host_byte = |c: char| c.is_ascii_alphanumeric() || "-._~!$&'()*+;=:[]%".contains(c);
    match hosts[..] {
        [] if old => {}
        [host] if host.chars().all(host_byte) => {}
        _ => return Err(BAD),
    }
    let codings = all("transfer-encoding");
    let chunked = match codings[..] {
        [] => false,
        _ if old || !lengths.is_empty() => return Err(BAD),
        [coding] if coding.eq_ignore_ascii_case("chunked") => true,
        [.., ""] => return Err(BAD),
        _ => return Err(Ending::Refused(501)),
    };
    if let Some(last) = all("expect").last()
        && !last.eq_ignore_ascii_case("100-continue")
    {
        return Err(Ending::Refused(417));
    }
    let body = &input[head_bytes..];
    let body_bytes = match (chunked, lengths.first()) {
        (true, _) => chunks(body, limits.body_bytes as usize)?,
        (false, Some(&length)) if length > limits.body_bytes => return Err(Ending::Refused(413)),
        (false, Some(&length)) if length > body.len() as u64 => return Err(Ending::Cut),
        (false, Some(&length)) => length as usize,
        (false, None) => 0,
    };
    let connection = all("connection").join(",").to_ascii_lowercase();
    let option = |wanted| connection.split(',').any(|one| one.trim_ascii() == wanted);
    let exchange = Exchange {
        line: lines[0].to_vec(),
        head_only: lines[0].starts_with(b"HEAD "),
        keep: !option("close") && (!old || option("keep-alive")),
    };
    Ok((exchange, head_bytes + body_bytes))
}

/// The lines of a head, the empty one not among them.
fn head_lines<'a>(input: &'a [u8], limits: &Limits) -> Read<Vec<&'a [u8]>> {
    let mut lines = Vec::new();
    let mut start = 0;
    for (at, &byte) in input.iter().enumerate() {
        if lines.is_empty() {
            let beyond_line = at > limits.request_line_bytes && byte != b'\n';
            if beyond_line || at >= limits.head_bytes {
                return Err(Ending::Refused(414));
            }
        } else if at >= limits.head_bytes {
            return Err(Ending::Refused(431));
        }
        if byte == b'\n' {
            if at == 0 || input[at - 1] != b'\r' {
                return Err(BAD);
            }
            let line = &input[start..at - 1];
            if line.is_empty() {
                return Ok(lines);
            }
            lines.push(line);
            start = at + 1;
        }
    }
    Err(Ending::Cut)
}

fn token(text: &[u8]) -> bool {
    let fits = |c: &u8| c.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(c);
    !text.is_empty() && text.iter().all(fits)
}

/// Whether the version is 1.0.
fn request_line(line: &[u8]) -> Read<bool> {
    let parts: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
    let [method, target, version] = parts[..] else {
        return Err(BAD);
    };
    let graphic = |c: &u8| (0x21..=0x7e).contains(c) && *c != b'#';
    if !token(method) || target.is_empty() || !target.iter().all(graphic) {
        return Err(BAD);
    }
    let text = String::from_utf8_lossy(version);
    let digits = text
        .strip_prefix("HTTP/")
        .map(|rest| rest.split('.').collect::<Vec<_>>());
    let one = |part: &str| part.len() == 1 && part.as_bytes()[0].is_ascii_digit();
    match digits.as_deref() {
        Some(["1", "1"]) => Ok(false),
        Some(["1", "0"]) => Ok(true),
        Some([major, minor]) if one(major) && one(minor) => Err(Ending::Refused(505)),
        _ => Err(BAD),
    }
}

/// The name in small letters, and the value; bytes beyond ASCII count as one letter each.
fn field(line: &[u8]) -> Read<(String, String)> {
    let colon = line.iter().position(|&byte| byte == b':').ok_or(BAD)?;
    let (name, value) = (&line[..colon], &line[colon + 1..]);
    let fits = |c: &u8| *c == b'\t' || (*c >= b' ' && *c != 0x7f);
    if !token(name) || !value.iter().all(fits) {
        return Err(BAD);
    }
    let letters = |bytes: &[u8]| -> String { bytes.iter().map(|&byte| char::from(byte)).collect() };
    let name = letters(name).to_ascii_lowercase();
    Ok((name, letters(value.trim_ascii())))
}

/// How long a chunked body is with its coding.
fn chunks(input: &[u8], limit: usize) -> Read<usize> {
    let within = &input[..input.len().min(limit)];
    let mut at = Cursor {
        input: within,
        at: 0,
        // Whoever comes to the end of what may be looked at wants more than there may be, or than there is.
        end: match input.len() >= limit {
            true => Ending::Refused(413),
            false => Ending::Cut,
        },
    };
    while at.chunk()? {}
    at.trailers()?;
    Ok(at.at)
}

struct Cursor<'a> {
    input: &'a [u8],
    at: usize,
    end: Ending,
}

impl Cursor<'_> {
    fn peek(&self) -> Read<u8> {
        self.input.get(self.at).copied().ok_or(self.end)
    }

    fn next(&mut self) -> Read<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Ok(byte)
    }

    fn expect(&mut self, wanted: &[u8]) -> Read<()> {
        for &byte in wanted {
            if self.next()? != byte {
                return Err(BAD);
            }
        }
        Ok(())
    }

    /// False for the last one.
    fn chunk(&mut self) -> Read<bool> {
        let start = self.at;
        let mut size: u128 = 0;
        while self.peek()?.is_ascii_hexdigit() {
            let digit = char::from(self.next()?).to_digit(16).ok_or(BAD)?;
            size = size * 16 + u128::from(digit);
            if size > u128::from(u64::MAX) || self.at - start > 256 {
                return Err(BAD);
            }
        }
        if self.at == start {
            return Err(BAD);
        }
        while matches!(self.peek()?, b' ' | b'\t') {
            self.at += 1;
            if self.at - start > 256 {
                return Err(BAD);
            }
        }
        if self.peek()? == b';' {
            self.at += 1;
            while self.peek()? != b'\r' {
                let byte = self.next()?;
                let fits = byte == b'\t' || (byte >= b' ' && byte != 0x7f);
                if !fits || self.at - start > 256 {
                    return Err(BAD);
                }
            }
        }
        self.expect(b"\r\n")?;
        if size == 0 {
            return Ok(false);
        }
        let left = self.input.len() - self.at;
        if size >= left as u128 {
            return Err(self.end);
        }
        self.at += size as usize;
        self.expect(b"\r\n")?;
        Ok(true)
    }

    fn trailers(&mut self) -> Read<()> {
        let start = self.at;
        loop {
            if self.peek()? == b'\r' {
                return self.expect(b"\r\n");
            }
            let first = self.peek()?;
            if !(0x21..=0x7e).contains(&first) {
                return Err(BAD);
            }
            while self.peek()? != b'\r' {
                let byte = self.next()?;
                let fits = byte == b'\t' || (byte >= b' ' && byte != 0x7f);
                if !fits || self.at - start > 8 * 1024 {
                    return Err(BAD);
                }
            }
            self.expect(b"\r\n")?;
        }
    }
}
