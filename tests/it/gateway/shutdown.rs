//! SIGTERM: nobody else comes in, what runs ends, and nothing holds the process for longer than it was told.

use std::{
    process::ExitStatus,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{Router, routing::get as route};
use tokio::{net::TcpStream, sync::Semaphore};

use super::{Gateway, SOON, get, json, policy, until};
use crate::support::app::serve;

/// Answers when it is told to, and tells when it was asked.
struct Slow {
    url: String,
    asked: Arc<Semaphore>,
    go: Arc<Semaphore>,
}

async fn slow() -> Slow {
    let (asked, go) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let (tell, wait) = (Arc::clone(&asked), Arc::clone(&go));
    let app = Router::new().route(
        "/",
        route(async move || {
            tell.add_permits(1);
            wait.acquire().await.expect("open").forget();
            "done"
        }),
    );
    Slow { url: format!("http://{}", serve(app).await), asked, go }
}

async fn end(gateway: &mut Gateway) -> (ExitStatus, Duration) {
    until("the end", async || gateway.ended()).await
}

#[tokio::test]
async fn what_runs_ends_and_nobody_else_comes_in() {
    let upstream = slow().await;
    let mut gateway = Gateway::start(&policy("1000/h"), &["--upstream", &upstream.url, "--drain", "60"]);
    let running = tokio::spawn(get(gateway.url("/")));
    upstream.asked.acquire().await.expect("open").forget();
    gateway.terminate();
    until("the door is shut", async || TcpStream::connect(&gateway.public).await.err()).await;
    let health = get(gateway.admin("/-/healthz")).await;
    assert_eq!(health.status(), 503);
    assert_eq!(json(health).await["status"], "draining");
    assert!(gateway.ended().is_none(), "a request runs");
    upstream.go.add_permits(1);
    let response = running.await.expect("no panic");
    assert_eq!(response.status(), 200);
    assert_eq!(response.text().await.expect("a body"), "done");
    let (status, _) = end(&mut gateway).await;
    assert!(status.success(), "{status}: {}", gateway.log());
}

#[tokio::test]
async fn what_does_not_end_is_cut_off_in_time() {
    let upstream = slow().await;
    let drain = Duration::from_millis(500);
    let mut gateway = Gateway::start(&policy("1000/h"), &["--upstream", &upstream.url, "--drain", "0.5"]);
    let running = tokio::spawn(reqwest::get(gateway.url("/")));
    upstream.asked.acquire().await.expect("open").forget();
    let told = Instant::now();
    gateway.terminate();
    let (status, _) = end(&mut gateway).await;
    assert!(status.success(), "{status}: {}", gateway.log());
    assert!((drain..SOON).contains(&told.elapsed()), "{:?}", told.elapsed());
    assert!(gateway.log().contains("is cut off"), "{}", gateway.log());
    assert!(running.await.expect("no panic").is_err());
}

#[tokio::test]
async fn told_twice_it_does_not_wait() {
    let upstream = slow().await;
    let mut gateway = Gateway::start(&policy("1000/h"), &["--upstream", &upstream.url, "--drain", "600"]);
    let running = tokio::spawn(reqwest::get(gateway.url("/")));
    upstream.asked.acquire().await.expect("open").forget();
    gateway.terminate();
    until("the door is shut", async || TcpStream::connect(&gateway.public).await.err()).await;
    gateway.terminate();
    let (status, _) = end(&mut gateway).await;
    assert!(status.success(), "{status}: {}", gateway.log());
    assert!(running.await.expect("no panic").is_err());
}
