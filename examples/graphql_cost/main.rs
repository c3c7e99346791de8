//! Shopify's model: a bucket of 1,000 points that refills 50 a second. A query is charged what it asks for, and what it did not touch
//! is refunded. Nothing of it is in the headers: `extensions.cost` in the body tells it.
//!
//! The cost is in the POSTed query, so the layer reads bodies. An object costs a point, scalars are free, and lists cost as many
//! objects as their `first:` asks for, so that each level of nesting multiplies.
//!
//! Serves on `LISTEN`, 127.0.0.1:3000 unless set.
//!
//! ```sh
//! curl -d '{"query": "{ products(first: 20) { title variants(first: 5) { sku } } }"}' http://127.0.0.1:3000/graphql
//! curl -d '{"query": "{ products(first: 400) { variants(first: 5) { sku } } }"}' http://127.0.0.1:3000/graphql
//! ```
#![allow(clippy::print_stdout)]

mod query;

use std::{env, error::Error, net::SocketAddr};

use axum::{
    Json, Router,
    body::Bytes,
    response::{IntoResponse, Response},
    routing::post,
};
use query::{Posted, Query};
use serde_json::{Value, json};
use sluicegate::{
    Charge, Headers, Limiter, MemoryStore, Quota, RateLimitLayer, Rule, Standing, key,
    refusal::{Cause, Refusal},
};
use tokio::net::TcpListener;

const POINTS: u64 = 1_000;
const RESTORED: u64 = 50;
/// The longest query, in bytes.
const LONGEST: usize = 16_384;

/// What a request costs, by its body. One that is no query costs a point for looking at it.
fn price(body: &[u8]) -> u64 {
    let Ok(posted) = serde_json::from_slice::<Posted>(body) else { return 1 };
    Query::parse(&posted).map_or(1, |query| query.price().max(1))
}

/// As Shopify shows it; a query that was not run has no actual cost.
fn cost(standing: &Standing<'_>, actual: Option<u64>) -> Value {
    let refunded = |actual| (standing.remaining() + standing.cost()).saturating_sub(actual);
    json!({ "cost": {
        "requestedQueryCost": standing.cost(),
        "actualQueryCost": actual,
        "throttleStatus": {
            "maximumAvailable": POINTS,
            "currentlyAvailable": actual.map_or(standing.remaining(), refunded),
            "restoreRate": RESTORED,
        },
    }})
}

async fn graphql(charge: Charge, body: Bytes) -> Json<Value> {
    let wrong = |message: String| Json(json!({ "errors": [{ "message": message }] }));
    let posted: Posted = match serde_json::from_slice(&body) {
        Ok(posted) => posted,
        Err(error) => return wrong(error.to_string()),
    };
    let query = match Query::parse(&posted) {
        Ok(query) => query,
        Err(error) => return wrong(error),
    };
    // Whatever the limiter said, or could not say because its store was away.
    if query.price() > POINTS {
        return wrong(format!("it costs more than {POINTS} points"));
    }
    let (data, touched) = query.run();
    charge.settle(touched);
    let extensions = charge.decision().standing("points").map(|standing| cost(&standing, Some(touched)));
    Json(json!({ "data": data, "extensions": extensions }))
}

/// GraphQL tells errors in the body, with the status 200.
fn refuse(refusal: &Refusal<'_>) -> Option<Response> {
    let standing = refusal.decision()?.standing("points").filter(|_| refusal.cause() == Cause::Quota)?;
    let code = if standing.can_never_fit() { "MAX_COST_EXCEEDED" } else { "THROTTLED" };
    let error = json!({ "message": refusal.to_string(), "extensions": { "code": code } });
    Some(Json(json!({ "errors": [error], "extensions": cost(&standing, None) })).into_response())
}

/// The application, with a limiter of [`points`].
pub fn app(limiter: Limiter) -> Router {
    let layer = RateLimitLayer::new(limiter).headers(Headers::none()).on_refused(refuse).read_bodies();
    Router::new().route("/graphql", post(graphql)).layer(layer)
}

/// So many points for each address.
pub fn points() -> Rule {
    let quota = Quota::per_second(RESTORED).burst(POINTS);
    Rule::token_bucket("points", quota).key(key::ip()).cost_by_body(LONGEST, |_head, body| price(body))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let limiter = Limiter::builder(MemoryStore::new()).rule(points()).build()?;
    let listener = TcpListener::bind(env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:3000".into())).await?;
    println!("{POINTS} points, {RESTORED} restored a second: http://{}/graphql", listener.local_addr()?);
    axum::serve(listener, app(limiter).into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}
