//! Every rule, broken and kept, on small texts: a rule that cannot fail is worth nothing.

use super::source::code_only;
use super::*;

const HEAD: &str = "//! Owns a thing.\n";
const STATED: &str = "#![expect(unsafe_code, reason = \"it must\")]\n";

/// The breaches of one file, as texts.
fn breaches_of(path: &str, text: &str) -> Vec<String> {
    let mut breaches = Vec::new();
    rule::check(path, text, &mut breaches);
    breaches.iter().map(ToString::to_string).collect()
}

/// Asserts that a file breaks exactly one rule, and that the text of the breach says so.
fn broken(path: &str, text: &str, says: &str) {
    let breaches = breaches_of(path, text);
    assert_eq!(breaches.len(), 1, "{text:?}: {breaches:?}");
    assert!(
        breaches[0].contains(says),
        "{:?} does not say {says:?}",
        breaches[0]
    );
}

fn kept(path: &str, text: &str) {
    assert_eq!(breaches_of(path, text), [] as [String; 0], "{text:?}");
}

#[test]
fn notes_to_oneself_are_found_as_whole_words() {
    let (do_it, fix_it, mark) = (
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("XX", "X"),
    );
    broken(
        "crates/a/src/b.rs",
        &format!("{HEAD}// {do_it}: later\n"),
        "b.rs:2",
    );
    broken(
        "crates/a/tests/b.rs",
        &format!("fn a() {{}} // {fix_it}\n"),
        fix_it,
    );
    broken("crates/a/tests/b.rs", &format!("/* {mark} */\n"), mark);
    kept(
        "crates/a/tests/b.rs",
        &format!("const A: &str = \"{mark}X\";\n"),
    );
}

#[test]
fn what_is_unfinished_is_found_in_code_only() {
    broken("crates/a/tests/b.rs", "fn a() { todo!() }\n", "todo!");
    broken(
        "crates/a/tests/b.rs",
        "fn a() { unimplemented!(\"b\") }\n",
        "unimplemented!",
    );
    kept(
        "crates/a/tests/b.rs",
        "// todo!() stands in a comment\nfn a() { b(\"todo!()\") }\n",
    );
    kept("crates/a/tests/b.rs", "fn todo() {}\n");
}

#[test]
fn ignored_tests_are_found() {
    broken(
        "crates/a/tests/b.rs",
        "#[test]\n#[ignore]\nfn a() {}\n",
        "b.rs:2",
    );
    broken(
        "crates/a/tests/b.rs",
        "#[ignore = \"slow\"]\nfn a() {}\n",
        "ignored test",
    );
    broken(
        "crates/a/tests/b.rs",
        "#[cfg_attr(loom, ignore)]\nfn a() {}\n",
        "ignored test",
    );
    broken(
        "crates/a/tests/b.rs",
        "/// ```ignore\n/// a();\n/// ```\nfn a() {}\n",
        "example",
    );
    kept(
        "crates/a/tests/b.rs",
        "/// ```text\n/// a\n/// ```\nfn ignore() { ignore() }\n",
    );
}

#[test]
fn a_file_may_have_900_lines() {
    kept("crates/a/tests/b.rs", &"\n".repeat(900));
    broken("crates/a/tests/b.rs", &"\n".repeat(901), "901 lines");
}

#[test]
fn a_source_file_says_what_it_owns() {
    broken(
        "crates/a/src/b.rs",
        "use a::b;\n//! Too late.\n",
        "begin with",
    );
    broken("xtask/src/b.rs", "// Not a doc comment.\n", "begin with");
    broken("crates/a/src/b.rs", "", "begin with");
    kept("crates/a/src/b.rs", HEAD);
    kept(
        "crates/a/src/b.rs",
        "#![doc = include_str!(\"README.md\")]\n",
    );
    kept("crates/a/tests/b.rs", "fn a() {}\n");
}

#[test]
fn thread_locals_live_in_one_place() {
    let code = format!("{HEAD}thread_local! {{ static A: u8 = const {{ 0 }}; }}\n");
    broken("crates/a/src/b.rs", &code, "b.rs:2");
    kept("crates/sinew/src/scheduler/current.rs", &code);
    kept("crates/a/tests/b.rs", &code);
    kept(
        "crates/a/src/b.rs",
        &format!("{HEAD}// thread_local! in words\n"),
    );
}

#[test]
fn a_module_is_named_after_what_it_owns() {
    broken("crates/a/src/util.rs", HEAD, "util");
    broken("crates/a/src/types/wait.rs", HEAD, "types");
    broken("crates/a/tests/common/mod.rs", "", "common");
    broken(
        "crates/a/src/b.rs",
        &format!("{HEAD}pub(crate) mod helpers {{}}\n"),
        "b.rs:2",
    );
    kept(
        "crates/a/src/utility_bill.rs",
        &format!("{HEAD}fn common() {{}}\n"),
    );
}

