//! Policies in a limiter that runs: tiers, overrides, and changes under load.

mod allocations;
mod changing;
mod customers;
mod load;
mod lookups;
mod paths;
mod tiers;

use axum::{Router, body::Body, http::Request, routing::any};
use http::Response;
use sluicegate::{Limiter, RateLimitLayer, policy::Policy};

use crate::support::app::{self, field};

fn policy(text: &str) -> Policy {
    Policy::from_toml(text).unwrap_or_else(|error| panic!("{error}"))
}

/// Answers every request under a layer of this limiter.
fn app(limiter: &Limiter) -> Router {
    Router::new().fallback(any(|| async { "hello" })).layer(RateLimitLayer::new(limiter.clone()))
}

/// Asks with these headers.
async fn ask(app: &Router, uri: &str, headers: &[(&str, &str)]) -> Response<Body> {
    let request =
        headers.iter().fold(Request::builder().uri(uri), |request, (name, value)| request.header(*name, *value));
    app::ask(app, request).await
}

/// The status, and what the quota fields say is left.
async fn left(app: &Router, uri: &str, headers: &[(&str, &str)]) -> (u16, Option<u64>) {
    let response = ask(app, uri, headers).await;
    let left = field(&response, "x-ratelimit-remaining").map(|left| left.parse().expect("a number"));
    (response.status().as_u16(), left)
}
