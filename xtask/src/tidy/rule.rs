//! What a source file must look like.
//!
//! Each rule is one function; `check` applies them. The reasons are in docs/STYLE.md.

use std::collections::BTreeMap;

use super::Breach;
use super::source::{code_only, has_word, words};

/// Where files with unsafe code are listed, each with what covers it.
pub(super) const ASSUMPTIONS_FILE: &str = "docs/UNSAFE.md";

/// A file longer than this is to be cut at a seam.
const LINES_MAX: usize = 900;

/// Names that say nothing about what a module owns.
const NAMES_BANNED: [&str; 6] = ["util", "utils", "common", "helper", "helpers", "types"];

/// The one file that may declare thread-locals: what is in them changes under a coroutine's feet only if it moves, and
/// each is one more thing to be kept right at the ends of threads.
const THREAD_LOCALS_FILE: &str = "crates/sinew/src/scheduler/current.rs";
/// The one file with a macro that declares thread-locals in the crates of its users.
const THREAD_LOCALS_MACRO: &str = "crates/sinew/src/local/key.rs";

/// Notes to oneself. (Put together here, so that this file does not break the rule.)
const NOTES_BANNED: [&str; 3] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
];

/// Whether a file holds tests: in a `tests` directory, or a `tests.rs`.
pub(super) fn is_test(path: &str) -> bool {
    path.starts_with("tests/") || path.contains("/tests/") || path.ends_with("/tests.rs")
}

/// Whether a file is part of a crate's sources and not a test.
fn is_source(path: &str) -> bool {
    path.split('/').any(|part| part == "src") && !is_test(path)
}

/// Applies the rules that look at one file.
pub(super) fn check(path: &str, text: &str, breaches: &mut Vec<Breach>) {
    let code = code_only(text);
    let mut found: Vec<(usize, String)> = Vec::new();
    notes(text, &mut found);
    unfinished(text, &code, &mut found);
    length(text, &mut found);
    head(path, text, &mut found);
    module_names(path, &code, &mut found);
    unsafe_head(path, &code, &mut found);
    thread_locals(path, &code, &mut found);
    breaches.extend(found.into_iter().map(|(line, text)| Breach {
        file: path.to_owned(),
        line,
        text,
    }));
}

/// Every source file with unsafe code is listed in docs/UNSAFE.md, and nothing else is.
pub(super) fn check_unsafe_list(
    sources: &BTreeMap<String, String>,
    list: &str,
    breaches: &mut Vec<Breach>,
) {
    for (path, text) in sources.iter().filter(|(path, _)| is_source(path)) {
        if unsafe_line(&code_only(text)).is_some() && !list.contains(&format!("`{path}`")) {
            let text = format!("has unsafe code; list `{path}` in {ASSUMPTIONS_FILE}");
            breaches.push(Breach {
                file: path.clone(),
                line: 0,
                text,
            });
        }
    }
    for (index, line) in list.lines().enumerate() {
        let quoted = line.split('`').skip(1).step_by(2);
        for path in quoted.filter(|path| path.ends_with(".rs") && path.contains('/')) {
            let file = ASSUMPTIONS_FILE.to_owned();
            let line = index + 1;
            match sources.get(path) {
                None => {
                    let text = format!("lists {path}, which is not in the repository");
                    breaches.push(Breach { file, line, text });
                }
                Some(text) if is_source(path) && unsafe_line(&code_only(text)).is_none() => {
                    let text = format!("lists {path}, which has no unsafe code any more");
                    breaches.push(Breach { file, line, text });
                }
                Some(_) => {}
            }
        }
    }
}

/// No notes to oneself.
fn notes(text: &str, found: &mut Vec<(usize, String)>) {
    for (index, line) in text.lines().enumerate() {
        for note in NOTES_BANNED {
            if has_word(line, note) {
                found.push((index + 1, format!("{note}: do it, or write down the limit")));
            }
        }
    }
}

