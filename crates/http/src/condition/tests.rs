//! Preconditions in tables, against a second reading of RFC 9110, section 13.2.2.

use super::*;
use crate::Input;

const NOW: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
const BEFORE: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
const LATER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";
const OURS: &str = "\"1-2-3\"";

fn ours() -> Validators {
    Validators {
        tag: EntityTag::new([1, 2, 3]),
        modified: 784_111_777,
    }
}

fn with<T>(method: &str, lines: &str, f: impl FnOnce(&Request<'_>) -> T) -> T {
    let head = format!("{method} / HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
    let mut input = Input::new(crate::Limits::default());
    input.room()[..head.len()].copy_from_slice(head.as_bytes());
    input.add(head.len());
    let extent = input.find_head().expect("well formed").expect("whole");
    f(&Request::parse(input.head(extent), extent).expect("well formed"))
}

fn judge(lines: &str) -> Verdict {
    let get = with("GET", lines, |request| ours().judge(request));
    let head = with("HEAD", lines, |request| ours().judge(request));
    assert_eq!(get, head);
    get
}

#[test]
fn tags_are_as_long_as_they_are() {
    assert_eq!(EntityTag::new([0, 0, 0]).as_str(), "\"0-0-0\"");
    let longest = EntityTag::new([u64::MAX; NUMBERS_MAX]);
    assert_eq!(longest.as_str().len(), TAG_BYTES);
}

#[test]
fn one_precondition() {
    let table = [
        ("If-None-Match", "\"1-2-3\"", Verdict::NotModified),
        ("If-None-Match", "W/\"1-2-3\"", Verdict::NotModified),
        ("If-None-Match", "*", Verdict::NotModified),
        ("If-None-Match", "\"x\", \"1-2-3\"", Verdict::NotModified),
        (
            "If-None-Match",
            ",, \"x\" ,\t\"1-2-3\",",
            Verdict::NotModified,
        ),
        ("If-None-Match", "\"a,b\",\"1-2-3\"", Verdict::NotModified),
        ("If-None-Match", "\"x\"", Verdict::Proceed),
        ("If-None-Match", "\"1-2-3", Verdict::Proceed),
        ("If-None-Match", "1-2-3", Verdict::Proceed),
        ("If-None-Match", "\"1-2-3\"x", Verdict::Proceed),
        ("If-None-Match", "\"1-2-3\" \"x\"", Verdict::Proceed),
        ("If-None-Match", "\"1-2-3\", *", Verdict::Proceed),
        ("If-None-Match", "\"1-2-3\", x", Verdict::Proceed),
        ("If-None-Match", "w/\"1-2-3\"", Verdict::Proceed),
        ("If-None-Match", "", Verdict::Proceed),
        ("If-None-Match", ",", Verdict::Proceed),
        ("If-Match", "\"1-2-3\"", Verdict::Proceed),
        ("If-Match", "*", Verdict::Proceed),
        ("If-Match", "\"x\", \"1-2-3\"", Verdict::Proceed),
        ("If-Match", "W/\"1-2-3\"", Verdict::Failed),
        ("If-Match", "\"x\"", Verdict::Failed),
        ("If-Match", "1-2-3", Verdict::Failed),
        ("If-Match", "", Verdict::Failed),
        ("If-Modified-Since", NOW, Verdict::NotModified),
        ("If-Modified-Since", LATER, Verdict::NotModified),
        ("If-Modified-Since", BEFORE, Verdict::Proceed),
        ("If-Modified-Since", "yesterday", Verdict::Proceed),
        (
            "If-Modified-Since",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            Verdict::NotModified,
        ),
        (
            "If-Modified-Since",
            "Sun Nov  6 08:49:37 1994",
            Verdict::NotModified,
        ),
        ("If-Unmodified-Since", NOW, Verdict::Proceed),
        ("If-Unmodified-Since", LATER, Verdict::Proceed),
        ("If-Unmodified-Since", BEFORE, Verdict::Failed),
        ("If-Unmodified-Since", "yesterday", Verdict::Proceed),
        ("If-Something", "else", Verdict::Proceed),
    ];
    for (name, value, verdict) in table {
        assert_eq!(
            judge(&format!("{name}: {value}\r\n")),
            verdict,
            "{name}: {value}"
        );
    }
    assert_eq!(judge(""), Verdict::Proceed);
    // Several lines are one list; several dates are none.
    assert_eq!(
        judge("If-None-Match: \"x\"\r\nif-none-match: \"1-2-3\"\r\n"),
        Verdict::NotModified
    );
    assert_eq!(
        judge(&format!(
            "If-Modified-Since: {NOW}\r\nIf-Modified-Since: {NOW}\r\n"
        )),
        Verdict::Proceed
    );
}

#[test]
fn every_combination_in_the_order_of_the_standard() {
    let tags = [None, Some((OURS, true)), Some(("\"x\"", false))];
    let dates = [None, Some(BEFORE), Some(NOW), Some(LATER)];
    let mut seen = [0; 3];
    for one in tags {
        for two in dates {
            for three in tags {
                for four in dates {
                    let mut lines = String::new();
                    let mut add = |name: &str, value: Option<&str>| {
                        if let Some(value) = value {
                            lines.push_str(&format!("{name}: {value}\r\n"));
                        }
                    };
                    // In the reverse order, which must not matter.
                    add("If-Modified-Since", four);
                    add("If-None-Match", three.map(|tag| tag.0));
                    add("If-Unmodified-Since", two);
                    add("If-Match", one.map(|tag| tag.0));
                    let first = match (one, two) {
                        (Some((_, matches)), _) => matches,
                        (None, Some(date)) => date != BEFORE,
                        (None, None) => true,
                    };
                    let second = match (three, four) {
                        (Some((_, matches)), _) => !matches,
                        (None, Some(date)) => date == BEFORE,
                        (None, None) => true,
                    };
                    let verdict = match (first, second) {
                        (false, _) => Verdict::Failed,
                        (true, false) => Verdict::NotModified,
                        (true, true) => Verdict::Proceed,
                    };
                    seen[verdict as usize] += 1;
                    assert_eq!(judge(&lines), verdict, "{lines}");
                }
            }
        }
    }
    assert_eq!(seen.iter().sum::<u32>(), 144);
    assert!(seen.iter().all(|&times| times > 20), "{seen:?}");
}

#[test]
fn ranges_on_condition() {
    let fits = |lines: &str| with("GET", lines, |request| ours().fit_range(request));
    assert!(fits(""));
    assert!(fits("If-Match: \"x\"\r\n"));
    let table = [
        (OURS, true),
        (NOW, true),
        ("\"x\"", false),
        ("W/\"1-2-3\"", false),
        ("\"1-2-3\", \"x\"", false),
        ("*", false),
        ("", false),
        (BEFORE, false),
        (LATER, false),
        ("yesterday", false),
    ];
    for (value, fit) in table {
        assert_eq!(fits(&format!("If-Range: {value}\r\n")), fit, "{value}");
    }
    assert!(!fits("If-Range: \"1-2-3\"\r\nIf-Range: \"1-2-3\"\r\n"));
}
