//! A new limit, watched before it refuses anybody: a would-be refusal in a header and in the log, then the switch.
//!
//! Serves on `LISTEN`, 127.0.0.1:3000 unless set. Of two requests in ten seconds a third would be too many:
//!
//! ```sh
//! for i in 1 2 3 4; do curl -si -H 'x-user: alice' http://127.0.0.1:3000/ | grep -iE '^HTTP|shadow'; done
//! curl -X POST http://127.0.0.1:3000/enforce        # from now on it refuses
//! curl -si -H 'x-user: alice' http://127.0.0.1:3000/ | head -1
//! curl -X POST http://127.0.0.1:3000/watch          # and no more
//! ```
#![allow(clippy::print_stdout)]

use std::{env, error::Error, time::Duration};

use axum::{
    Router,
    extract::State,
    routing::{get, post},
};
use sluicegate::{Decision, Headers, Limiter, MemoryStore, Observer, Quota, RateLimitLayer, Rule, key};
use tokio::net::TcpListener;

/// A metric would be counted here, by rule.
struct Report;

impl Observer for Report {
    fn decided(&self, decision: &Decision) {
        for standing in decision.standings() {
            let what = if standing.would_refuse() { "would have refused" } else { "refused" };
            if standing.would_refuse() || standing.is_refused() {
                println!("{} {what}, for another {:?}", standing.rule(), standing.retry_after().unwrap_or_default());
            }
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // The library's own line, at most one a second.
    tracing_subscriber::fmt().init();
    let limiter = Limiter::builder(MemoryStore::new())
        .rule(Rule::sliding_log("per-user", Quota::per(2, Duration::from_secs(10))).key(key::header("x-user")))
        // All rules begin as shadows. For one alone say `.shadow()` of the rule, and `.roll_out(5)` for a start with few users.
        .shadow(true)
        .observer(Report)
        .build()?;
    let headers = Headers::builder().x_ratelimit().shadow().build()?;
    let limited = Router::new()
        .route("/", get(|| async { "hello\n" }))
        .layer(RateLimitLayer::new(limiter.clone()).headers(headers));
    // Whoever may switch it: put this behind your own authentication.
    let switch = Router::new()
        .route("/enforce", post(|State(limiter): State<Limiter>| async move { limiter.set_shadow(false) }))
        .route("/watch", post(|State(limiter): State<Limiter>| async move { limiter.set_shadow(true) }))
        .with_state(limiter);

    let listener = TcpListener::bind(env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:3000".into())).await?;
    println!("two in ten seconds, watched: http://{}/ with an x-user header", listener.local_addr()?);
    axum::serve(listener, limited.merge(switch)).await?;
    Ok(())
}
