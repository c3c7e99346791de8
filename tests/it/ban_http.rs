//! Bans over HTTP: by refusals and by bad responses, as 429 or 403, and what those who are banned are told.

use std::time::Duration;

use axum::{Router, body::Body, http::Request, routing::get};
use http::{Response, StatusCode};
use sluicegate::{
    Ban, Charge, Clock, Headers, Limiter, LimiterBuilder, ManualClock, MemoryStore, Quota, RateLimitLayer, Rule, key,
    refusal::Cause,
};

use crate::support::{
    app::{ask, field, get as fetch, text},
    stores::{BEGIN, Backend, every_store},
};

const SECOND: Duration = Duration::from_secs(1);

fn logins() -> Rule {
    Rule::fixed_window("logins", Quota::per_second(100)).key(key::header("x-user"))
}

/// Answers with the status that the path names.
fn app_of(layer: RateLimitLayer) -> Router {
    let status = |axum::extract::Path(status): axum::extract::Path<u16>| async move {
        StatusCode::from_u16(status).expect("a status")
    };
    Router::new().route("/{status}", get(status)).layer(layer)
}

/// A limiter and its application, without jitter.
fn serving(builder: LimiterBuilder, clock: &ManualClock, rule: Rule) -> (Limiter, Router) {
    let limiter = builder.clock(Clock::manual(clock.clone())).rule(rule).build().expect("sound");
    (limiter.clone(), app_of(RateLimitLayer::new(limiter).jitter(false)))
}

async fn status(limiter: &Limiter, app: &Router, user: &str, wanted: u16) -> Response<Body> {
    let response = ask(app, Request::builder().uri(format!("/{wanted}")).header("x-user", user)).await;
    limiter.settled().await;
    response
}

#[tokio::test]
async fn bad_responses_ban() {
    for backend in every_store() {
        let clock = ManualClock::new(BEGIN);
        let rule = logins().ban(Ban::after(3).responses(|response| response.status == 401).lasting(30 * SECOND));
        let (limiter, app) = serving(backend.builder(), &clock, rule);
        for wanted in [401, 200, 401, 404] {
            assert_eq!(status(&limiter, &app, "eve", wanted).await.status(), wanted, "{}", backend.name);
        }
        assert_eq!(status(&limiter, &app, "bob", 401).await.status(), 401);
        assert_eq!(status(&limiter, &app, "eve", 401).await.status(), 401, "the third");
        let refused = status(&limiter, &app, "eve", 200).await;
        assert_eq!(refused.status(), 429, "{}", backend.name);
        assert_eq!(field(&refused, "retry-after"), Some("30"));
        assert_eq!(status(&limiter, &app, "bob", 200).await.status(), 200, "{}", backend.name);
        limiter.lift_ban("logins", "eve").await.expect("an answer");
        assert_eq!(status(&limiter, &app, "eve", 200).await.status(), 200, "{}", backend.name);
    }
}

