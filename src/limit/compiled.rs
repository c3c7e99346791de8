use std::{fmt, time::Duration};

use super::{Queue, Quota, quota::Period};
use crate::{
    algorithm::{Fair, Params, Parts, ban, concurrency, fixed_window, queue, sliding_counter, sliding_log},
    error::BuildError,
};

/// The algorithms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// At most so many in each window.
    FixedWindow,
    /// The time of everything admitted; exact.
    SlidingLog,
    /// Two counters, the older fading out.
    SlidingCounter,
    /// A bucket of tokens that refills evenly.
    TokenBucket,
    /// A bucket remembered as one number.
    Gcra,
    /// A bucket that leaks evenly and refuses what would overflow it.
    LeakyBucket,
    /// At most so many at work at the same time.
    Concurrency,
    /// None at all for a while, after too many strikes: no rule's own, but what a [`Ban`](crate::Ban) is to a store.
    Ban,
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Algorithm::FixedWindow => "fixed window",
            Algorithm::SlidingLog => "sliding log",
            Algorithm::SlidingCounter => "sliding counter",
            Algorithm::TokenBucket => "token bucket",
            Algorithm::Gcra => "GCRA",
            Algorithm::LeakyBucket => "leaky bucket",
            Algorithm::Concurrency => "concurrency limit",
            Algorithm::Ban => "ban",
        })
    }
}

/// A quota and its algorithm, checked: whole numbers that are exact in Rust and in Lua.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    algorithm: Algorithm,
    quota: Quota,
    params: Params,
    /// Units that are kept for critical requests.
    reserved: u64,
    /// Units that a tenant leaves to others at most; zero: it is not shared.
    share: u64,
}

const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_secs(366 * 86_400);
/// A third of it must suffice to renew one.
const SHORTEST_LEASE: Duration = Duration::from_millis(100);
const LONGEST_LEASE: Duration = Duration::from_secs(86_400);
/// Counts are kept in 48 bits.
const LARGEST: u64 = (1 << 48) - 1;
/// No clock is further from UTC, in minutes.
const FURTHEST: i32 = 18 * 60;

