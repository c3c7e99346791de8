//! "How much have I left?": a route that tells callers, a page for support, and a button that forgets.
//!
//! Serves on `LISTEN`, 127.0.0.1:3000 unless set.
//!
//! ```sh
//! curl -i -H 'x-user: alice' http://127.0.0.1:3000/hello
//! curl -H 'x-user: alice' http://127.0.0.1:3000/usage            # costs nothing, and knows nobody but alice
//! curl http://127.0.0.1:3000/support/alice
//! curl -X DELETE http://127.0.0.1:3000/support/alice
//! ```
#![allow(clippy::print_stdout)]

use std::{env, error::Error, fmt::Write};

use axum::{
    Router,
    extract::{Path, State},
    http::{StatusCode, request::Parts},
    routing::get,
};
use sluicegate::{Limiter, MemoryStore, Quota, RateLimitLayer, Rule, usage};
use tokio::net::TcpListener;

/// An application of yours would take it from a checked session: whoever may name another here may ask for another.
fn user(req: &Parts) -> Option<String> {
    Some(req.headers.get("x-user")?.to_str().ok()?.to_owned())
}

/// Any customer's usage, for those who may know: put your own authentication around it.
async fn show(State(limiter): State<Limiter>, Path(user): Path<String>) -> Result<String, StatusCode> {
    let usage = limiter.usage(user).await.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
    let mut page = String::new();
    for rule in usage.rules() {
        let state = match (rule.used(), rule.retry_after()) {
            (None, _) => "no limit".into(),
            (Some(used), None) => format!("{used} used"),
            (Some(used), Some(wait)) => format!("{used} used, refused for {wait:.1?}"),
        };
        // Writing into a string does not fail.
        let _ = writeln!(page, "{:<12} {:<32} {state}", rule.rule(), rule.limit().to_string());
    }
    Ok(page)
}

async fn forget(State(limiter): State<Limiter>, Path(user): Path<String>) -> Result<&'static str, StatusCode> {
    limiter.reset_key(user).await.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
    Ok("forgotten\n")
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let limiter = Limiter::builder(MemoryStore::new())
        .rule(Rule::fixed_window("monthly", Quota::per_calendar_month(1_000)).key_by(user))
        .rule(Rule::token_bucket("rate", Quota::per_minute(60).burst(5)).key_by(user))
        .rule(Rule::concurrency("at-a-time", 2).key_by(user))
        .rule(Rule::gcra("search", Quota::unlimited()).key_by(user))
        .build()?;
    let app = Router::new()
        .route("/hello", get(|| async { "hello\n" }))
        .layer(RateLimitLayer::new(limiter.clone()))
        // Outside the layer, so that asking is free.
        .nest("/usage", usage::router(limiter.clone()))
        .route("/support/{user}", get(show).delete(forget))
        .with_state(limiter);

    let listener = TcpListener::bind(env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:3000".into())).await?;
    let address = listener.local_addr()?;
    println!("spend:   curl -i -H 'x-user: alice' http://{address}/hello");
    println!("ask:     curl -H 'x-user: alice' http://{address}/usage");
    println!("support: curl http://{address}/support/alice");
    println!("forget:  curl -X DELETE http://{address}/support/alice");
    axum::serve(listener, app).await?;
    Ok(())
}
