//! Times as the presets write them. All are rounded up, so that nobody comes early.

use std::time::Duration;

use super::text::Text;

/// 9999-12-31T23:59:59Z, the last second that RFC 3339 can say.
const LAST_SECOND: u64 = 253_402_300_799;
const DAY: u64 = 86_400;

#[inline]
pub(super) fn ceil_seconds(duration: Duration) -> u64 {
    duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0))
}

pub(super) fn ceil_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// `1470173023.123`.
pub(super) fn decimal(duration: Duration, text: &mut Text) {
    let millis = ceil_millis(duration);
    text.number(millis / 1_000);
    text.text(".");
    text.digits(millis % 1_000, 3);
}

/// As Go writes durations: `12ms`, `1.5s`, `6m0s`, `1h2m3s`.
pub(super) fn go_duration(duration: Duration, text: &mut Text) {
    let millis = ceil_millis(duration);
    if (1..1_000).contains(&millis) {
        text.number(millis);
        return text.text("ms");
    }
    let (seconds, fraction) = (millis / 1_000, millis % 1_000);
    if seconds >= 3_600 {
        text.number(seconds / 3_600);
        text.text("h");
    }
    if seconds >= 60 {
        text.number(seconds / 60 % 60);
        text.text("m");
    }
    text.number(seconds % 60);
    if fraction > 0 {
        text.text(".");
        match (fraction % 10, fraction % 100) {
            (_, 0) => text.digits(fraction / 100, 1),
            (0, _) => text.digits(fraction / 10, 2),
            _ => text.digits(fraction, 3),
        }
    }
    text.text("s");
}

/// `2025-08-21T12:40:59Z`.
pub(super) fn rfc3339(since_epoch: Duration, text: &mut Text) {
    let seconds = ceil_seconds(since_epoch).min(LAST_SECOND);
    let (year, month, day) = date(seconds / DAY);
    text.digits(year, 4);
    text.text("-");
    text.digits(month, 2);
    text.text("-");
    text.digits(day, 2);
    let time = seconds % DAY;
    for (mark, number) in [("T", time / 3_600), (":", time / 60 % 60), (":", time % 60)] {
        text.text(mark);
        text.digits(number, 2);
    }
    text.text("Z");
}

/// The day of the Gregorian calendar, so many days after 1970-01-01.
fn date(days: u64) -> (u64, u64, u64) {
    // Counted in years that begin in March, so that a leap day is the last day of its year.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let year = era * 400 + year;
    if month < 10 { (year, month + 3, day) } else { (year + 1, month - 9, day) }
}