impl Limit {
    /// Checks `quota` for `algorithm`. `start` says where fixed windows begin.
    pub(crate) fn new(
        rule: &str,
        algorithm: Algorithm,
        quota: Quota,
        start: fixed_window::Start,
    ) -> Result<Limit, BuildError> {
        let bad = |field: &'static str, text: String| Err(BuildError::rule(rule, field, text));
        check_period(algorithm, quota, start).map_err(|(field, text)| BuildError::rule(rule, field, text))?;
        if quota.is_unlimited() {
            // Nobody counts by these; should somebody, it is as good as no limit.
            let start = fixed_window::Start::Aligned(0);
            let params = fixed_window::Params { limit: LARGEST, window: micros(SHORTEST), start };
            return Ok(Limit { algorithm, quota, params: Params::FixedWindow(params), reserved: 0, share: 0 });
        }
        let (amount, window) = (quota.amount(), quota.window());
        if algorithm == Algorithm::Concurrency {
            let params = concurrency::Params { limit: amount, lease: micros(window) };
            check_leases(rule, &params, window)?;
            return Ok(Limit { algorithm, quota, params: Params::Concurrency(params), reserved: 0, share: 0 });
        }
        if !(1..=LARGEST).contains(&amount) {
            return bad("quota", format!("an amount of {amount} is out of range; give 1 to {LARGEST} units"));
        }
        if !(SHORTEST..=LONGEST).contains(&window) || window.subsec_nanos() % 1_000 != 0 {
            return bad(
                "quota",
                format!("a window of {window:?} is out of range; give whole microseconds from 1 ms to 366 days"),
            );
        }
        let micros = micros(window);
        let bucket = matches!(algorithm, Algorithm::TokenBucket | Algorithm::LeakyBucket | Algorithm::Gcra);
        match quota.given_burst() {
            Some(_) if !bucket => {
                return bad(
                    "burst",
                    format!(
                        "a {algorithm} has no burst; drop .burst(..), or use a token bucket, a leaky bucket or GCRA"
                    ),
                );
            }
            Some(burst) if !(1..=LARGEST).contains(&burst) => {
                return bad("burst", format!("{burst} is out of range; give 1 to {LARGEST} units"));
            }
            _ => {}
        }
        let parts = || {
            Parts::new(amount, micros, quota.capacity()).ok_or_else(|| {
                let text = format!(
                    "{quota} cannot be counted exactly; lower the burst, or round the amount to a number that shares \
                     factors with the window"
                );
                BuildError::rule(rule, "quota", text)
            })
        };
        let params = match algorithm {
            Algorithm::TokenBucket => Params::TokenBucket(parts()?),
            Algorithm::LeakyBucket => Params::LeakyBucket(parts()?),
            Algorithm::Gcra => Params::Gcra(parts()?),
            Algorithm::FixedWindow => {
                if let fixed_window::Start::Aligned(offset) = start
                    && offset >= micros
                {
                    return bad(
                        "offset",
                        format!("{offset} microseconds reach past the window of {window:?}; give less than one window"),
                    );
                }
                let start = calendar_start(quota, micros).unwrap_or(start);
                Params::FixedWindow(fixed_window::Params { limit: amount, window: micros, start })
            }
            Algorithm::SlidingLog if amount > sliding_log::LARGEST_LIMIT => {
                let most = sliding_log::LARGEST_LIMIT;
                return bad(
                    "quota",
                    format!("a sliding log of {amount} is too long; give at most {most}, or use a sliding counter"),
                );
            }
            Algorithm::SlidingLog => Params::SlidingLog(sliding_log::Params { limit: amount, window: micros }),
            Algorithm::SlidingCounter => match sliding_counter::Params::new(amount, micros) {
                Some(params) => Params::SlidingCounter(params),
                None => {
                    return bad(
                        "quota",
                        format!(
                            "{quota} cannot be counted exactly; lower the amount or the window, or use a token bucket"
                        ),
                    );
                }
            },
            // Checked before.
            Algorithm::Concurrency => Params::Concurrency(concurrency::Params { limit: amount, lease: micros }),
            Algorithm::Ban => return bad("algorithm", "a ban is no limit of its own; say .ban(..) of a rule".into()),
        };
        Ok(Limit { algorithm, quota, params, reserved: 0, share: 0 })
    }

    /// This limit with so many units kept for critical requests.
    pub(crate) fn reserving(self, units: u64) -> Limit {
        Limit { reserved: units, ..self }
    }

    /// This limit shared by tenants, of which each leaves so many units to the others at most.
    pub(crate) fn shared(self, share: u64) -> Limit {
        Limit { share, ..self }
    }

    /// Whether tenants share it.
    #[cfg(feature = "redis")]
    pub(crate) fn is_shared(&self) -> bool {
        self.share > 0
    }

    /// What tenants must leave of it.
    pub(crate) fn fair(&self) -> Fair {
        Fair::new(self.quota.capacity(), self.share)
    }

    /// How the use of one tenant is counted: in windows as long as it takes to earn the capacity, and without an end. `None` if
    /// this limit cannot be shared.
    pub(crate) fn for_tenants(&self) -> Option<Limit> {
        let window = match self.params {
            Params::FixedWindow(params) if params.start == fixed_window::Start::FirstRequest => params.window,
            Params::FixedWindow(params) => {
                return Some(Limit {
                    params: Params::FixedWindow(fixed_window::Params { limit: LARGEST, ..params }),
                    ..*self
                });
            }
            Params::Concurrency(_) | Params::Queue(_) => return None,
            // Lengths are kept in 48 bits.
            _ => micros(self.period(self.quota.capacity())?.min(LONGEST)),
        };
        let start = fixed_window::Start::Aligned(0);
        let params = Params::FixedWindow(fixed_window::Params { limit: LARGEST, window, start });
        Some(Limit { algorithm: Algorithm::FixedWindow, params, reserved: 0, share: 0, ..*self })
    }

