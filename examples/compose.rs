//! Among other layers: trace and CORS outside, so that refusals are traced and readable by browsers; a limit by address before
//! authentication and one by user after it; timeout, compression, body and concurrency limits inside, so that refusals need none.
//!
//! Serves on `LISTEN`, 127.0.0.1:3000 unless set.
#![allow(clippy::print_stdout)]

use std::{env, error::Error, net::SocketAddr, time::Duration};

use axum::{
    Router,
    extract::Request,
    http::{StatusCode, header},
    middleware::{Next, from_fn},
    response::Response,
    routing::get,
};
use sluicegate::{EXPOSED_HEADERS, Limiter, MemoryStore, Quota, RateLimitLayer, Rule, key};
use tokio::net::TcpListener;
use tower::{ServiceBuilder, limit::GlobalConcurrencyLimitLayer};
use tower_http::{
    compression::CompressionLayer,
    cors::{Any, CorsLayer},
    limit::RequestBodyLimitLayer,
    timeout::TimeoutLayer,
    trace::TraceLayer,
};

/// Who is asking: what the rules inside are counted by.
#[derive(Clone)]
struct User(String);

async fn authenticate(mut request: Request, next: Next) -> Result<Response, StatusCode> {
    let token = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let user = token.and_then(|token| token.strip_prefix("Bearer ")).ok_or(StatusCode::UNAUTHORIZED)?;
    let user = User(user.to_owned());
    request.extensions_mut().insert(user);
    Ok(next.run(request).await)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let store = MemoryStore::new();
    let by_address = Limiter::builder(store.clone())
        .namespace("edge")
        .rule(Rule::gcra("per-ip", Quota::per_second(10).burst(50)).key(key::ip()))
        .build()?;
    let by_user = Limiter::builder(store)
        .namespace("api")
        .rule(
            Rule::token_bucket("per-user", Quota::per_minute(100).burst(5))
                .key_by(|req| req.extensions.get::<User>().map(|user| user.0.clone())),
        )
        .build()?;

    let cors =
        CorsLayer::new().allow_origin(Any).allow_headers([header::AUTHORIZATION]).expose_headers(EXPOSED_HEADERS);
    let app = Router::new()
        .route("/", get(|| async { "hello\n" }))
        // A call of its own: within the stack below, a request would wait for its place here before it is judged.
        .layer(GlobalConcurrencyLimitLayer::new(100))
        .layer(
            ServiceBuilder::new()
                .layer(TraceLayer::new_for_http())
                .layer(cors)
                .layer(RateLimitLayer::new(by_address))
                .layer(from_fn(authenticate))
                .layer(RateLimitLayer::new(by_user))
                .layer(RequestBodyLimitLayer::new(1 << 20))
                .layer(TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, Duration::from_secs(5)))
                .layer(CompressionLayer::new()),
        );

    let listener = TcpListener::bind(env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:3000".into())).await?;
    let address = listener.local_addr()?;
    println!("listening on http://{address}. Try:\n");
    println!("  curl -i -H 'authorization: Bearer alice' -H 'origin: http://example.com' http://{address}/");
    println!(
        "  for i in $(seq 8); do curl -s -o /dev/null -w '%{{http_code}} ' -H 'authorization: Bearer bob' http://{address}/; done; echo\n"
    );
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}
