use std::time::Duration;

use super::{
    Wrong,
    duration::{number, unit},
    write_utc_offset,
};
use crate::{Algorithm, Quota, limit::micros};

const HELP: &str = "write \"100/min\", \"5/10s\", \"1000/calendar day\" or \"unlimited\"";

/// `100/min`, `100 per minute`, `5/10s`, `1000/calendar month`, `unlimited`.
pub(in crate::policy) fn quota(text: &str) -> Result<Quota, Wrong> {
    let wrong = |message: String| Wrong::new(message, HELP);
    let trimmed = text.trim();
    if trimmed.eq_ignore_ascii_case("unlimited") {
        return Ok(Quota::unlimited());
    }
    let no_quota = || wrong(format!("{text:?} is no quota"));
    let (amount, rest) = number(trimmed).ok_or_else(no_quota)?;
    let amount = amount.map_err(|()| wrong(format!("the amount of {text:?} is too large")))?;
    let rest = rest.trim_start();
    let per = rest.get(..3).filter(|word| word.eq_ignore_ascii_case("per")).map(str::len);
    let period = match rest.strip_prefix('/') {
        Some(period) => period,
        None => per.and_then(|length| rest.get(length..)).filter(|rest| rest.starts_with(' ')).ok_or_else(no_quota)?,
    };
    quota_per(amount, period.trim(), text).map_err(|wrong| {
        if period.to_ascii_lowercase().contains("burst") {
            return Wrong::new(format!("{text:?} names a burst"), "give it beside the quota, as burst = 20");
        }
        wrong
    })
}

/// The quota of an amount in this period, both from `text`.
fn quota_per(amount: u64, period: &str, text: &str) -> Result<Quota, Wrong> {
    let wrong = |message: String| Wrong::new(message, HELP);
    let calendar = period.get(..8).filter(|word| word.eq_ignore_ascii_case("calendar")).and_then(|_| period.get(8..));
    if let Some(name) = calendar {
        return match name.trim().to_ascii_lowercase().as_str() {
            "hour" => Ok(Quota::per_calendar_hour(amount)),
            "day" => Ok(Quota::per_calendar_day(amount)),
            "month" => Ok(Quota::per_calendar_month(amount)),
            other => {
                let help = "the calendar's windows are \"calendar hour\", \"calendar day\" and \"calendar month\"";
                Err(Wrong::new(format!("the calendar has no {other:?}"), help))
            }
        };
    }
    let (count, name) = match number(period) {
        Some((Ok(count), name)) => (count, name.trim_start()),
        Some((Err(()), _)) => return Err(wrong(format!("the window of {text:?} is too long"))),
        None => (1, period),
    };
    if name.is_empty() {
        return Err(wrong(format!("{text:?} does not say in how long")));
    }
    let unit = unit(name).ok_or_else(|| {
        if matches!(name.to_ascii_lowercase().as_str(), "mo" | "month" | "months" | "y" | "year" | "years") {
            let help = "write \"1000/calendar month\" for months of the calendar, or days, as \"1000/30d\"";
            return Wrong::new(format!("{name:?} has no one length"), help);
        }
        let help = "the units are ms, s, min, h, d, w, and calendar hour, calendar day, calendar month";
        Wrong::new(format!("{name:?} is no unit of time"), help)
    })?;
    let window = u32::try_from(count).ok().and_then(|count| unit.checked_mul(count));
    Ok(Quota::per(amount, window.ok_or_else(|| wrong(format!("the window of {text:?} is too long")))?))
}

