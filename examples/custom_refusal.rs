//! Refusals of one's own: the JSON that the rest of an API speaks, made of the decision and the head of the request. What the
//! closure leaves out, `Retry-After` and the quota fields, is added; what it does not care for stays the layer's.
//!
//! Serves on `LISTEN`, 127.0.0.1:3000 unless set.
#![allow(clippy::print_stdout)]

use std::{env, error::Error};

use axum::{
    Json, Router,
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use serde::Serialize;
use sluicegate::{
    Limiter, MemoryStore, Quota, RateLimitLayer, Rule, key,
    refusal::{Cause, Format, Refusal},
};
use tokio::net::TcpListener;

/// What every error of this API looks like.
#[derive(Serialize)]
struct ApiError {
    code: &'static str,
    message: String,
    path: String,
    limits: Vec<Used>,
}

#[derive(Serialize)]
struct Used {
    name: String,
    quota: String,
    remaining: u64,
    retry_in_ms: Option<u128>,
}

/// A closure or a function: `None` leaves the answer to the layer.
fn refuse(refusal: &Refusal<'_>) -> Option<Response> {
    // A missing key is a plain 400, and needs no words of ours.
    if refusal.cause() == Cause::Key {
        return None;
    }
    let standings = refusal.decision().into_iter().flat_map(|decision| decision.standings());
    let limits = standings.filter(|standing| standing.is_refused()).map(|standing| Used {
        name: standing.rule().to_owned(),
        quota: standing.limit().quota().to_string(),
        remaining: standing.remaining(),
        retry_in_ms: standing.retry_after().map(|wait| wait.as_millis()),
    });
    let (status, code) = match refusal.cause() {
        // As GitHub has it for what no wait helps.
        _ if refusal.can_never_fit() => (StatusCode::FORBIDDEN, "too_expensive"),
        Cause::Quota => (StatusCode::TOO_MANY_REQUESTS, "slow_down"),
        _ => (refusal.status(), "try_later"),
    };
    let error = ApiError {
        code,
        message: refusal.to_string(),
        path: refusal.head().uri.path().to_owned(),
        limits: limits.collect(),
    };
    Some((status, Json(error)).into_response())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let limiter = Limiter::builder(MemoryStore::new())
        .rule(
            Rule::token_bucket("per-tenant", Quota::per_minute(30).burst(5))
                .key_by(|req| req.headers.get("x-tenant").cloned().ok_or(StatusCode::BAD_REQUEST))
                .cost_by(|req| if req.uri.path() == "/export" { 100 } else { 1 }),
        )
        .build()?;
    let plain = Limiter::builder(MemoryStore::new())
        .rule(Rule::fixed_window("status", Quota::per_minute(2)).key(key::global()))
        .build()?;

    let app = Router::new()
        .route("/items", get(|| async { "items\n" }))
        .route("/export", post(|| async { "never reached\n" }))
        .layer(RateLimitLayer::new(limiter).on_refused(refuse))
        // Some routes are for people with curl: plain text will do.
        .merge(
            Router::new()
                .route("/status", get(|| async { "up\n" }))
                .layer(RateLimitLayer::new(plain).refuse_with(Format::Text)),
        );

    let listener = TcpListener::bind(env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:3000".into())).await?;
    let address = listener.local_addr()?;
    println!("listening on http://{address}. Try:\n");
    println!(
        "  for i in $(seq 6); do curl -s -w '\\n' -H 'x-tenant: acme' http://{address}/items; done   # JSON of our own"
    );
    println!("  curl -i -X POST -H 'x-tenant: acme' http://{address}/export   # costs more than the quota ever allows");
    println!("  curl -i http://{address}/items   # no tenant: the layer's own answer");
    println!("  for i in $(seq 3); do curl -s http://{address}/status; done   # plain text\n");
    axum::serve(listener, app).await?;
    Ok(())
}
