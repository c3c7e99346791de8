//! Where one part meets another: lists and shadows, shares and bodies, bans and usage, limiters around limiters.

use std::time::Duration;

use axum::{Router, body::Body, http::Request, routing::get};
use http::StatusCode;
use sluicegate::{
    Ban, Call, Charge, Clock, Decision, Limiter, LimiterBuilder, Lists, ManualClock, MemoryStore, Quota,
    RateLimitLayer, Rule,
    key::{self, KeyBy},
    usage,
};
use tower::ServiceExt;

use crate::support::{
    app::{ask, field, text},
    stores::BEGIN,
};

fn limiter(rules: impl IntoIterator<Item = Rule>) -> LimiterBuilder {
    let builder = Limiter::builder(MemoryStore::new()).clock(Clock::manual(ManualClock::new(BEGIN)));
    rules.into_iter().fold(builder, LimiterBuilder::rule)
}

fn build(rules: impl IntoIterator<Item = Rule>) -> Limiter {
    limiter(rules).build().expect("sound")
}

fn app(limiter: Limiter) -> Router {
    Router::new().route("/", get(|| async {}).post(|| async {})).layer(RateLimitLayer::new(limiter))
}

async fn status(app: &Router, fields: &[(&str, &str)]) -> u16 {
    let request =
        fields.iter().fold(Request::builder().uri("/"), |request, (name, value)| request.header(*name, *value));
    ask(app, request).await.status().as_u16()
}

/// A closure of a rule that is only watched refuses nobody, whether or not there is a list.
#[tokio::test]
async fn lists_make_no_shadow_refuse() {
    let named = || Rule::gcra("r", Quota::per_hour(5)).key(key::header("x-user").or_refuse(StatusCode::UNAUTHORIZED));
    for (rule, expected) in [(named(), 401), (named().shadow(), 200), (named().roll_out(50), 200)] {
        let lists = Lists::new();
        let limiter = limiter([rule]).lists(&lists).build().expect("sound");
        let looks = Router::new().nest("/usage", usage::router(limiter.clone()));
        let app = app(limiter);
        assert_eq!(status(&app, &[]).await, expected);
        lists.deny("mallory").expect("room");
        assert_eq!(status(&app, &[]).await, expected, "with a list");
        assert_eq!(ask(&looks, Request::builder().uri("/usage")).await.status(), expected);
    }
}

/// Allow beats deny beats whatever a closure says, also the one that tells tenants apart.
#[tokio::test]
async fn lists_outdo_the_closure_of_tenants() {
    let lists = Lists::new();
    lists.allow("monitoring").and_then(|lists| lists.deny("mallory")).expect("room");
    let rule = Rule::gcra("r", Quota::per_hour(5)).key(key::header("x-user"));
    let rule = rule.fair_share(0.2, key::header("x-tenant").or_refuse(StatusCode::UNAUTHORIZED));
    let app = app(limiter([rule]).lists(&lists).build().expect("sound"));
    assert_eq!(status(&app, &[("x-user", "monitoring")]).await, 200);
    assert_eq!(status(&app, &[("x-user", "mallory")]).await, 403);
    assert_eq!(status(&app, &[("x-user", "alice")]).await, 401);
    assert_eq!(status(&app, &[("x-user", "alice"), ("x-tenant", "t")]).await, 200);
}

#[tokio::test]
async fn tenants_are_found_in_bodies() {
    let tenant = KeyBy::by_body(100, |_, body| body.to_vec());
    let rule = Rule::fixed_window("r", Quota::per_hour(10)).key(key::global()).fair_share(0.4, tenant);
    let layer = RateLimitLayer::new(build([rule])).read_bodies();
    let app = Router::new().route("/", get(|| async {}).post(|| async {})).layer(layer);
    let post = async |tenant: &'static str| {
        let request = Request::post("/").body(Body::from(tenant)).expect("a request");
        app.clone().oneshot(request).await.expect("a response").status().as_u16()
    };
    for _ in 0..7 {
        assert_eq!(post("a").await, 200);
    }
    assert_eq!((post("a").await, post("b").await), (429, 200));
}

