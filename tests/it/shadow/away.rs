//! Shadow rules while the store is away: they refuse nobody then either, and the store is told only of what was charged.

use sluicegate::{
    Call, Limiter, LimiterBuilder, Observer, OnFailure, Quota, Resilient, Rule, StoreErrorKind, StoreEvent, key,
    store::Store,
};

use super::left;
use crate::support::{
    events::Events,
    flaky::{Flaky, Mood},
};

const DOWN: Mood = Mood::Fails(StoreErrorKind::Unavailable);

fn daily(name: &str, amount: u64) -> Rule {
    Rule::fixed_window(name, Quota::per_day(amount)).key(key::given())
}

fn limiter(store: impl Store, rules: impl IntoIterator<Item = Rule>, events: impl Observer) -> Limiter {
    rules.into_iter().fold(Limiter::builder(store).observer(events), LimiterBuilder::rule).build().expect("sound")
}

#[tokio::test(start_paused = true)]
async fn a_shadow_refuses_nothing_that_cannot_be_judged() {
    let store = Flaky::default();
    store.set(DOWN);
    let strict = |name| daily(name, 5).on_failure(OnFailure::Refuse);
    for around in [true, false] {
        let rules = [strict("watched").shadow(), strict("enforced")];
        let limiter = match around {
            true => limiter(Resilient::new(store.clone()), rules, Events::default()),
            false => limiter(store.clone(), rules, Events::default()),
        };
        // More often than it takes to open the breaker.
        for _ in 0..8 {
            let decision = limiter.acquire([("watched", "k")]).await;
            assert!(decision.is_allowed() && decision.failure().is_some(), "{decision:?}");
            assert!(limiter.acquire([("watched", "k"), ("enforced", "k")]).await.is_refused());
        }
        limiter.set_shadow(true);
        assert!(limiter.acquire([("watched", "k"), ("enforced", "k")]).await.is_allowed());
    }
}

#[tokio::test(start_paused = true)]
async fn the_store_is_told_only_of_what_was_charged() {
    let (store, events) = (Flaky::default(), Events::default());
    let rules = || [daily("watched", 2).shadow(), daily("enforced", 9)];
    let around = Resilient::new(store.clone()).share(1.0);
    let limiter = limiter(around, rules(), events.clone());
    let keys = [("watched", "k"), ("enforced", "k")];
    store.set(DOWN);
    for round in 0..5u64 {
        let decision = limiter.acquire(keys).await;
        assert!(decision.is_allowed() && decision.would_refuse() == (round >= 2), "{decision:?}");
        assert_eq!(left(&decision), [2u64.saturating_sub(round + 1), 8 - round]);
    }
    store.set(Mood::Well);
    tokio::time::advance(std::time::Duration::from_secs(60)).await;
    assert!(limiter.acquire([("enforced", "another")]).await.failure().is_none());
    events.until(|events| events.all().iter().any(|event| matches!(event, StoreEvent::Committed { .. }))).await;
    let committed = events.all().into_iter().find(|event| matches!(event, StoreEvent::Committed { .. }));
    assert_eq!(committed, Some(StoreEvent::Committed { counts: 2, units: 7 }));
    assert_eq!(left(&limiter.peek(keys).await), [0, 4]);
}

/// Keys that begin with a digit lie in the part of that number. The part that is away refuses by its local count; what the other
/// part charged is given back, and nothing that it did not charge.
#[tokio::test(start_paused = true)]
async fn what_was_not_charged_is_not_given_back() {
    let store = Flaky::default();
    let rules = || [daily("watched", 2).shadow(), daily("enforced", 9), daily("away", 2)];
    let around = Resilient::new(store.clone()).share(1.0);
    let limiter = limiter(around, rules(), Events::default());
    let inside =
        rules().into_iter().fold(Limiter::builder(store.inside()), LimiterBuilder::rule).build().expect("sound");
    let call = || Call::new().key("watched", "1w").key("enforced", "1e").key("away", "2a");
    let look = async || left(&inside.peek(Call::new().key("watched", "1w").key("enforced", "1e")).await);
    store.set_part(2, DOWN);
    for expected in [[1, 8], [0, 7]] {
        assert!(limiter.acquire(call()).await.is_allowed());
        assert_eq!(look().await, expected);
    }
    // Fewer failures than open the breaker: then the other part is not asked at all.
    for _ in 0..2 {
        let refused = limiter.acquire(call()).await;
        assert!(refused.is_refused() && refused.would_refuse(), "{refused:?}");
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
        assert_eq!(look().await, [0, 7], "{refused:?}");
    }
}

/// A shadow that is counted here while its part is away keeps nobody from being charged there.
#[tokio::test(start_paused = true)]
async fn a_shadow_in_a_part_that_is_away_keeps_nothing_from_being_charged() {
    let store = Flaky::default();
    let rules = [daily("enforced", 9), daily("watched", 1).shadow()];
    let limiter = limiter(Resilient::new(store.clone()).share(1.0), rules, Events::default());
    store.set_part(2, DOWN);
    for round in 0..8u64 {
        let decision = limiter.acquire(Call::new().key("enforced", "1").key("watched", "2")).await;
        assert!(decision.is_allowed() && decision.would_refuse() == (round > 0), "{decision:?}");
        assert_eq!(left(&decision), [8 - round, 0]);
    }
}
