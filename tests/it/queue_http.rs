//! Queues in the layer: a request waits for its turn, then runs; a client that leaves gives its slot back.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    task::{Context, Poll},
    time::Duration,
};

use axum::{Router, body::Body, routing::get};
use http::{Request, Response};
use sluicegate::{
    Clock, Decision, Limiter, LimiterBuilder, ManualClock, MemoryStore, Quota, RateLimitLayer, Rule, key,
};
use tokio::{io::AsyncWriteExt, net::TcpStream, task::JoinSet, time::Instant};
use tower::{Layer, Service, ServiceExt};

use crate::{
    leases::until_free,
    support::{
        app::{field, get as fetch, serve},
        flaky::Flaky,
        server::{Server, Version},
        stores::{BEGIN, Backend, bare},
    },
};

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3_600);

fn queue(quota: Quota, max_wait: Duration, max_waiters: u64) -> Rule {
    Rule::leaky_bucket("q", quota).queue(max_wait, max_waiters).key(key::global())
}

fn limiter(builder: LimiterBuilder, rules: impl IntoIterator<Item = Rule>) -> Limiter {
    let builder = builder.clock(Clock::manual(ManualClock::new(BEGIN)));
    rules.into_iter().fold(builder, LimiterBuilder::rule).build().expect("sound")
}

#[tokio::test(start_paused = true)]
async fn requests_run_one_after_the_other_and_the_line_is_told() {
    // One that answers at once, and one that must be waited for.
    for builder in [Limiter::builder(MemoryStore::new()), Limiter::builder(Flaky::default())] {
        let limiter = limiter(builder, [queue(Quota::per_second(10), HOUR, 4)]);
        let began = Instant::now();
        let handler = async move |decision: Decision| {
            assert_eq!(decision.delay().unwrap_or_default(), began.elapsed(), "a handler can read how long it waited");
            let reset_after = decision.standing("q").expect("it applies").reset_after();
            assert_eq!(reset_after, 100 * MS, "its own slot, from now on");
            began.elapsed().as_millis().to_string()
        };
        let layer = RateLimitLayer::new(limiter).jitter(false);
        let app: Router = Router::new().route("/", get(handler)).layer(layer);
        let mut requests = JoinSet::new();
        for place in 0..7u32 {
            let app = app.clone();
            requests.spawn(async move {
                let response = fetch(&app, "/").await;
                (place, began.elapsed(), response)
            });
            // The next comes when this one is in line.
            tokio::task::yield_now().await;
        }
        while let Some(done) = requests.join_next().await {
            let (place, at, response) = done.expect("no panic");
            assert_eq!(field(&response, "x-ratelimit-limit"), Some("5"));
            if place < 5 {
                assert_eq!((response.status().as_u16(), at), (200, place * 100 * MS));
                assert_eq!(field(&response, "x-ratelimit-remaining"), Some(&*(4 - place).to_string()));
            } else {
                assert_eq!((response.status().as_u16(), at), (429, Duration::ZERO), "{place}");
                assert_eq!(field(&response, "x-ratelimit-remaining"), Some("0"));
                assert_eq!(field(&response, "retry-after"), Some("1"));
            }
        }
    }
}

/// Must be called on the very instance that was ready; clones are not.
struct Picky {
    ready: bool,
}

impl Clone for Picky {
    fn clone(&self) -> Picky {
        Picky { ready: false }
    }
}

impl Service<Request<Body>> for Picky {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        assert!(std::mem::take(&mut self.ready), "called without being ready");
        ready(Ok(Response::new(Body::empty())))
    }
}

#[tokio::test(start_paused = true)]
async fn the_service_that_was_ready_is_the_one_that_is_called() {
    for builder in [Limiter::builder(MemoryStore::new()), Limiter::builder(Flaky::default())] {
        let limiter = limiter(builder, [queue(Quota::per_second(10), HOUR, 9)]);
        let mut service = RateLimitLayer::new(limiter).layer(Picky { ready: false });
        let mut responses = Vec::new();
        for _ in 0..4 {
            let request = Request::new(Body::empty());
            responses.push(service.ready().await.expect("ready").call(request));
        }
        for response in responses {
            assert_eq!(response.await.expect("infallible").status(), 200);
        }
    }
}