#[test]
fn unsafe_code_states_its_reason_at_the_head() {
    let code = "fn a() { unsafe { b() } }\n";
    broken("crates/a/src/b.rs", &format!("{HEAD}{code}"), "b.rs:2");
    kept("crates/a/src/b.rs", &format!("{HEAD}{STATED}{code}"));
    let broad = "#![expect(\n    dead_code,\n    unsafe_code,\n    reason = \"a, b\"\n)]\n";
    kept("crates/a/src/b.rs", &format!("{HEAD}{broad}{code}"));
    let but_in_models = "#![cfg_attr(not(loom), expect(unsafe_code, reason = \"a\"))]\n";
    kept("crates/a/src/b.rs", &format!("{HEAD}{but_in_models}{code}"));
    let without = "#![expect(unsafe_code)]\n";
    broken(
        "crates/a/src/b.rs",
        &format!("{HEAD}{without}{code}"),
        "expect",
    );
    let outer = "#[expect(unsafe_code, reason = \"here\")]\n";
    broken(
        "crates/a/src/b.rs",
        &format!("{HEAD}{outer}{code}"),
        "expect",
    );
    let allowed = "#![allow(unsafe_code, reason = \"in some configurations\")]\n";
    broken(
        "crates/a/src/b.rs",
        &format!("{HEAD}{allowed}{code}"),
        "expect",
    );
    kept("crates/a/tests/b.rs", &format!("{allowed}{code}"));
    let commented = format!("{HEAD}// {STATED}{code}");
    broken("crates/a/src/b.rs", &commented, "expect");
    broken(
        "crates/a/src/b.rs",
        &format!("{HEAD}#[unsafe(no_mangle)]\nfn a() {{}}\n"),
        "expect",
    );
    kept(
        "crates/a/src/b.rs",
        &format!("{HEAD}// unsafe\nfn a() {{ b(\"unsafe\") }}\n"),
    );
}

#[test]
fn files_with_unsafe_code_are_those_listed() {
    let code = format!("{HEAD}{STATED}unsafe fn a() {{}}\n");
    let sources = BTreeMap::from([
        ("crates/a/src/b.rs".to_owned(), code.clone()),
        ("crates/a/src/safe.rs".to_owned(), HEAD.to_owned()),
        ("crates/a/tests/c.rs".to_owned(), code),
    ]);
    let said = |list: &str| {
        let mut breaches = Vec::new();
        rule::check_unsafe_list(&sources, list, &mut breaches);
        breaches
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("\n")
    };
    assert_eq!(said("| `crates/a/src/b.rs` | loom |\n"), "");
    assert!(said("").contains("crates/a/src/b.rs: has unsafe code"));
    assert!(said("crates/a/src/b.rs, not as code").contains("list `crates/a/src/b.rs`"));
    let gone = said("`crates/a/src/b.rs`\n`crates/a/src/gone.rs`\n");
    assert!(
        gone.contains("UNSAFE.md:2: lists crates/a/src/gone.rs"),
        "{gone}"
    );
    assert!(said("`crates/a/src/b.rs` `crates/a/src/safe.rs`").contains("any more"));
}

/// Checks a contract against tests; returns the report and the breaches, as texts.
fn contract_of(contract: &str, sources: &[(&str, &str)]) -> (String, String) {
    let sources = sources
        .iter()
        .map(|&(path, text)| (path.to_owned(), text.to_owned()))
        .collect();
    let texts = Texts {
        sources,
        contract: contract.to_owned(),
        assumptions: String::new(),
    };
    let (report, breaches) = check(&texts);
    (
        report,
        breaches
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("\n"),
    )
}

const TABLE: &str = "| id | behaviour | status |\n|---|---|---|\n";

#[test]
fn a_delivered_row_needs_a_test() {
    let contract = format!("{TABLE}| C7 | `a \\|\\| b` | delivered |\n| S13 | sleep | open |\n");
    let (report, breaches) = contract_of(&contract, &[]);
    assert!(breaches.contains("CONTRACT.md:3: row C7"), "{breaches}");
    assert!(report.contains("not cited: C7 S13"), "{report}");

    let test = [(
        "crates/a/tests/b.rs",
        "    // contract: C7\n#[test]\nfn a() {}\n",
    )];
    let (report, breaches) = contract_of(&contract, &test);
    assert_eq!(breaches, "");
    assert!(
        report.contains("1 of 2 rows") && report.contains("crates/a/tests/b.rs:1"),
        "{report}"
    );

    let unit = [(
        "crates/a/src/b/tests.rs",
        "//! Tests.\n// contract: S13, C7\n",
    )];
    assert_eq!(contract_of(&contract, &unit).1, "");

    let source = [("crates/a/src/b.rs", "//! A thing.\n// contract: C7\n")];
    assert!(
        contract_of(&contract, &source).1.contains("row C7"),
        "a source is not a test"
    );

    let text = [(
        "crates/a/tests/b.rs",
        "const A: &str = \"// contract: C7\";\n",
    )];
    assert!(
        contract_of(&contract, &text).1.contains("row C7"),
        "a citation is a comment"
    );
}

