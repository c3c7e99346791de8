use std::{fmt, future::Future, sync::Arc, time::Duration};

use http::request::Parts;

use super::{
    Algorithm, Ban, FairShare, Limit, OnFailure, Queue, Quota, by_body::CostByBody, compiled::micros, reserve::Reserve,
    settle::Settle,
};
use crate::{
    algorithm::fixed_window::Start,
    error::BuildError,
    key::{IntoKey, KeyBy},
};

/// One limit of an application: a name, an algorithm with its quota, and whose requests it counts together.
///
/// ```
/// use sluicegate::{key, Quota, Rule};
///
/// Rule::token_bucket("per-user", Quota::per_minute(100).burst(20))
///     .key_by(|req| req.headers.get("x-user").map(|user| user.as_bytes().to_vec()));
/// Rule::sliding_counter("per-ip", Quota::per_minute(1_000)).key(key::ip());
/// Rule::fixed_window("uploads", Quota::per_hour(10_000)).key(key::global()).cost_by(|req| {
///     if req.method == "POST" { 10 } else { 1 }
/// });
/// ```
///
/// The name stands in response headers and in the store's keys: renaming a rule starts it afresh, changing its quota does
/// not.
#[derive(Clone, Debug)]
#[must_use]
pub struct Rule {
    pub(crate) name: Arc<str>,
    pub(crate) algorithm: Algorithm,
    pub(crate) quota: Quota,
    pub(crate) start: Start,
    pub(crate) lease: Option<Duration>,
    pub(crate) key: Option<KeyBy>,
    pub(crate) cost: Cost,
    pub(crate) when: When,
    pub(crate) on_failure: Option<OnFailure>,
    pub(crate) settle: Settle,
    pub(crate) reserve: Option<Reserve>,
    pub(crate) protects_service: bool,
    pub(crate) fair_share: Option<FairShare>,
    /// The share of keys that it is enforced for, in percent.
    pub(crate) roll_out: f64,
    pub(crate) ban: Option<Ban>,
    pub(crate) queue: Option<Queue>,
    pub(crate) max_new_keys: Option<u64>,
}

/// How long a lease lasts unless a rule says otherwise.
const LEASE: Duration = Duration::from_secs(30);

type Condition = dyn Fn(&Parts) -> bool + Send + Sync;

/// Which requests a rule applies to.
#[derive(Clone, Default)]
pub(crate) struct When(Option<Arc<Condition>>);

impl When {
    pub(crate) fn holds(&self, head: &Parts) -> bool {
        self.0.as_ref().is_none_or(|closure| closure(head))
    }
}

impl fmt::Debug for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "by closure" } else { "always" })
    }
}

/// What a request costs under a rule.
#[derive(Clone)]
pub(crate) enum Cost {
    Fixed(u64),
    By(Arc<dyn Fn(&Parts) -> u64 + Send + Sync>),
    ByBody(CostByBody),
}

impl Cost {
    pub(crate) fn of(&self, head: &Parts) -> u64 {
        match self {
            Cost::Fixed(units) => *units,
            Cost::By(closure) => closure(head),
            Cost::ByBody(by_body) => by_body.of(head),
        }
    }
}

impl fmt::Debug for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cost::Fixed(units) => write!(f, "{units}"),
            Cost::By(_) | Cost::ByBody(_) => f.write_str("by closure"),
        }
    }
}

impl Rule {
    fn new(algorithm: Algorithm, name: &str, quota: Quota) -> Rule {
        Rule {
            name: name.into(),
            algorithm,
            quota,
            start: Start::Aligned(0),
            lease: None,
            key: None,
            cost: Cost::Fixed(1),
            when: When::default(),
            on_failure: None,
            settle: Settle::default(),
            reserve: None,
            protects_service: false,
            fair_share: None,
            roll_out: 100.0,
            ban: None,
            queue: None,
            max_new_keys: None,
        }
    }

    /// At most the amount in each window; windows stand at multiples of their length since the Unix epoch, or are those of
    /// the calendar: [`Quota::per_calendar_month`].
    pub fn fixed_window(name: &str, quota: Quota) -> Rule {
        Rule::new(Algorithm::FixedWindow, name, quota)
    }

    /// At most the amount in any moving window, exactly. Costs memory for every admitted request of a window.
    pub fn sliding_log(name: &str, quota: Quota) -> Rule {
        Rule::new(Algorithm::SlidingLog, name, quota)
    }

    /// Close to the amount in any moving window, at the cost of two counters.
    pub fn sliding_counter(name: &str, quota: Quota) -> Rule {
        Rule::new(Algorithm::SlidingCounter, name, quota)
    }