#[tokio::test]
async fn a_client_that_hangs_up_gives_back_its_slot_and_its_place() {
    for backend in [Backend::memory(), Backend::redis(Version::Redis7), Backend::cluster(Version::Valkey9, false)] {
        let places = Rule::concurrency("c", 9).key(key::global());
        let limiter = limiter(backend.builder(), [queue(Quota::per_hour(1), 24 * HOUR, 9), places]);
        let app = Router::new().route("/", get(async || "done")).layer(RateLimitLayer::new(limiter.clone()));
        let address = serve(app.clone()).await;
        assert_eq!(fetch(&app, "/").await.status(), 200, "{}", backend.name);
        until_free(&limiter, "c", "all", 9).await;
        let mut clients = Vec::new();
        for behind in 0..3 {
            let mut client = TcpStream::connect(address).await.expect("a connection");
            client.write_all(b"GET / HTTP/1.1\r\nhost: h\r\n\r\n").await.expect("written");
            until_free(&limiter, "q", "all", 8 - behind).await;
            until_free(&limiter, "c", "all", 8 - behind).await;
            clients.push(client);
        }
        // The first of those who wait: others are behind it.
        drop(clients.remove(0));
        until_free(&limiter, "c", "all", 7).await;
        limiter.settled().await;
        until_free(&limiter, "q", "all", 6).await;
        for left in 1..=2 {
            drop(clients.pop());
            until_free(&limiter, "q", "all", 6 + left).await;
            until_free(&limiter, "c", "all", 7 + left).await;
        }
    }
}

/// What waits is a timer: the store's one connection serves others meanwhile, and the store is not asked again.
#[tokio::test]
async fn those_who_wait_hold_no_connection() {
    let server = Server::start(Version::Redis7);
    let mut connection = server.connection().await;
    let limiter = limiter(Limiter::builder(bare(&server.url())), [queue(Quota::per_minute(1), 24 * HOUR, 100)]);
    let app = Router::new().route("/", get(async || "done")).layer(RateLimitLayer::new(limiter.clone()));
    assert_eq!(fetch(&app, "/").await.status(), 200);
    let mut waiting = JoinSet::new();
    for _ in 0..20 {
        let app = app.clone();
        waiting.spawn(async move { fetch(&app, "/").await });
    }
    until_free(&limiter, "q", "all", 101 - 21).await;
    let clients: String = redis::cmd("CLIENT").arg("LIST").query_async(&mut connection).await.expect("a list");
    assert_eq!(clients.lines().count(), 2, "the store's one and this test's own:\n{clients}");
    assert!(limiter.acquire([("q", "other")]).await.failure().is_none());
    assert!(waiting.try_join_next().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_response_that_nobody_waits_for_any_more_gives_the_slot_back_and_one_that_ran_does_not() {
    for builder in [Limiter::builder(MemoryStore::new()), Limiter::builder(Flaky::default())] {
        let limiter = limiter(builder, [queue(Quota::per_second(10), HOUR, 9)]);
        let app = Router::new().route("/", get(std::future::pending::<()>)).layer(RateLimitLayer::new(limiter.clone()));
        let began = Instant::now();
        // The first runs at once and never ends; the second is given up after so long.
        assert!(tokio::time::timeout(MS, fetch(&app, "/")).await.is_err());
        assert!(tokio::time::timeout(50 * MS, fetch(&app, "/")).await.is_err());
        limiter.settled().await;
        let second = limiter.peek([("q", "all")]).await.delay();
        assert_eq!(second, Some(100 * MS), "it left before its turn");
        assert!(tokio::time::timeout(150 * MS, fetch(&app, "/")).await.is_err());
        limiter.settled().await;
        let third = limiter.peek([("q", "all")]).await.delay();
        assert_eq!(third, Some(200 * MS), "it ran");
        assert!(began.elapsed() >= 201 * MS);
    }
}
