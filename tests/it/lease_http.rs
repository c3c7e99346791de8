//! The layer holds a place until the response has ended, however that comes about.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use axum::{Router, body::Body, extract::State, routing::get};
use bytes::Bytes;
use http_body::Frame;
use http_body_util::BodyExt;
use sluicegate::{Clock, Decision, Limiter, LimiterBuilder, ManualClock, MemoryStore, RateLimitLayer, Rule, key};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::{
    leases::until_free,
    support::{
        app::{field, get as fetch, text},
        dice::Dice,
        server::Version,
        stores::{BEGIN, Backend},
    },
};

/// A body that ends when its sender is dropped.
struct Fed(UnboundedReceiver<Bytes>);

impl http_body::Body for Fed {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.0.poll_recv(context).map(|data| data.map(|data| Ok(Frame::data(data))))
    }
}

type Feeds = UnboundedSender<UnboundedSender<Bytes>>;

fn limiter(builder: LimiterBuilder, rule: Rule) -> Limiter {
    builder.rule(rule.key(key::global())).build().expect("sound")
}

/// `/` answers at once, `/stream` is fed by the test, `/panic` panics, `/spawn` works on after the response.
fn app(limiter: &Limiter) -> (Router, UnboundedReceiver<UnboundedSender<Bytes>>) {
    let (feeds, fed) = unbounded_channel();
    let stream = async |State(feeds): State<Feeds>| {
        let (feed, body) = unbounded_channel();
        feeds.send(feed).expect("the test");
        Body::new(Fed(body))
    };
    let spawn = async |decision: Decision, State(feeds): State<Feeds>| {
        let (feed, mut work) = unbounded_channel();
        let permit = decision.permit();
        tokio::spawn(async move {
            let _permit = permit;
            while work.recv().await.is_some() {}
        });
        feeds.send(feed).expect("the test");
        "switching"
    };
    let panics = async || -> &'static str { panic!("a handler") };
    let router = Router::new()
        .route("/", get(async || "done"))
        .route("/stream", get(stream))
        .route("/spawn", get(spawn))
        .route("/panic", get(panics))
        .layer(RateLimitLayer::new(limiter.clone()))
        .with_state(feeds);
    (router, fed)
}

fn backends() -> [Backend; 2] {
    [Backend::memory(), Backend::redis(Version::Redis7)]
}

#[tokio::test]
async fn a_place_is_free_when_the_body_has_ended_or_is_dropped_or_the_handler_panics() {
    for backend in backends() {
        let limiter = limiter(backend.builder(), Rule::concurrency("c", 1));
        let (app, mut fed) = app(&limiter);
        for round in 0..2 {
            let response = fetch(&app, "/stream").await;
            let feed = fed.recv().await.expect("a stream");
            feed.send(Bytes::from_static(b"part")).expect("it is read");
            let mut body = response.into_body();
            assert!(body.frame().await.is_some());
            assert_eq!(fetch(&app, "/").await.status(), 429, "{}", backend.name);
            if round == 0 {
                drop(feed);
                assert!(body.frame().await.is_none());
                // The body itself may live on.
                until_free(&limiter, "c", "all", 1).await;
            }
            drop(body);
            until_free(&limiter, "c", "all", 1).await;
        }
        let panicking = tokio::spawn({
            let app = app.clone();
            async move { fetch(&app, "/panic").await }
        });
        assert!(panicking.await.expect_err("a panic").is_panic());
        until_free(&limiter, "c", "all", 1).await;
        assert_eq!(text(fetch(&app, "/").await).await, "done", "{}", backend.name);
        until_free(&limiter, "c", "all", 1).await;
    }
}

/// Like a WebSocket: the response has ended, what it began goes on.
#[tokio::test]
async fn a_permit_holds_the_place_beyond_the_response() {
    let limiter = limiter(Backend::memory().builder(), Rule::concurrency("c", 1));
    let (app, mut fed) = app(&limiter);
    assert_eq!(text(fetch(&app, "/spawn").await).await, "switching");
    let work = fed.recv().await.expect("work");
    assert_eq!(fetch(&app, "/").await.status(), 429);
    drop(work);
    until_free(&limiter, "c", "all", 1).await;
}