/// A worker that may use the reserve, or is another tenant's, does not stand behind those who must wait.
#[tokio::test(start_paused = true)]
async fn workers_wait_only_behind_their_like() {
    let rules = [
        Rule::fixed_window("kept", Quota::per_hour(10)).key(key::given()).reserve(0.2, |_| false),
        Rule::fixed_window("shared", Quota::per_hour(10)).key(key::given()).fair_share(0.4, key::given()),
    ];
    let limiter = Limiter::builder(MemoryStore::new()).clock(Clock::manual(ManualClock::new(BEGIN)));
    let limiter = rules.into_iter().fold(limiter, LimiterBuilder::rule).build().expect("sound");
    let soon = Duration::from_secs(1);
    for (ordinary, other) in [
        (Call::new().key("kept", "k"), Call::new().key("kept", "k").critical()),
        (Call::new().key("shared", "k").tenant("a"), Call::new().key("shared", "k").tenant("b")),
    ] {
        while limiter.acquire(ordinary.clone()).await.is_allowed() {}
        let waiting = tokio::spawn({
            let (limiter, ordinary) = (limiter.clone(), ordinary.clone());
            async move { limiter.acquire_when_ready(ordinary).await }
        });
        assert!(tokio::time::timeout(soon, limiter.acquire_when_ready(ordinary)).await.is_err(), "it must wait");
        let decision = tokio::time::timeout(soon, limiter.acquire_when_ready(other)).await;
        assert!(decision.expect("at once").is_allowed());
        waiting.abort();
    }
}

/// Handlers settle what a limiter further out has charged, though one further in has charges of its own.
#[tokio::test]
async fn the_charge_of_an_outer_limiter_is_settled_too() {
    let outer = build([Rule::token_bucket("points", Quota::per_hour(1_000)).key(key::global()).cost_by(|_| 500)]);
    let inner = build([
        Rule::gcra("requests", Quota::per_hour(50)).key(key::global()).with_charge(),
        Rule::gcra("bytes", Quota::per_hour(1_000)).key(key::global()).cost_by(|_| 100),
    ]);
    let handler = async |charge: Charge| {
        assert!(charge.settle_rule("requests", 3) && !charge.settle_rule("nobody", 1));
        assert!(charge.settle(120) && !charge.settle(120));
        charge.penalize_rule("points", 7);
    };
    let app = Router::new()
        .route("/", get(handler))
        .layer(RateLimitLayer::new(inner.clone()))
        .layer(RateLimitLayer::new(outer.clone()));
    assert_eq!(status(&app, &[]).await, 200);
    tokio::join!(outer.settled(), inner.settled());
    // A global key is the empty one.
    let left = async |limiter: &Limiter, rule: &str| {
        let (head, _) = Request::new(()).into_parts();
        limiter.usage_of_request(&head).await.expect("a store").rule(rule).and_then(|rule| rule.remaining())
    };
    assert_eq!(left(&outer, "points").await, Some(1_000 - 127));
    assert_eq!((left(&inner, "requests").await, left(&inner, "bytes").await), (Some(47), Some(880)));
}

#[test]
fn made_up_keys_are_neither_banned_together_nor_shared() {
    let rule = || Rule::gcra("r", Quota::per_hour(5)).key(key::header("x-key")).max_new_keys(50);
    for rule in [rule().ban(Ban::after(3)), rule().fair_share(0.2, key::header("x-tenant")), rule().max_new_keys(0)] {
        let error = limiter([rule]).build().expect_err("no sense");
        assert_eq!((error.rule_name(), error.field()), (Some("r"), "max_new_keys"), "{error}");
    }
}

