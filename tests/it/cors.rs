//! What a browser lets a page see of a refusal, by where tower-http's CORS layer is.

use std::collections::BTreeSet;

use axum::{Router, body::Body, routing::get};
use http::{HeaderName, Request, Response, StatusCode, header};
use sluicegate::{
    EXPOSED_GRPC_HEADERS, EXPOSED_HEADERS, Headers, Limiter, MemoryStore, Quota, RateLimitLayer, Rule, key,
};
use tower::ServiceBuilder;
use tower_http::cors::{Any, CorsLayer, ExposeHeaders};

use crate::support::app::{ask, field};

fn limit(amount: u64) -> RateLimitLayer {
    let rule = Rule::gcra("r", Quota::per_minute(amount)).key(key::global());
    RateLimitLayer::new(Limiter::builder(MemoryStore::new()).rule(rule).build().expect("sound"))
}

fn cors() -> CorsLayer {
    CorsLayer::new().allow_origin(Any).expose_headers(EXPOSED_HEADERS)
}

fn app() -> Router {
    Router::new().route("/", get(|| async { "ok" }))
}

/// As a page of another origin asks.
async fn from_page(app: &Router) -> Response<Body> {
    ask(app, Request::builder().uri("/").header("origin", "https://page.example")).await
}

async fn preflight(app: &Router) -> Response<Body> {
    let request = Request::builder().method("OPTIONS").uri("/").header("origin", "https://page.example");
    ask(app, request.header("access-control-request-method", "GET")).await
}

/// The fields of a response that the page can read, by the Fetch standard.
fn readable(response: &Response<Body>) -> BTreeSet<String> {
    let safe =
        ["cache-control", "content-language", "content-length", "content-type", "expires", "last-modified", "pragma"];
    if !response.headers().contains_key(header::ACCESS_CONTROL_ALLOW_ORIGIN) {
        return BTreeSet::new();
    }
    let exposed = field(response, "access-control-expose-headers").unwrap_or_default();
    let names: BTreeSet<_> = exposed.split(',').map(|name| name.trim().to_owned()).collect();
    let shown = |name: &&HeaderName| safe.contains(&name.as_str()) || names.contains(name.as_str());
    response.headers().keys().filter(shown).map(ToString::to_string).collect()
}

#[tokio::test]
async fn with_cors_outside_a_page_reads_the_refusal_and_every_quota_field() {
    let written_first = ServiceBuilder::new().layer(cors()).layer(limit(1));
    for app in [app().layer(limit(1)).layer(cors()), app().layer(written_first)] {
        assert_eq!(from_page(&app).await.status(), StatusCode::OK);
        let refused = from_page(&app).await;
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(field(&refused, "access-control-allow-origin"), Some("*"));
        let readable = readable(&refused);
        for name in [
            "retry-after",
            "ratelimit",
            "ratelimit-policy",
            "x-ratelimit-limit",
            "x-ratelimit-remaining",
            "x-ratelimit-reset",
        ] {
            assert!(refused.headers().contains_key(name) && readable.contains(name), "{name}");
        }
    }
}

#[tokio::test]
async fn with_cors_inside_a_page_cannot_read_the_refusal_at_all() {
    let written_last = ServiceBuilder::new().layer(limit(1)).layer(cors());
    for app in [app().layer(cors()).layer(limit(1)), app().layer(written_last)] {
        assert_eq!(from_page(&app).await.status(), StatusCode::OK);
        let refused = from_page(&app).await;
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(readable(&refused), BTreeSet::new());
    }
}

/// A page whose preflight is refused never gets to send its request.
#[tokio::test]
async fn preflight_is_charged_in_neither_order() {
    for app in [app().layer(limit(1)).layer(cors()), app().layer(cors()).layer(limit(1))] {
        for _ in 0..5 {
            assert_eq!(preflight(&app).await.status(), StatusCode::OK);
        }
        assert_eq!(from_page(&app).await.status(), StatusCode::OK);
        assert_eq!(from_page(&app).await.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(preflight(&app).await.status(), StatusCode::OK);
    }
    // Where it is to be charged and CORS is outside, it does not come as far.
    let charging = limit(1).skip_preflight(false);
    let app = app().layer(charging).layer(cors());
    assert_eq!((preflight(&app).await.status(), preflight(&app).await.status()), (StatusCode::OK, StatusCode::OK));
    assert_eq!(from_page(&app).await.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_page_reads_the_status_of_a_refused_grpc_web_call() {
    let names = EXPOSED_HEADERS.into_iter().chain(EXPOSED_GRPC_HEADERS);
    let cors = CorsLayer::new().allow_origin(Any).expose_headers(ExposeHeaders::list(names));
    let app = app().layer(limit(1).grpc_details(true)).layer(cors);
    from_page(&app).await;
    let call = Request::builder().method("POST").uri("/").header("origin", "https://page.example");
    let refused = ask(&app, call.header("content-type", "application/grpc-web+proto")).await;
    let readable = readable(&refused);
    for name in ["grpc-status", "grpc-message", "grpc-status-details-bin", "grpc-retry-pushback-ms", "retry-after"] {
        assert!(refused.headers().contains_key(name) && readable.contains(name), "{name}");
    }
}

/// What is to be exposed is what is sent.
#[test]
fn every_default_field_is_exposed() {
    let sent: Vec<_> = Headers::default().names().collect();
    for name in &sent {
        assert!(EXPOSED_HEADERS.contains(name), "{name} is sent and not exposed");
    }
    let extra: Vec<_> = EXPOSED_HEADERS.into_iter().filter(|name| !sent.contains(name)).collect();
    assert_eq!(extra, ["retry-after-ms"]);
}
