//! How much is left, without spending: over every store, as one look, and as callers are told over HTTP.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use sluicegate::{
    Call, Decision, Limiter, LimiterBuilder, ManualClock, Observer, Quota, Resilient, Rule, StoreErrorKind, key,
    store::Purpose, usage::Usage,
};

use crate::support::{
    flaky::{AtOnce, Flaky, Mood},
    noting::Noting,
    stores::{BEGIN, every_store},
};

const ALL: [&str; 8] = ["window", "log", "counter", "bucket", "gcra", "leaky", "places", "gold"];

/// One of each kind, five of each.
fn rules() -> [Rule; 8] {
    let quota = Quota::per_minute(5);
    [
        Rule::fixed_window("window", quota),
        Rule::sliding_log("log", quota),
        Rule::sliding_counter("counter", quota),
        Rule::token_bucket("bucket", Quota::per_minute(60).burst(5)),
        Rule::gcra("gcra", Quota::per_minute(60).burst(5)),
        Rule::leaky_bucket("leaky", Quota::per_minute(60).burst(5)),
        Rule::concurrency("places", 5),
        Rule::token_bucket("gold", Quota::unlimited()),
    ]
    .map(|rule| rule.key(key::given()))
}

fn call(user: &str) -> Call<'_> {
    ALL.into_iter().fold(Call::new(), |call, rule| call.key(rule, user))
}

fn used(usage: &Usage) -> Vec<Option<u64>> {
    usage.rules().map(|rule| rule.used()).collect()
}

/// Every rule says the same as the decision that came just before.
fn assert_agrees(usage: &Usage, decision: &Decision, place: &str) {
    for standing in decision.standings() {
        let rule = usage.rule(standing.rule()).expect("it has a key");
        let place = format!("{place}: {}", rule.rule());
        assert_eq!(rule.remaining(), Some(standing.remaining()), "{place}");
        assert_eq!(rule.reset_after(), standing.reset_after(), "{place}");
        assert_eq!(rule.limit(), standing.limit(), "{place}");
    }
}

#[tokio::test]
async fn it_tells_of_every_rule_and_spends_nothing_on_every_store() {
    for backend in every_store() {
        let name = &backend.name;
        let clock = ManualClock::new(BEGIN);
        let limiter = backend.limiter(&clock, rules());
        let untouched: Vec<Option<u64>> = [[Some(0); 7].as_slice(), &[None]].concat();
        assert_eq!(used(&limiter.usage("alice").await.expect("an answer")), untouched, "{name}");
        let mut held = Vec::new();
        for spent in 1..=5 {
            let decision = limiter.acquire(call("alice")).await;
            assert!(decision.is_allowed(), "{name}: {decision:?}");
            for _ in 0..2 {
                let usage = limiter.usage("alice").await.expect("an answer");
                assert_eq!(usage.rules().map(|rule| rule.rule()).collect::<Vec<_>>(), ALL, "{name}");
                assert_eq!(used(&usage), [[Some(spent); 7].as_slice(), &[None]].concat(), "{name}");
                assert_agrees(&usage, &decision, name);
                assert_eq!(usage.is_refused(), spent == 5, "{name}");
            }
            held.push(decision);
        }
        let refused = limiter.acquire(call("alice")).await;
        let usage = limiter.usage("alice").await.expect("an answer");
        assert_agrees(&usage, &refused, name);
        assert_eq!(usage.retry_after(), refused.retry_after(), "{name}");
        for standing in refused.standings() {
            let rule = usage.rule(standing.rule()).expect("it has a key");
            assert!(rule.is_refused(), "{name}: {rule:?}");
            assert_eq!(rule.retry_after(), standing.retry_after(), "{name}: {rule:?}");
        }
        let gold = usage.rule("gold").expect("it has a key");
        assert!(gold.is_unlimited() && !gold.is_refused() && gold.remaining().is_none(), "{name}");
        assert_eq!(used(&limiter.usage("bob").await.expect("an answer")), untouched, "{name}");
        // The usual cost is the question: in a second each bucket has one unit.
        clock.advance(Duration::from_secs(1));
        let usage = limiter.usage("alice").await.expect("an answer");
        let fits: Vec<&str> = usage.rules().filter(|rule| !rule.is_refused()).map(|rule| rule.rule()).collect();
        assert_eq!(fits, ["bucket", "gcra", "leaky", "gold"], "{name}");

        limiter.reset_key("alice").await.expect("forgotten");
        let usage = limiter.usage("alice").await.expect("an answer");
        assert_eq!(used(&usage), untouched, "{name}");
        assert!(usage.rules().all(|rule| rule.reset_after() == Duration::ZERO && !rule.is_refused()), "{name}");
        drop(held);
        for _ in 0..3 {
            assert!(limiter.acquire(call("bob")).await.is_allowed(), "{name}");
        }
        limiter.reset([("log", "bob")]).await.expect("forgotten");
        let usage = limiter.usage("bob").await.expect("an answer");
        let of = |rule: &str| usage.rule(rule).and_then(|rule| rule.used());
        assert_eq!((of("log"), of("window"), of("bucket")), (Some(0), Some(3), Some(3)), "{name}");
    }
}

