//! Webhook deliveries at the rate that each receiver can take: workers of one process, or of many, wait their turn in one line.
//! Then the same from the other side: a layer around an HTTP client lets calls to a partner's API out one after the other, and
//! refuses what would wait too long.
//!
//! In memory, or on `REDIS_URL`: start it twice there, and both together keep to the rate.
#![allow(clippy::print_stdout)]

use std::{
    env,
    error::Error,
    time::{Duration, Instant},
};

use axum::{Router, body::Body, extract::Request, routing::get};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use sluicegate::{Limiter, LimiterBuilder, MemoryStore, Quota, RateLimitLayer, RedisStore, Rule, key};
use tokio::{net::TcpListener, task::JoinSet};
use tower::{Layer, ServiceExt};

fn limiter() -> Result<LimiterBuilder, Box<dyn Error>> {
    let builder = match env::var("REDIS_URL") {
        Ok(url) => Limiter::builder(RedisStore::connect(url)?),
        Err(_) => Limiter::builder(MemoryStore::new()),
    };
    Ok(builder.namespace("queueing-webhooks"))
}

/// Each receiver gets five a second. Ten may wait; a worker that finds the line full waits for a place in it first.
async fn deliver_webhooks() -> Result<(), Box<dyn Error>> {
    let rule = Rule::leaky_bucket("deliveries", Quota::per_second(5)).queue(Duration::from_secs(30), 10);
    let limiter = limiter()?.rule(rule.key(key::given())).build()?;
    // Connects, and says what is wrong: the first deliveries do not wait for that, and would be counted in this process alone.
    let report = limiter.check().await;
    if !report.is_ok() {
        println!("{report}");
    }
    let began = Instant::now();
    let mut workers = JoinSet::new();
    for (event, receiver) in (1..).zip(["shop.example", "shop.example", "bank.example"].repeat(4)) {
        let limiter = limiter.clone();
        workers.spawn(async move {
            let decision = limiter.acquire_when_ready([("deliveries", receiver)]).await;
            if decision.is_allowed() {
                println!("{:4} ms  event {event:2} goes to {receiver}", began.elapsed().as_millis());
            }
        });
    }
    // A moment later comes one that gives up again. It is the last in line, so the next gets its slot.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let bank = [("deliveries", "bank.example")];
    if tokio::time::timeout(Duration::from_millis(100), limiter.acquire_when_ready(bank)).await.is_err() {
        limiter.settled().await;
        let slot = began.elapsed() + limiter.peek(bank).await.delay().unwrap_or_default();
        let (now, slot) = (began.elapsed().as_millis(), slot.as_millis());
        println!("{now:4} ms  another to bank.example is given up: the next would go at {slot} ms");
    }
    workers.join_all().await;
    Ok(())
}

/// The partner takes ten calls a second. Three may wait here, and the others hear it at once, without a call.
async fn call_a_partner() -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let partner = format!("http://{}/orders", listener.local_addr()?);
    tokio::spawn(async { axum::serve(listener, Router::new().route("/orders", get(|| async { "an order" }))).await });

    let rule = Rule::leaky_bucket("partner", Quota::per_second(10)).queue(Duration::from_secs(2), 3);
    let limiter = limiter()?.rule(rule.key_by(|req| req.uri.host().map(str::to_owned))).build()?;
    let client = RateLimitLayer::new(limiter).layer(Client::builder(TokioExecutor::new()).build_http::<Body>());
    let began = Instant::now();
    let mut calls = JoinSet::new();
    for call in 1..=6 {
        let request = Request::get(&partner).body(Body::empty())?;
        let client = client.clone();
        calls.spawn(async move { (call, client.oneshot(request).await) });
    }
    while let Some(done) = calls.join_next().await {
        let (call, response) = done?;
        let response = response?;
        let wait = response.headers().get("retry-after").and_then(|wait| wait.to_str().ok()).unwrap_or("-");
        println!(
            "{:4} ms  call {call}: {}, retry after {wait}",
            began.elapsed().as_millis(),
            response.status().as_u16()
        );
    }
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    println!("deliveries, five a second to each receiver");
    deliver_webhooks().await?;
    println!("calls to a partner, ten a second and three in line");
    call_a_partner().await
}
