//! A share of the keys is enforced: always the same ones, and more only add to them.

use sluicegate::{Limiter, MemoryStore, Quota, Rule, key};

use crate::support::stores::every_store;

/// Worked out by another program: in the namespace `shop`, under the rule `per-user`, these come at so many percent.
const PLACES: [(&str, f64); 2] = [("alice", 27.226_367_5), ("bob", 58.689_457_9)];

fn limiter(percent: f64) -> Limiter {
    let rule = Rule::gcra("per-user", Quota::per_hour(1)).key(key::given()).roll_out(percent);
    Limiter::builder(MemoryStore::new()).namespace("shop").rule(rule).build().expect("sound")
}

async fn is_enforced(limiter: &Limiter, key: &str) -> bool {
    !limiter.peek([("per-user", key)]).await.standing("per-user").expect("it applies").is_shadow()
}

#[tokio::test]
async fn a_key_comes_at_its_place_and_stays() {
    for (key, percent) in PLACES {
        assert!(!is_enforced(&limiter(percent - 0.000_001), key).await, "{key} early");
        assert!(is_enforced(&limiter(percent + 0.000_001), key).await, "{key}");
        assert!(is_enforced(&limiter(99.0), key).await, "{key} later");
    }
}

#[tokio::test]
async fn none_at_zero_and_all_at_a_hundred() {
    for user in 0..200 {
        let key = format!("user-{user}");
        assert!(!is_enforced(&limiter(0.0), &key).await && is_enforced(&limiter(100.0), &key).await);
    }
}

/// The same keys whatever the store, and what is enforced refuses while the others pass.
#[tokio::test]
async fn the_share_refuses_and_the_others_pass() {
    for backend in every_store() {
        let rule = Rule::gcra("per-user", Quota::per_hour(1)).key(key::given()).roll_out(40);
        let limiter = backend.builder().namespace("shop").rule(rule).build().expect("sound");
        limiter.reset([("per-user", "alice")]).await.expect("forgotten");
        limiter.reset([("per-user", "bob")]).await.expect("forgotten");
        for (key, refused) in [("alice", true), ("bob", false)] {
            assert!(limiter.acquire([("per-user", key)]).await.is_allowed(), "{}: {key}", backend.name);
            let decision = limiter.acquire([("per-user", key)]).await;
            assert!(decision.failure().is_none(), "{decision:?}");
            assert_eq!(
                (decision.is_refused(), decision.would_refuse()),
                (refused, !refused),
                "{}: {key}",
                backend.name
            );
        }
    }
}
