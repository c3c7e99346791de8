//! One application, several dialects: which quota fields a response carries, by route.
//!
//! Serves on `LISTEN`, 127.0.0.1:3000 unless set.
#![allow(clippy::print_stdout)]

use std::{env, error::Error, net::SocketAddr};

use axum::{Router, http::header, routing::get};
use sluicegate::{BuildError, Headers, Limiter, MemoryStore, Quota, RateLimitLayer, Rule, key};
use tokio::net::TcpListener;

/// A route with these fields, of three requests at once and twelve a minute.
fn route(path: &str, headers: Headers) -> Result<Router, BuildError> {
    let limiter = Limiter::builder(MemoryStore::new())
        .rule(Rule::token_bucket("requests", Quota::per_minute(12).burst(3)).key(key::ip()))
        .rule(Rule::fixed_window("tokens", Quota::per_hour(10_000)).cost(250).key(key::ip()))
        .build()?;
    let layer = RateLimitLayer::new(limiter).headers(headers);
    Ok(Router::new().route(path, get(|| async { "hello\n" })).layer(layer))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let routes = [
        // X-RateLimit-* in Unix seconds for what clients there are, RateLimit and RateLimit-Policy for those to come.
        ("/default", Headers::default()),
        // Octokit and its like.
        ("/github", Headers::builder().github().build()?),
        // A metric for each rule, and waits to the millisecond, which the SDKs prefer.
        (
            "/openai",
            Headers::builder()
                .openai("requests")
                .of_rule("requests")
                .openai("tokens")
                .of_rule("tokens")
                .retry_after_ms()
                .build()?,
        ),
        ("/anthropic", Headers::builder().anthropic("tokens").of_rule("tokens").build()?),
        ("/discord", Headers::builder().discord().build()?),
        ("/draft7", Headers::builder().ietf_draft7().build()?),
        // Used, of how many, as Shopify has it.
        (
            "/custom",
            Headers::builder()
                .custom("x-call-limit", |decision| {
                    let standing = decision.tightest()?;
                    let capacity = standing.limit().quota().capacity();
                    Some(format!("{}/{capacity}", capacity.saturating_sub(standing.remaining())))
                })
                .build()?,
        ),
        // Only when it gets tight, only for callers that say who they are, and with the count they belong to.
        (
            "/careful",
            Headers::builder()
                .ietf()
                .partition_key(env::var("SECRET").unwrap_or_else(|_| "not much of a secret".into()))
                .only_below(0.5)
                .hide_when(|req| !req.headers.contains_key(header::AUTHORIZATION))
                .build()?,
        ),
        ("/none", Headers::none()),
    ];
    let mut app = Router::new();
    let mut paths = Vec::new();
    for (path, headers) in routes {
        app = app.merge(route(path, headers)?);
        paths.push(path);
    }

    let listener = TcpListener::bind(env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:3000".into())).await?;
    let address = listener.local_addr()?;
    println!("listening on http://{address}. Try any of {}, four times for a refusal:\n", paths.join(" "));
    println!("  for i in 1 2 3 4; do curl -si http://{address}/default | grep -i -e HTTP -e rate -e retry; done");
    println!("  curl -i -H 'authorization: Bearer alice' http://{address}/careful\n");
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}
