//! The promise of `retry_after`: a refused request that comes again alone is admitted exactly then, and refused a
//! microsecond earlier. Coarse ticks keep it too, since their verdicts change only at the edges of ticks.

use std::{fmt::Debug, time::Duration};

use proptest::{
    prelude::*,
    strategy::ValueTree,
    test_runner::{Config, TestRng, TestRunner},
};
use sluicegate::{Call, Clock, Decision, Limiter, LimiterBuilder, ManualClock, Quota};

use crate::{
    scenarios::{KINDS, capacity, rule},
    support::{
        server::VERSIONS,
        stores::{BEGIN, Backend, every_store},
    },
};

const MICROSECOND: Duration = Duration::from_micros(1);

/// One thing that happens. Times are in thousandths of the window, costs in thousandths of the capacity.
#[derive(Clone, Debug)]
enum Step {
    Pass(u64),
    PassMicros(u64),
    Back(u64),
    Change(usize),
    Spend(u64),
    /// Spends until it is refused, and puts the promise to the test; also at this share of the wait.
    Probe(u64, u64),
}

fn step() -> impl Strategy<Value = Step> {
    let share = || prop_oneof![2 => Just(0u64), 2 => 1u64..300, 3 => 200u64..=1_000];
    prop_oneof![
        4 => (0u64..400).prop_map(Step::Pass),
        1 => (900u64..2_100).prop_map(Step::Pass),
        3 => (0u64..50).prop_map(Step::PassMicros),
        2 => (0u64..2_000).prop_map(Step::Back),
        3 => (0usize..100).prop_map(Step::Change),
        6 => share().prop_map(Step::Spend),
        10 => (share(), 0u64..1_000).prop_map(|(cost, at)| Step::Probe(cost, at)),
    ]
}

/// Quotas that are odd on purpose: coprime, tiny, huge, and some that tick in 10 or 1,000 microseconds.
fn quota() -> impl Strategy<Value = Quota> {
    const DAY: u64 = 86_400_000_000;
    let windows = prop_oneof![
        Just(1_000u64),
        Just(7_001),
        Just(1_000_000),
        Just(60_000_000),
        Just(DAY),
        Just(DAY * 366),
        1_000u64..10_000_000,
    ];
    let amounts = prop_oneof![1u64..12, 1u64..200, Just(1_000), Just(10_007), Just(8_388_607)];
    let per = |amount, window| Quota::per(amount, Duration::from_micros(window));
    prop_oneof![
        8 => (amounts, windows, 1u64..40).prop_map(move |(amount, window, burst)| per(amount, window).burst(burst)),
        1 => Just(per(1_000_000, DAY).burst(7)),
        1 => Just(per(999_983, DAY).burst(1_000_000)),
        1 => Just(per(999_999_937, 366 * DAY).burst(100_000)),
    ]
}

/// The same histories on every run: a failure can be looked into.
fn histories(seed: u8) -> impl Iterator<Item = (Vec<Quota>, Vec<Step>)> {
    let mut runner = TestRunner::new_with_rng(Config::default(), TestRng::from_seed(Default::default(), &[seed; 32]));
    let strategy = (prop::collection::vec(quota(), 40), prop::collection::vec(step(), 60));
    std::iter::from_fn(move || Some(strategy.new_tree(&mut runner).expect("a history").current()))
}

/// How much was tried, so that a test that tries nothing fails.
#[derive(Debug, Default)]
struct Tally {
    probes: u32,
    /// First probes after the quota changed.
    changed: u32,
    /// First probes after the clock stepped back.
    stepped: u32,
    /// Probes where more than one rule refused.
    together: u32,
}

/// One history on one store.
struct Walk<'a> {
    backend: &'a Backend,
    kinds: &'a [&'static str],
    key: String,
    clock: ManualClock,
    limiter: Limiter,
    quotas: Vec<Quota>,
    now: Duration,
}

fn build(backend: &Backend, kinds: &[&str], quotas: &[Quota], clock: &ManualClock) -> Option<Limiter> {
    let builder = backend.builder().clock(Clock::manual(clock.clone()));
    let rules = kinds.iter().zip(quotas).map(|(kind, quota)| rule(kind, kind, *quota));
    // Some quotas do not suit some algorithms; another is tried then.
    rules.fold(builder, LimiterBuilder::rule).build().ok()
}

