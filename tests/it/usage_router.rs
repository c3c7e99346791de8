//! The route that tells callers how much they have left.

use axum::{Router, body::Body, extract::State, http::Request, routing::get};
use http::{Response, StatusCode, request::Parts};
use serde_json::{Value, json};
use sluicegate::{
    Clock, Limiter, LimiterBuilder, ManualClock, MemoryStore, Quota, RateLimitLayer, Rule, StoreErrorKind, key, usage,
};

use crate::support::{
    app::{self, field},
    flaky::{Flaky, Mood},
    stores::{BEGIN, every_store},
};

fn user(head: &Parts) -> Option<Vec<u8>> {
    head.headers.get("x-user").map(|user| user.as_bytes().to_vec())
}

fn rules() -> Vec<Rule> {
    vec![
        Rule::token_bucket("per-user", Quota::per_minute(100).burst(20)).key_by(user),
        Rule::fixed_window("a \"month\"", Quota::per_calendar_month(1_000).utc_offset_minutes(60)).key_by(user),
        Rule::concurrency("at-a-time", 3).key_by(user).when(|_| false),
        Rule::gcra("gold", Quota::unlimited()).key(key::header("x-user")),
        Rule::sliding_log("by-api-key", Quota::per_minute(5)).key(key::api_key("x-api-key")),
        Rule::gcra("session", Quota::per_second(5)).key_by_async(async |head| user(&head)).when(|_| false),
    ]
}

fn app(limiter: &Limiter) -> Router {
    let layer = RateLimitLayer::new(limiter.clone());
    Router::new()
        .route("/", get(|State(state): State<u8>| async move { state.to_string() }))
        .layer(layer)
        .nest("/usage", usage::router(limiter.clone()))
        .with_state(7)
}

async fn ask(app: &Router, uri: &str, user: &str) -> Response<Body> {
    app::ask(app, Request::builder().uri(uri).header("x-user", user)).await
}

async fn json_of(response: Response<Body>) -> Value {
    assert_eq!(response.status(), 200);
    assert_eq!(field(&response, "content-type"), Some("application/json"));
    assert_eq!(field(&response, "cache-control"), Some("no-store"));
    serde_json::from_str(&app::text(response).await).expect("JSON")
}

#[tokio::test]
async fn callers_learn_of_themselves_on_every_store() {
    for backend in every_store() {
        let limiter = backend.limiter(&ManualClock::new(BEGIN), rules());
        let app = app(&limiter);
        for _ in 0..3 {
            assert_eq!(ask(&app, "/", "alice").await.status(), 200, "{}", backend.name);
        }
        for _ in 0..2 {
            let told = json_of(ask(&app, "/usage", "alice").await).await;
            let month = told["rules"][1]["reset_after"].as_f64().expect("seconds");
            assert!((1.0..31.0 * 86_400.0).contains(&month), "{month}");
            let expected = json!({"rules": [
                {"rule": "per-user", "quota": "100 per 60s, burst 20", "limit": 20, "window": 12, "used": 3,
                 "remaining": 17, "reset_after": 1.8, "refused": false, "retry_after": null},
                {"rule": "a \"month\"", "quota": "1000 per calendar month, UTC+01:00", "limit": 1000, "window": null,
                 "used": 3, "remaining": 997, "reset_after": month, "refused": false, "retry_after": null},
                {"rule": "at-a-time", "quota": "3 at a time", "limit": 3, "window": null, "used": 0,
                 "remaining": 3, "reset_after": 0, "refused": false, "retry_after": null},
                {"rule": "gold", "quota": "unlimited", "limit": null, "window": null, "used": null,
                 "remaining": null, "reset_after": 0, "refused": false, "retry_after": null},
                // It never applied, nor did the places, and the key is found all the same.
                {"rule": "session", "quota": "5 per 1s", "limit": 5, "window": 1, "used": 0,
                 "remaining": 5, "reset_after": 0, "refused": false, "retry_after": null},
            ]});
            assert_eq!(told, expected, "{}", backend.name);
        }
        let told = json_of(ask(&app, "/usage", "bob").await).await;
        assert_eq!(told["rules"][0]["used"], 0, "{}", backend.name);
        // Without a key there is nothing to tell.
        assert_eq!(json_of(app::get(&app, "/usage").await).await, json!({"rules": []}), "{}", backend.name);
        let named = Request::builder().uri("/usage?key=alice&x-user=alice").header("x-api-key", "top-secret");
        let told = app::text(app::ask(&app, named).await).await;
        assert!(told.contains("by-api-key") && !told.contains("secret") && !told.contains("per-user"), "{told}");
    }
}

