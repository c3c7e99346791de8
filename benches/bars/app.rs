//! The web servers that are measured, each in a process of its own.

use std::{
    io::Read,
    net::SocketAddr,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use axum::{
    Router,
    extract::{Request, State},
    http::{HeaderValue, StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::get,
};
use sluicegate::{Limiter, MemoryStore, Quota, RateLimitLayer, Rule, key, store::Store};

use crate::contender::{PATIENCE, Script, patient};

/// The argument that makes this binary a web server.
pub const SERVE: &str = "--serve";

/// The header that names the user.
pub const USER: &str = "x-user";

const BURST: u64 = 1_000_000;

/// Serves until standard input closes, as it does when the parent ends.
pub fn serve(which: &str, url: &str) {
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let app = Router::new().route("/", get(|| async { "hello" }));
        let app = match which {
            "bare" => app,
            "memory" => app.layer(layer(MemoryStore::new())),
            "redis" => app.layer(layer(patient(url))),
            "floor" => app.layer(middleware::from_fn_with_state(floor(url).await, limited)),
            _ => app.layer(middleware::from_fn_with_state(floor(url).await, silently_limited)),
        };
        let listener = tokio::net::TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.expect("a port");
        println!("{}", listener.local_addr().expect("an address"));
        // On the worker, not on the thread that waits for this future.
        let served = tokio::spawn(async move { axum::serve(listener, app).await });
        served.await.expect("no panic").expect("served");
    });
}

fn layer(store: impl Store) -> RateLimitLayer {
    let rule = Rule::gcra("r", Quota::per_second(10).burst(BURST)).key(key::header(USER));
    RateLimitLayer::new(Limiter::builder(store).namespace("b").rule(rule).build().expect("a sound rule"))
}

async fn floor(url: &str) -> Script {
    Script::over(url, include_str!("floor/gcra.lua"), &[100_000, BURST, 1], Some(PATIENCE)).await
}

/// What one writes by hand: the script, a 429, and the headers that clients read.
async fn limited(State(mut floor): State<Script>, request: Request, next: Next) -> Response {
    let Some(user) = request.headers().get(USER).and_then(|user| user.to_str().ok()) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let (allowed, remaining, retry, reset) = floor.call(user).await;
    let mut response = match allowed {
        1 => next.run(request).await,
        _ => (StatusCode::TOO_MANY_REQUESTS, [(header::RETRY_AFTER, (retry / 1_000_000 + 1).to_string())])
            .into_response(),
    };
    let at = SystemTime::now() + Duration::from_micros(reset as u64);
    let headers = response.headers_mut();
    headers.insert("x-ratelimit-limit", HeaderValue::from(BURST));
    headers.insert("x-ratelimit-remaining", HeaderValue::from(remaining));
    headers.insert("x-ratelimit-reset", at.duration_since(UNIX_EPOCH).expect("a date").as_secs().into());
    response
}

/// The same without the headers.
async fn silently_limited(State(mut floor): State<Script>, request: Request, next: Next) -> Response {
    let Some(user) = request.headers().get(USER).and_then(|user| user.to_str().ok()) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    match floor.call(user).await.0 {
        1 => next.run(request).await,
        _ => StatusCode::TOO_MANY_REQUESTS.into_response(),
    }
}
