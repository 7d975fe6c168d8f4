//! The project's own rules, checked over the text of the repository.
//!
//! Owns the order in which things are read and printed. `contract` knows the rows and who cites
//! them, `rule` what a source file must look like, `part` which parts know each other, `source` how to tell code from comments.
//!
//! - I1: every rule is a function of texts to breaches, so that each has a test in which it fails.
//! - I2: a breach names the file, the line where there is one, and what to do.

mod contract;
mod part;
mod rule;
mod source;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

use crate::runner::{files, root};

/// A place where a rule is broken.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Breach {
    /// The file, relative to the root.
    file: String,
    /// The line, counted from 1; 0 when it concerns the whole file.
    line: usize,
    /// What is wrong and what to do.
    text: String,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.file, self.text),
            line => write!(f, "{}:{line}: {}", self.file, self.text),
        }
    }
}

/// The texts that the rules are about.
#[derive(Debug, Default)]
struct Texts {
    /// Source files by path.
    sources: BTreeMap<String, String>,
    /// docs/CONTRACT.md.
    contract: String,
    /// docs/UNSAFE.md.
    assumptions: String,
}

/// Checks the repository, prints what was found, and returns how many breaches there are.
///
/// # Errors
///
/// What could not be read, and why.
pub(crate) fn run() -> Result<usize, String> {
    let texts = read()?;
    let (report, breaches) = check(&texts);
    print!("{report}");
    for breach in &breaches {
        println!("tidy: {breach}");
    }
    println!(
        "tidy: {} source files, {} breaches",
        texts.sources.len(),
        breaches.len()
    );
    Ok(breaches.len())
}

/// Reads what the rules are about.
fn read() -> Result<Texts, String> {
    let mut texts = Texts::default();
    for path in files(&["*.rs"])? {
        let text = read_file(&path)?;
        texts.sources.insert(path, text);
    }
    // One that is missing is as good as empty: the rules then say what it should have.
    texts.contract = read_file(contract::FILE).unwrap_or_default();
    texts.assumptions = read_file(rule::ASSUMPTIONS_FILE).unwrap_or_default();
    Ok(texts)
}

/// Reads one file of the repository.
fn read_file(path: &str) -> Result<String, String> {
    std::fs::read_to_string(root().join(path)).map_err(|error| format!("{path}: {error}"))
}

/// Applies every rule. Returns the report on the contract, and the breaches in order.
fn check(texts: &Texts) -> (String, Vec<Breach>) {
    let mut breaches = Vec::new();
    let rows = contract::rows(&texts.contract, &mut breaches);
    let citations = texts
        .sources
        .iter()
        .flat_map(|(path, text)| contract::citations(path, text))
        .collect::<Vec<_>>();
    contract::check(&rows, &citations, &mut breaches);
    for (path, text) in &texts.sources {
        rule::check(path, text, &mut breaches);
    }
    part::check(&texts.sources, &mut breaches);
    rule::check_unsafe_list(&texts.sources, &texts.assumptions, &mut breaches);
    breaches.sort();
    (contract::report(&rows, &citations), breaches)
}
