//! At most so many requests at a time for each user, held until the response has been sent, in the same decision as a rate; and a
//! part of what the whole service can do that is kept for those who pay.
//!
//! Serves on `LISTEN`, 127.0.0.1:3000 unless set. In three shells:
//!
//! ```sh
//! curl -N -H 'x-user: alice' http://127.0.0.1:3000/export    # five seconds; the third at a time is refused
//! curl -H 'x-user: alice' http://127.0.0.1:3000/places
//! for _ in 1 2 3 4 5; do curl -i http://127.0.0.1:3000/report; done   # three, then 503: the rest is for charges
//! curl -i -X POST http://127.0.0.1:3000/charge
//! ```
#![allow(clippy::print_stdout)]

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    extract::State,
    http::{HeaderMap, request::Parts},
    routing::{get, post},
};
use bytes::Bytes;
use http_body::Frame;
use sluicegate::{Limiter, MemoryStore, Quota, RateLimitLayer, Rule, key};
use tokio::time::{Interval, interval};

/// A line a second, five times. The place is taken for as long as this goes on, also beyond the time of a lease: it is renewed.
struct Export {
    lines: u32,
    pace: Interval,
}

impl http_body::Body for Export {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.lines == 0 {
            return Poll::Ready(None);
        }
        self.pace.poll_tick(context).map(|_| {
            self.lines -= 1;
            Some(Ok(Frame::data(Bytes::from_static(b"a line\n"))))
        })
    }
}

async fn export() -> Body {
    Body::new(Export { lines: 5, pace: interval(Duration::from_secs(1)) })
}

/// How many places are left, without taking one.
async fn places(State(limiter): State<Limiter>, headers: HeaderMap) -> String {
    let user = headers.get("x-user").map(|user| user.as_bytes().to_vec());
    let decision = limiter.peek([("exports-at-a-time", user)]).await;
    match decision.standing("exports-at-a-time") {
        Some(standing) => {
            format!("{} of {} places are free\n", standing.remaining(), standing.limit().quota().amount())
        }
        None => "say who you are: x-user\n".into(),
    }
}

fn user(req: &Parts) -> Option<Vec<u8>> {
    req.headers.get("x-user").map(|user| user.as_bytes().to_vec())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limiter = Limiter::builder(MemoryStore::new())
        .rule(Rule::concurrency("exports-at-a-time", 2).lease(Duration::from_secs(3)).key_by(user))
        .rule(Rule::token_bucket("exports", Quota::per_minute(30).burst(10)).key_by(user))
        .build()?;
    let exports = Router::new().route("/export", get(export)).layer(RateLimitLayer::new(limiter.clone()));
    // Five in ten seconds is what this machine can do. Two of them stay for charges, whatever else is asked for.
    let fleet = Limiter::builder(MemoryStore::new())
        .rule(
            Rule::fixed_window("machine", Quota::per(5, Duration::from_secs(10)))
                .key(key::global())
                .reserve(0.40, |req| req.uri.path() == "/charge")
                .protects_service(),
        )
        .build()?;
    let work = Router::new()
        .route("/report", get(|| async { "a report\n" }))
        .route("/charge", post(|| async { "charged\n" }))
        .layer(RateLimitLayer::new(fleet));
    let app = exports.route("/places", get(places)).with_state(limiter).merge(work);
    let listen = std::env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:3000".into());
    let listener = tokio::net::TcpListener::bind(listen).await?;
    println!("two exports at a time: http://{}/export", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}
