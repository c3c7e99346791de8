//! Tokens of a language model: an estimate is charged, the truth is settled when the answer has been streamed.
//!
//! Serves on `LISTEN`, 127.0.0.1:3000 unless set. The model is a toy that repeats the prompt; a word is a token.
//!
//! ```sh
//! curl -i -d 'how many words are these' http://127.0.0.1:3000/complete
//! curl http://127.0.0.1:3000/left
//! ```
#![allow(clippy::print_stdout)]

use std::{env, error::Error, net::SocketAddr};

use axum::{
    Router,
    extract::{Request, State},
    routing::{get, post},
};
use sluicegate::{
    Charge, Limiter, MemoryStore, Quota, RateLimitLayer, Rule,
    key::{self, KeyBy},
};
use tokio::net::TcpListener;

/// What a prompt may cost before anybody knows.
const ESTIMATE: u64 = 200;

async fn complete(charge: Charge, prompt: String) -> String {
    let answer = format!("{prompt} {prompt}\n");
    let tokens = answer.split_whitespace().count() as u64;
    charge.settle(tokens);
    println!("charged {ESTIMATE}, settled {tokens}");
    answer
}

/// How much the caller has left.
async fn left(State(limiter): State<Limiter>, request: Request) -> String {
    // The very key that the rule counts by.
    let (head, _) = request.into_parts();
    let decision = limiter.peek([("tokens", KeyBy::from(key::ip()).find_now(&head))]).await;
    format!("{} tokens\n", decision.standing("tokens").map_or(0, |standing| standing.remaining()))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let limiter = Limiter::builder(MemoryStore::new())
        .rule(Rule::token_bucket("tokens", Quota::per_minute(1_000)).key(key::ip()).cost_by(|_| ESTIMATE))
        .build()?;
    let app = Router::new()
        .route("/complete", post(complete))
        .layer(RateLimitLayer::new(limiter.clone()))
        .route("/left", get(left))
        .with_state(limiter.clone());

    let listener = TcpListener::bind(env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:3000".into())).await?;
    println!("1000 tokens a minute: http://{}/complete", listener.local_addr()?);
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}
