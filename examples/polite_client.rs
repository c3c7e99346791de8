//! A client that obeys `Retry-After`: tower's retry layer around reqwest, with a policy that waits as long as it is told and a
//! little longer, by chance, so that clients refused together do not come back together. It gives up after a few attempts, when it
//! is told to wait for too long, and when it is told no time at all.
//!
//! Serves a limited app on a free port, lets three such clients loose on it, prints what happens, and ends.
#![allow(clippy::print_stdout)]

use std::{
    error::Error,
    hash::{BuildHasher, RandomState},
    net::SocketAddr,
    time::Duration,
};

use axum::{Router, http::header, routing::get};
use reqwest::{Client, Method, Request, Response, StatusCode};
use sluicegate::{Limiter, MemoryStore, Quota, RateLimitLayer, Rule, key};
use tokio::{
    net::TcpListener,
    time::{Instant, Sleep, sleep},
};
use tower::{Service, ServiceBuilder, ServiceExt, retry::Policy};

/// When to try again.
#[derive(Clone)]
struct Polite {
    name: &'static str,
    attempts_left: u32,
    longest_wait: Duration,
    begin: Instant,
}

impl Polite {
    /// The wait that a response asks for, if trying again can help.
    fn wait(&self, request: &Request, response: &Response) -> Option<Duration> {
        match response.status() {
            // Refused before anything was done: safe to send again, whatever the method.
            StatusCode::TOO_MANY_REQUESTS => {}
            StatusCode::SERVICE_UNAVAILABLE if is_safe(request.method()) => {}
            _ => return None,
        }
        let seconds = response.headers().get(header::RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
        let wait = Duration::from_secs(seconds);
        (wait <= self.longest_wait).then_some(wait)
    }
}

fn is_safe(method: &Method) -> bool {
    [Method::GET, Method::HEAD, Method::OPTIONS].contains(method)
}

/// Never earlier than told: up to a tenth later, and at least somewhere in a quarter of a second.
fn with_jitter(wait: Duration) -> Duration {
    let most = (wait / 10).max(Duration::from_millis(250));
    // Every `RandomState` has keys of its own, which is chance enough here.
    let chance = (RandomState::new().hash_one(0) >> 40) as u32;
    wait + most * chance / (1 << 24)
}

impl Policy<Request, Response, reqwest::Error> for Polite {
    type Future = Sleep;

    fn retry(&mut self, request: &mut Request, result: &mut Result<Response, reqwest::Error>) -> Option<Sleep> {
        let response = result.as_ref().ok()?;
        let wait = self.wait(request, response)?;
        self.attempts_left = self.attempts_left.checked_sub(1)?;
        let wait = with_jitter(wait);
        println!(
            "{:>5} ms  {} {}, waits {} ms",
            self.begin.elapsed().as_millis(),
            self.name,
            response.status(),
            wait.as_millis()
        );
        Some(sleep(wait))
    }

    fn clone_request(&mut self, request: &Request) -> Option<Request> {
        // There is none where the body is a stream; such a request is sent once.
        request.try_clone()
    }
}

async fn run(name: &'static str, address: SocketAddr, begin: Instant) -> Result<(), reqwest::Error> {
    let policy = Polite { name, attempts_left: 3, longest_wait: Duration::from_secs(30), begin };
    let mut client = ServiceBuilder::new().retry(policy).service(Client::new());
    for path in ["/", "/", "/expensive"] {
        let Ok(url) = format!("http://{address}{path}").parse() else { continue };
        let response = client.ready().await?.call(Request::new(Method::GET, url)).await?;
        println!("{:>5} ms  {name} {} for {path}", begin.elapsed().as_millis(), response.status());
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let limiter = Limiter::builder(MemoryStore::new())
        .rule(
            Rule::gcra("everyone", Quota::per_second(2).burst(2))
                .key(key::global())
                .cost_by(|req| if req.uri.path() == "/expensive" { 100 } else { 1 }),
        )
        .build()?;
    let app = Router::new()
        .route("/", get(|| async { "hello" }))
        .route("/expensive", get(|| async { "never reached" }))
        .layer(RateLimitLayer::new(limiter));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move { axum::serve(listener, app).await });

    println!("two requests at once and two a second; each client wants two, and one that can never fit\n");
    let begin = Instant::now();
    tokio::try_join!(run("ann", address, begin), run("ben", address, begin), run("cat", address, begin))?;
    Ok(())
}