impl<'a> Walk<'a> {
    fn new(backend: &'a Backend, kinds: &'a [&'static str], key: String, quotas: &[Quota]) -> Option<Walk<'a>> {
        let clock = ManualClock::new(BEGIN);
        let limiter = build(backend, kinds, quotas, &clock)?;
        Some(Walk { backend, kinds, key, clock, limiter, quotas: quotas.to_vec(), now: BEGIN })
    }

    /// A share of each rule's capacity, at least one unit.
    fn call(&self, share: u64) -> Call<'a> {
        self.kinds.iter().zip(&self.quotas).fold(Call::new(), |call, (kind, quota)| {
            let units = u128::from(capacity(kind, *quota)) * u128::from(share) / 1_000;
            call.key(kind, &*self.key).cost((units as u64).max(1))
        })
    }

    fn window(&self, thousandths: u64) -> Duration {
        part(self.quotas[0].window(), thousandths)
    }

    async fn acquire_at(&self, at: Duration, share: u64) -> Decision {
        self.clock.set(at);
        let decision = self.limiter.acquire(self.call(share)).await;
        assert!(decision.failure().is_none(), "{}: {decision:?}", self.backend.name);
        decision
    }

    async fn run(mut self, choices: &[Quota], steps: &[Step], tally: &mut Tally) {
        let (mut changed, mut stepped) = (false, false);
        for (place, step) in steps.iter().enumerate() {
            match *step {
                Step::Pass(thousandths) => self.now += self.window(thousandths),
                Step::PassMicros(micros) => self.now += Duration::from_micros(micros),
                Step::Back(thousandths) => {
                    self.now = self.now.saturating_sub(self.window(thousandths));
                    stepped = true;
                }
                Step::Change(choice) => {
                    let quotas = &choices[choice % (choices.len() - self.kinds.len())..][..self.kinds.len()];
                    if let Some(limiter) = build(self.backend, self.kinds, quotas, &self.clock) {
                        (self.limiter, self.quotas, changed) = (limiter, quotas.to_vec(), true);
                    }
                }
                Step::Spend(share) => drop(self.acquire_at(self.now, share).await),
                Step::Probe(share, at) => {
                    let context = (&self.backend.name, self.limiter.clone(), &steps[..=place]);
                    if let Some(refusing) = self.probe(share, at, &context).await {
                        tally.probes += 1;
                        tally.changed += u32::from(changed);
                        tally.stepped += u32::from(stepped);
                        tally.together += u32::from(refusing > 1);
                        (changed, stepped) = (false, false);
                    }
                }
            }
        }
    }

    /// Spends until it is refused, then holds the refusal to its word. Answers how many rules refused.
    async fn probe(&mut self, share: u64, at: u64, context: &dyn Debug) -> Option<usize> {
        for _ in 0..6 {
            self.clock.set(self.now);
            let before = format!("{:?}", self.limiter.peek(self.call(share)).await);
            let decision = self.acquire_at(self.now, share).await;
            if decision.is_allowed() {
                continue;
            }
            assert_eq!(before, format!("{decision:?}"), "a peek saw something else: {context:?}");
            let after = format!("{:?}", self.limiter.peek(self.call(share)).await);
            assert_eq!(before, after, "a refusal spent something: {context:?}");
            let waits: Vec<Duration> = decision.standings().filter_map(|standing| standing.retry_after()).collect();
            let wait = decision.retry_after().expect("a cost within the capacity");
            assert_eq!(Some(wait), waits.iter().max().copied(), "not the longest wait: {context:?}");
            let then = self.now + wait;
            for early in [wait - part(wait, at), MICROSECOND] {
                let again = self.acquire_at(then - early, share).await;
                assert_eq!(again.retry_after(), Some(early), "{early:?} before the promised time: {context:?}");
            }
            let at_last = self.acquire_at(then, share).await;
            assert!(at_last.is_allowed(), "refused at the promised time, {wait:?} after: {at_last:?} {context:?}");
            self.now = then;
            self.check_reset(&at_last, context).await;
            return Some(waits.len());
        }
        None
    }

    /// `reset_after` of an admitted request is as exact. Only looks, so that time can go on from where it was.
    async fn check_reset(&self, admitted: &Decision, context: &dyn Debug) {
        let [kind] = self.kinds else { return };
        let edge = self.now + admitted.standing(kind).expect("a standing").reset_after();
        let peek_at = async |at| {
            self.clock.set(at);
            let decision = self.limiter.peek(self.call(0)).await;
            let standing = decision.standing(kind).expect("a standing");
            (standing.remaining(), standing.reset_after())
        };
        let (before, left) = peek_at(edge - MICROSECOND).await;
        assert_eq!(left, MICROSECOND, "just before the reset: {context:?}");
        let (remaining, left) = peek_at(edge).await;
        match *kind {
            "sliding_log" => assert!(remaining > before, "the oldest entry did not leave: {context:?}"),
            // Its next window begins, and what was used fades from there.
            "sliding_counter" => {
                assert!(left.is_zero() || left == self.window(1_000), "not the next window: {context:?}")
            }
            _ => {
                let all = capacity(kind, self.quotas[0]);
                assert_eq!((remaining, left), (all, Duration::ZERO), "not untouched at the reset: {context:?}");
            }
        }
    }
}

/// In whole microseconds.
fn part(of: Duration, thousandths: u64) -> Duration {
    Duration::from_micros((of.as_micros() * u128::from(thousandths) / 1_000) as u64)
}

async fn walk(backend: &Backend, kinds: &[&'static str], seed: u8, count: usize) -> Tally {
    let mut tally = Tally::default();
    for (number, (quotas, steps)) in histories(seed).take(count).enumerate() {
        let first = quotas
            .windows(kinds.len())
            .find_map(|quotas| Walk::new(backend, kinds, format!("{seed}-{number}"), quotas));
        first.expect("quotas that suit").run(&quotas, &steps, &mut tally).await;
    }
    tally
}

#[tokio::test]
async fn every_algorithm_keeps_its_promise_in_memory() {
    for (seed, kind) in (100..).zip(KINDS) {
        let tally = walk(&Backend::memory(), &[kind], seed, 80).await;
        assert!(tally.probes > 1_000 && tally.changed > 200 && tally.stepped > 200, "{kind}: {tally:?}");
    }
}

#[tokio::test]
async fn every_algorithm_keeps_its_promise_on_servers() {
    for version in VERSIONS {
        let backend = Backend::redis(version);
        for (seed, kind) in (110..).zip(KINDS) {
            let tally = walk(&backend, &[kind], seed, 7).await;
            assert!(tally.probes > 60 && tally.changed > 15 && tally.stepped > 10, "{kind}: {tally:?}");
        }
    }
}

#[tokio::test]
async fn rules_that_refuse_together_promise_the_longest_wait() {
    for backend in every_store() {
        let count = if backend.is_memory() { 60 } else { 6 };
        for (seed, kinds) in (120..).zip([
            &["token_bucket", "fixed_window"][..],
            &["sliding_log", "gcra", "sliding_counter"],
            &["first_window", "leaky_bucket"],
            &KINDS,
        ]) {
            let tally = walk(&backend, kinds, seed, count).await;
            assert!(tally.probes > 3 * count as u32 && tally.together > count as u32, "{kinds:?}: {tally:?}");
        }
    }
}

#[tokio::test]
async fn coarse_ticks_change_verdicts_only_at_their_edges() {
    let day = Duration::from_secs(86_400);
    let cases = [
        (Quota::per(999_983, day).burst(1_000_000), 10, &["token_bucket", "gcra", "leaky_bucket"][..]),
        (Quota::per(999_999_937, 366 * day).burst(100_000), 1_000, &["token_bucket", "gcra", "leaky_bucket"]),
        (Quota::per(1_000_000, day), 10, &["sliding_counter"]),
    ];
    for backend in every_store() {
        for (place, (quota, tick, kinds)) in cases.iter().enumerate() {
            for kind in *kinds {
                let kinds = [*kind];
                let mut walk =
                    Walk::new(&backend, &kinds, format!("coarse-{place}"), &[*quota]).expect("a sound quota");
                for share in [1_000, 1, 333, 77, 1_000, 500] {
                    let _ = walk.acquire_at(walk.now, 1_000).await;
                    let context = format!("{kind} of {quota} on {}", backend.name);
                    assert_eq!(walk.probe(share, 400, &context).await, Some(1), "{context}");
                    assert_eq!(walk.now.as_micros() % tick, 0, "admitted between ticks: {context}");
                    walk.now += Duration::from_micros(3);
                }
            }
        }
    }
}

#[tokio::test]
async fn a_cost_above_the_capacity_never_fits() {
    let quota = Quota::per_minute(10).burst(6);
    for backend in every_store() {
        for kind in KINDS {
            let clock = ManualClock::new(BEGIN);
            let limiter =
                backend.limiter(&clock, [rule(kind, kind, quota), rule("sliding_log", "other", Quota::per_minute(1))]);
            let most = capacity(kind, quota);
            for spent in [0, 1, most - 1] {
                let paid = limiter.acquire(Call::new().key(kind, "k").cost(spent)).await;
                assert!(paid.is_allowed() && paid.failure().is_none(), "{kind} on {}: {paid:?}", backend.name);
                for cost in [most + 1, 1 << 32, (1 << 53) - 1, 1 << 53, (1 << 53) + 1, u64::MAX] {
                    let context = format!("{kind} on {}: {cost} after {spent}", backend.name);
                    let peek = async || format!("{:?}", limiter.peek([(kind, "k")]).await);
                    let before = peek().await;
                    let decision = limiter.acquire(Call::new().key(kind, "k").cost(cost)).await;
                    assert!(decision.is_refused() && decision.can_never_fit(), "{context}: {decision:?}");
                    assert_eq!(decision.retry_after(), None, "{context}");
                    assert_eq!(before, peek().await, "{context}: a refusal spent something");
                }
            }
            // Beside a rule that only has to wait, it is still never.
            let both = |cost| Call::new().key("other", kind).key(kind, "k").cost(cost);
            assert!(limiter.acquire([("other", kind)]).await.is_allowed());
            let decision = limiter.acquire(both(most + 1)).await;
            assert!(decision.can_never_fit() && decision.retry_after().is_none(), "{kind}: {decision:?}");
            assert_eq!(decision.standing("other").and_then(|other| other.retry_after()), Some(Duration::from_secs(60)));
        }
    }
}