#[test]
fn a_citation_names_a_row() {
    let contract = format!("{TABLE}| C7 | ends | open |\n");
    let cite = |line: &str| contract_of(&contract, &[("crates/a/tests/b.rs", line)]).1;
    assert_eq!(cite("// contract: C7\n"), "");
    assert!(cite("// contract: C7, C8\n").contains("b.rs:1: cites \"C8\""));
    assert!(cite("// contract:\n").contains("cites \"\""));
    assert!(cite("/// contract: C77\n").contains("cites \"C77\""));
}

#[test]
fn malformed_rows_are_breaches() {
    let said = |rows: &str| contract_of(&format!("{TABLE}{rows}"), &[]).1;
    assert!(said("| C7 | ends | done |\n").contains("status \"done\""));
    assert!(said("| C7 | a || b | open |\n").contains("5 cells"));
    assert!(said("| C7 | a | open |\n| C7 | b | open |\n").contains("second time"));
    assert!(said("").contains("no row was found"));
}

#[test]
fn comments_and_literals_are_told_from_code() {
    let same = |text: &str, code: &str| {
        let found = code_only(text);
        assert_eq!(
            found.split_whitespace().collect::<Vec<_>>().join(" "),
            code,
            "{text:?}"
        );
        assert_eq!(found.lines().count(), text.lines().count());
    };
    same("a // b\nc", "a c");
    same("a /* b /* c */ d */ e", "a e");
    same("a(\"b \\\" c\", d)", "a( , d)");
    same("a(r#\"b \" c\"#, d)", "a( , d)");
    same("a(br\"b\", c\"d\", b\"e\")", "a( , , )");
    same("a<'b>('c', '\\'', '\\u{1}', '\"')", "a<'b>( , , , )");
    same("r#type bar\"b\"", "r#type bar");
    same("a \"unclosed", "a");
    same("a /* unclosed", "a");
}

/// The breaches of the parts' rule in one file beside a front.
fn part_breaches(path: &str, text: &str) -> Vec<String> {
    let front = "pub use group::TaskGroup;\npub use job::{Task, TaskEnd};\npub use pool::{PoolStats, TaskPool};\n";
    let sources = BTreeMap::from([
        ("crates/sinew/src/task/mod.rs".to_owned(), front.to_owned()),
        (path.to_owned(), text.to_owned()),
    ]);
    let mut breaches = Vec::new();
    part::check(&sources, &mut breaches);
    breaches.iter().map(ToString::to_string).collect()
}

// contract: T23
#[test]
fn parts_name_only_what_they_are_made_of() {
    let broken = [
        ("future/a.rs", "use crate::task::TaskGroup;\n"),
        ("future/a.rs", "fn a(_: &crate::task::Task) {}\n"),
        ("task/job.rs", "use crate::task::pool::Shared;\n"),
        ("task/job.rs", "use super::pool::Shared;\n"),
        ("task/context.rs", "use crate::task::{Task, TaskPool};\n"),
        ("task/group/mod.rs", "use crate::task::TaskPool;\n"),
        ("task/group/mod.rs", "use crate::task::Task;\n"),
        (
            "task/pool/mod.rs",
            "use crate::task::{Task, group::{A, B}};\n",
        ),
        ("task/coroutine.rs", "use crate::task::PoolStats;\n"),
        (
            "task/worker/mod.rs",
            "fn a() { crate::task::coroutine::spawn(); }\n",
        ),
        ("task/bridge/pool.rs", "use crate::task::worker::A;\n"),
        ("task/bridge/mod.rs", "use crate::task::pool::A;\n"),
        ("task/novelty.rs", "fn a() {}\n"),
    ];
    for (path, text) in broken {
        let breaches = part_breaches(&format!("crates/sinew/src/{path}"), text);
        assert_eq!(breaches.len(), 1, "{path}: {text:?}: {breaches:?}");
    }
    let kept = [
        (
            "future/a.rs",
            "// crate::task\nuse crate::error::Error;\nuse std::task::Poll;\n",
        ),
        (
            "task/job.rs",
            "use crate::task::context::Host;\nuse crate::task::{Task, TaskEnd};\n",
        ),
        (
            "task/group/mod.rs",
            "use crate::future::Promise;\nuse super::Shared;\n",
        ),
        (
            "task/pool/mod.rs",
            "use crate::task::{Task, job::{Job, Work}, TaskPool};\n",
        ),
        (
            "task/bridge/pool.rs",
            "use crate::task::{Task, TaskGroup, TaskPool};\n",
        ),
        ("scheduler/a.rs", "use crate::task::TaskPool;\n"),
    ];
    for (path, text) in kept {
        let breaches = part_breaches(&format!("crates/sinew/src/{path}"), text);
        assert_eq!(breaches, [] as [String; 0], "{path}: {text:?}");
    }
}
