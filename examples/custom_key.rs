//! Keys of one's own: a closure over the request head, a composite, an async look-up, and a key that refuses.
#![allow(clippy::print_stdout)]

use std::error::Error;

use axum::{
    Router,
    body::Body,
    http::{Method, Request, StatusCode, request::Parts},
    routing::{get, post},
};
use sluicegate::{Limiter, MemoryStore, Quota, RateLimitLayer, Rule, key};
use tower::ServiceExt;

/// What a session store would answer.
async fn plan_of(head: Parts) -> Option<&'static str> {
    match head.headers.get("x-tenant")?.as_bytes() {
        b"acme" => Some("enterprise"),
        _ => Some("free"),
    }
}

/// Writes cost ten times as much as reads.
fn cost(head: &Parts) -> u64 {
    if head.method == Method::GET { 1 } else { 10 }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let limiter = Limiter::builder(MemoryStore::new())
        // A tuple: tenants and versions are counted together only where both agree.
        .rule(Rule::gcra("tenant", Quota::per_minute(120).burst(30)).cost_by(cost).key_by(|req| {
            let tenant = req.headers.get("x-tenant").ok_or(StatusCode::BAD_REQUEST)?;
            Ok::<_, StatusCode>((tenant.clone(), u8::from(req.uri.path().starts_with("/v2"))))
        }))
        // Ready-made keys, joined.
        .rule(Rule::sliding_log("tenant-route", Quota::per_minute(20)).key(key::header("x-tenant").and(key::route())))
        // A look-up that waits.
        .rule(Rule::fixed_window("plan", Quota::per_hour(10_000)).key_by_async(async |req| plan_of(req).await))
        .build()?;
    let app: Router = Router::new()
        .route("/v1/items/{id}", get(|| async { "an item" }))
        .route("/v2/items", post(|| async { "made" }))
        .layer(RateLimitLayer::new(limiter));

    for (method, uri, tenant) in [
        ("GET", "/v1/items/1", Some("acme")),
        ("GET", "/v1/items/2", Some("acme")),
        ("POST", "/v2/items", Some("acme")),
        ("POST", "/v2/items", Some("acme")),
        ("POST", "/v2/items", Some("acme")),
        ("POST", "/v2/items", Some("acme")),
        ("GET", "/v1/items/1", None),
    ] {
        let mut request = Request::builder().method(method).uri(uri);
        if let Some(tenant) = tenant {
            request = request.header("x-tenant", tenant);
        }
        let response = app.clone().oneshot(request.body(Body::empty())?).await?;
        let ratelimit = response.headers().get("ratelimit").map_or("-", |value| value.to_str().unwrap_or("?"));
        println!("{method:<4} {uri:<12} {:<5} {}  {ratelimit}", tenant.unwrap_or("-"), response.status().as_u16());
    }
    Ok(())
}
