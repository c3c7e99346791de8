//! Applications, asked directly or over real HTTP.

use std::net::SocketAddr;

use axum::{Router, body::Body, http::Request};
use http::{Response, request::Builder};
use http_body_util::BodyExt;
use sluicegate::{Clock, Limiter, ManualClock, MemoryStore, Quota, RateLimitLayer, Rule, key};
use tower::ServiceExt;

use super::stores::BEGIN;

/// Serves on a free port, as a real application would.
pub async fn serve(app: Router) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("its address");
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, service).await });
    address
}

pub async fn ask(app: &Router, request: Builder) -> Response<Body> {
    let request: Request<Body> = request.body(Body::empty()).expect("a request");
    app.clone().oneshot(request).await.expect("a response")
}

pub async fn get(app: &Router, uri: &str) -> Response<Body> {
    ask(app, Request::builder().uri(uri)).await
}

pub async fn text(response: Response<Body>) -> String {
    let bytes = response.into_body().collect().await.expect("a body").to_bytes();
    String::from_utf8(bytes.to_vec()).expect("text")
}

pub fn field<'a, B>(response: &'a Response<B>, name: &str) -> Option<&'a str> {
    response.headers().get(name).map(|value| value.to_str().expect("text"))
}

/// A layer in memory whose time stands still.
pub fn layer(rules: impl IntoIterator<Item = Rule>) -> RateLimitLayer {
    let builder = Limiter::builder(MemoryStore::new()).clock(Clock::manual(ManualClock::new(BEGIN)));
    RateLimitLayer::new(rules.into_iter().fold(builder, |builder, rule| builder.rule(rule)).build().expect("sound"))
}

/// A rule that admits one request of all.
pub fn once(name: &str) -> Rule {
    Rule::gcra(name, Quota::per_minute(1)).key(key::global())
}