#[tokio::test]
async fn what_is_used_up_says_so() {
    let clock = Clock::manual(ManualClock::new(BEGIN));
    let limiter = Limiter::builder(MemoryStore::new()).clock(clock).rule(app::once("once")).build().expect("sound");
    let app = app(&limiter);
    assert_eq!(app::get(&app, "/").await.status(), 200);
    let told = json_of(app::get(&app, "/usage").await).await;
    let expected = json!({"rule": "once", "quota": "1 per 60s", "limit": 1, "window": 60, "used": 1, "remaining": 0,
                          "reset_after": 60, "refused": true, "retry_after": 60});
    assert_eq!(told["rules"][0], expected);
}

#[tokio::test]
async fn it_is_there_only_where_it_is_mounted_and_only_to_be_read() {
    let limiter = rules().into_iter().fold(Limiter::builder(MemoryStore::new()), LimiterBuilder::rule);
    let limiter = limiter.build().expect("sound");
    let bare = Router::new().route("/", get(|| async {})).layer(RateLimitLayer::new(limiter.clone()));
    assert_eq!(ask(&bare, "/usage", "alice").await.status(), 404);
    let app = app(&limiter);
    let request = |method: &str| Request::builder().method(method).uri("/usage").header("x-user", "alice");
    assert_eq!(app::ask(&app, request("POST")).await.status(), 405);
    assert_eq!(app::ask(&app, request("DELETE")).await.status(), 405);
    let head = app::ask(&app, request("HEAD")).await;
    assert_eq!((head.status(), field(&head, "cache-control")), (StatusCode::OK, Some("no-store")));
    assert_eq!(app::text(head).await, "");
}

#[tokio::test]
async fn who_is_refused_by_a_key_is_refused_here() {
    let tenant = || key::header("x-user").or_refuse(StatusCode::UNAUTHORIZED);
    let builder = Limiter::builder(MemoryStore::new());
    let limiter = builder.rule(Rule::gcra("tenant", Quota::per_second(5)).key(tenant())).build().expect("sound");
    let app = app(&limiter);
    let response = app::get(&app, "/usage").await;
    assert_eq!(response.status(), 401);
    assert_eq!(field(&response, "content-type"), Some("application/problem+json"));
    assert_eq!(field(&response, "cache-control"), Some("no-store"));
    assert_eq!(app::text(response).await, r#"{"type":"about:blank","title":"Unauthorized","status":401}"#);
    assert_eq!(ask(&app, "/usage", "alice").await.status(), 200);
    // An application that asks learns of the other rules.
    let (head, ()) = Request::new(()).into_parts();
    assert_eq!(limiter.usage_of_request(&head).await.expect("an answer").rules().count(), 0);
}

#[tokio::test]
async fn without_the_store_it_is_a_503() {
    let flaky = Flaky::default();
    let limiter = rules().into_iter().fold(Limiter::builder(flaky.clone()), LimiterBuilder::rule);
    let limiter = limiter.build().expect("sound");
    flaky.set(Mood::Fails(StoreErrorKind::Unavailable));
    let response = ask(&app(&limiter), "/usage", "alice").await;
    assert_eq!(response.status(), 503);
    assert_eq!(field(&response, "content-type"), Some("application/problem+json"));
    assert_eq!(field(&response, "cache-control"), Some("no-store"));
    assert_eq!(field(&response, "retry-after"), Some("1"));
    let text = app::text(response).await;
    assert!(!text.contains("told to fail"), "{text}");
    let problem: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(problem["type"], "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity");
    assert_eq!((&problem["status"], &problem["title"]), (&json!(503), &json!("Temporary Reduced Capacity")));
}
