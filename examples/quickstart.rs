//! A limited axum app: ten requests at once, then one a second, for each client address.
//!
//! `cargo run --example quickstart` serves in memory; with `REDIS_URL=redis://127.0.0.1:6379` several of them share the
//! counts. `LISTEN` says where, 127.0.0.1:3000 unless set.
#![allow(clippy::print_stdout)]

use std::{env, error::Error, net::SocketAddr};

use axum::{Router, routing::get};
use sluicegate::{Decision, Limiter, LimiterBuilder, MemoryStore, Quota, RateLimitLayer, RedisStore, Rule, key};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // In memory for trying; one line moves it to Redis.
    let (builder, store): (LimiterBuilder, _) = match env::var("REDIS_URL") {
        Ok(url) => (Limiter::builder(RedisStore::connect(url)?), "on Redis"),
        Err(_) => (Limiter::builder(MemoryStore::new()), "in memory"),
    };
    let limiter = builder
        .namespace("quickstart")
        .rule(Rule::token_bucket("per-ip", Quota::per_minute(60).burst(10)).key(key::ip()))
        .rule(Rule::fixed_window("everyone", Quota::per_second(1_000)).key(key::global()))
        .build()?;

    let app = Router::new().route("/", get(hello)).layer(RateLimitLayer::new(limiter));

    let listener = TcpListener::bind(env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:3000".into())).await?;
    let address = listener.local_addr()?;
    println!("limiting {store}, listening on http://{address}. Try:\n");
    println!("  curl -i http://{address}/");
    println!("  for i in $(seq 15); do curl -s -o /dev/null -w '%{{http_code}} ' http://{address}/; done; echo");
    println!("  curl -s http://{address}/   # after that: the refusal, as problem+json\n");
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}

/// Handlers may read the decision that let the request in.
async fn hello(decision: Decision) -> String {
    match decision.standing("per-ip") {
        Some(standing) => format!("hello, {} more at once\n", standing.remaining()),
        None => "hello\n".into(),
    }
}
