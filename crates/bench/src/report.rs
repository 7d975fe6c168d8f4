//! A report as text for a terminal, and as the Markdown page that is published.

use std::fmt::{self, Display, Write};

use crate::figure::{Comparison, Figure, Outcome, Row, Verdict};
use crate::run::Report;

impl Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let machine = &self.machine;
        writeln!(
            f,
            "{}, {} CPUs, {:.0} GiB, {}, load {:.2}",
            machine.processor,
            machine.cpus,
            machine.memory_gib,
            machine.kernel,
            machine.load_average
        )?;
        writeln!(f, "{}", self.method())?;
        for outcome in &self.outcomes {
            writeln!(f)?;
            write_outcome(f, outcome)?;
        }
        for caveat in self.caveats() {
            writeln!(f, "\n{caveat}")?;
        }
        Ok(())
    }
}

fn write_outcome(f: &mut fmt::Formatter<'_>, outcome: &Outcome) -> fmt::Result {
    writeln!(f, "{}: {}", outcome.workload, outcome.operation)?;
    if let Some(reason) = &outcome.skipped {
        writeln!(f, "  skipped: {reason}")?;
    }
    let width = outcome.rows.iter().map(|row| row.side.len()).max();
    let width = width.unwrap_or(0);
    for row in &outcome.rows {
        match &row.figure {
            Ok(figure) => write!(
                f,
                "  {:width$}  {:>9} {:3}  {:>20}",
                row.side,
                number(figure.median),
                row.unit,
                spread(figure)
            )?,
            Err(error) => write!(f, "  {:width$}  {error}", row.side)?,
        }
        for comparison in &row.comparisons {
            write!(f, "   {}", comparison.text(row.unit))?;
        }
        writeln!(f)?;
    }
    Ok(())
}

impl Report {
    fn method(&self) -> String {
        if self.quick {
            return "quick: tiny sizes, which show that everything works and measure nothing"
                .into();
        }
        let times = match self.runs {
            1 => "one run".into(),
            runs => format!("the median of {runs} runs, the sides in turn"),
        };
        format!(
            "Each figure is {times}, each run in a process of its own on one CPU; in brackets the least and the most."
        )
    }

    /// What a reader should know before believing a figure.
    fn caveats(&self) -> Vec<&'static str> {
        let mut caveats = Vec::new();
        if !self.optimised {
            caveats.push("This build is not optimised: its figures mean nothing. Use --release.");
        }
        if !self.all_peers {
            caveats.push("Most peers are not in this build; --features peers adds them.");
        }
        if self.machine.load_average > 0.5 && !self.quick {
            caveats.push("The machine was busy when the run began.");
        }
        if self.machine.cpus < 2 {
            caveats.push("With one CPU, the clients of servers run on the server's.");
        }
        caveats
    }

    /// The page that is published.
    #[must_use]
    pub fn markdown(&self, command: &str) -> String {
        let mut page = String::new();
        // Writing into a string does not fail.
        let _written = self.write_markdown(&mut page, command);
        page
    }

    fn write_markdown(&self, page: &mut String, command: &str) -> fmt::Result {
        let machine = &self.machine;
        writeln!(page, "# Benchmarks\n")?;
        writeln!(
            page,
            "Written by the command below, not by hand. Times on another machine differ; ratios differ less.\n"
        )?;
        writeln!(page, "    {command}\n")?;
        writeln!(page, "| | |\n|---|---|")?;
        writeln!(page, "| processor | {} |", machine.processor)?;
        writeln!(page, "| CPUs | {} |", machine.cpus)?;
        writeln!(page, "| memory | {:.0} GiB |", machine.memory_gib)?;
        writeln!(page, "| kernel | {} |", machine.kernel)?;
        writeln!(page, "| compiler | {} |", machine.rustc)?;
        writeln!(page, "| date | {} |", machine.date)?;
        writeln!(page, "| load average | {:.2} |\n", machine.load_average)?;
        writeln!(page, "{}", self.method())?;
        for caveat in self.caveats() {
            writeln!(page, "**{caveat}**")?;
        }
        writeln!(
            page,
            "\n| work | side | median | min..max | compared | budget | |"
        )?;
        writeln!(page, "|---|---|--:|--:|---|---|---|")?;
        for outcome in &self.outcomes {
            if let Some(reason) = &outcome.skipped {
                writeln!(
                    page,
                    "| {} | skipped: {reason} | | | | | |",
                    outcome.workload
                )?;
            }
            for row in &outcome.rows {
                writeln!(page, "{}", markdown_row(outcome.workload, row))?;
            }
        }
        writeln!(page, "\n## What one operation is\n")?;
        for outcome in &self.outcomes {
            writeln!(page, "- `{}`: {}", outcome.workload, outcome.operation)?;
        }
        Ok(())
    }
}

fn markdown_row(workload: &str, row: &Row) -> String {
    let side = if row.own {
        format!("**{}**", row.side)
    } else {
        row.side.to_owned()
    };
    let figure = match &row.figure {
        Ok(figure) => figure,
        Err(error) => return format!("| {workload} | {side} | {error} | | | | |"),
    };
    let column = |text: fn(&Comparison, &str) -> String| {
        let texts = row.comparisons.iter().map(|one| text(one, row.unit));
        texts.filter(|text| !text.is_empty()).collect::<Vec<_>>()
    };
    format!(
        "| {workload} | {side} | {} {} | {} | {} | {} | {} |",
        number(figure.median),
        row.unit,
        spread(figure),
        column(Comparison::value_text).join("<br>"),
        column(Comparison::limit_text).join("<br>"),
        column(|one, _| one.verdict_text().to_owned()).join("<br>"),
    )
}

impl Comparison {
    fn text(&self, unit: &str) -> String {
        let value = self.value_text(unit);
        let limit = self.limit_text(unit);
        match (value.is_empty(), limit.is_empty()) {
            (_, true) => value,
            (true, false) => format!("budget {limit}: {}", self.verdict_text()),
            (false, false) => format!("{value}, budget {limit}: {}", self.verdict_text()),
        }
    }

    fn value_text(&self, _unit: &str) -> String {
        match &self.to {
            Some(side) => format!("{:.2} × {side}", self.value),
            None => String::new(),
        }
    }

    fn limit_text(&self, unit: &str) -> String {
        // Two decimals at most: a limit may be one over something.
        let limit = self.limit.map(|limit| (limit * 100.0).round() / 100.0);
        match (limit, &self.to) {
            (Some(limit), Some(_)) => format!("≤ {limit} ×"),
            (Some(limit), None) => format!("≤ {limit} {unit}"),
            (None, _) => String::new(),
        }
    }

    fn verdict_text(&self) -> &'static str {
        match self.verdict {
            Some(Verdict::Met) => "met",
            Some(Verdict::Missed) => "missed",
            None => "",
        }
    }
}

fn spread(figure: &Figure) -> String {
    format!("({}..{})", number(figure.min), number(figure.max))
}

/// Three digits or more, and no more decimals than they need.
fn number(value: f64) -> String {
    match value {
        _ if value >= 100.0 => format!("{value:.0}"),
        _ if value >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}
