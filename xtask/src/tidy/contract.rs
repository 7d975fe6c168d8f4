//! The rows of docs/CONTRACT.md, and the tests that cite them.
//!
//! A row is a line of a table: `| C7 | what is promised | delivered |`. A citation is a comment of
//! its own in a test, `// contract: C7, S13`. Citations outside of tests are looked at only to see
//! that the rows exist.
//!
//! - I1: a row marked delivered is cited by at least one test.
//! - I2: a citation names rows that exist.

use std::fmt::Write as _;

use super::Breach;
use super::rule::is_test;

/// Where the rows are.
pub(super) const FILE: &str = "docs/CONTRACT.md";

/// What a citation begins with, after the slashes.
const MARK: &str = "contract:";

/// A promise.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Row {
    /// A letter and a number.
    pub(super) id: String,
    /// Whether it is marked as delivered.
    pub(super) delivered: bool,
    /// Its line in the file.
    pub(super) line: usize,
}

/// A comment that cites a row.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Citation {
    /// The row, or what stands in its place.
    pub(super) id: String,
    /// The file.
    pub(super) file: String,
    /// The line of the comment.
    pub(super) line: usize,
    /// Whether the file is a test.
    pub(super) in_test: bool,
}

/// Reads the rows, and reports those that are malformed.
pub(super) fn rows(text: &str, breaches: &mut Vec<Breach>) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let cells = cells(line);
        let Some(id) = cells.first().filter(|cell| is_id(cell)) else {
            continue;
        };
        let mut breach = |text: String| {
            breaches.push(Breach {
                file: FILE.to_owned(),
                line: index + 1,
                text,
            });
        };
        if cells.len() != 3 {
            breach(format!(
                "row {id} has {} cells; write | id | behaviour | status |",
                cells.len()
            ));
        }
        let status = cells.last().map_or("", String::as_str);
        if !["delivered", "open"].contains(&status) {
            breach(format!(
                "row {id} has the status {status:?}; write delivered or open"
            ));
        }
        if rows.iter().any(|row| row.id == *id) {
            breach(format!("row {id} stands here a second time"));
        }
        rows.push(Row {
            id: id.clone(),
            delivered: status == "delivered",
            line: index + 1,
        });
    }
    if rows.is_empty() {
        let text = "no row was found; write | id | behaviour | status |".to_owned();
        breaches.push(Breach {
            file: FILE.to_owned(),
            line: 0,
            text,
        });
    }
    rows
}

/// The citations in a source file.
pub(super) fn citations(path: &str, text: &str) -> Vec<Citation> {
    let in_test = is_test(path);
    let mut citations = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let Some(comment) = line.trim_start().strip_prefix("//") else {
            continue;
        };
        let comment = comment.trim_start_matches(['/', '!']).trim_start();
        let Some(list) = comment.strip_prefix(MARK) else {
            continue;
        };
        citations.extend(list.split(',').map(|id| Citation {
            id: id.trim().trim_end_matches('.').to_owned(),
            file: path.to_owned(),
            line: index + 1,
            in_test,
        }));
    }
    citations
}

/// Checks I1 and I2.
pub(super) fn check(rows: &[Row], citations: &[Citation], breaches: &mut Vec<Breach>) {
    for citation in citations {
        if !rows.iter().any(|row| row.id == citation.id) {
            breaches.push(Breach {
                file: citation.file.clone(),
                line: citation.line,
                text: format!("cites {:?}, which is no row of {FILE}", citation.id),
            });
        }
    }
    for row in rows
        .iter()
        .filter(|row| row.delivered && tests_of(row, citations).is_empty())
    {
        breaches.push(Breach {
            file: FILE.to_owned(),
            line: row.line,
            text: format!("row {} is marked delivered, but no test cites it", row.id),
        });
    }
}

/// Says which rows are cited, and where, and which are not.
pub(super) fn report(rows: &[Row], citations: &[Citation]) -> String {
    let mut text = String::new();
    let (cited, uncited): (Vec<&Row>, Vec<&Row>) = rows
        .iter()
        .partition(|row| !tests_of(row, citations).is_empty());
    let mut add = |line: std::fmt::Arguments<'_>| {
        // Writing to a string cannot fail.
        let _ = text.write_fmt(line);
    };
    add(format_args!(
        "contract: {} of {} rows are cited by tests\n",
        cited.len(),
        rows.len()
    ));
    for row in cited {
        let status = if row.delivered { "delivered" } else { "open" };
        let places: Vec<String> = tests_of(row, citations)
            .iter()
            .map(|citation| format!("{}:{}", citation.file, citation.line))
            .collect();
        add(format_args!(
            "  {:<4} {status:<9} {}\n",
            row.id,
            places.join(" ")
        ));
    }
    let names: Vec<&str> = uncited.iter().map(|row| row.id.as_str()).collect();
    add(format_args!("contract: not cited: {}\n", names.join(" ")));
    text
}

/// The citations of a row that stand in tests.
fn tests_of<'a>(row: &Row, citations: &'a [Citation]) -> Vec<&'a Citation> {
    citations
        .iter()
        .filter(|citation| citation.in_test && citation.id == row.id)
        .collect()
}

/// The cells of a line of a table; `\|` is not a border.
fn cells(line: &str) -> Vec<String> {
    let line = line.trim();
    let Some(inner) = line
        .strip_prefix('|')
        .and_then(|rest| rest.strip_suffix('|'))
    else {
        return Vec::new();
    };
    let hidden = inner.replace(r"\|", "\u{1}");
    hidden
        .split('|')
        .map(|cell| cell.trim().replace('\u{1}', "|"))
        .collect()
}

/// Whether a text has the form of a row's id.
fn is_id(text: &str) -> bool {
    let mut chars = text.chars();
    chars.next().is_some_and(|first| first.is_ascii_uppercase())
        && !chars.as_str().is_empty()
        && chars.as_str().chars().all(|rest| rest.is_ascii_digit())
}
