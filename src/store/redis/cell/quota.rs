//! A quota in the module's words.

use crate::{
    algorithm::{self, Params},
    error::BuildError,
    limit::Limit,
};

/// The module forgets counts to the millisecond: faster ones it would hardly keep.
const SHORTEST_INTERVAL: u64 = 1_000;
const SECOND: u64 = 1_000_000;

/// What `CL.THROTTLE` is told of a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Throttle {
    pub(super) capacity: u64,
    pub(super) count: u64,
    /// In seconds.
    pub(super) period: u64,
}

impl Throttle {
    /// `None` for what the module cannot keep.
    pub(super) fn of(limit: &Limit) -> Option<Throttle> {
        let interval = interval(limit)?;
        if interval < SHORTEST_INTERVAL {
            return None;
        }
        // The shortest whole number of seconds that holds a whole number of intervals: their ratio in lowest terms.
        let ratio = algorithm::Parts::new(SECOND, interval, 1).filter(|ratio| ratio.tick == 1)?;
        let (period, count) = (ratio.per_unit, ratio.per_tick);
        // The module divides nanoseconds as doubles.
        let exact = (period as f64 * 1e9 / count as f64) as u64 == interval * 1_000;
        exact.then(|| Throttle { capacity: limit.quota().capacity(), count, period })
    }

    /// Microseconds in which this many units are earned back.
    fn micros_for(&self, units: u64) -> u64 {
        units.saturating_mul(self.period.saturating_mul(SECOND)) / self.count.max(1)
    }

    /// Finds a charge again that was sent at `sent` and left so much: when the module will have forgotten it. The module tells no
    /// time, so it is this process's.
    pub(super) fn receipt(&self, sent: u64, remaining: u64) -> u64 {
        sent.saturating_add(self.micros_for(self.capacity.saturating_sub(remaining)))
    }

    /// How much of a cost still counts. The module gives back whole units, so it is rounded up to one.
    pub(super) fn still_counts(&self, cost: u64, receipt: u64, now: u64) -> u64 {
        cost.min(receipt.saturating_sub(now).div_ceil(self.micros_for(1).max(1)))
    }

    /// The first argument.
    pub(super) fn max_burst(&self) -> u64 {
        self.capacity.saturating_sub(1)
    }
}

/// Microseconds in which one unit is earned back, if they are a whole number.
fn interval(limit: &Limit) -> Option<u64> {
    match limit.params() {
        Params::Gcra(parts) if parts.per_tick == 1 => parts.per_unit.checked_mul(parts.tick),
        _ => None,
    }
}

/// Whether this rule can be kept.
pub(in super::super) fn accept(rule: &str, limit: &Limit) -> Result<(), BuildError> {
    let bad = |field, text: String| Err(BuildError::rule(rule, field, text));
    if limit.is_ban() {
        return bad("ban", "redis-cell knows no bans; drop .ban(..), or build the store without cell()".into());
    }
    if !matches!(limit.params(), Params::Gcra(_)) {
        let text = format!("redis-cell has no {}; use GCRA, or build the store without cell()", limit.algorithm());
        return bad("algorithm", text);
    }
    if limit.reserved() > 0 {
        let text =
            "redis-cell keeps nothing for critical requests; drop .reserve(..), or build the store without cell()";
        return bad("reserve", text.into());
    }
    if limit.is_shared() {
        let text = "redis-cell knows no tenants; drop .fair_share(..), or build the store without cell()";
        return bad("fair_share", text.into());
    }
    let quota = limit.quota();
    match interval(limit) {
        Some(interval) if interval < SHORTEST_INTERVAL => bad(
            "quota",
            format!("{quota} is too fast for redis-cell, which keeps milliseconds; give at most 1000 a second"),
        ),
        Some(_) if Throttle::of(limit).is_some() => Ok(()),
        _ => bad(
            "quota",
            format!(
                "{quota} is not exact in redis-cell; give an amount that divides the window into whole microseconds, {}",
                nearest(quota.amount(), limit)
            ),
        ),
    }
}

/// The next lower amount that would do.
fn nearest(amount: u64, limit: &Limit) -> String {
    let micros = crate::limit::micros(limit.quota().window());
    let fits = |amount: &u64| micros.is_multiple_of(*amount) && micros / amount >= SHORTEST_INTERVAL;
    // Whoever asks for a number without a divisor near has one within a few thousand.
    let lower = (1..=amount).rev().take(100_000).find(fits).unwrap_or(1);
    format!("such as {lower}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{Algorithm, Quota};
    use std::time::Duration;

    fn limit(quota: Quota) -> Limit {
        let start = crate::algorithm::fixed_window::Start::FirstRequest;
        Limit::new("r", Algorithm::Gcra, quota, start).expect("a quota")
    }

    #[test]
    fn quotas_become_whole_seconds() {
        for (quota, capacity, count, period) in [
            (Quota::per_second(10), 10, 10, 1),
            (Quota::per_minute(100), 100, 5, 3),
            (Quota::per_minute(100).burst(20), 20, 5, 3),
            (Quota::per(2, Duration::from_millis(500)), 2, 4, 1),
            (Quota::per_day(1), 1, 1, 86_400),
            (Quota::per(1, Duration::from_secs(366 * 86_400)), 1, 1, 366 * 86_400),
            (Quota::per_second(1_000), 1_000, 1_000, 1),
        ] {
            assert_eq!(Throttle::of(&limit(quota)), Some(Throttle { capacity, count, period }), "{quota}");
        }
    }

    #[test]
    fn what_is_not_exact_is_refused_with_what_would_be() {
        for (quota, text) in [
            (Quota::per_minute(7), "such as 6"),
            (Quota::per_second(3), "such as 2"),
            (Quota::per_second(1_001), "such as 1000"),
            (Quota::per_second(2_000), "1000 a second"),
        ] {
            let error = accept("r", &limit(quota)).expect_err("not exact");
            assert!(error.to_string().contains(text), "{error}");
            assert_eq!((error.rule_name(), error.field()), (Some("r"), "quota"));
        }
    }
}