/// The body is of a type of its own, and the quota fields say how the quota stands, and nothing of the ban.
#[tokio::test]
async fn a_ban_is_told_apart_from_a_quota() {
    let clock = ManualClock::new(BEGIN);
    let (limiter, app) = serving(Backend::memory().builder(), &clock, logins().ban(Ban::after(3)));
    limiter.ban("logins", "eve", 90 * SECOND).await.expect("an answer");
    let refused = status(&limiter, &app, "eve", 200).await;
    assert_eq!((refused.status(), field(&refused, "retry-after")), (StatusCode::TOO_MANY_REQUESTS, Some("90")));
    assert_eq!(field(&refused, "ratelimit"), Some(r#""logins";r=100;t=0"#));
    assert_eq!(field(&refused, "x-ratelimit-remaining"), Some("100"));
    assert_eq!(field(&refused, "cache-control"), Some("no-store"));
    assert_eq!(
        text(refused).await,
        r#"{"type":"https://iana.org/assignments/http-problem-types#abnormal-usage-detected","title":"Abnormal Usage Detected","status":429,"detail":"Banned under the quota \"logins\"; retry in 90 seconds.","violated-policies":["logins"]}"#
    );
    // Where the quota refuses too, its reset is still its own.
    let once = Rule::fixed_window("logins", Quota::per_minute(1)).key(key::header("x-user"));
    let (limiter, _) = serving(Backend::memory().builder(), &clock, once.ban(Ban::after(1).lasting(900 * SECOND)));
    let headers = Headers::builder().ietf_draft6().x_ratelimit_delta().build().expect("sound");
    let app = app_of(RateLimitLayer::new(limiter.clone()).jitter(false).headers(headers));
    status(&limiter, &app, "eve", 200).await;
    let by_quota = status(&limiter, &app, "eve", 200).await;
    let banned = status(&limiter, &app, "eve", 200).await;
    assert_eq!(field(&banned, "retry-after"), Some("900"));
    assert!(field(&banned, "ratelimit-reset").is_some());
    for name in ["ratelimit-reset", "x-ratelimit-reset", "x-ratelimit-remaining"] {
        assert_eq!(field(&banned, name), field(&by_quota, name), "{name}");
    }
}

#[tokio::test]
async fn a_ban_is_forbidden_by_choice() {
    let clock = ManualClock::new(BEGIN);
    let (limiter, app) = serving(Backend::memory().builder(), &clock, logins().ban(Ban::after(3).forbidden()));
    limiter.ban("logins", "eve", 90 * SECOND).await.expect("an answer");
    let refused = status(&limiter, &app, "eve", 200).await;
    assert_eq!((refused.status(), field(&refused, "retry-after")), (StatusCode::FORBIDDEN, Some("90")));
    let body = text(refused).await;
    assert!(body.contains(r#""status":403"#) && body.contains("abnormal-usage-detected"), "{body}");

    let request = || Request::builder().method("POST").uri("/200").header("content-type", "application/grpc");
    let denied = ask(&app, request().header("x-user", "eve")).await;
    assert_eq!(denied.status(), 200);
    assert_eq!((field(&denied, "grpc-status"), field(&denied, "grpc-retry-pushback-ms")), (Some("7"), Some("90000")));
    let (limiter, app) = serving(Backend::memory().builder(), &clock, logins().ban(Ban::after(3)));
    limiter.ban("logins", "eve", 90 * SECOND).await.expect("an answer");
    let exhausted = ask(&app, request().header("x-user", "eve")).await;
    assert_eq!(field(&exhausted, "grpc-status"), Some("8"));
}

#[tokio::test]
async fn refusals_of_ones_own_know_the_cause() {
    let limiter = Limiter::builder(MemoryStore::new()).rule(logins().ban(Ban::after(3))).build().expect("sound");
    limiter.ban("logins", "eve", 90 * SECOND).await.expect("an answer");
    let layer = RateLimitLayer::new(limiter).on_refused(|refusal| {
        assert_eq!(refusal.cause(), Cause::Ban);
        assert!(refusal.decision().is_some_and(sluicegate::Decision::is_banned));
        Response::new(Body::from("go away"))
    });
    let response = ask(&app_of(layer), Request::builder().uri("/200").header("x-user", "eve")).await;
    assert_eq!(text(response).await, "go away");
}

/// From the handler, by the response, and without HTTP: more is charged, and what a bucket lacks is owed.
#[tokio::test]
async fn penalties_are_charged_on_top() {
    for backend in every_store() {
        let clock = ManualClock::new(BEGIN);
        let bucket = |name: &str| Rule::token_bucket(name, Quota::per_second(1).burst(100)).key(key::global());
        let handler = async |charge: Charge| {
            charge.penalize(3);
            charge.penalize(2);
            assert!(charge.penalize_rule("window", 7) && !charge.penalize_rule("another", 1));
            charge.settle(0);
            StatusCode::NOT_FOUND
        };
        let builder = backend.builder().clock(Clock::manual(clock.clone()));
        let limiter = builder
            .rule(bucket("plain").with_charge())
            .rule(bucket("bad").penalize_by(|response| if response.status == 404 { 190 } else { 0 }))
            .rule(bucket("cost").cost_by(|_| 10))
            .rule(Rule::fixed_window("window", Quota::per_second(10)).key(key::global()))
            .rule(Rule::concurrency("places", 5).key(key::global()))
            .build()
            .expect("sound");
        let layer = RateLimitLayer::new(limiter.clone());
        let app = Router::new().route("/", get(handler)).route("/well", get(async || "")).layer(layer);
        assert_eq!(fetch(&app, "/").await.status(), 404);
        limiter.settled().await;
        let rules = ["plain", "bad", "cost", "window", "places"];
        let decision = limiter.peek(rules.map(|rule| (rule, "all"))).await;
        let left: Vec<u64> = decision.standings().map(|standing| standing.remaining()).collect();
        // The cost was settled, the penalty stays; a window is charged what it has left.
        assert_eq!(left, [94, 0, 95, 0, 5], "{}", backend.name);
        // 1 was charged, 5 and 190 on top: 96 are owed.
        assert_eq!(decision.standing("bad").and_then(|bad| bad.retry_after()), Some(97 * SECOND), "{}", backend.name);

        clock.set(BEGIN + 97 * SECOND);
        assert_eq!(fetch(&app, "/well").await.status(), 200, "{}", backend.name);
        limiter.penalize([("plain", "all"), ("places", "all")]).expect("known rules");
        limiter.penalize(sluicegate::Call::new().key("cost", "all").cost(u64::MAX)).expect("known rules");
        limiter.settled().await;
        let decision = limiter.peek(rules.map(|rule| (rule, "all"))).await;
        let left: Vec<u64> = decision.standings().map(|standing| standing.remaining()).collect();
        assert_eq!(left, [98, 0, 0, 9, 5], "{}", backend.name);
    }
}

/// Without a charge nobody can penalize, and the handler is told what is missing.
#[tokio::test]
async fn a_handler_without_a_charge_is_told_what_is_missing() {
    let limiter = Limiter::builder(MemoryStore::new()).rule(logins()).build().expect("sound");
    let app = Router::new().route("/", get(async |_: Charge| "")).layer(RateLimitLayer::new(limiter));
    let response = fetch(&app, "/").await;
    assert_eq!(response.status(), 500);
    assert!(text(response).await.contains("with_charge()"));
}
