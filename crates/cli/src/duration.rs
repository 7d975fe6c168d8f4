//! Lengths of time as a person types them: `250ms`, `1.5s`, `2m`, `10` (seconds).

use std::time::Duration;

/// The longest span that is accepted: 365 days. It keeps every deadline representable.
const LONGEST_SECONDS: f64 = 365.0 * 86_400.0;

/// Reads a length of time that is above zero.
///
/// # Errors
/// A sentence that names what was typed and why it is not accepted.
pub fn parse(text: &str) -> Result<Duration, String> {
    let digits = text
        .find(|c: char| !(c.is_ascii_digit() || c == '.'))
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let scale = match unit.trim_start() {
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3_600.0,
        _ => {
            return Err(format!(
                "`{text}` is not a duration such as 250ms, 10s or 2m"
            ));
        }
    };
    let number: f64 = number
        .parse()
        .map_err(|_| format!("`{text}` is not a duration such as 250ms, 10s or 2m"))?;
    let seconds = number * scale;
    if seconds > LONGEST_SECONDS {
        return Err(format!("`{text}` is longer than 365 days"));
    }
    let span = Duration::from_secs_f64(seconds);
    if span < Duration::from_micros(1) {
        return Err(format!("`{text}` is shorter than a microsecond"));
    }
    Ok(span)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_units() {
        let table = [
            ("10", 10_000_000),
            ("10s", 10_000_000),
            ("250ms", 250_000),
            ("1.5s", 1_500_000),
            ("2m", 120_000_000),
            ("1 h", 3_600_000_000),
            ("7us", 7),
        ];
        for (text, micros) in table {
            assert_eq!(parse(text), Ok(Duration::from_micros(micros)), "{text}");
        }
    }

    #[test]
    fn refuses_what_is_not_a_span() {
        for text in [
            "", "0", "0s", "-1s", "s", "1.2.3s", "1d", "1e3", "nan", "inf", "999999h", ".",
        ] {
            let refused = parse(text).expect_err(text);
            assert!(refused.contains(text), "{text}: {refused}");
        }
    }
}