    /// A bucket that refills evenly: bursts up to [`Quota::burst`], the amount a window in the long run.
    pub fn token_bucket(name: &str, quota: Quota) -> Rule {
        Rule::new(Algorithm::TokenBucket, name, quota)
    }

    /// The same limits as a token bucket, with the smallest state there is.
    pub fn gcra(name: &str, quota: Quota) -> Rule {
        Rule::new(Algorithm::Gcra, name, quota)
    }

    /// A bucket that leaks evenly and refuses what would overflow it. Differs from a token bucket when the quota changes:
    /// it remembers what was used, not what was left.
    pub fn leaky_bucket(name: &str, quota: Quota) -> Rule {
        Rule::new(Algorithm::LeakyBucket, name, quota)
    }

    /// At most `limit` at work at the same time. Whoever is admitted holds a place until the response's body has ended or is
    /// dropped, or the handler panics; without HTTP, until the [`Decision`](crate::Decision) is dropped.
    ///
    /// ```
    /// use sluicegate::Rule;
    ///
    /// Rule::concurrency("per-user", 20).key_by(|req| req.headers.get("x-user").map(|user| user.as_bytes().to_vec()));
    /// ```
    ///
    /// A place is a lease on the store. It is renewed for as long as it is held, and a process that dies leaves it behind for at
    /// most [`lease`](Rule::lease). Each request takes one place: there are no other costs. See the
    /// [guide](crate::guide::algorithms#concurrency).
    pub fn concurrency(name: &str, limit: u64) -> Rule {
        Rule::new(Algorithm::Concurrency, name, Quota::per(limit, LEASE))
    }

    /// How long a place of a [concurrency](Rule::concurrency) rule stays taken when its process dies, 30 s unless said
    /// otherwise. Living processes renew it every third of that. 100 ms to a day.
    pub fn lease(mut self, lease: Duration) -> Rule {
        self.lease = Some(lease);
        self
    }