    /// As many units of a smaller limit as are kept of this one; a unit at least stays for ordinary requests.
    fn keep_again(&self, smaller: Limit) -> Limit {
        let (capacity, whole) = (u128::from(smaller.quota.capacity()), u128::from(self.quota.capacity().max(1)));
        let again = |units: u64| {
            let units = (capacity * u128::from(units)).div_ceil(whole).min(capacity.saturating_sub(1));
            u64::try_from(units).unwrap_or(0)
        };
        smaller.reserving(again(self.reserved)).shared(again(self.share))
    }

    /// A ban, which is counted in strikes.
    pub(super) fn of_ban(params: ban::Params) -> Limit {
        let quota = Quota::per(params.strikes, Duration::from_micros(params.window));
        Limit { algorithm: Algorithm::Ban, quota, params: Params::Ban(params), reserved: 0, share: 0 }
    }

    /// A leaky bucket whose requests wait for their turn.
    pub(crate) fn queued(rule: &str, quota: Quota, queue: Queue) -> Result<Limit, BuildError> {
        // What is said of any leaky bucket is said first; the line is not as long as its amount.
        let burst = quota.given_burst().or((!quota.is_unlimited()).then_some(1));
        let whole = burst.map_or(quota, |burst| quota.burst(burst));
        let limit = Limit::new(rule, Algorithm::LeakyBucket, whole, fixed_window::Start::Aligned(0))?;
        if quota.is_unlimited() {
            return Ok(limit);
        }
        let params = queue.params(quota).map_err(|(field, text)| BuildError::rule(rule, field, text))?;
        Ok(Limit { quota: quota.burst(params.places()), params: Params::Queue(params), ..limit })
    }

    /// This limit with the given share of its quota, more than 0 and at most 1, rounded down. Less than one unit a window becomes
    /// one unit in a longer window.
    pub(crate) fn scaled(&self, share: f64) -> Limit {
        let start = match self.params {
            // A ban is whole or none.
            Params::Ban(_) => return *self,
            Params::FixedWindow(params) if !self.quota.is_calendar() => params.start,
            _ => fixed_window::Start::Aligned(0),
        };
        // A hair more, or a product that is whole but for the last bit would lose a unit.
        let of = |units: u64| (units as f64 * share * (1.0 + f64::EPSILON * 4.0)) as u64;
        if let Params::Concurrency(params) = self.params {
            let limit = of(params.limit).max(1);
            let params = Params::Concurrency(concurrency::Params { limit, ..params });
            return self.keep_again(Limit { quota: Quota::per(limit, self.quota.window()), params, ..*self });
        }
        let mut amount = of(self.quota.amount());
        let mut whole = self.quota;
        if amount == 0 {
            let longer = whole.window().as_micros() as f64 / (self.quota.amount() as f64 * share);
            whole = Quota::per(1, Duration::from_micros((longer.ceil() as u64).min(micros(LONGEST))));
            amount = 1;
        }
        let queue = self.queue().map(|queue| Queue { max_waiters: of(queue.max_waiters).max(1), ..queue });
        let burst = self.quota.given_burst().filter(|_| queue.is_none()).map(|burst| of(burst).max(1));
        // An odd number may not be countable exactly; fewer digits are.
        for digits in [u32::MAX, 3, 2, 1] {
            let quota = whole.with_amount(round_down(amount, digits));
            let quota = burst.map_or(quota, |burst| quota.burst(round_down(burst, digits)));
            let limit = match queue {
                Some(queue) => Limit::queued("", quota, queue),
                None => Limit::new("", self.algorithm, quota, start),
            };
            if let Ok(limit) = limit {
                return self.keep_again(limit);
            }
        }
        *self
    }