/// By a clock of the test's: ten times as long as a lease.
#[tokio::test(start_paused = true)]
async fn a_long_response_is_renewed() {
    let lease = Duration::from_secs(3);
    let clock = ManualClock::new(BEGIN);
    let builder = Limiter::builder(MemoryStore::new()).clock(Clock::manual(clock.clone()));
    let limiter = limiter(builder, Rule::concurrency("c", 1).lease(lease));
    let (app, mut fed) = app(&limiter);
    let response = fetch(&app, "/stream").await;
    let feed = fed.recv().await.expect("a stream");
    for _ in 0..60 {
        // Both clocks go on; one moves tasks, the other counts.
        clock.advance(lease / 6);
        tokio::time::sleep(lease / 6).await;
        assert_eq!(fetch(&app, "/").await.status(), 429);
    }
    drop((feed, response));
    until_free(&limiter, "c", "all", 1).await;
    assert_eq!(fetch(&app, "/").await.status(), 200);
}

/// By the server's clock.
#[tokio::test]
async fn a_long_response_is_renewed_on_a_server() {
    let lease = Duration::from_millis(300);
    let backend = Backend::redis(Version::Valkey9);
    let limiter = limiter(backend.builder(), Rule::concurrency("c", 1).lease(lease));
    let (app, mut fed) = app(&limiter);
    let response = fetch(&app, "/stream").await;
    let feed = fed.recv().await.expect("a stream");
    let since = Instant::now();
    while since.elapsed() < lease * 4 {
        assert_eq!(fetch(&app, "/").await.status(), 429, "after {:?}", since.elapsed());
        tokio::time::sleep(lease / 30).await;
    }
    drop((feed, response));
    until_free(&limiter, "c", "all", 1).await;
}

/// Clients leave at any point: before the verdict, while the handler works, while the response streams.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_are_aborted_leak_nothing() {
    for backend in backends() {
        let limiter = limiter(backend.builder(), Rule::concurrency("c", 1_000));
        let (app, mut fed) = app(&limiter);
        tokio::spawn(async move {
            while let Some(feed) = fed.recv().await {
                tokio::spawn(async move {
                    for _ in 0..20 {
                        let _ = feed.send(Bytes::from_static(b"part"));
                        tokio::task::yield_now().await;
                    }
                });
            }
        });
        let mut dice = Dice::new(5);
        let mut requests = Vec::new();
        for _ in 0..600 {
            let app = app.clone();
            let patience = Duration::from_micros(dice.below(3_000));
            let aborted = dice.below(2) == 0;
            requests.push(tokio::spawn(async move {
                let whole = async { fetch(&app, "/stream").await.into_body().collect().await };
                match aborted {
                    true => drop(tokio::time::timeout(patience, whole).await),
                    false => drop(whole.await),
                }
            }));
        }
        for request in requests {
            request.await.expect("no panic");
        }
        until_free(&limiter, "c", "all", 1_000).await;
    }
}

#[tokio::test]
async fn fields_say_what_is_known() {
    let limiter = limiter(Backend::memory().builder(), Rule::concurrency("c", 2));
    let (app, mut fed) = app(&limiter);
    let first = fetch(&app, "/stream").await;
    assert_eq!(field(&first, "ratelimit-policy"), Some(r#""c";q=2;qu="concurrent-requests""#));
    assert_eq!(field(&first, "ratelimit"), Some(r#""c";r=1"#));
    assert_eq!(field(&first, "x-ratelimit-limit"), Some("2"));
    let second = fetch(&app, "/stream").await;
    let refused = fetch(&app, "/").await;
    assert_eq!(refused.status(), 429);
    assert_eq!(field(&refused, "ratelimit"), Some(r#""c";r=0"#));
    let wait: u64 = field(&refused, "retry-after").expect("a wait").parse().expect("seconds");
    assert!((1..=2).contains(&wait), "a second, and jitter: {wait}");
    assert_eq!(field(&refused, "x-ratelimit-remaining"), Some("0"));
    drop((first, second, fed.recv().await));
}
