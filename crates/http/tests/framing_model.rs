//! Random requests, more or less well formed, cut anywhere, against a naive reading of the same bytes.

#[path = "../../sinew/tests/chance_rig/mod.rs"]
mod chance_rig;
mod framing_rig;

use chance_rig::Chance;
use framing_rig::{Case, Ending, TIGHT, compare, decode, read};
use proptest::prelude::*;
use sinew_http::Limits;

/// Pieces of requests. The first of each list is the usual one.
const METHODS: &[&[u8]] = &[
    b"GET", b"GET", b"HEAD", b"POST", b"OPTIONS", b"BREW", b"G(T", b"", b"get",
];
const TARGETS: &[&[u8]] = &[
    b"/",
    b"/a?b",
    b"*",
    b"http://a/b",
    b"/%2e\"<>",
    b"/a b",
    b"",
    b"/#",
    b"/\xe4",
    b"/\t",
    b"/a\rb",
    b"/01234567890123456789012345678901234567890",
];
const VERSIONS: &[&[u8]] = &[
    b"HTTP/1.1",
    b"HTTP/1.1",
    b"HTTP/1.0",
    b"HTTP/2.0",
    b"http/1.1",
    b"HTTP/1.10",
    b"HTTP/1.1 ",
    b"",
    b"HTTP/1.",
];
const ENDS: &[&[u8]] = &[
    b"\r\n", b"\r\n", b"\r\n", b"\r\n", b"\r\n", b"\n", b"\r", b"\r\r\n", b"\n\r",
];
const FIELDS: &[&[u8]] = &[
    b"Host: a",
    b"Host: a",
    b"Host: a",
    b"hOST:[::1]:80",
    b"Host: a b",
    b"Host : a",
    b"Host:",
    b"Connection: close",
    b"Connection: close",
    b"Connection: keep-alive",
    b"Connection: x,\tClose ,",
    b"Content-Length: 5",
    b"Content-Length: 5",
    b"Content-Length: 0",
    b"Content-Length: 71",
    b"Content-Length: +5",
    b"Content-Length: 0x5",
    b"Content-Length: 5, 5",
    b"Content-Length: 18446744073709551616",
    b"Content-Length:",
    b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: xchunked",
    b"Transfer-Encoding: chunked, identity",
    b"Transfer-Encoding : chunked",
    b"Transfer-Encoding:\x0bchunked",
    b"Transfer-Encoding:",
    b"Expect: 100-continue",
    b"Expect: tea",
    b"If-None-Match: *",
    b" folded: x",
    b"no colon",
    b": no name",
    b"A: \0",
    b"A: \x7f",
    b"A: \xff\t \"",
    b"A: b\rc",
];
const BODIES: &[&[u8]] = &[
    b"",
    b"hello",
    b"hello",
    b"5\r\nhello\r\n0\r\n\r\n",
    b"5\r\nhello\r\n0\r\n\r\n",
    b"5;x=\"y\"\r\nhello\r\n00\r\nT: x\r\nU: y\r\n\r\n",
    b"0\r\n\r\n",
    b"5\nhello\n0\n\n",
    b"5 \r\nhello\r\n0\r\n\r\n",
    b"0x5\r\nhello\r\n0\r\n\r\n",
    b"FFFFFFFFFFFFFFFFF\r\n",
    b"FFFFFFFFFFFFFFFF\r\nhello",
    b"5\r\nhelloX\r\n0\r\n\r\n",
    b"0\r\n folded\r\n\r\n",
    b"\r\n\r\n",
];

fn one_of(random: &mut Chance, chances: usize) -> bool {
    random.below(chances) == 0
}

fn pick<'a>(random: &mut Chance, from: &[&'a [u8]]) -> &'a [u8] {
    from[random.below(from.len())]
}

fn request(random: &mut Chance, out: &mut Vec<u8>) {
    // Mostly the first of each list, so that much of what is generated gets through.
    let usual = |random: &mut Chance, from: &[&'static [u8]]| match one_of(random, 15) {
        true => pick(random, from),
        false => from[0],
    };
    let end = |random: &mut Chance, out: &mut Vec<u8>| {
        let end = match one_of(random, 60) {
            true => pick(random, ENDS),
            false => ENDS[0],
        };
        out.extend_from_slice(end);
    };
    for (number, from) in [METHODS, TARGETS, VERSIONS].into_iter().enumerate() {
        if number > 0 {
            out.push(b' ');
        }
        out.extend_from_slice(usual(random, from));
    }
    end(random, out);
    if !one_of(random, 10) {
        out.extend_from_slice(FIELDS[0]);
        end(random, out);
    }
    let framed = random.below(4);
    if framed < 2 {
        out.extend_from_slice(
            [
                b"Content-Length: 5".as_slice(),
                b"Transfer-Encoding: chunked",
            ][framed],
        );
        end(random, out);
    }
    for _ in 0..random.below(5).saturating_sub(2) {
        out.extend_from_slice(pick(random, FIELDS));
        end(random, out);
    }
    end(random, out);
    match (framed, one_of(random, 8)) {
        (0, false) => out.extend_from_slice(BODIES[1]),
        (1, false) => out.extend_from_slice(BODIES[3 + random.below(4)]),
        (_, true) => out.extend_from_slice(pick(random, BODIES)),
        _ => {}
    }
}

