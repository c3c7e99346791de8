//! What code says of rules, for people who write documents.

use super::text::Wrong;

/// Setters and constructors, and what stands for them in a document.
const WORDS: [(&str, &str); 16] = [
    ("Quota::per_calendar_day(..) and its kin", "\"1000/calendar day\" and its kin"),
    ("use Rule::fixed_window, or Quota::per(..)", "use algorithm = \"fixed_window\", or a window such as \"1000/day\""),
    ("use Rule::leaky_bucket, or drop .queue(..)", "use algorithm = \"leaky_bucket\", or drop queue"),
    (
        "drop .offset(..) or .from_first_request(), or say .utc_offset_minutes(..)",
        "drop offset and from_first_request, or give utc_offset",
    ),
    ("drop .burst(..)", "drop burst"),
    ("drop .lease(..)", "drop lease"),
    ("drop .queue(..)", "drop queue"),
    ("drop .utc_offset_minutes(..)", "drop utc_offset"),
    ("drop .max_new_keys(..), or .ban(..) and .fair_share(..)", "drop max_new_keys, or ban and fair_share"),
    ("drop .count_if(..), .settle_by(..) and .penalize_by(..)", "drop count_responses"),
    ("drop .count_if(..) and .settle_by(..)", "drop count_responses"),
    ("drop it, or say .when(..) for requests that take none", "drop it"),
    (", or a closure that returns 0 for requests that are free", ", or the name of a cost that code registers"),
    ("or use TrustedProxies::hops(..)", "or give hops instead"),
    ("; give TrustedProxies::cidrs(..)", "; give trust instead of hops"),
    ("give hops(..) the number of proxies", "give the number of proxies"),
];

/// Algorithms as code calls them, where an error begins with one.
const ALGORITHMS: [(&str, &str); 7] = [
    ("fixed window", "fixed_window"),
    ("sliding log", "sliding_log"),
    ("sliding counter", "sliding_counter"),
    ("token bucket", "token_bucket"),
    ("GCRA", "gcra"),
    ("leaky bucket", "leaky_bucket"),
    ("concurrency limit", "concurrency rule"),
];

/// The same in the words of documents: what is wrong before the semicolon, what would be right behind it.
pub(super) fn split(text: &str) -> Wrong {
    let text = text.strip_prefix("trusted proxies: ").unwrap_or(text);
    let mut text = WORDS.iter().fold(text.to_owned(), |text, (code, document)| text.replace(code, document));
    for (code, document) in ALGORITHMS {
        if let Some(rest) = text.strip_prefix("a ").and_then(|text| text.strip_prefix(code)) {
            text = format!("a {document}{rest}");
        }
    }
    if text.starts_with("only fixed windows have") {
        return Wrong::new("only a fixed_window has it", "drop it, or use algorithm = \"fixed_window\"");
    }
    match text.split_once("; ") {
        Some((message, help)) => Wrong::new(message, help),
        None => Wrong::new(text, ""),
    }
}
