use std::{fmt::Write, time::Duration};

use super::{RuleUsage, Usage};
use crate::headers::push_escaped;

/// `{"rules":[{"rule":"per-user",..}]}`.
pub(super) fn text(usage: &Usage) -> String {
    let mut text = String::from(r#"{"rules":["#);
    for (place, rule) in usage.rules().enumerate() {
        if place > 0 {
            text.push(',');
        }
        push(&mut text, &rule);
    }
    text.push_str("]}");
    text
}

fn push(text: &mut String, rule: &RuleUsage<'_>) {
    text.push_str(r#"{"rule":""#);
    push_escaped(text, rule.rule());
    // Writing into a string does not fail.
    let _ = write!(text, r#"","quota":"{}""#, rule.limit());
    let limited = !rule.is_unlimited();
    push_number(text, "limit", limited.then(|| rule.capacity()));
    // The time in which the limit is earned back. Places are not, and a month has no one length.
    let window = rule.limit().period(rule.capacity()).filter(|_| limited && rule.limit().lease().is_none());
    push_seconds(text, "window", window);
    push_number(text, "used", rule.used());
    push_number(text, "remaining", rule.remaining());
    push_seconds(text, "reset_after", Some(rule.reset_after()));
    let _ = write!(text, r#","refused":{}"#, rule.is_refused());
    push_seconds(text, "retry_after", rule.retry_after());
    text.push('}');
}

fn push_number(text: &mut String, name: &str, number: Option<u64>) {
    let _ = match number {
        Some(number) => write!(text, r#","{name}":{number}"#),
        None => write!(text, r#","{name}":null"#),
    };
}

/// To the microsecond, without zeros at the end.
fn push_seconds(text: &mut String, name: &str, time: Option<Duration>) {
    let Some(time) = time else { return push_number(text, name, None) };
    push_number(text, name, Some(time.as_secs()));
    if time.subsec_micros() > 0 {
        let _ = write!(text, ".{:06}", time.subsec_micros());
        text.truncate(text.trim_end_matches('0').len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_exact() {
        for (micros, expected) in
            [(0, "0"), (10_000_000, "10"), (1_500_000, "1.5"), (1, "0.000001"), (100_000_010, "100.00001")]
        {
            let mut text = String::new();
            push_seconds(&mut text, "t", Some(Duration::from_micros(micros)));
            assert_eq!(text, format!(r#","t":{expected}"#));
        }
        let mut text = String::new();
        push_seconds(&mut text, "t", None);
        assert_eq!(text, r#","t":null"#);
    }
}
