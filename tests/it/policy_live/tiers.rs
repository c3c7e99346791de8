//! Tiers by header, by claim and by closure, and what stays when a customer moves between them.

use http::Request;
use sluicegate::{
    Clock, Limiter, LimiterBuilder, ManualClock, MemoryStore,
    policy::{Claims, Names},
};

use super::{app, ask, left, policy};
use crate::support::{
    app::{self as apps, field},
    stores::{BEGIN, every_store},
};

const TIERS: &str = r#"
    headers = ["x_ratelimit", "ietf"]

    [tier]
    by = "header:x-plan"
    default = "free"

    [[rules]]
    name = "per-user"
    algorithm = "token_bucket"
    quota = "60/min"
    burst = 10
    key = "header:x-user"

    [tiers.free]
    [tiers.pro]
    per-user = { quota = "600/min", burst = 100 }
    [tiers.enterprise]
    per-user = "unlimited"
"#;

fn still(builder: LimiterBuilder) -> LimiterBuilder {
    builder.clock(Clock::manual(ManualClock::new(BEGIN)))
}

fn in_memory() -> LimiterBuilder {
    still(Limiter::builder(MemoryStore::new()))
}

#[tokio::test]
async fn the_tier_decides_on_every_store_and_moving_keeps_the_count() {
    for backend in every_store() {
        let limiter = still(backend.builder()).policy(policy(TIERS)).build().expect("sound");
        let app = app(&limiter);
        let of = async |plan: &str, user: &str| left(&app, "/", &[("x-plan", plan), ("x-user", user)]).await;
        assert_eq!(of("free", "alice").await, (200, Some(9)), "{}", backend.name);
        // Moving up adds at most the difference of the bursts: what was used stays used.
        assert_eq!(of("pro", "alice").await, (200, Some(8)), "{}", backend.name);
        assert_eq!(of("pro", "bob").await, (200, Some(99)), "{}", backend.name);
        // Moving down cuts what is left to the smaller burst.
        assert_eq!(of("free", "bob").await, (200, Some(9)), "{}", backend.name);
        for left in (0..9).rev() {
            assert_eq!(of("free", "bob").await, (200, Some(left)), "{}", backend.name);
        }
        assert_eq!(of("free", "bob").await.0, 429, "{}", backend.name);
        // No limit: nothing is asked and nothing is told.
        assert_eq!(of("enterprise", "bob").await, (200, None), "{}", backend.name);
        // Who says nothing, or something unknown, has the default.
        assert_eq!(of("gold", "carol").await, (200, Some(9)), "{}", backend.name);
        assert_eq!(left(&app, "/", &[("x-user", "dave")]).await, (200, Some(9)), "{}", backend.name);
    }
}

#[tokio::test]
async fn headers_tell_of_the_tier_of_the_request() {
    let app = app(&in_memory().policy(policy(TIERS)).build().expect("sound"));
    let told = async |plan: &str| {
        let response = ask(&app, "/", &[("x-plan", plan), ("x-user", plan)]).await;
        (
            field(&response, "ratelimit-policy").map(str::to_owned),
            field(&response, "x-ratelimit-limit").map(str::to_owned),
        )
    };
    let of = |policy: &str, limit: &str| (Some(policy.to_owned()), Some(limit.to_owned()));
    assert_eq!(told("free").await, of("\"per-user\";q=10;w=10", "10"));
    assert_eq!(told("pro").await, of("\"per-user\";q=100;w=10", "100"));
    assert_eq!(told("enterprise").await, (None, None));
}

#[tokio::test]
async fn tiers_come_from_closures_and_from_claims() {
    let by = |by: &str| TIERS.replace("header:x-plan", by);
    let names = Names::new().tier("plan", |req| req.uri.path().ends_with("/pro").then_some("pro"));
    let by_closure = app(&in_memory().names(names).policy(policy(&by("plan"))).build().expect("sound"));
    assert_eq!(left(&by_closure, "/a/pro", &[("x-user", "a")]).await, (200, Some(99)));
    assert_eq!(left(&by_closure, "/a", &[("x-user", "b")]).await, (200, Some(9)));

    let by_claim = app(&in_memory().policy(policy(&by("claim:plan"))).build().expect("sound"));
    let claims = Claims::from_iter([("plan", "pro")]);
    let request = Request::builder().uri("/").header("x-user", "a").extension(claims);
    let response = apps::ask(&by_claim, request).await;
    assert_eq!(field(&response, "x-ratelimit-remaining"), Some("99"));
    // A header of that name is no claim.
    assert_eq!(left(&by_claim, "/", &[("x-user", "b"), ("plan", "pro")]).await, (200, Some(9)));
}

#[tokio::test]
async fn calls_without_http_name_their_tier() {
    let text = TIERS.replace("header:x-user", "given");
    let limiter = in_memory().policy(policy(&text)).build().expect("sound");
    let left = async |limiter: Limiter, key: &str| {
        let decision = limiter.acquire([("per-user", key)]).await;
        decision.standing("per-user").map(|standing| standing.remaining())
    };
    assert_eq!(left(limiter.clone(), "a").await, Some(9));
    assert_eq!(left(limiter.for_tier("pro"), "b").await, Some(99));
    assert_eq!(left(limiter.for_tier("gold"), "c").await, Some(9));
    assert_eq!(left(limiter.for_customer("nobody", Some("pro")).await, "d").await, Some(99));
    assert_eq!(left(limiter.for_tier("enterprise"), "e").await, None);
    let usage = limiter.for_tier("pro").usage("b").await.expect("in memory");
    assert_eq!(usage.rule("per-user").and_then(|rule| rule.remaining()), Some(99));
    assert_eq!(limiter.policy_status().map(|status| status.version()), Some(1));
}
