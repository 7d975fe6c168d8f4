//! What a step has at hand: a place to speak, progress bars, figures for the table, and ways to check.
//!
//! Owns: the output of the tour. An output that is gone is no failure of what is shown.

use std::error::Error;
use std::fmt::{self, Debug, Display};
use std::io::Write;

use indicatif::{ProgressBar, ProgressStyle};

use super::Figures;

/// The widest line that is said.
const COLUMNS: usize = 92;

/// How much a step does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// Enough to see that each step works.
    Tiny,
    /// The numbers that are worth showing.
    Full,
}

/// Why a step has failed.
#[derive(Clone)]
pub struct Failure(String);

/// How a step ends.
pub type Check = Result<(), Failure>;

impl Failure {
    /// A failure in words.
    pub fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<E: Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

/// Fails unless the condition holds.
pub(super) fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Check {
    if holds {
        Ok(())
    } else {
        Err(Failure(otherwise()))
    }
}

/// Fails unless what was seen is what had to be seen.
pub(super) fn same<A: PartialEq<B> + Debug, B: Debug>(what: &str, seen: A, wanted: B) -> Check {
    ensure(seen == wanted, || {
        format!("{what}: {seen:?} instead of {wanted:?}")
    })
}

/// Where a step stands.
pub struct Stage<'a> {
    out: &'a mut dyn Write,
    size: Size,
    colours: bool,
    bars: bool,
    /// What the steps have measured.
    pub figures: Figures,
}

impl<'a> Stage<'a> {
    /// A stage without colours and bars.
    pub fn new(out: &'a mut dyn Write, size: Size) -> Self {
        Self {
            out,
            size,
            colours: false,
            bars: false,
            figures: Figures::default(),
        }
    }

    /// Whether the output understands colours.
    pub fn colours(&mut self, wanted: bool) {
        self.colours = wanted;
    }

    /// Whether someone looks at progress bars.
    pub fn bars(&mut self, wanted: bool) {
        self.bars = wanted;
    }

    /// One of two numbers, by the size of the tour.
    #[must_use]
    pub fn choose<T>(&self, tiny: T, full: T) -> T {
        match self.size {
            Size::Tiny => tiny,
            Size::Full => full,
        }
    }

    /// Says something, indented below the step's title and wrapped.
    pub fn say(&mut self, text: impl Display) {
        for line in wrap(&text.to_string()) {
            self.line(&format!("    {line}"));
        }
    }

    /// The title of a step, and what it shows.
    pub(super) fn title(&mut self, number: usize, name: &str, shows: &str) {
        let title = format!("{number:2}. {name}");
        let title = self.coloured("1", &title);
        self.line("");
        self.line(&title);
        self.say(shows);
    }

    /// How a step has ended.
    pub(super) fn verdict(&mut self, failure: Option<&Failure>, seconds: f64) {
        let took = if seconds < 1.0 {
            format!("{:.1} ms", seconds * 1e3)
        } else {
            format!("{seconds:.2} s")
        };
        match failure {
            None => {
                let ok = self.coloured("32", "ok");
                self.line(&format!("    {ok} in {took}"));
            }
            Some(failure) => {
                let failed = self.coloured("1;31", "FAILED");
                self.line(&format!("    {failed} after {took}: {failure}"));
            }
        }
    }

    /// A line as it is.
    pub(super) fn line(&mut self, line: &str) {
        // An output that is gone is no failure of what is shown.
        let _gone = writeln!(self.out, "{line}").and_then(|()| self.out.flush());
    }

    /// A bar for something that takes a while; invisible where nobody looks.
    pub(super) fn bar(&self, length: u64, what: &'static str) -> ProgressBar {
        if !self.bars {
            return ProgressBar::hidden();
        }
        let bar = ProgressBar::new(length).with_message(what);
        match ProgressStyle::with_template("    {bar:40} {percent}% {msg}") {
            Ok(style) => bar.with_style(style),
            Err(_) => bar,
        }
    }

    fn coloured(&self, code: &str, text: &str) -> String {
        if self.colours {
            format!("\u{1b}[{code}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }
}

impl Debug for Stage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stage")
            .field("size", &self.size)
            .field("figures", &self.figures)
            .finish_non_exhaustive()
    }
}

/// Breaks a text at spaces, and where it has line breaks of its own.
fn wrap(text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for paragraph in text.lines() {
        if paragraph.starts_with(' ') || paragraph.chars().count() <= COLUMNS {
            lines.push(paragraph.to_owned());
            continue;
        }
        let mut line = String::new();
        for word in paragraph.split_whitespace() {
            if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > COLUMNS {
                lines.push(std::mem::take(&mut line));
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        lines.push(line);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_wrapped_and_indented_ones_kept() {
        let text = format!("{}\n  kept  as it is", "word ".repeat(30));
        let lines = wrap(&text);
        assert_eq!(lines.len(), 3);
        assert!(lines.iter().all(|line| line.chars().count() <= COLUMNS));
        assert_eq!(lines[2], "  kept  as it is");
    }
}