fn case(random: &mut Chance) -> Case {
    let mut input = Vec::new();
    for _ in 0..1 + random.below(4) {
        request(random, &mut input);
    }
    // A few bytes that nobody meant.
    for _ in 0..random.below(6).saturating_sub(3) {
        let at = random.below(input.len());
        match random.below(3) {
            0 => input[at] = random.next() as u8,
            1 => input.insert(at, b"\r\n \t:,\0\x7f"[random.below(8)]),
            _ => drop(input.remove(at)),
        }
    }
    if one_of(random, 4) {
        input.truncate(random.below(input.len() + 1));
    }
    Case {
        limits: if one_of(random, 2) {
            TIGHT
        } else {
            Limits::default()
        },
        cuts: (0..4).map(|_| 1 + random.below(60)).collect(),
        input,
    }
}

#[test]
fn random_requests_are_read_as_naively() {
    let stress = std::env::var("SINEW_STRESS")
        .ok()
        .and_then(|text| text.parse().ok());
    let mut random = Chance::new();
    let mut seen = [0_u32; 5];
    for _ in 0..10_000 * stress.unwrap_or(1_u64).max(1) {
        let case = case(&mut random);
        let read_well = compare(&case).unwrap_or_else(|text| {
            panic!(
                "{:?} cut {:?}: {text}",
                case.input.escape_ascii().to_string(),
                case.cuts
            )
        });
        let (exchanges, ending) = read(&case.input, &case.limits);
        assert_eq!(exchanges, read_well);
        seen[match ending {
            Ending::Client => 0,
            Ending::Cut => 1,
            Ending::Close => 2,
            Ending::Refused(400) => 3,
            Ending::Refused(_) => 4,
        }] += 1;
    }
    // What is generated comes everywhere.
    assert!(seen.iter().all(|&times| times > 30), "{seen:?}");
}

proptest! {
    #[test]
    fn any_bytes_are_read_as_naively(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        if let Err(text) = compare(&decode(&bytes)) {
            prop_assert!(false, "{text}");
        }
    }

    #[test]
    fn a_request_with_any_byte_changed_is_read_as_naively(at in 0..128_usize, byte: u8, tight: bool, cut in 1..20_u8) {
        let mut bytes = vec![u8::from(tight), cut, cut, 1, cut];
        bytes.extend_from_slice(
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4;a=b\r\nbody\r\n0\r\nT: x\r\n\r\n\
              GET /second HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nxy",
        );
        let at = 5 + at % (bytes.len() - 5);
        bytes[at] = byte;
        if let Err(text) = compare(&decode(&bytes)) {
            prop_assert!(false, "{text}");
        }
    }
}

#[test]
fn what_is_longer_than_its_limit_is_so_at_any_cut() {
    let lines = ["x".repeat(8191), "x".repeat(8192), "x".repeat(8193)];
    for line in lines {
        for rest in ["", " HTTP/1.1\r\n", "\n", "\r\n\r\n"] {
            let input = format!("{line}{rest}");
            for cuts in [vec![8190, 1, 1], vec![8192], vec![1000]] {
                let case = Case {
                    limits: Limits::default(),
                    cuts,
                    input: input.clone().into_bytes(),
                };
                compare(&case).unwrap_or_else(|text| panic!("{}{rest:?}: {text}", line.len()));
            }
        }
    }
    // Size lines and trailers of chunks have limits of their own.
    let head = "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    for padding in [0, 254, 255, 256, 257, 8_180, 8_191, 8_192, 8_193, 70_000] {
        let zeros = "0".repeat(padding);
        for body in [
            format!("{zeros}1\r\nx\r\n0\r\n\r\n"),
            format!("1;{zeros}\r\nx\r\n0\r\n\r\n"),
            format!("1{}\r\nx\r\n0\r\n\r\n", " ".repeat(padding)),
            format!("0\r\nT: {zeros}\r\n\r\n"),
            format!("{padding:x}\r\n{zeros}\r\n0\r\n\r\n"),
        ] {
            let case = Case {
                limits: Limits::default(),
                cuts: vec![100, 1, 3, 5000],
                input: format!("{head}{body}GET / HTTP/1.0\r\n\r\n").into_bytes(),
            };
            compare(&case).unwrap_or_else(|text| panic!("{padding}: {text}"));
        }
    }
}