    /// The algorithm.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// How long a lease lasts under a [concurrency](crate::Rule::concurrency) rule; `None` under others.
    pub fn lease(&self) -> Option<Duration> {
        match self.params {
            Params::Concurrency(_) => Some(self.quota.window()),
            _ => None,
        }
    }

    /// How long its line may be, where requests wait for their turn.
    pub(crate) fn queue(&self) -> Option<Queue> {
        match self.params {
            Params::Queue(params) => {
                let max_wait = Duration::from_micros(params.max_wait);
                Some(Queue { max_wait, max_waiters: params.max_waiters })
            }
            _ => None,
        }
    }

    /// The quota as it was given. Of a concurrency rule it is so many in the time of a lease, of a ban the strikes that it takes; the
    /// burst of a [queue](crate::Rule::queue) is as many as its line holds.
    pub fn quota(&self) -> Quota {
        self.quota
    }

    /// Whether it is a ban, which is counted in strikes and refuses whatever the cost.
    pub(crate) fn is_ban(&self) -> bool {
        self.algorithm == Algorithm::Ban
    }

    /// Whether there is no limit, and nothing to ask a store.
    #[inline]
    pub(crate) fn is_unlimited(&self) -> bool {
        self.quota.is_unlimited()
    }

    pub(crate) fn params(&self) -> &Params {
        &self.params
    }

    /// The units that are kept for critical requests: see [`Rule::reserve`](crate::Rule::reserve).
    #[inline]
    pub fn reserved(&self) -> u64 {
        self.reserved
    }

    /// Units as the scripts count them.
    #[cfg(feature = "redis")]
    pub(crate) fn parts_of(&self, units: u64) -> u64 {
        match self.params {
            Params::TokenBucket(parts)
            | Params::LeakyBucket(parts)
            | Params::Gcra(parts)
            | Params::Queue(queue::Params { parts, .. }) => units.saturating_mul(parts.per_unit),
            _ => units,
        }
    }

    /// The time in which so many spent units are earned back: the window, or `units / rate` of a bucket. Months have no one length.
    pub(crate) fn period(&self, units: u64) -> Option<Duration> {
        match self.params {
            Params::TokenBucket(parts)
            | Params::LeakyBucket(parts)
            | Params::Gcra(parts)
            | Params::Queue(queue::Params { parts, .. }) => {
                let parts_of = units.saturating_mul(parts.per_unit).min(parts.capacity);
                Some(Duration::from_micros(parts_of.div_ceil(parts.per_tick) * parts.tick))
            }
            _ => (self.quota.period() != Period::CalendarMonth).then(|| self.quota.window()),
        }
    }

    /// When `remaining` next grows, of a standing with this `reset_after`.
    pub(crate) fn next_unit_after(&self, remaining: u64, reset_after: Duration) -> Duration {
        match self.params {
            Params::TokenBucket(parts)
            | Params::LeakyBucket(parts)
            | Params::Gcra(parts)
            | Params::Queue(queue::Params { parts, .. }) => {
                let later = parts.capacity.saturating_sub(remaining.saturating_add(1).saturating_mul(parts.per_unit));
                let later = later / parts.per_tick * parts.tick;
                reset_after.saturating_sub(Duration::from_micros(later))
            }
            _ => reset_after,
        }
    }
}

