//! Two rules in one decision: each user has a quota, and so has each address. A request that one refuses costs nothing in the
//! other. Sends itself a few requests and prints what came of them.
#![allow(clippy::print_stdout)]

use std::error::Error;

use axum::{Router, body::Body, http::Request, routing::get};
use sluicegate::{Limiter, MemoryStore, Quota, RateLimitLayer, Rule, key};
use tower::ServiceExt;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let limiter = Limiter::builder(MemoryStore::new())
        // Without the header there is no user, and the rule does not apply.
        .rule(Rule::token_bucket("per-user", Quota::per_minute(100).burst(3)).key(key::header("x-user")))
        // So every request is also counted by where it comes from.
        .rule(Rule::sliding_counter("per-ip", Quota::per_minute(5)).key(key::ip()))
        .build()?;
    let app: Router = Router::new().route("/", get(|| async { "ok" })).layer(RateLimitLayer::new(limiter));

    for (user, address) in [
        (Some("alice"), "192.0.2.1:1"),
        (Some("alice"), "192.0.2.1:1"),
        (Some("alice"), "192.0.2.1:1"),
        (Some("alice"), "192.0.2.1:1"),
        (Some("bob"), "192.0.2.1:1"),
        (None, "192.0.2.1:1"),
        (None, "192.0.2.1:1"),
        (None, "198.51.100.7:1"),
    ] {
        let mut request = Request::builder().uri("/");
        if let Some(user) = user {
            request = request.header("x-user", user);
        }
        let mut request = request.body(Body::empty())?;
        // A server does this by itself: `into_make_service_with_connect_info::<SocketAddr>()`.
        request.extensions_mut().insert(address.parse::<std::net::SocketAddr>()?);
        let response = app.clone().oneshot(request).await?;
        let field = |name: &str| response.headers().get(name).map_or("-", |value| value.to_str().unwrap_or("?"));
        println!(
            "{:<6} from {address:<15} {}  {}",
            user.unwrap_or("nobody"),
            response.status().as_u16(),
            field("ratelimit")
        );
    }
    Ok(())
}
