use std::{borrow::Cow, time::Duration};

use super::Wrong;

const HELP: &str = "write a number and a unit: \"500ms\", \"30s\", \"5m\", \"1h\", \"1d\", or \"1h 30m\"";

const UNITS: [(&[&str], Duration); 7] = [
    (&["s", "sec", "secs", "second", "seconds"], Duration::from_secs(1)),
    (&["m", "min", "mins", "minute", "minutes"], Duration::from_secs(60)),
    (&["h", "hr", "hrs", "hour", "hours"], Duration::from_secs(3_600)),
    (&["d", "day", "days"], Duration::from_secs(86_400)),
    (&["w", "week", "weeks"], Duration::from_secs(7 * 86_400)),
    (&["ms", "msec", "millisecond", "milliseconds"], Duration::from_millis(1)),
    (&["us", "µs", "microsecond", "microseconds"], Duration::from_micros(1)),
];

/// The length of one unit of time.
pub(super) fn unit(name: &str) -> Option<Duration> {
    let is_one = |(names, _): &&(&[&str], Duration)| names.iter().any(|other| other.eq_ignore_ascii_case(name));
    UNITS.iter().find(is_one).map(|(_, length)| *length)
}

/// The number that a text begins with, `_` between its digits, and what comes behind it.
pub(super) fn number(text: &str) -> Option<(Result<u64, ()>, &str)> {
    let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '_').unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    if !digits.starts_with(|first: char| first.is_ascii_digit()) || digits.ends_with('_') || digits.contains("__") {
        return None;
    }
    let digits = if digits.contains('_') { Cow::Owned(digits.replace('_', "")) } else { Cow::Borrowed(digits) };
    Some((digits.parse().map_err(|_| ()), rest))
}

/// `30s`, `1h 30m`.
pub(in crate::policy) fn duration(text: &str) -> Result<Duration, Wrong> {
    let wrong = |message: String| Wrong::new(message, HELP);
    let mut whole = Duration::ZERO;
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(wrong("an empty text is no time".into()));
    }
    while !rest.is_empty() {
        let (count, behind) = number(rest).ok_or_else(|| wrong(format!("{text:?} is no time")))?;
        let behind = behind.trim_start();
        let end = behind.find(|letter: char| !letter.is_alphabetic()).unwrap_or(behind.len());
        let (name, behind) = behind.split_at(end);
        if name.is_empty() {
            return Err(wrong(format!("{text:?} has no unit")));
        }
        let unit = unit(name).ok_or_else(|| wrong(format!("{name:?} is no unit of time")))?;
        let times = count.ok().and_then(|count| u32::try_from(count).ok()).and_then(|count| unit.checked_mul(count));
        let longer = times.and_then(|times| whole.checked_add(times));
        whole = longer.ok_or_else(|| wrong(format!("{text:?} is too long")))?;
        rest = behind.trim_start();
    }
    Ok(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        for (text, millis) in [
            ("500ms", 500),
            ("2 s", 2_000),
            ("1m", 60_000),
            ("1h30m", 5_400_000),
            (" 1h 30 min ", 5_400_000),
            ("1_000 ms", 1_000),
            ("1 Day", 86_400_000),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in [
            "",
            " ",
            "30",
            "s",
            "-1s",
            "1.5s",
            "1 month",
            "1s,",
            "1__0s",
            "_1s",
            "99999999999999999999s",
            "4294967296s",
            "µ",
        ] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
