//! What one field of a single-valued family shows.

use std::{sync::Arc, time::Duration};

use http::HeaderValue;

use super::{
    Snapshot,
    moments::{ceil_seconds, decimal, go_duration, rfc3339},
    text::{number, value},
};
use crate::decision::{Decision, Standing};

pub(super) type Closure = Arc<dyn Fn(&Decision) -> Option<HeaderValue> + Send + Sync>;

#[derive(Clone)]
pub(super) enum Show {
    Limit,
    Remaining,
    Used,
    /// Whole seconds since the Unix epoch.
    Unix,
    UnixMillis,
    /// Whole seconds from now.
    Delta,
    DeltaMillis,
    GoDuration,
    Rfc3339,
    /// Whole seconds from now; on a refusal as many as `Retry-After` has, as drafts 6 and 7 want it.
    SameAsRetryAfter,
    /// `limit=100, remaining=50, reset=5`.
    Draft7,
    /// The rule's name.
    Rule,
    /// An opaque name for the rule.
    Bucket,
    Global,
    Scope,
    Custom(Closure),
}

impl Show {
    /// Whether it is a time of day.
    pub(super) fn tells_time(&self) -> bool {
        matches!(self, Show::Unix | Show::UnixMillis | Show::Rfc3339)
    }

    #[inline]
    pub(super) fn value(&self, snapshot: &Snapshot<'_>, standing: &Standing<'_>) -> Option<HeaderValue> {
        let policy = || snapshot.decision.rules().told(standing.index(), standing.kept() == 0);
        let at = || snapshot.noted.now.saturating_add(reset(standing, snapshot.cap_of(standing)));
        let after = || reset(standing, snapshot.cap_of(standing));
        match self {
            Show::Limit => policy().map(|policy| policy.capacity.clone()),
            Show::Remaining => number(remaining(standing)),
            Show::Used => number(standing.capacity().saturating_sub(remaining(standing))),
            Show::Unix => number(ceil_seconds(at())),
            Show::UnixMillis => value(|text| decimal(at(), text)),
            Show::Delta => number(ceil_seconds(after())),
            Show::DeltaMillis => value(|text| decimal(after(), text)),
            Show::GoDuration => value(|text| go_duration(after(), text)),
            Show::Rfc3339 => value(|text| rfc3339(at(), text)),
            Show::SameAsRetryAfter => number(told(snapshot, standing)),
            Show::Draft7 => value(|text| {
                text.text("limit=");
                text.number(standing.capacity());
                text.text(", remaining=");
                text.number(remaining(standing));
                text.text(", reset=");
                text.number(told(snapshot, standing));
            }),
            Show::Rule => value(|text| text.text(standing.rule())),
            Show::Bucket => policy().and_then(|policy| policy.bucket.clone()),
            Show::Global => (standing.is_refused() && standing.rule() == GLOBAL).then_some(TRUE),
            Show::Scope => standing.is_refused().then(|| match standing.rule() {
                GLOBAL => HeaderValue::from_static(GLOBAL),
                SHARED => HeaderValue::from_static(SHARED),
                _ => HeaderValue::from_static("user"),
            }),
            Show::Custom(closure) => closure(snapshot.decision),
        }
    }
}

/// A rule of this name is the one that Discord's clients stop everything for.
const GLOBAL: &str = "global";
/// A rule of this name is not the caller's fault alone.
const SHARED: &str = "shared";
const TRUE: HeaderValue = HeaderValue::from_static("true");

/// Clients look for a plain zero on refusals, also where a smaller cost would still fit.
pub(super) fn remaining(standing: &Standing<'_>) -> u64 {
    if standing.is_refused() { 0 } else { standing.remaining() }
}

/// Not before the request would fit: there are clients that go by the reset alone, and a log's oldest entry may leave, or a
/// counter's window end, too early for it.
fn reset(standing: &Standing<'_>, cap: Duration) -> Duration {
    let wait = standing.retry_after().unwrap_or_default();
    if standing.limit().lease().is_some() {
        // Places come back when those who hold them are done, which no time tells.
        return wait.min(cap);
    }
    standing.reset_after().max(wait).min(cap)
}

fn told(snapshot: &Snapshot<'_>, standing: &Standing<'_>) -> u64 {
    let after = || ceil_seconds(reset(standing, snapshot.cap_of(standing)));
    if standing.is_refused() { snapshot.retry_after.unwrap_or_else(after) } else { after() }
}