/// The text of a quota, without its burst and offset.
pub(in crate::policy) fn write_quota(quota: Quota) -> String {
    if quota.is_unlimited() {
        return "unlimited".into();
    }
    let amount = quota.amount();
    if quota.is_calendar() {
        return match quota.window() {
            window if window <= Duration::from_secs(3_600) => format!("{amount}/calendar hour"),
            window if window <= Duration::from_secs(86_400) => format!("{amount}/calendar day"),
            _ => format!("{amount}/calendar month"),
        };
    }
    let window = micros(quota.window());
    let units = [(86_400_000_000, "d"), (3_600_000_000, "h"), (60_000_000, "min"), (1_000_000, "s"), (1_000, "ms")];
    let whole = units.iter().find(|(length, _)| window > 0 && window.is_multiple_of(*length)).copied();
    let (length, name) = whole.unwrap_or((1, "us"));
    match window / length {
        1 => format!("{amount}/{name}"),
        count => format!("{amount}/{count}{name}"),
    }
}

/// The text of a quota with all that belongs to it, for people.
pub(in crate::policy) fn write_whole_quota(algorithm: Algorithm, quota: Quota) -> String {
    if algorithm == Algorithm::Concurrency && !quota.is_unlimited() {
        return format!("{} at a time", quota.amount());
    }
    let mut text = write_quota(quota);
    if let Some(burst) = quota.given_burst() {
        text.push_str(&format!(", burst {burst}"));
    }
    if let Some(minutes) = quota.given_utc_offset() {
        text.push_str(&format!(", UTC{}", write_utc_offset(minutes)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_are_read() {
        let millis = |amount, millis| Quota::per(amount, Duration::from_millis(millis));
        for (text, expected) in [
            ("100/min", Quota::per_minute(100)),
            ("100 per minute", Quota::per_minute(100)),
            ("100 PER Minute", Quota::per_minute(100)),
            (" 100 / m ", Quota::per_minute(100)),
            ("10_000/s", Quota::per_second(10_000)),
            ("5/10s", millis(5, 10_000)),
            ("5 per 10 seconds", millis(5, 10_000)),
            ("3/500ms", millis(3, 500)),
            ("1000/day", Quota::per_day(1_000)),
            ("7/h", Quota::per_hour(7)),
            ("7/2w", millis(7, 14 * 86_400_000)),
            ("1000000/calendar month", Quota::per_calendar_month(1_000_000)),
            ("1000 per Calendar Day", Quota::per_calendar_day(1_000)),
            ("9/calendar hour", Quota::per_calendar_hour(9)),
            ("Unlimited", Quota::unlimited()),
            // Whether it can be kept is another question.
            ("0/s", Quota::per_second(0)),
        ] {
            assert_eq!(quota(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_quota_is_told() {
        for (text, message) in [
            ("", "\"\" is no quota"),
            ("many", "\"many\" is no quota"),
            ("100", "\"100\" is no quota"),
            ("100min", "\"100min\" is no quota"),
            ("100 permin", "\"100 permin\" is no quota"),
            ("-1/s", "\"-1/s\" is no quota"),
            ("1.5/s", "\"1.5/s\" is no quota"),
            ("100/", "\"100/\" does not say in how long"),
            ("100/5", "\"100/5\" does not say in how long"),
            ("100/fortnight", "\"fortnight\" is no unit of time"),
            ("100/month", "\"month\" has no one length"),
            ("100/calendar week", "the calendar has no \"week\""),
            ("100/min, burst 5", "\"100/min, burst 5\" names a burst"),
            ("99999999999999999999/s", "the amount of \"99999999999999999999/s\" is too large"),
            ("1/99999999999s", "the window of \"1/99999999999s\" is too long"),
            ("é/é", "\"é/é\" is no quota"),
            ("1é", "\"1é\" is no quota"),
        ] {
            assert_eq!(quota(text).map_err(|wrong| wrong.message), Err(message.into()), "{text}");
        }
    }

    #[test]
    fn written_quotas_are_read_again() {
        for text in [
            "100/min",
            "5/10s",
            "3/500ms",
            "1/1500us",
            "9/d",
            "9/2h",
            "9/calendar month",
            "9/calendar day",
            "9/calendar hour",
            "unlimited",
        ] {
            assert_eq!(write_quota(quota(text).expect("a quota")), text);
        }
    }
}
