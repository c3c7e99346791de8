//! Behind proxies: clients count by their own address, and cannot choose it. Sends itself requests as two proxies would pass
//! them on, and prints whom each was counted for.
#![allow(clippy::print_stdout)]

use std::{error::Error, net::SocketAddr};

use axum::{
    Router,
    body::Body,
    extract::ConnectInfo,
    http::{Request, StatusCode},
    routing::get,
};
use sluicegate::{
    Limiter, MemoryStore, Quota, RateLimitLayer, Rule,
    key::{self, TrustedProxies},
};
use tower::ServiceExt;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // The networks that the proxies are in: whoever calls from elsewhere is a client, whatever it says.
    let client = key::ip().behind(TrustedProxies::cidrs(["10.0.0.0/8"]));
    let limiter = Limiter::builder(MemoryStore::new())
        // Without an address something is wrong with the deployment: better said than unlimited.
        .rule(
            Rule::fixed_window("per-client", Quota::per_hour(3))
                .key(client.clone().or_refuse(StatusCode::INTERNAL_SERVER_ERROR)),
        )
        // Callers with an API key by that, hashed; others by address. Neither can pass for the other.
        .rule(
            Rule::gcra("writes", Quota::per_minute(60))
                .key(key::api_key("x-api-key").or(client))
                .when(|req| req.method == "POST"),
        )
        .build()?;
    let app: Router = Router::new().route("/", get(|| async { "ok" })).layer(RateLimitLayer::new(limiter));

    for (peer, list, why) in [
        ("10.0.0.1:1", Some("203.0.113.7, 10.0.0.2"), "a client behind two proxies"),
        ("10.0.0.1:1", Some("1.1.1.1, 203.0.113.7, 10.0.0.2"), "the same, with an address made up"),
        ("10.0.0.9:1", Some("2.2.2.2, 203.0.113.7, 10.0.0.3"), "the same, by way of others"),
        ("10.0.0.1:1", Some("3.3.3.3, 203.0.113.7"), "the same, and its quota is spent"),
        ("10.0.0.1:1", Some("203.0.113.8, 10.0.0.2"), "its neighbour"),
        ("198.51.100.4:1", Some("203.0.113.7"), "somebody who came past the proxies"),
        ("10.0.0.1:1", Some("203.0.113.7, unknown"), "a list that leads nowhere: the proxy counts"),
        ("10.0.0.1:1", None, "a proxy's own health check: the same count"),
    ] {
        let mut request = Request::builder().uri("/");
        if let Some(list) = list {
            request = request.header("x-forwarded-for", list);
        }
        // A server does this by itself: `into_make_service_with_connect_info::<SocketAddr>()`.
        let request = request.extension(ConnectInfo(peer.parse::<SocketAddr>()?)).body(Body::empty())?;
        let response = app.clone().oneshot(request).await?;
        let left = response.headers().get("x-ratelimit-remaining").map_or("-", |value| value.to_str().unwrap_or("?"));
        println!("{} with {left} left: {why}", response.status().as_u16());
    }
    Ok(())
}