/// What is wrong with the period of a quota for this algorithm, by field.
fn check_period(algorithm: Algorithm, quota: Quota, start: fixed_window::Start) -> Result<(), (&'static str, String)> {
    let calendar = quota.is_calendar();
    if quota.is_unlimited() && quota.given_burst().is_some() {
        return Err(("burst", "without a limit there is no burst; drop .burst(..)".into()));
    }
    if calendar && algorithm != Algorithm::FixedWindow {
        return Err(("quota", format!("a {algorithm} knows no calendar; use Rule::fixed_window, or Quota::per(..)")));
    }
    if calendar && start != fixed_window::Start::Aligned(0) {
        return Err(("window", "the calendar says where its windows begin; drop .offset(..) or .from_first_request(), or say .utc_offset_minutes(..)".into()));
    }
    match quota.given_utc_offset() {
        Some(_) if !calendar => {
            let text = "only hours, days and months of the calendar have one; drop .utc_offset_minutes(..), or use Quota::per_calendar_day(..) and its kin";
            Err(("utc_offset_minutes", text.into()))
        }
        Some(minutes) if !(-FURTHEST..=FURTHEST).contains(&minutes) => {
            let text = format!("{minutes} is out of range; give -{FURTHEST} to {FURTHEST} minutes");
            Err(("utc_offset_minutes", text))
        }
        _ => Ok(()),
    }
}

/// Where the windows of a calendar begin. Its hours and days are all of one length, so they are windows like any others.
fn calendar_start(quota: Quota, window: u64) -> Option<fixed_window::Start> {
    let ahead = i64::from(quota.given_utc_offset().unwrap_or(0)) * 60_000_000;
    match quota.period() {
        Period::CalendarMonth => Some(fixed_window::Start::Month(ahead)),
        Period::CalendarHour | Period::CalendarDay => {
            let offset = ahead.checked_neg()?.rem_euclid(i64::try_from(window).ok()?);
            Some(fixed_window::Start::Aligned(offset.unsigned_abs()))
        }
        Period::Every(_) | Period::Unlimited => None,
    }
}

/// `100 per 60s, burst 20`, `20 at a time`, or `10 per 1s, 5 in line`.
impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.params {
            Params::Concurrency(params) => write!(f, "{} at a time", params.limit),
            Params::Ban(_) => write!(f, "a ban after {} strikes", self.quota),
            Params::Queue(params) => {
                write!(f, "{}, {} in line", self.quota.with_amount(self.quota.amount()), params.places())
            }
            _ => self.quota.fmt(f),
        }
    }
}

fn check_leases(rule: &str, params: &concurrency::Params, lease: Duration) -> Result<(), BuildError> {
    let most = concurrency::LARGEST_LIMIT;
    if !(1..=most).contains(&params.limit) {
        let text = format!("{} at a time is out of range; give 1 to {most}", params.limit);
        return Err(BuildError::rule(rule, "limit", text));
    }
    if !(SHORTEST_LEASE..=LONGEST_LEASE).contains(&lease) || !lease.subsec_nanos().is_multiple_of(1_000) {
        let text = format!("{lease:?} is out of range; give whole microseconds from 100 ms to 1 day");
        return Err(BuildError::rule(rule, "lease", text));
    }
    Ok(())
}

/// The number with so many leading digits, the others zero.
fn round_down(number: u64, digits: u32) -> u64 {
    let power = 10u64.pow((number.max(1).ilog10() + 1).saturating_sub(digits));
    number / power * power
}

pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(quota: Quota) -> Limit {
        Limit::new("r", Algorithm::FixedWindow, quota, fixed_window::Start::Aligned(0)).expect("a quota")
    }

    #[test]
    fn a_share_of_a_calendar_quota_keeps_to_the_calendar() {
        let quota = Quota::per_calendar_month(1_000).utc_offset_minutes(-90);
        assert_eq!(limit(quota).scaled(0.1), limit(Quota::per_calendar_month(100).utc_offset_minutes(-90)));
        let quota = Quota::per_calendar_day(8).utc_offset_minutes(60);
        assert_eq!(limit(quota).scaled(0.5), limit(Quota::per_calendar_day(4).utc_offset_minutes(60)));
        // Less than one unit a day is no matter of days any more.
        assert_eq!(limit(quota).scaled(0.0625), limit(Quota::per(1, Duration::from_secs(2 * 86_400))));
    }
}