/// Nothing unfinished, and no test that does not run.
fn unfinished(text: &str, code: &str, found: &mut Vec<(usize, String)>) {
    for (index, line) in code.lines().enumerate() {
        let dense: String = line.chars().filter(|c| !c.is_whitespace()).collect();
        for name in ["todo", "unimplemented"] {
            if has_word(line, name) && dense.contains(&format!("{name}!")) {
                found.push((
                    index + 1,
                    format!("{name}!: nothing unfinished is committed"),
                ));
            }
        }
        let ignored =
            dense.contains("#[ignore") || (dense.contains("cfg_attr(") && has_word(line, "ignore"));
        if ignored {
            found.push((
                index + 1,
                "an ignored test: make it run, or remove it".to_owned(),
            ));
        }
    }
    for (index, line) in text.lines().enumerate() {
        let comment = line.trim_start();
        let is_doc = comment.starts_with("///") || comment.starts_with("//!");
        let fence = comment.trim_start_matches(['/', '!']).trim_start();
        let options = fence.strip_prefix("```").unwrap_or_default();
        if is_doc && options.split(',').any(|option| option.trim() == "ignore") {
            found.push((index + 1, "an ignored example: make it compile".to_owned()));
        }
    }
}

/// The runtime crates have their thread-locals in one place.
fn thread_locals(path: &str, code: &str, found: &mut Vec<(usize, String)>) {
    let may_declare = [THREAD_LOCALS_FILE, THREAD_LOCALS_MACRO].contains(&path);
    if !path.starts_with("crates/") || !is_source(path) || may_declare {
        return;
    }
    for (index, line) in code.lines().enumerate() {
        if has_word(line, "thread_local") && line.contains("thread_local!") {
            found.push((
                index + 1,
                format!("a thread-local: they live in {THREAD_LOCALS_FILE}"),
            ));
        }
    }
}

/// No file that is too long to be held in the head.
fn length(text: &str, found: &mut Vec<(usize, String)>) {
    let lines = text.lines().count();
    if lines > LINES_MAX {
        let text = format!("{lines} lines, more than {LINES_MAX}: cut it at a seam");
        found.push((0, text));
    }
}

/// A source file begins by saying what it owns.
fn head(path: &str, text: &str, found: &mut Vec<(usize, String)>) {
    let in_src = path.split('/').any(|part| part == "src");
    let first = text
        .lines()
        .find(|line| !line.trim().is_empty())
        .unwrap_or_default();
    if in_src && !first.starts_with("//!") && !first.starts_with("#![doc") {
        found.push((1, "begin with `//!`: what this file owns".to_owned()));
    }
}

/// No module is named after nothing.
fn module_names(path: &str, code: &str, found: &mut Vec<(usize, String)>) {
    for part in path.split('/') {
        let name = part.strip_suffix(".rs").unwrap_or(part);
        if NAMES_BANNED.contains(&name) {
            found.push((
                0,
                format!("{name} says nothing: name it after what it owns"),
            ));
        }
    }
    let mut before = "";
    for (line, word) in words(code) {
        if before == "mod" && NAMES_BANNED.contains(&word) {
            found.push((
                line,
                format!("{word} says nothing: name it after what it owns"),
            ));
        }
        before = word;
    }
}

/// A file with unsafe code says so at its head, with the reason. Tests may `allow` it, since some
/// configurations of a test have none.
fn unsafe_head(path: &str, code: &str, found: &mut Vec<(usize, String)>) {
    let Some(line) = unsafe_line(code) else {
        return;
    };
    let levels: &[&str] = if is_test(path) {
        &["#![expect(", "#![allow(", "#![cfg_attr(not(loom),expect("]
    } else {
        &["#![expect(", "#![cfg_attr(not(loom),expect("]
    };
    let dense: String = code.chars().filter(|c| !c.is_whitespace()).collect();
    let stated = levels.iter().any(|level| {
        dense.split(level).skip(1).any(|rest| {
            let attribute = rest.split(")]").next().unwrap_or_default();
            let mut names = attribute.split(',');
            names.any(|name| name == "unsafe_code") && attribute.contains(",reason=")
        })
    });
    if !stated {
        let advice = "unsafe code without `#![expect(unsafe_code, reason = \"…\")]` at the head";
        found.push((line, advice.to_owned()));
    }
}

/// The first line with unsafe code.
fn unsafe_line(code: &str) -> Option<usize> {
    words(code)
        .find(|(_, word)| *word == "unsafe")
        .map(|(line, _)| line)
}
