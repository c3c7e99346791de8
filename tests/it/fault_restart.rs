//! A server that is killed and comes back, with its data or without.

use std::time::{Duration, Instant};

use axum::{Router, routing::get};
use http::StatusCode;
use redis::AsyncCommands;
use sluicegate::{Limiter, OnFailure, Quota, RateLimitLayer, Rule, StoreErrorKind, key, store::RedisStoreBuilder};

use crate::support::{
    app,
    faulted::{DEADLINE, Faulted, GRAIN},
    folder::Folder,
    load::{alone, figure, part, warm},
    server::{Server, Version},
    stores::namespace,
};

/// Waits until the server serves; when that was.
async fn until_it_serves(server: &Server) -> Instant {
    let mut connection = server.connection().await;
    loop {
        if redis::cmd("PING").query_async::<String>(&mut connection).await.is_ok() {
            return Instant::now();
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// The server is on its way back: decisions are answered within a second of it, and all is as before.
async fn recovers(mut faulted: Faulted) {
    let up = until_it_serves(&faulted.server).await;
    let recovery = faulted.load.recovery(up, Duration::from_secs(10)).await;
    assert!(recovery <= Duration::from_secs(1), "{recovery:?}");
    figure("recovery", recovery);
    faulted.direct = faulted.server.connection().await;
    faulted.is_over().await;
}

/// It writes everything down before it answers, so every charge that was told must be there afterwards.
#[tokio::test]
async fn killed_and_restarted_with_its_data() {
    let folder = Folder::new();
    let settings = ["--dir", folder.0.to_str().expect("text"), "--appendonly", "yes"];
    let mut faulted = Faulted::with(&settings, RedisStoreBuilder::bare, Limiter::builder).await;
    faulted.server.signal("KILL");
    let during = faulted.load.run(part(Duration::from_secs(1))).await;
    during.is_within(DEADLINE + GRAIN);
    assert_eq!(during.failed(), during.samples.len());
    assert!(during.samples.iter().all(|sample| sample.allowed), "without a store requests pass");
    faulted.server = Server::start_on(Version::Redis7, faulted.server.port, &settings);
    recovers(faulted).await;
}

/// Loading takes long: the server is there, and says that it cannot serve yet.
#[tokio::test]
async fn loading_its_data() {
    let folder = Folder::new();
    let settings = ["--dir", folder.0.to_str().expect("text")];
    let slowly = ["--key-load-delay", "100", "--loading-process-events-interval-bytes", "1024"];
    let mut faulted = Faulted::with(&settings, RedisStoreBuilder::bare, Limiter::builder).await;
    let mut fill = redis::pipe();
    for key in 0..10_000 {
        fill.set(format!("filler{key}"), "x".repeat(100)).ignore();
    }
    let _: () = fill.query_async(&mut faulted.direct).await.expect("filled");
    let _: () = redis::cmd("SAVE").query_async(&mut faulted.direct).await.expect("saved");
    faulted.server.signal("KILL");
    faulted.server = Server::start_on(Version::Redis7, faulted.server.port, &[&settings[..], &slowly].concat());
    let during = faulted.load.run(Duration::from_millis(500)).await;
    during.is_within(DEADLINE + GRAIN);
    assert_eq!(during.failed(), during.samples.len(), "it is loading");
    let passing = [StoreErrorKind::Refused, StoreErrorKind::Unavailable, StoreErrorKind::Timeout];
    assert!(during.failures().keys().all(|kind| passing.contains(kind)), "{:?}", during.failures());
    recovers(faulted).await;
}

/// An application over HTTP: open rules make no error of it, closed ones a 503, and the server's return is seen at once.
#[tokio::test]
async fn no_error_of_ours_under_open_rules() {
    let _alone = alone().await;
    let server = Server::start(Version::Valkey9);
    let rule = |on_failure| {
        Rule::fixed_window("checked", Quota::per_hour(1_000_000)).key(key::global()).on_failure(on_failure)
    };
    let build = |on_failure| {
        let store = sluicegate::RedisStore::builder(server.url()).bare().build().expect("sound");
        Limiter::builder(store).namespace(namespace()).rule(rule(on_failure)).build().expect("sound")
    };
    let serve =
        |limiter: &Limiter| Router::new().route("/", get(|| async {})).layer(RateLimitLayer::new(limiter.clone()));
    let (open, closed) = (build(OnFailure::Allow), build(OnFailure::Refuse));
    warm(&open).await;
    warm(&closed).await;
    let (open, closed) = (serve(&open), serve(&closed));
    let statuses = async |app: &Router| {
        let mut statuses = Vec::new();
        for _ in 0..100 {
            let response = app::get(app, "/").await;
            statuses.push((response.status(), response.headers().contains_key("ratelimit")));
        }
        statuses
    };
    assert!(statuses(&open).await.contains(&(StatusCode::OK, true)));
    let port = server.stop();
    assert!(statuses(&open).await.iter().all(|status| *status == (StatusCode::OK, false)));
    assert!(statuses(&closed).await.iter().all(|(status, _)| *status == StatusCode::SERVICE_UNAVAILABLE));
    let server = Server::start_on(Version::Valkey9, port, &[]);
    let up = until_it_serves(&server).await;
    while app::get(&closed, "/").await.status() != StatusCode::OK {
        assert!(up.elapsed() <= Duration::from_secs(1), "no recovery");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let keys: Vec<String> = server.connection().await.keys("*").await.expect("names");
    assert!(!keys.is_empty());
}
