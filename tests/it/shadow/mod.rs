//! Shadow rules are charged and reported, and refuse nobody.

mod away;
mod http;
mod roll_out;

use std::time::Duration;

use sluicegate::{Call, Decision, Limiter, LimiterBuilder, ManualClock, MemoryStore, Quota, RedisStore, Rule, key};

use crate::{
    leases::until_free,
    scenarios::{KINDS, rule},
    support::{
        server::VERSIONS,
        stores::{BEGIN, every_store, namespace},
    },
};

const TICK: Duration = Duration::from_micros(1);

async fn acquire(limiter: &Limiter, call: impl Into<Call<'_>>) -> Decision {
    let decision = limiter.acquire(call).await;
    assert!(decision.failure().is_none(), "{decision:?}");
    decision
}

fn left(decision: &Decision) -> Vec<u64> {
    decision.standings().map(|standing| standing.remaining()).collect()
}

#[tokio::test]
async fn a_shadow_rule_is_charged_and_never_refuses() {
    for backend in every_store() {
        for kind in KINDS {
            let clock = ManualClock::new(BEGIN);
            let limiter = backend.limiter(&clock, [rule(kind, kind, Quota::per_minute(2)).shadow()]);
            let place = format!("{kind} on {}", backend.name);
            for remaining in [1, 0] {
                let decision = acquire(&limiter, [(kind, "k")]).await;
                assert!(decision.is_allowed() && !decision.would_refuse(), "{place}: {decision:?}");
                let standing = decision.standing(kind).expect("it applies");
                assert!(standing.is_shadow() && standing.remaining() == remaining, "{place}: {standing:?}");
            }
            let mut wait = Duration::ZERO;
            for spend in [true, false, true] {
                let call = Call::new().key(kind, "k");
                let decision = if spend { limiter.acquire(call).await } else { limiter.peek(call).await };
                assert!(decision.is_allowed() && decision.would_refuse(), "{place}: {decision:?}");
                // Nobody is to wait for it, and no client to hear of it.
                assert!(decision.retry_after().is_none() && decision.tightest().is_none(), "{place}: {decision:?}");
                let standing = decision.standing(kind).expect("it applies");
                assert!(standing.would_refuse() && !standing.is_refused() && standing.remaining() == 0, "{place}");
                wait = standing.retry_after().expect("a wait");
            }
            clock.advance(wait - TICK);
            assert!(acquire(&limiter, [(kind, "k")]).await.would_refuse(), "{place}: a microsecond early");
            clock.advance(TICK);
            assert!(!acquire(&limiter, [(kind, "k")]).await.would_refuse(), "{place}: on time");

            let never = acquire(&limiter, Call::new().key(kind, "k").cost(3)).await;
            assert!(never.is_allowed() && never.would_refuse() && !never.can_never_fit(), "{place}: {never:?}");
            assert!(never.standing(kind).expect("it applies").can_never_fit(), "{place}");
        }
    }
}

#[tokio::test]
async fn a_shadow_that_does_not_fit_keeps_no_other_from_being_charged() {
    for backend in every_store() {
        for (place, kind) in KINDS.into_iter().enumerate() {
            let next = KINDS[(place + 1) % KINDS.len()];
            let rules = [
                rule(next, "one", Quota::per_minute(9)),
                rule(kind, "shadow", Quota::per_minute(1)).shadow(),
                rule(kind, "three", Quota::per_minute(3)),
                rule(next, "watched", Quota::per_minute(9)).shadow(),
            ];
            let limiter = backend.limiter(&ManualClock::new(BEGIN), rules);
            in_the_mix(&limiter, kind, &format!("{kind} on {}", backend.name)).await;
        }
    }
}

/// Four rules, each with a key of its own: `one` of 9, a shadow of 1, `three` of 3, and a shadow of 9.
pub async fn in_the_mix(limiter: &Limiter, key: &str, place: &str) {
    let key = |number: u8| (key, number);
    let call = || Call::new().key("one", key(1)).key("shadow", key(2)).key("three", key(3)).key("watched", key(4));
    for (round, expected) in [[8, 0, 2, 8], [7, 0, 1, 7], [6, 0, 0, 6]].into_iter().enumerate() {
        let decision = acquire(limiter, call()).await;
        assert!(decision.is_allowed() && left(&decision) == expected, "{place}: {decision:?}");
        let would: Vec<&str> = decision.standings().filter(|it| it.would_refuse()).map(|it| it.rule()).collect();
        assert_eq!(would, if round == 0 { &[][..] } else { &["shadow"] }, "{place}");
        assert_eq!(decision.tightest().map(|tightest| tightest.rule()), Some("three"), "{place}");
    }
    // Now an enforced rule refuses, and nothing is charged anywhere, shadow or not; nor given back that never was charged.
    let before = format!("{:?}", limiter.peek(call()).await);
    for _ in 0..3 {
        let refused = acquire(limiter, call()).await;
        assert!(
            refused.is_refused() && refused.would_refuse() && left(&refused) == [6, 0, 0, 6],
            "{place}: {refused:?}"
        );
        let three = refused.standing("three").expect("it applies");
        assert!(three.is_refused() && refused.retry_after() == three.retry_after(), "{place}: {refused:?}");
    }
    let after = limiter.peek(call()).await;
    assert!(left(&after) == [6, 0, 0, 6], "{place}: {after:?}, {before}");
}

