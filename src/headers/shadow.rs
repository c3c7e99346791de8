//! What shadow rules would have refused.

use http::HeaderValue;

use super::{moments::ceil_seconds, text::value};
use crate::decision::{Decision, Standing};

/// `"per-user";r=0;t=12, "per-ip";r=3`: what remains, and seconds until the request would fit, if it ever would. `None`: nothing
/// would have been refused.
pub(super) fn would_refuse(decision: &Decision) -> Option<HeaderValue> {
    let rules = decision.rules();
    value(|text| {
        for standing in decision.standings().filter(Standing::would_refuse) {
            let Some(policy) = rules.told(standing.index(), standing.kept() == 0) else { continue };
            if !text.is_empty() {
                text.text(", ");
            }
            text.text(&policy.remaining);
            text.number(standing.remaining());
            if let Some(wait) = standing.retry_after() {
                text.text(";t=");
                text.number(ceil_seconds(wait));
            }
        }
    })
    .filter(|value| !value.is_empty())
}
