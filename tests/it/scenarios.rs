//! Behaviour as numbers, on every store: each row of `tests/data/scenarios.json` to the microsecond, and what is left when
//! one quota follows another. The data file says by name what was left out of it and why.

use std::time::Duration;

use serde::Deserialize;
use sluicegate::{Call, Clock, Decision, Limiter, LimiterBuilder, ManualClock, Quota, Rule, key};

use crate::support::stores::{BEGIN, Backend, every_store};

/// Where `t_ms` 0 lies: a multiple of every window that is aligned to the epoch, so that rows begin at an edge.
const ORIGIN: Duration = Duration::from_secs(1_728_000_000);

/// The six algorithms, and windows that begin with the first request.
pub(crate) const KINDS: [&str; 7] =
    ["fixed_window", "first_window", "sliding_log", "sliding_counter", "token_bucket", "gcra", "leaky_bucket"];

/// Whether the kind has a burst.
pub(crate) fn is_bucket(kind: &str) -> bool {
    ["token_bucket", "gcra", "leaky_bucket"].contains(&kind)
}

/// A rule of a kind under any name. A burst is left out where there can be none.
pub(crate) fn rule(kind: &str, name: &str, quota: Quota) -> Rule {
    let quota = if is_bucket(kind) { quota } else { Quota::per(quota.amount(), quota.window()) };
    match kind {
        "fixed_window" => Rule::fixed_window(name, quota),
        "first_window" => Rule::fixed_window(name, quota).from_first_request(),
        "sliding_log" => Rule::sliding_log(name, quota),
        "sliding_counter" => Rule::sliding_counter(name, quota),
        "token_bucket" => Rule::token_bucket(name, quota),
        "gcra" => Rule::gcra(name, quota),
        "leaky_bucket" => Rule::leaky_bucket(name, quota),
        other => panic!("no kind is called {other}"),
    }
    .key(key::given())
}

/// What can be spent at once.
pub(crate) fn capacity(kind: &str, quota: Quota) -> u64 {
    if is_bucket(kind) { quota.capacity() } else { quota.amount() }
}

/// The longest that anyone waits for all of the capacity: a bucket's time to full, one window, two of a sliding counter.
pub(crate) fn longest_wait(kind: &str, quota: Quota) -> Duration {
    match kind {
        "sliding_counter" => quota.window() * 2,
        kind if is_bucket(kind) => {
            let units = quota.window().as_micros() * u128::from(quota.capacity());
            // A coarse tick may add to the rounding.
            Duration::from_micros(units.div_ceil(u128::from(quota.amount())) as u64 + 1_000)
        }
        _ => quota.window(),
    }
}