#[tokio::test]
async fn shadows_without_scripts() {
    for version in VERSIONS {
        let store = RedisStore::builder(version.shared().url()).no_scripts().deadline(Duration::from_secs(30)).build();
        let hourly = |name, amount| Rule::fixed_window(name, Quota::per_hour(amount)).key(key::given());
        let builder = Limiter::builder(store.expect("sound")).namespace(namespace());
        let builder = builder.clock(sluicegate::Clock::manual(ManualClock::new(BEGIN)));
        let rules = [hourly("one", 9), hourly("shadow", 1).shadow(), hourly("three", 3), hourly("watched", 9).shadow()];
        let limiter = rules.into_iter().fold(builder, LimiterBuilder::rule).build().expect("sound");
        in_the_mix(&limiter, "k", &format!("{version:?}")).await;
        // Nothing is added for what can never fit, and the others are charged all the same.
        let never = acquire(&limiter, Call::new().key("shadow", "e").cost(2).key("one", "e")).await;
        assert!(never.is_allowed() && left(&never) == [1, 8], "{never:?}");
        assert!(never.standing("shadow").is_some_and(|standing| standing.can_never_fit()), "{never:?}");
        assert_eq!(left(&acquire(&limiter, [("shadow", "e")]).await), [0]);
    }
}

#[tokio::test]
async fn the_switch_makes_shadows_of_all_rules_and_back() {
    for backend in every_store() {
        let rules = ["one", "two"].map(|name| Rule::gcra(name, Quota::per_hour(1)).key(key::given()));
        let builder = rules.into_iter().fold(backend.builder().shadow(true), LimiterBuilder::rule);
        let limiter = builder.build().expect("sound");
        let call = || Call::new().key("one", "a").key("two", "b");
        assert!(limiter.is_shadow() && !acquire(&limiter, call()).await.would_refuse(), "{}", backend.name);
        let decision = acquire(&limiter, call()).await;
        assert!(decision.is_allowed() && decision.would_refuse(), "{}: {decision:?}", backend.name);
        limiter.clone().set_shadow(false);
        let decision = acquire(&limiter, call()).await;
        assert!(decision.is_refused() && !decision.would_refuse(), "{}: {decision:?}", backend.name);
        limiter.set_shadow(true);
        assert!(acquire(&limiter, [("one", "a")]).await.is_allowed(), "{}", backend.name);
    }
}

#[tokio::test]
async fn a_shadow_takes_a_place_if_there_is_one() {
    for backend in every_store() {
        let watched = Rule::concurrency("watched", 1).key(key::given()).shadow();
        let rules = [watched, Rule::concurrency("enforced", 2).key(key::given())];
        let limiter = rules.into_iter().fold(backend.builder(), LimiterBuilder::rule).build().expect("sound");
        let one = acquire(&limiter, [("watched", "a")]).await;
        assert!(one.permit().is_some() && !one.would_refuse(), "{}", backend.name);
        let other = acquire(&limiter, [("watched", "a")]).await;
        assert!(other.is_allowed() && other.would_refuse() && other.permit().is_none(), "{}", backend.name);
        let both = acquire(&limiter, Call::new().key("watched", "a").key("enforced", "b")).await;
        assert!(both.is_allowed() && both.would_refuse() && both.permit().is_some(), "{}", backend.name);
        until_free(&limiter, "enforced", "b", 1).await;
        // Whoever had no place gives none back.
        drop((other, both));
        until_free(&limiter, "enforced", "b", 2).await;
        assert!(acquire(&limiter, [("watched", "a")]).await.would_refuse(), "{}", backend.name);
        drop(one);
        until_free(&limiter, "watched", "a", 1).await;
    }
}

/// What a shadow would have refused was charged nothing, so nothing of it is given back, and no more is owed.
#[tokio::test]
async fn what_was_not_charged_is_not_settled() {
    for backend in every_store() {
        for kind in KINDS {
            let rules =
                [rule(kind, "watched", Quota::per_hour(10)).shadow(), rule(kind, "enforced", Quota::per_hour(99))];
            let limiter = backend.limiter(&ManualClock::new(BEGIN), rules);
            let call = |units| Call::new().key("watched", (kind, 1)).cost(units).key("enforced", (kind, 2)).cost(units);
            let look = async || {
                limiter.settled().await;
                left(&limiter.peek(call(0)).await)
            };
            let place = format!("{kind} on {}", backend.name);
            assert!(limiter.charge(call(8)).await.settle(6), "{place}");
            assert_eq!(look().await, [4, 93], "{place}");
            for (settled, enforced) in [(0, 93), (1, 92), (40, 52)] {
                let charge = limiter.charge(call(5)).await;
                assert!(charge.decision().is_allowed() && charge.decision().would_refuse(), "{place}");
                assert!(!charge.settle_rule("watched", settled) && charge.settle(settled), "{place}");
                assert_eq!(look().await, [4, enforced], "{place}");
            }
        }
    }
}

#[test]
fn what_is_no_share_is_a_build_error() {
    for percent in [-0.1, 100.1, f64::NAN, f64::INFINITY] {
        let rule = Rule::gcra("r", Quota::per_hour(1)).key(key::global()).roll_out(percent);
        let error = Limiter::builder(MemoryStore::new()).rule(rule).build().expect_err("no share");
        assert_eq!((error.rule_name(), error.field()), (Some("r"), "roll_out"), "{error}");
        assert!(error.to_string().contains("0 to 100 percent"), "{error}");
    }
}
