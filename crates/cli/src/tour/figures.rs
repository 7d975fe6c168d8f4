//! The table of figures at the end of the tour.

use sinew::inspect::Stats;

use crate::load::Report;

/// What the steps have measured.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Figures {
    /// The most coroutines that were seen alive at a time.
    pub alive_max: usize,
    /// The most address space reserved for stacks.
    pub stack_reserved_bytes: usize,
    /// The most memory that stacks were seen to have.
    pub stack_committed_bytes: usize,
    /// The deepest use of a stack that was seen.
    pub stack_high_water_bytes: usize,
    /// How many stacks were in use then.
    pub stacks_max: usize,
    /// What the load generator has reported.
    pub load: Option<Report>,
}

impl Figures {
    /// Looks at the process now; the largest figures are kept.
    pub(super) fn look(&mut self) -> Stats {
        let stats = sinew::inspect::stats();
        let Self {
            alive_max,
            stack_reserved_bytes,
            stack_committed_bytes,
            stack_high_water_bytes,
            stacks_max,
            load: _,
        } = self;
        *alive_max = (*alive_max).max(stats.total.alive);
        *stacks_max = (*stacks_max).max(stats.stacks_in_use);
        *stack_reserved_bytes = (*stack_reserved_bytes).max(stats.stack_reserved_bytes);
        *stack_committed_bytes = (*stack_committed_bytes).max(stats.stack_committed_bytes());
        sinew::inspect::for_each(|info| {
            let deepest = info.stack_high_water_bytes().unwrap_or(0);
            *stack_high_water_bytes = (*stack_high_water_bytes).max(deepest);
        });
        stats
    }

    /// The table, line by line.
    pub(super) fn table(&self) -> Vec<String> {
        let total = sinew::inspect::stats().total;
        let mut rows = vec![
            ("coroutines created", grouped(total.created)),
            (
                "coroutines alive at once, at most",
                grouped(self.alive_max as u64),
            ),
            ("coroutines alive now", grouped(total.alive as u64)),
            ("switches between coroutines", grouped(total.switches)),
            (
                "stacks in use at once, at most",
                grouped(self.stacks_max as u64),
            ),
            (
                "stacks: address space reserved",
                bytes(self.stack_reserved_bytes),
            ),
            (
                "stacks: memory committed, at most",
                bytes(self.stack_committed_bytes),
            ),
            (
                "stacks: high-water mark of the deepest",
                bytes(self.stack_high_water_bytes),
            ),
        ];
        if let Some(load) = &self.load {
            rows.push((
                "HTTP requests per second",
                grouped(load.requests_per_second as u64),
            ));
            rows.push(("HTTP requests, all checked", grouped(load.succeeded)));
            if let Some(latency) = &load.latency_us {
                for (name, micros) in [
                    ("latency p50", latency.p50),
                    ("latency p90", latency.p90),
                    ("latency p99", latency.p99),
                    ("latency p99.9", latency.p999),
                    ("latency max", latency.max),
                ] {
                    rows.push((name, format!("{micros:.0} µs")));
                }
            }
        }
        let width = |text: &str| text.chars().count();
        let left = rows.iter().map(|(name, _)| width(name)).max().unwrap_or(0);
        let right = rows
            .iter()
            .map(|(_, value)| width(value))
            .max()
            .unwrap_or(0);
        let rule = "-".repeat(left + right + 2);
        let mut lines = vec!["Figures of this process".to_owned(), rule.clone()];
        lines.extend(
            rows.iter()
                .map(|(name, value)| format!("{name:left$}  {value:>right$}")),
        );
        lines.push(rule);
        lines
    }
}

/// A number with its thousands set apart.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3 + 1);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// An amount of memory in the unit that suits.
pub(super) fn bytes(number: usize) -> String {
    indicatif::BinaryBytes(number as u64).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_set_apart() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (1_234_567, "1,234,567"),
        ] {
            assert_eq!(grouped(number), text);
        }
    }

    #[test]
    fn the_table_is_aligned_and_complete() {
        let lines = Figures::default().table();
        let width = lines[1].len();
        assert!(lines[2..].iter().all(|line| line.chars().count() == width));
        for name in [
            "created",
            "alive",
            "switches",
            "reserved",
            "committed",
            "high-water",
        ] {
            assert!(lines.iter().any(|line| line.contains(name)), "{name}");
        }
    }
}