/// A misspelt field must not hide a check, so unknown ones are errors.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    rows: Vec<Row>,
    left_out: Vec<LeftOut>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LeftOut {
    what: String,
    why: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    name: String,
    rules: Vec<RuleData>,
    /// The limiter cannot be built, and this field is to blame.
    build_error: Option<String>,
    steps: Vec<Step>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleData {
    algorithm: String,
    amount: u64,
    window_ms: u64,
    burst: Option<u64>,
    /// Units to spend at 0 before the first step, for rows that begin with a bucket less than full.
    #[serde(default)]
    spend_first: u64,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct QuotaData {
    amount: u64,
    window_ms: u64,
    burst: Option<u64>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Op {
    #[default]
    Acquire,
    Peek,
    Reset,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    /// From the origin; may be negative.
    t_ms: i64,
    #[serde(default)]
    op: Op,
    #[serde(default)]
    cost: u64,
    #[serde(default = "once")]
    repeat: u32,
    /// From this step on the rule has another quota: a new limiter over the same store.
    quota: Option<QuotaData>,
    allowed: Option<bool>,
    remaining: Option<u64>,
    retry_after_ms: Option<u64>,
    reset_after_ms: Option<u64>,
    /// The cost can never fit.
    #[serde(default)]
    never: bool,
}

fn once() -> u32 {
    1
}

impl RuleData {
    fn rule(&self, name: &str) -> Rule {
        let quota = Quota::per(self.amount, Duration::from_millis(self.window_ms));
        assert!(self.burst.is_none() || is_bucket(&self.algorithm), "a {} has no burst", self.algorithm);
        if self.algorithm == "fixed_window" {
            let beyond = ORIGIN.as_millis() % u128::from(self.window_ms);
            assert_eq!(beyond, 0, "the origin is no edge of a window of {} ms", self.window_ms);
        }
        rule(&self.algorithm, name, self.burst.map_or(quota, |burst| quota.burst(burst)))
    }
}

const NAMES: [&str; 2] = ["first", "second"];

/// The rules of one row over one store.
struct Run<'a> {
    backend: &'a Backend,
    clock: ManualClock,
    rules: Vec<RuleData>,
}

impl Run<'_> {
    fn builder(&self) -> LimiterBuilder {
        assert!(self.rules.len() <= NAMES.len(), "name more rules");
        let builder = self.backend.builder().clock(Clock::manual(self.clock.clone()));
        NAMES.iter().zip(&self.rules).fold(builder, |builder, (name, rule)| builder.rule(rule.rule(name)))
    }

    fn limiter(&self) -> Limiter {
        self.builder().build().expect("sound rules")
    }

    fn call(&self, cost: impl Fn(&RuleData) -> u64) -> Call<'static> {
        NAMES.iter().zip(&self.rules).fold(Call::new(), |call, (name, rule)| call.key(name, "k").cost(cost(rule)))
    }

    async fn row(&mut self, row: &Row) {
        let context = format!("{} on {}", row.name, self.backend.name);
        if let Some(field) = &row.build_error {
            let error = self.builder().build().expect_err(&context);
            assert_eq!(error.field(), field, "{context}: {error}");
            return;
        }
        let mut limiter = self.limiter();
        let first = limiter.acquire(self.call(|rule| rule.spend_first)).await;
        assert!(first.is_allowed() && first.failure().is_none(), "{context}: spend_first: {first:?}");
        for (place, step) in row.steps.iter().enumerate() {
            let context = format!("{context}: step {place}");
            let since_epoch = ORIGIN.as_millis() as i64 + step.t_ms;
            self.clock.set(Duration::from_millis(since_epoch as u64));
            if let Some(quota) = &step.quota {
                let [rule] = &mut *self.rules else { panic!("{context}: which rule changes?") };
                (rule.amount, rule.window_ms, rule.burst) = (quota.amount, quota.window_ms, quota.burst);
                limiter = self.limiter();
            }
            for _ in 0..step.repeat {
                let call = || self.call(|_| step.cost);
                let decision = match step.op {
                    Op::Acquire => limiter.acquire(call()).await,
                    Op::Peek => limiter.peek(call()).await,
                    Op::Reset => {
                        limiter.reset(call()).await.expect(&context);
                        limiter.peek(call()).await
                    }
                };
                check(&decision, step, &context);
            }
        }
    }
}

fn check(decision: &Decision, step: &Step, context: &str) {
    let millis = |millis: u64| Duration::from_millis(millis);
    assert!(decision.failure().is_none(), "{context}: {decision:?}");
    let allowed = step.allowed.unwrap_or(true);
    assert_eq!(decision.is_allowed(), allowed, "{context}: allowed, {decision:?}");
    assert_eq!(decision.can_never_fit(), step.never, "{context}: never, {decision:?}");
    // What waits says how long, and nothing else does.
    assert_eq!(decision.retry_after().is_some(), !allowed && !step.never, "{context}: a wait, {decision:?}");
    if let Some(wait) = step.retry_after_ms {
        assert_eq!(decision.retry_after(), Some(millis(wait)), "{context}: retry_after, {decision:?}");
    }
    let mut standings = decision.standings();
    let standing = standings.next().expect("a standing");
    if let Some(remaining) = step.remaining {
        assert!(standings.next().is_none(), "{context}: whose remaining?");
        assert_eq!(standing.remaining(), remaining, "{context}: remaining, {decision:?}");
    }
    if let Some(reset) = step.reset_after_ms {
        assert!(standings.next().is_none(), "{context}: whose reset_after?");
        assert_eq!(standing.reset_after(), millis(reset), "{context}: reset_after, {decision:?}");
    }
}