#[tokio::test]
async fn keys_by_name_and_costs_hold_on_every_store() {
    for backend in every_store() {
        let name = &backend.name;
        let costly = Rule::token_bucket("costly", Quota::per_minute(60).burst(5)).key(key::given()).cost(3);
        let limiter = backend.limiter(&ManualClock::new(BEGIN), rules().into_iter().chain([costly]));
        assert!(limiter.acquire(Call::new().key("log", 7).cost(4).key("costly", "x")).await.is_allowed(), "{name}");
        let both = Call::new().key("costly", "x").key("log", 7).cost(2).key("gold", "x").key("window", None::<u8>);
        let usage = limiter.usage_of(both).await.expect("an answer");
        let seen: Vec<_> = usage.rules().map(|rule| (rule.rule(), rule.used(), rule.is_refused())).collect();
        // One is left where the call costs two, and two where the usual cost is three.
        let expected = [("log", Some(4), true), ("gold", None, false), ("costly", Some(3), true)];
        assert_eq!(seen, expected, "{name}");
        assert_eq!(usage.rule("costly").and_then(|rule| rule.retry_after()), Some(Duration::from_secs(1)), "{name}");
        let unknown = limiter.usage_of([("nobody", "x")]).await.expect_err("no such rule");
        assert_eq!(unknown.kind(), StoreErrorKind::Permanent, "{name}");
        assert!(limiter.usage_of([("log", "x"), ("log", "y")]).await.is_err(), "{name}");
        let nothing = limiter.usage(None::<&str>).await.expect("nothing to ask");
        assert!(nothing.rules().next().is_none() && !nothing.is_refused(), "{name}");
        assert_eq!(limiter.reset_key(None::<&str>).await, Ok(()), "{name}");
    }
}

#[tokio::test]
async fn what_is_owed_is_waited_for_and_forgotten_on_every_store() {
    for backend in every_store() {
        let name = &backend.name;
        let rule = Rule::token_bucket("tokens", Quota::per_minute(60).burst(5)).key(key::given());
        let limiter = backend.limiter(&ManualClock::new(BEGIN), [rule]);
        assert!(limiter.charge([("tokens", "alice")]).await.settle(12), "{name}");
        limiter.settled().await;
        let usage = limiter.usage("alice").await.expect("an answer");
        let rule = usage.rule("tokens").expect("it has a key");
        assert_eq!((rule.used(), rule.remaining(), rule.is_refused()), (Some(5), Some(0), true), "{name}");
        // Seven are owed, and one is asked for.
        assert_eq!(rule.retry_after(), Some(Duration::from_secs(8)), "{name}");
        limiter.reset_key("alice").await.expect("forgotten");
        let usage = limiter.usage("alice").await.expect("an answer");
        assert_eq!(usage.rule("tokens").and_then(|rule| rule.remaining()), Some(5), "{name}");
    }
}

/// Counts the decisions it is told of.
#[derive(Clone, Default)]
struct Decisions(Arc<AtomicUsize>);

impl Observer for Decisions {
    fn decided(&self, _: &Decision) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn it_is_one_look_and_no_decision() {
    let (store, decisions) = (Noting::default(), Decisions::default());
    let builder = Limiter::builder(store.clone()).observer(decisions.clone());
    let limiter = rules().into_iter().fold(builder, LimiterBuilder::rule).build().expect("sound");
    limiter.usage("alice").await.expect("an answer");
    assert_eq!(store.asked(), [(Purpose::Peek, 7)]);
    limiter.usage_of([("gold", "alice")]).await.expect("an answer");
    limiter.usage_of(Call::new()).await.expect("an answer");
    assert_eq!(store.asked(), [], "there is nothing to ask");
    assert_eq!(decisions.0.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_store_that_fails_gives_no_numbers() {
    let fails = Mood::Fails(StoreErrorKind::Unavailable);
    let build = |store: Box<dyn FnOnce(Flaky) -> LimiterBuilder>, flaky: &Flaky| {
        let limiter = rules().into_iter().fold(store(flaky.clone()), LimiterBuilder::rule).build().expect("sound");
        flaky.set(fails);
        limiter
    };
    let around: [Box<dyn FnOnce(Flaky) -> LimiterBuilder>; 3] = [
        Box::new(Limiter::builder),
        Box::new(|flaky| Limiter::builder(AtOnce(flaky))),
        // It would decide by counts of its own, which are not the truth.
        Box::new(|flaky| Limiter::builder(Resilient::new(flaky))),
    ];
    for store in around {
        let flaky = Flaky::default();
        let limiter = build(store, &flaky);
        let error = limiter.usage("alice").await.expect_err("no answer");
        assert_eq!(error.kind(), StoreErrorKind::Unavailable);
        flaky.set(Mood::Well);
        assert!(limiter.usage("alice").await.is_ok());
    }
}
