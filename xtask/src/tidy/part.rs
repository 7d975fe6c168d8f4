//! Which parts of the task modules know which: futures, the task core, groups, the executors and each bridge are usable
//! without the others, so none may name one that it is not made of.
//!
//! A part is known by its file. What is named in `crate::task` is a module of it, or an item that its `mod.rs` takes from one.

use std::collections::BTreeMap;

use super::Breach;
use super::source::code_only;

/// The folder of the parts.
const FOLDER: &str = "crates/sinew/src/task/";
/// Where items are taken out of them.
const FRONT: &str = "crates/sinew/src/task/mod.rs";
/// Futures know nothing of tasks.
const FUTURES: &str = "crates/sinew/src/future/";

/// Each part, with the modules that are its own, and the modules that it may name besides.
const PARTS: [(&str, &[&str], &[&str]); 10] = [
    ("the core", &["outcome", "context", "job", "refused"], &[]),
    ("groups", &["group"], &[]),
    ("pools", &["pool"], CORE),
    ("coroutine tasks", &["coroutine"], CORE),
    ("workers", &["worker"], CORE),
    ("scopes", &["scope"], &["group"]),
    (
        "the bridges' common part",
        &["bridge"],
        &["group", "refused"],
    ),
    (
        "groups and pools",
        &["bridge/pool"],
        &["group", "pool", "outcome", "context", "job", "refused"],
    ),
    (
        "groups and coroutines",
        &["bridge/coroutine"],
        &["group", "coroutine", "outcome", "context", "job", "refused"],
    ),
    (
        "groups and workers",
        &["bridge/worker"],
        &["group", "worker", "outcome", "context", "job", "refused"],
    ),
];

const CORE: &[&str] = &["outcome", "context", "job", "refused"];

/// Looks at every file of the parts.
pub(super) fn check(sources: &BTreeMap<String, String>, breaches: &mut Vec<Breach>) {
    let items = sources
        .get(FRONT)
        .map(|text| items(text))
        .unwrap_or_default();
    for (path, text) in sources {
        let code = code_only(text);
        if path.starts_with(FUTURES) {
            for (line, _) in named(&code, "crate::task") {
                breaches.push(Breach {
                    file: path.clone(),
                    line,
                    text: "futures are usable without tasks; do not name `crate::task` here".into(),
                });
            }
        }
        let Some(module) = module_of(path) else {
            continue;
        };
        check_part(path, &module, &code, &items, breaches);
    }
}

fn check_part(
    path: &str,
    module: &str,
    code: &str,
    items: &BTreeMap<String, String>,
    breaches: &mut Vec<Breach>,
) {
    let Some((part, own, known)) = PARTS.iter().find(|(_, own, _)| own.contains(&module)) else {
        breaches.push(Breach {
            file: path.to_owned(),
            line: 0,
            text: format!("say in xtask/src/tidy/part.rs which part `{module}` is of"),
        });
        return;
    };
    let mut names = named(code, "crate::task::");
    if path.matches('/').count() == FOLDER.matches('/').count() {
        names.extend(named(code, "super::"));
    }
    for (line, name) in names {
        let target = items.get(&name).unwrap_or(&name);
        let is_known = own.contains(&target.as_str()) || known.contains(&target.as_str());
        if !is_known {
            breaches.push(Breach {
                file: path.to_owned(),
                line,
                text: format!("{part} are usable without `{target}`; do not name `{name}` here"),
            });
        }
    }
}

/// The module of a file of the parts; that of a bridge with its file. `None` for all else.
fn module_of(path: &str) -> Option<String> {
    let within = path.strip_prefix(FOLDER)?;
    let name = within.strip_suffix(".rs")?;
    if name == "mod" || name.ends_with("tests") {
        return None;
    }
    let (folder, file) = name.split_once('/').unwrap_or((name, "mod"));
    Some(match (folder, file) {
        ("bridge", "mod") => folder.into(),
        ("bridge", file) => format!("bridge/{file}"),
        (folder, _) => folder.into(),
    })
}

/// The items that the front takes out of its modules, each with its module.
fn items(front: &str) -> BTreeMap<String, String> {
    let code = code_only(front);
    let mut items = BTreeMap::new();
    for used in code.split("use ").skip(1) {
        let Some((path, _)) = used.split_once(';') else {
            continue;
        };
        let Some((module, names)) = path.split_once("::") else {
            continue;
        };
        for name in names.split(|c: char| !c.is_alphanumeric() && c != '_') {
            items.insert(name.to_owned(), module.trim().to_owned());
        }
    }
    items
}

/// What is named behind `prefix`, each with its line: the first word, or the first words of a list in braces.
fn named(code: &str, prefix: &str) -> Vec<(usize, String)> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = Vec::new();
    for (at, _) in code.match_indices(prefix) {
        // Not the end of a longer path.
        if code[..at].ends_with(|c: char| is_word(c) || c == ':') {
            continue;
        }
        let line = code[..at].matches('\n').count() + 1;
        let rest = &code[at + prefix.len()..];
        let list = match rest.strip_prefix('{') {
            Some(list) => elements(list),
            None => vec![rest],
        };
        for element in list {
            let word: String = element
                .trim_start()
                .chars()
                .take_while(|&c| is_word(c))
                .collect();
            if prefix == "crate::task" || !word.is_empty() && word != "super" && word != "self" {
                found.push((line, word));
            }
        }
    }
    found
}

/// The elements of a list whose brace was opened.
fn elements(list: &str) -> Vec<&str> {
    let (mut depth, mut begin, mut found) = (0, 0, Vec::new());
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => {
                found.push(&list[begin..at]);
                break;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                found.push(&list[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    found
}
