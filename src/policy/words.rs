//! What code says of rules, for people who write documents.

use super::text::Wrong;

/// Setters and constructors, and what stands for them in a document.
const WORDS: [(&str, &str); 24] = [
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
    ("drop it, or say .when(..) for requests that take none", "drop it"),
    (", or a closure that returns 0 for requests that are free", ", or the name of a cost that code registers"),
    ("or use TrustedProxies::hops(..)", "or give hops instead"),
    ("; give TrustedProxies::cidrs(..)", "; give trust instead of hops"),
    ("give hops(..) the number of proxies", "give the number of proxies"),
    ("give or_refuse(..) a status", "give a status"),
    ("utc_offset_minutes", "utc_offset"),
    ("a fixed window ", "a fixed_window "),
    ("a sliding log ", "a sliding_log "),
    ("a sliding counter ", "a sliding_counter "),
    ("a token bucket ", "a token_bucket "),
    ("a GCRA ", "a gcra "),
    ("a leaky bucket ", "a leaky_bucket "),
    (
        "use .allow(..) and .deny(..), which are about the key of any rule",
        "put the key into keys, which are of any rule",
    ),
    ("give 0 to 100 percent", "give 0 to 100 percent"),
];

/// The same in the words of documents: what is wrong before the semicolon, what would be right behind it.
pub(super) fn split(text: &str) -> Wrong {
    let text = WORDS.iter().fold(text.to_owned(), |text, (code, document)| text.replace(code, document));
    match text.split_once("; ") {
        Some((message, help)) => Wrong::new(message, help),
        None => Wrong::new(text, ""),
    }
}
