//! Callers who say nothing, or nothing that is text.

use axum::{Router, routing::get};
use http::{Request, StatusCode};
use sluicegate::{Quota, Rule, key};

use crate::support::app::{ask, field, layer};

/// Nobody shares a count with others by leaving something out, or by writing what is no text.
#[tokio::test]
async fn no_identity_is_no_shared_count() {
    let rule = Rule::fixed_window("r", Quota::per_hour(10)).key(key::header("x-tenant"));
    let app = Router::new().route("/", get(|| async {})).layer(layer([rule]));
    let remaining = async |value: Option<&[u8]>| {
        let request = Request::builder().uri("/");
        let request = match value {
            Some(value) => request.header("x-tenant", value),
            None => request,
        };
        field(&ask(&app, request).await, "x-ratelimit-remaining").map(str::to_owned)
    };
    assert_eq!(remaining(None).await, None, "the rule does not apply");
    let values: [&[u8]; 5] = [b"", b"\xff", b"\xfe", b"%ff", b"~"];
    for round in ["9", "8"] {
        for value in values {
            assert_eq!(remaining(Some(value)).await.as_deref(), Some(round), "{value:?}");
        }
    }
    assert_eq!(remaining(None).await, None);
}

/// Where everybody must say who they are, nobody gets in without.
#[tokio::test]
async fn or_no_answer_at_all() {
    let key = key::header("x-tenant").or_refuse(StatusCode::UNAUTHORIZED);
    let app = Router::new().route("/", get(|| async {})).layer(layer([Rule::gcra("r", Quota::per_hour(10)).key(key)]));
    assert_eq!(ask(&app, Request::builder().uri("/")).await.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(ask(&app, Request::builder().uri("/").header("x-tenant", "a")).await.status(), StatusCode::OK);
}

/// Counts cannot be looked up over HTTP unless the application says so.
#[tokio::test]
async fn a_layer_adds_no_routes() {
    let rule = Rule::gcra("r", Quota::per_hour(1_000)).key(key::global());
    let app = Router::new().route("/", get(|| async {})).layer(layer([rule]));
    for path in ["/usage", "/admin", "/metrics", "/ratelimit", "/rate-limit", "/health", "/debug", "/keys/*", "/r"] {
        for method in ["GET", "POST", "DELETE", "OPTIONS"] {
            let response = ask(&app, Request::builder().method(method).uri(path)).await;
            assert_eq!(response.status(), StatusCode::NOT_FOUND, "{method} {path}");
        }
    }
}
