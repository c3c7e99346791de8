use std::{fmt, future::Future, sync::Arc, time::Duration};

use http::{request::Parts, response};

use super::{Algorithm, Ban, FairShare, Limit, OnFailure, Quota, compiled::micros, reserve::Reserve, settle::Settle};
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
    pub(crate) ban: Option<Ban>,
    pub(crate) reserve: Option<Reserve>,
    pub(crate) protects_service: bool,
    pub(crate) fair_share: Option<FairShare>,
    /// The share of keys that it is enforced for, in percent.
    pub(crate) roll_out: f64,
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
}

impl Cost {
    pub(crate) fn of(&self, head: &Parts) -> u64 {
        match self {
            Cost::Fixed(units) => *units,
            Cost::By(closure) => closure(head),
        }
    }
}

impl fmt::Debug for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cost::Fixed(units) => write!(f, "{units}"),
            Cost::By(_) => f.write_str("by closure"),
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
            ban: None,
            reserve: None,
            protects_service: false,
            fair_share: None,
            roll_out: 100.0,
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

    /// What the request really cost, by the head of its response. It is charged what [`cost_by`](Rule::cost_by) says first; the
    /// difference is given back or owed when the response is there, see [`Charge`](crate::Charge). Whoever settles first, this or
    /// the handler, settles it.
    ///
    /// ```
    /// use sluicegate::{key, Quota, Rule};
    ///
    /// Rule::token_bucket("tokens", Quota::per_minute(10_000)).key(key::ip()).cost(500).settle_by(|response| {
    ///     response.headers.get("x-tokens").and_then(|tokens| tokens.to_str().ok()?.parse().ok()).unwrap_or(500)
    /// });
    /// ```
    pub fn settle_by<F>(mut self, closure: F) -> Rule
    where
        F: Fn(&response::Parts) -> u64 + Send + Sync + 'static,
    {
        self.settle.by_response = Some(Arc::new(closure));
        self
    }

    /// What the request really cost, by the bytes of its response's body: when it has ended, or nobody wants more of it.
    ///
    /// ```
    /// use sluicegate::{key, Quota, Rule};
    ///
    /// Rule::token_bucket("kilobytes", Quota::per_second(1_000)).key(key::ip()).settle_by_bytes(|bytes| bytes.div_ceil(1_024));
    /// ```
    pub fn settle_by_bytes<F>(mut self, closure: F) -> Rule
    where
        F: Fn(u64) -> u64 + Send + Sync + 'static,
    {
        self.settle.by_bytes = Some(Arc::new(closure));
        self
    }

    /// Counts only requests whose response the closure is true for. Each is charged first and given back after, so that many at once
    /// do not slip through; one whose response never came, because the client left, stays counted.
    ///
    /// ```
    /// use sluicegate::{key, Quota, Rule};
    ///
    /// // Five wrong passwords a quarter of an hour; right ones are free.
    /// Rule::sliding_log("logins", Quota::per(5, std::time::Duration::from_secs(900)))
    ///     .key(key::ip())
    ///     .count_if(|response| response.status == 401);
    /// ```
    pub fn count_if<F>(mut self, closure: F) -> Rule
    where
        F: Fn(&response::Parts) -> bool + Send + Sync + 'static,
    {
        self.settle.count_if = Some(Arc::new(closure));
        self
    }

    /// Keeps a share of the limit for critical requests: those that the closure is true for may use all of it, the others no more
    /// than the rest. Under [`Limiter::acquire`](crate::Limiter::acquire), [`Call::critical`](crate::Call::critical) says which
    /// they are.
    ///
    /// ```
    /// use sluicegate::{key, Quota, Rule};
    ///
    /// // However many reports are drawn up, a fifth stays for those who pay.
    /// Rule::fixed_window("fleet", Quota::per_second(10_000))
    ///     .key(key::global())
    ///     .reserve(0.20, |req| req.uri.path() == "/v1/charges")
    ///     .protects_service();
    /// ```
    ///
    /// Of windows and of places at the same time, ordinary requests have at most the rest. A bucket is never emptied below the
    /// reserve by them, and what flows in above it is theirs too. Each caller's quota fields show what that request could use.
    pub fn reserve<F>(mut self, share: f64, is_critical: F) -> Rule
    where
        F: Fn(&Parts) -> bool + Send + Sync + 'static,
    {
        self.reserve = Some(Reserve { share, is_critical: Arc::new(is_critical) });
        self
    }

    /// Shares the limit fairly among tenants, told apart by a key of their own: while it is short of what is asked for, whoever has
    /// had less comes first. The share is what stays free for others at most, whatever one tenant asks for, and what all of at least
    /// `1 / share` tenants can have; shares that nobody asks for may be used by the rest.
    ///
    /// ```
    /// use sluicegate::{key, Quota, Rule};
    ///
    /// // A hundred a second for all tenants together. The five busiest do not starve the others.
    /// Rule::token_bucket("exports", Quota::per_second(100)).key(key::global()).fair_share(0.2, key::header("x-tenant"));
    /// ```
    ///
    /// Requests without such a key are one tenant together. Without HTTP, [`Call::tenant`](crate::Call::tenant) names it. How it
    /// works is in the [guide](crate::guide::quotas#fair-shares).
    pub fn fair_share(mut self, share: f64, tenant: impl Into<KeyBy>) -> Rule {
        self.fair_share = Some(FairShare { share, tenant: tenant.into() });
        self
    }

    /// Says that the rule protects the service, and does not hold its caller to a quota. What it refuses is answered with 503 and
    /// the problem type `temporary-reduced-capacity`, unless a quota refuses it too: then with 429. Quota fields do not show the
    /// rule, nor do refusals name it; the wait of a refusal is for all of them.
    pub fn protects_service(mut self) -> Rule {
        self.protects_service = true;
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
        if self.start != Start::Aligned(0) && self.algorithm != Algorithm::FixedWindow {
            return bad(
                "window",
                format!(
                    "only fixed windows have an offset or begin with the first request; a {} does not",
                    self.algorithm
                ),
            );
        }
        self.check_ban()?;
        let quota = self.lease.map_or(self.quota, |lease| Quota::per(self.quota.amount(), lease));
        let limit = Limit::new(name, self.algorithm, quota, self.start)?;
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