    /// Lets requests wait for their turn, and refuses them only where the line is too long: a [leaky bucket](Rule::leaky_bucket)
    /// then runs them one after the other at its rate, in the order of the decisions, whichever process they came to.
    ///
    /// ```
    /// use sluicegate::{key, Quota, Rule};
    /// use std::time::Duration;
    ///
    /// // One every 100 ms. Whoever would wait longer than two seconds, or behind 50 others, is refused.
    /// Rule::leaky_bucket("webhooks", Quota::per_second(10)).queue(Duration::from_secs(2), 50).key(key::global());
    /// ```
    ///
    /// It takes the place of a burst. Whoever leaves before the turn has come gives the slot back if nobody is behind;
    /// otherwise it stays taken, and those behind keep their times. See the [guide](crate::guide::algorithms#queueing).
    pub fn queue(mut self, max_wait: Duration, max_waiters: u64) -> Rule {
        self.queue = Some(Queue { max_wait, max_waiters });
        self
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Counts requests of one key together: [`key::ip()`](crate::key::ip), [`key::route()`](crate::key::route), or
    /// several joined by [`KeyBy::and`].
    pub fn key(mut self, key: impl Into<KeyBy>) -> Rule {
        self.key = Some(key.into());
        self
    }

    /// Counts requests together for which the closure returns the same key.
    ///
    /// It may return a string, a number, an address, bytes, a tuple of these; an `Option` (`None`: the rule does not
    /// apply); or a `Result` with a status to refuse with.
    pub fn key_by<K, F>(self, closure: F) -> Rule
    where
        K: IntoKey,
        F: Fn(&Parts) -> K + Send + Sync + 'static,
    {
        self.key(KeyBy::new(closure))
    }

    /// At most so many keys a minute have a count of their own that this process has not seen in the minute before, and at most twice
    /// as many in all; the others share one, penalties too. For keys that anybody can make up, so that nobody fills the store with
    /// them: what a fleet brings to it in a minute is so many times its processes. Keys that a [`Call`](crate::Call) names are not
    /// counted, and [usage](crate::Limiter::usage) shows the count that a key would have of its own.
    ///
    /// ```
    /// use sluicegate::{key, Quota, Rule};
    ///
    /// // Addresses are many, but no process has ten thousand new visitors a minute.
    /// Rule::gcra("per-ip", Quota::per_second(5)).key(key::ip()).max_new_keys(10_000);
    /// ```
    pub fn max_new_keys(mut self, per_minute: u64) -> Rule {
        self.max_new_keys = Some(per_minute);
        self
    }

    /// Like [`key_by`](Rule::key_by) for a closure that must wait, for a session look-up say. It gets a head of its own.
    ///
    /// ```
    /// # use sluicegate::{Quota, Rule};
    /// # async fn session_of(head: http::request::Parts) -> Option<String> { None }
    /// Rule::gcra("per-session", Quota::per_second(5)).key_by_async(async |req| session_of(req).await);
    /// ```
    pub fn key_by_async<K, F, Fut>(self, closure: F) -> Rule
    where
        K: IntoKey,
        F: Fn(Parts) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = K> + Send + 'static,
    {
        self.key(KeyBy::new_async(closure))
    }

    /// Applies the rule only to requests for which the closure is true; said twice, both must be. It is asked before the key
    /// is looked for, and not by [`Limiter::acquire`](crate::Limiter::acquire), which names the rules that apply.
    ///
    /// ```
    /// use sluicegate::{key, Quota, Rule};
    ///
    /// Rule::sliding_log("logins", Quota::per_minute(5)).key(key::ip()).when(|req| req.uri.path() == "/login");
    /// ```
    pub fn when<F>(mut self, closure: F) -> Rule
    where
        F: Fn(&Parts) -> bool + Send + Sync + 'static,
    {
        let before = self.when;
        self.when = When(Some(Arc::new(move |head| before.holds(head) && closure(head))));
        self
    }

    /// What each request costs, 1 unless said otherwise.
    pub fn cost(mut self, units: u64) -> Rule {
        self.cost = Cost::Fixed(units);
        self
    }

    /// What a request costs, by its head. Zero is free of charge; more than the capacity can never be admitted.
    pub fn cost_by<F>(mut self, closure: F) -> Rule
    where
        F: Fn(&Parts) -> u64 + Send + Sync + 'static,
    {
        self.cost = Cost::By(Arc::new(closure));
        self
    }

    /// What happens under this rule when the store gives no answer in time: the limiter's
    /// [`on_failure`](crate::LimiterBuilder::on_failure) unless said otherwise, which is [`OnFailure::Local`].
    ///
    /// ```
    /// use sluicegate::{key, OnFailure, Quota, Rule};
    ///
    /// // Better no login than a guessed password.
    /// Rule::sliding_log("logins", Quota::per_minute(5)).key(key::ip()).on_failure(OnFailure::Refuse);
    /// ```
    pub fn on_failure(mut self, on_failure: OnFailure) -> Rule {
        self.on_failure = Some(on_failure);
        self
    }

    /// Watches before it enforces: the rule is charged and reported as ever, and never refuses. What it would have refused is told by
    /// [`Decision::would_refuse`](crate::Decision::would_refuse), to an [`Observer`](crate::Observer) too, in the log, and in a
    /// [header](crate::HeadersBuilder::shadow) if one asks for it; such a request is not charged under this rule, as it would not be if
    /// it were refused. The quota fields do not show the rule.
    ///
    /// ```
    /// use sluicegate::{key, Quota, Rule};
    ///
    /// Rule::gcra("per-user", Quota::per_second(5)).key(key::header("x-user")).shadow();
    /// ```
    ///
    /// The same as [`roll_out(0)`](Rule::roll_out). For all rules at once, and live, there is
    /// [`Limiter::set_shadow`](crate::Limiter::set_shadow). See the page on [shadows](crate::guide::shadow).
    pub fn shadow(self) -> Rule {
        self.roll_out(0)
    }

    /// Enforces the rule for this share of its keys, in percent, and is a [shadow](Rule::shadow) to the others. Which keys those are
    /// is the same in every process and release, and a larger share only adds keys. 100 unless said otherwise; said twice, the last
    /// holds.
    ///
    /// ```
    /// use sluicegate::{key, Quota, Rule};
    ///
    /// Rule::gcra("per-user", Quota::per_second(5)).key(key::header("x-user")).roll_out(5);
    /// Rule::gcra("per-ip", Quota::per_second(50)).key(key::ip()).roll_out(0.5);
    /// ```
    ///
    /// A rule with one key, such as [`key::global()`](crate::key::global), is enforced for all or for none. A key closure's own
    /// refusals are without a key, and hold when the share is 100.
    pub fn roll_out(mut self, percent: impl Into<f64>) -> Rule {
        self.roll_out = percent.into();
        self
    }

    /// Fixed windows begin this much after the multiples of their length: `per_day` with an offset of five hours
    /// begins at 05:00 UTC.
    pub fn offset(mut self, offset: Duration) -> Rule {
        self.start = Start::Aligned(micros(offset));
        self
    }

    /// A fixed window begins with the first request that finds none running, each key for itself.
    pub fn from_first_request(mut self) -> Rule {
        self.start = Start::FirstRequest;
        self
    }

    /// The rule's limit, with everything about the rule checked that can be checked alone.
    ///
    /// # Errors
    ///
    /// What [`LimiterBuilder::build`](crate::LimiterBuilder::build) would say of this rule.
    pub fn check(&self) -> Result<Limit, BuildError> {
        let name = &*self.name;
        let bad = |field, text: String| Err(BuildError::rule(name, field, text));
        if name.is_empty() || name.len() > 64 || !name.bytes().all(|byte| (0x20..0x7f).contains(&byte)) {
            return bad("name", "cannot stand in a response header; use 1 to 64 printable ASCII characters".into());
        }
        if let Cost::Fixed(units) = self.cost
            && !(1..=1 << 32).contains(&units)
        {
            return bad(
                "cost",
                format!(
                    "{units} is out of range; give 1 to 4294967296, or a closure that returns 0 for requests that are free"
                ),
            );
        }
        if let Cost::ByBody(by_body) = &self.cost
            && let Some(problem) = by_body.problem()
        {
            return bad("cost_by_body", problem);
        }
        let concurrent = self.algorithm == Algorithm::Concurrency;
        if concurrent && !matches!(self.cost, Cost::Fixed(1)) {
            return bad(
                "cost",
                "each request takes one place of a concurrency limit; drop it, or say .when(..) for requests that take none".into(),
            );
        }
        if self.lease.is_some() && !concurrent {
            return bad("lease", format!("a {} has no leases; drop .lease(..)", self.algorithm));
        }
        if concurrent && self.settle.is_needed() {
            return bad(
                "settle",
                "a place of a concurrency limit is free when its request ends; drop .count_if(..), .settle_by(..) and .penalize_by(..)"
                    .into(),
            );
        }
        if self.queue.is_some() && self.algorithm != Algorithm::LeakyBucket {
            return bad(
                "queue",
                format!("a {} has no line to wait in; use Rule::leaky_bucket, or drop .queue(..)", self.algorithm),
            );
        }
        if self.queue.is_some() && self.settle.is_needed() {
            return bad(
                "settle",
                "a slot in a queue is over when the response is there; drop .count_if(..) and .settle_by(..)".into(),
            );
        }
        if self.settle.by_response.is_some() && self.settle.by_bytes.is_some() {
            return bad(
                "settle_by",
                "the cost cannot be settled by the head and by the bytes of a response; give one".into(),
            );
        }
        if !(0.0..=100.0).contains(&self.roll_out) {
            return bad("roll_out", format!("{} is out of range; give 0 to 100 percent", self.roll_out));
        }
        if let Some(problem) = self.key.as_ref().and_then(KeyBy::problem) {
            return bad("key", problem.to_owned());
        }
        if self.key.is_none() {
            let text = "is missing; say .key(key::ip()), .key_by(|req| ..), .key(key::global()) for one count over all, or \
                        .key(key::given()) when only Limiter::acquire names keys";
            return bad("key", text.into());
        }
        if self.max_new_keys.is_some_and(|most| !(1..=10_000_000).contains(&most)) {
            return bad("max_new_keys", "give 1 to 10000000 a minute, or drop it for as many as come".into());
        }
        if self.max_new_keys.is_some() && (self.ban.is_some() || self.fair_share.is_some()) {
            let text = "keys that share one count would be banned together, and have no tenants of their own; drop .max_new_keys(..), or \
                        .ban(..) and .fair_share(..)";
            return bad("max_new_keys", text.into());
        }
        if self.start != Start::Aligned(0) && self.algorithm != Algorithm::FixedWindow {
            return bad(
                "window",
                format!(
                    "only fixed windows have an offset or begin with the first request; a {} does not",
                    self.algorithm
                ),
            );
        }
        if let Some(ban) = &self.ban {
            ban.check(name)?;
        }
        let quota = self.lease.map_or(self.quota, |lease| Quota::per(self.quota.amount(), lease));
        let limit = match self.queue {
            Some(queue) => Limit::queued(name, quota, queue)?,
            None => Limit::new(name, self.algorithm, quota, self.start)?,
        };
        // Where there is no limit, there is nothing to keep.
        if limit.is_unlimited() {
            return Ok(limit);
        }
        let limit = match &self.fair_share {
            Some(fair) => fair.check(limit).or_else(|(field, text)| bad(field, text))?,
            None => limit,
        };
        let Some(reserve) = &self.reserve else { return Ok(limit) };
        match reserve.units(limit.quota().capacity()) {
            Some(units) => Ok(limit.reserving(units)),
            None => {
                let (share, capacity) = (reserve.share, limit.quota().capacity());
                let text = format!(
                    "{share} of {capacity} leaves nothing to one of the two; give more than 0 and less than 1, and leave ordinary \
                     requests a unit at least"
                );
                bad("reserve", text)
            }
        }
    }
}
