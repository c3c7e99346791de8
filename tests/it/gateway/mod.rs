//! The gateway of the examples, end to end: a process of its own, a real upstream, real clients.

mod arguments;
mod child;
mod limits;
mod proxying;
mod redis;
mod reload;
mod shutdown;
mod sockets;
mod streams;

use std::{
    future::Future,
    time::{Duration, Instant},
};

pub use child::Gateway;
use reqwest::Response;
use serde_json::Value;

#[allow(dead_code)]
#[path = "../../../examples/gateway/main.rs"]
mod example;

/// What should happen at once, on a machine that has other things to do.
const SOON: Duration = Duration::from_secs(20);

/// Waits for what must happen, and not for what may be late.
async fn soon<T>(what: &str, happening: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, happening).await.unwrap_or_else(|_| panic!("{what}: not within {SOON:?}"))
}

/// Asks until the answer is the one that is waited for, and says how long that took.
async fn until<T>(what: &str, mut asking: impl AsyncFnMut() -> Option<T>) -> (T, Duration) {
    let since = Instant::now();
    loop {
        if let Some(answer) = asking().await {
            return (answer, since.elapsed());
        }
        assert!(since.elapsed() < SOON, "{what}: not within {SOON:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn get(url: String) -> Response {
    reqwest::get(url).await.expect("a response")
}

async fn json(response: Response) -> Value {
    response.json().await.expect("JSON")
}

fn field<'a>(response: &'a Response, name: &str) -> Option<&'a str> {
    response.headers().get(name).map(|value| value.to_str().expect("text"))
}

/// One rule over all callers.
fn policy(quota: &str) -> String {
    format!("[[rules]]\nname = \"all\"\nalgorithm = \"token_bucket\"\nquota = \"{quota}\"\nkey = \"global\"\n")
}
