//! What is around a store is a store itself, and may be asked like one.

use std::time::Duration;

use sluicegate::{
    Limit, Limiter, OnFailure, Quota, RedisStore, Resilient, Rule, StoreErrorKind, key,
    store::{Answer, Ask, Id, Line, Purpose, Scope, Store, Time},
};

use super::{DOWN, rule};
use crate::support::flaky::{AtOnce, Flaky, Mood};

fn limit() -> Limit {
    rule("r", 10).check().expect("sound")
}

#[tokio::test(start_paused = true)]
async fn a_failure_says_what_became_of_the_lines() {
    let (store, limit, scope) = (Flaky::default(), limit(), Scope::new("n", "r"));
    let around = Resilient::new(store.clone());
    let lines = |on_failure| {
        let line = |key: &'static str| Line { on_failure, ..Line::new(&scope, key.as_bytes(), &limit, 1) };
        [line("1k"), line("2k")]
    };
    store.set_part(2, DOWN);
    for (on_failure, purpose, charged, refuses) in [
        (OnFailure::Local, Purpose::Spend, true, false),
        (OnFailure::Local, Purpose::Peek, false, false),
        (OnFailure::Allow, Purpose::Spend, true, false),
        (OnFailure::Refuse, Purpose::Spend, false, true),
        (OnFailure::Refuse, Purpose::Peek, false, true),
    ] {
        let ask = Ask { lines: &lines(on_failure), purpose, time: Time::Store };
        let error = around.acquire(&ask).await.expect_err("one part is away");
        let known = error.partial().expect("the other is known");
        let judged = [true, on_failure == OnFailure::Local];
        assert_eq!(known.verdicts().iter().map(Option::is_some).collect::<Vec<_>>(), judged, "{on_failure:?}");
        assert_eq!((known.is_charged(), known.refuses()), (charged, refuses), "{on_failure:?} {purpose:?}");
    }
    assert_eq!(around.part(&lines(OnFailure::Local)[1]), 2);
}

/// Nobody decides over them, so nobody counts them here.
#[tokio::test(start_paused = true)]
async fn changes_that_fail_are_not_made_here() {
    let (store, limit, scope) = (Flaky::default(), limit(), Scope::new("n", "r"));
    let lines = [Line::new(&scope, b"k", &limit, 1)];
    for at_once in [false, true] {
        let around: Resilient =
            if at_once { Resilient::new(AtOnce(store.clone())) } else { Resilient::new(store.clone()) };
        store.set(DOWN);
        for _ in 0..10 {
            for purpose in [Purpose::Take(Id::random()), Purpose::Give(Id::random())] {
                let ask = Ask { lines: &lines, purpose, time: Time::Store };
                let error = match around.acquire_now(&ask, &mut Answer::default()) {
                    Some(decided) => decided.expect_err("it is away"),
                    None => around.acquire(&ask).await.expect_err("it is away"),
                };
                assert!(error.partial().is_none_or(|known| known.verdicts() == [None]), "{error:?}");
            }
        }
        // Its breaker is open by now.
        let peek = Ask { lines: &lines, purpose: Purpose::Peek, time: Time::Store };
        let error = around.acquire(&peek).await.expect_err("it is open");
        assert_eq!(error.kind(), StoreErrorKind::Open);
        let verdict = error.partial().expect("counted here").verdicts()[0].expect("counted here");
        assert_eq!(verdict.remaining, 8, "all of the share");
    }
}

/// What fails where it is asked is decided there as well.
#[tokio::test(start_paused = true)]
async fn a_store_that_fails_at_once_is_stood_in_for_at_once() {
    let store = Flaky::default();
    let limiter = Limiter::builder(Resilient::new(AtOnce(store.clone()))).rule(rule("r", 10)).build().expect("sound");
    store.set(DOWN);
    for left in (0..8).rev() {
        let decision = limiter.acquire([("r", "k")]).await;
        assert!(decision.is_allowed() && decision.failure().is_some());
        assert_eq!(decision.standing("r").map(|standing| standing.remaining()), Some(left));
    }
    assert!(limiter.acquire([("r", "k")]).await.is_refused());
    store.set(Mood::Well);
    assert!(limiter.acquire([("r", "other")]).await.is_allowed());
}

#[test]
fn the_deadline_and_the_demands_of_the_store_are_its_own() {
    let store = || RedisStore::builder("redis://127.0.0.1:1").deadline(Duration::from_millis(50)).no_scripts();
    let around = || Resilient::new(store().build().expect("sound"));
    assert_eq!(Store::deadline(&around()), Some(Duration::from_millis(50)));
    assert_eq!(Store::deadline(&Resilient::new(Flaky::default())), Some(Duration::from_millis(10)));
    let bucket = Rule::token_bucket("r", Quota::per_second(5)).key(key::given());
    let error = Limiter::builder(around()).rule(bucket).build().expect_err("it needs scripts");
    assert_eq!((error.rule_name(), error.field()), (Some("r"), "algorithm"), "{error}");
}