#[tokio::test]
async fn every_row_holds_on_every_store() {
    let table: Table = serde_json::from_str(include_str!("../data/scenarios.json")).expect("a sound table");
    assert!(table.rows.len() > 40, "only {} rows", table.rows.len());
    assert!(table.left_out.iter().all(|entry| !entry.what.is_empty() && !entry.why.is_empty()), "say what and why");
    for backend in every_store() {
        for (place, row) in table.rows.iter().enumerate() {
            // Rows share the key and the rules' names, so each has a namespace of its own.
            let mut backend = backend.clone();
            backend.namespace = format!("{}-{place}", backend.namespace);
            Run { backend: &backend, clock: ManualClock::new(ORIGIN), rules: row.rules.clone() }.row(row).await;
        }
    }
}

/// Amount, burst and window, each lowered and raised; odd ones; two whose pace GCRA writes down alike.
fn quotas() -> [Quota; 12] {
    let per = |amount, micros, burst| Quota::per(amount, Duration::from_micros(micros)).burst(burst);
    [
        per(10, 60_000_000, 10),
        per(4, 60_000_000, 10),
        per(25, 60_000_000, 10),
        per(10, 60_000_000, 3),
        per(10, 60_000_000, 33),
        per(10, 600_000_000, 10),
        per(10, 7_000_000, 10),
        per(7, 61_000_003, 12),
        per(1_000, 60_000_000, 1_000),
        per(999_983, 86_400_000_000, 1_000_000),
        per(1, 1_000, 100),
        per(1, 1_023, 100),
    ]
}

#[tokio::test]
async fn a_changed_quota_keeps_what_was_used() {
    for backend in every_store() {
        for kind in KINDS {
            for (number, (old, new)) in quotas().iter().flat_map(|old| quotas().map(|new| (*old, new))).enumerate() {
                for share in 1..=if backend.is_memory() { 3 } else { 1 } {
                    changed_quota(&backend, kind, old, new, share, format!("{kind}-{number}-{share}")).await;
                }
            }
        }
    }
}

/// Spends a share of the old quota, all of it for 1, and looks at it under the new one.
async fn changed_quota(backend: &Backend, kind: &'static str, old: Quota, new: Quota, share: u64, key: String) {
    let context = format!("{kind} on {}: from {old} to {new}, a {share}th used", backend.name);
    let call = |units| Call::new().key("r", &*key).cost(units);
    let clock = ManualClock::new(BEGIN);
    let limiter = |quota| backend.limiter(&clock, [rule(kind, "r", quota)]);
    let (was, is) = (capacity(kind, old), capacity(kind, new));
    let used = was / share;
    let spent = limiter(old).acquire(call(used)).await;
    assert!(spent.is_allowed() && spent.failure().is_none(), "{context}: {spent:?}");

    let limiter = limiter(new);
    let peek = limiter.peek(call(1)).await;
    let remaining = peek.standing("r").expect(&context).remaining();
    // GCRA remembers time, not units, and its pace to a sixteenth.
    let same_rate = old.amount() * new.window().as_micros() as u64 == new.amount() * old.window().as_micros() as u64;
    let slack = if kind == "gcra" && !same_rate { is.div_ceil(16) } else { 0 };
    assert!(remaining <= is, "{context}: {remaining} remain of {is}");
    let most = was - used + is.saturating_sub(was) + slack;
    assert!(remaining <= most, "{context}: {remaining} remain, {most} at most");
    let kept = if kind == "token_bucket" { is.min(was - used) } else { is.saturating_sub(used) };
    assert!(remaining.abs_diff(kept) <= slack, "{context}: {remaining} remain, not {kept}");

    let all = limiter.acquire(call(is)).await;
    assert!(all.failure().is_none(), "{context}: {all:?}");
    assert_eq!(all.is_allowed(), remaining == is, "{context}: {all:?}");
    if let Some(wait) = all.retry_after() {
        assert!(wait <= longest_wait(kind, new), "{context}: waits {wait:?}");
        clock.advance(wait);
        assert!(limiter.acquire(call(is)).await.is_allowed(), "{context}: refused after {wait:?}");
    }
}
