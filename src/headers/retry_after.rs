//! `Retry-After`: decided once for a refusal, told in several places.

use std::time::Duration;

use super::moments::{ceil_millis, ceil_seconds};
use crate::random;

/// Longer waits and resets are not told unless an application asks for it: one wrong number would lock a client out.
pub(super) const LONGEST: Duration = Duration::from_secs(86_400);

/// The most that is added, in seconds.
const MOST_JITTER: u64 = 5;

/// The seconds of `Retry-After`: rounded up, at least one, at most `cap`, and then some, so that those who were refused
/// together do not come back together. Whole seconds are added: a part of one would be lost in the rounding.
pub(crate) fn retry_after(wait: Duration, cap: Duration, jitter: bool) -> u64 {
    let seconds = least(wait, cap);
    if jitter { seconds.saturating_add(random::up_to(seconds.div_ceil(10).clamp(1, MOST_JITTER))) } else { seconds }
}

/// Without jitter.
fn least(wait: Duration, cap: Duration) -> u64 {
    ceil_seconds(wait.min(cap)).max(1)
}

/// The wait to the millisecond, with as much added as the `seconds` have. Where no rule named a wait, there are the seconds.
pub(super) fn millis(wait: Option<Duration>, seconds: u64, cap: Duration) -> u64 {
    let Some(wait) = wait else { return seconds.saturating_mul(1_000) };
    let added = seconds.saturating_sub(least(wait, cap));
    // An SDK that reads zero comes back at once.
    ceil_millis(wait.min(cap)).max(1).saturating_add(added.saturating_mul(1_000))
}