/// Whoever is denied does not use up the room of others.
#[tokio::test]
async fn the_keys_of_those_who_are_denied_are_not_counted_as_new() {
    let lists = Lists::new();
    lists.deny("mallory").expect("room");
    let rules = [
        Rule::gcra("users", Quota::per_hour(100)).key(key::header("x-user")),
        Rule::gcra("keys", Quota::per_hour(1)).key(key::header("x-key")).max_new_keys(5),
    ];
    let app = app(limiter(rules).lists(&lists).build().expect("sound"));
    for made_up in 0..50 {
        assert_eq!(status(&app, &[("x-user", "mallory"), ("x-key", &made_up.to_string())]).await, 403);
    }
    for honest in ["a", "b", "c", "d", "e"] {
        assert_eq!(status(&app, &[("x-user", "alice"), ("x-key", honest)]).await, 200);
    }
}

#[tokio::test]
async fn usage_tells_of_bans() {
    let limiter = build([Rule::gcra("r", Quota::per_hour(5)).key(key::given()).ban(Ban::after(3))]);
    limiter.ban("r", "alice", Duration::from_secs(60)).await.expect("a store");
    let usage = limiter.usage("alice").await.expect("a store");
    let rule = usage.rule("r").expect("the rule");
    assert!(usage.is_refused() && rule.is_refused());
    assert_eq!((rule.retry_after(), rule.banned_for()), (Some(Duration::from_secs(60)), Some(Duration::from_secs(60))));
    assert!(usage.to_json().contains(r#""refused":true,"retry_after":60"#), "{}", usage.to_json());
    assert!(!limiter.usage("bob").await.expect("a store").is_refused());
}

/// Without the body nobody knows whose usage it is, and another's is not shown for it.
#[tokio::test]
async fn usage_leaves_out_rules_that_look_into_bodies() {
    let by_body = || KeyBy::by_body(100, |_, body| (!body.is_empty()).then(|| body.to_vec()));
    let limiter = build([
        Rule::gcra("refuses", Quota::per_hour(5)).key(by_body().or_refuse(StatusCode::BAD_REQUEST)),
        Rule::gcra("plain", Quota::per_hour(5)).key(key::global()),
    ]);
    let looks = Router::new().nest("/usage", usage::router(limiter));
    let response = ask(&looks, Request::builder().uri("/usage")).await;
    assert_eq!((response.status().as_u16(), field(&response, "cache-control")), (200, Some("no-store")));
    let json = text(response).await;
    assert!(json.contains("plain") && !json.contains("refuses"), "{json}");
}

/// Whoever leaves a line gives back what it took, and nothing in a shadow that had no room.
#[tokio::test(start_paused = true)]
async fn leaving_gives_nothing_back_in_a_shadow_that_was_full() {
    let queue = |name: &str, waiters| {
        Rule::leaky_bucket(name, Quota::per_hour(60)).queue(Duration::from_secs(3_600), waiters).key(key::given())
    };
    let limiter = build([queue("watched", 1).shadow(), queue("line", 10)]);
    let call = || Call::new().key("watched", "k").key("line", "k");
    let (one, two) = (limiter.acquire(call()).await, limiter.acquire(call()).await);
    assert!(one.is_allowed() && two.is_allowed() && !two.would_refuse());
    let left = async |rule: &'static str| {
        limiter.peek(Call::new().key(rule, "k").cost(0)).await.standing(rule).map(|standing| standing.remaining())
    };
    let before = (left("watched").await, left("line").await);
    assert_eq!(before.0, Some(0));
    let leaving = limiter.acquire_when_ready(call());
    assert!(tokio::time::timeout(Duration::from_millis(1), leaving).await.is_err());
    limiter.settled().await;
    assert_eq!((left("watched").await, left("line").await), before);
}

/// An operator's word counts, also where there is no room for another key.
#[tokio::test]
async fn a_ban_by_hand_holds_in_a_full_store() {
    let rule = Rule::gcra("r", Quota::per_hour(5)).key(key::given()).ban(Ban::after(3));
    let builder = Limiter::builder(MemoryStore::new().max_keys(64)).clock(Clock::manual(ManualClock::new(BEGIN)));
    let limiter = builder.rule(rule).build().expect("sound");
    for key in 0..500u32 {
        let _: Decision = limiter.acquire([("r", key)]).await;
    }
    limiter.ban("r", "mallory", Duration::from_secs(60)).await.expect("a store");
    assert!(limiter.acquire([("r", "mallory")]).await.is_banned());
}
