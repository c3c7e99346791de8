//! Five wrong passwords a quarter of an hour from one address; right ones are free. Whoever goes on guessing, and is refused three times
//! more within a minute, is banned for half an hour, then for a whole one, and so on.
//!
//! Serves on `LISTEN`, 127.0.0.1:3000 unless set:
//!
//! ```sh
//! curl -i -d 'password=wrong' http://127.0.0.1:3000/login
//! curl -i -d 'password=sesame' http://127.0.0.1:3000/login
//! ```
#![allow(clippy::print_stdout)]

use std::{env, error::Error, net::SocketAddr, time::Duration};

use axum::{Router, http::StatusCode, routing::post};
use sluicegate::{Ban, Limiter, MemoryStore, OnFailure, Quota, RateLimitLayer, Rule, key};
use tokio::net::TcpListener;

async fn login(form: String) -> (StatusCode, &'static str) {
    if form == "password=sesame" { (StatusCode::OK, "welcome\n") } else { (StatusCode::UNAUTHORIZED, "wrong\n") }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let quarter = Duration::from_secs(15 * 60);
    let limiter = Limiter::builder(MemoryStore::new())
        .rule(
            Rule::sliding_log("failed-logins", Quota::per(5, quarter))
                .key(key::ip())
                .count_if(|response| response.status == StatusCode::UNAUTHORIZED)
                .ban(Ban::after(3).refusals().lasting(2 * quarter).escalating(2.0).forbidden())
                // Better no login than a guessed password.
                .on_failure(OnFailure::Refuse),
        )
        .build()?;
    let app = Router::new().route("/login", post(login)).layer(RateLimitLayer::new(limiter));

    let listener = TcpListener::bind(env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:3000".into())).await?;
    println!("five wrong passwords: http://{}/login", listener.local_addr()?);
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}
