//! Costs that are known afterwards: reserved first, settled later, off the path of requests.

use std::{
    future::pending,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::{Duration, Instant},
};

use axum::{Router, body::Body, http::Request, routing::get};
use http::StatusCode;
use sluicegate::{
    Call, Charge, Clock, Limiter, ManualClock, MemoryStore, Quota, RateLimitLayer, Rule, StoreEvent, key,
    store::{Answer, Ask, Line, Settlement, Settling, Store, StoreFuture, Time},
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{
    support::{
        app::{ask, get as fetch, serve, text},
        dice::Dice,
        events::Events,
        fault_proxy::{Counts, FaultProxy},
        server::{Server, Version},
        stores::{BEGIN, Backend, every_store, namespace, patient},
    },
    traces::{NAMES, rule},
};

fn bucket(name: &str, amount: u64) -> Rule {
    Rule::token_bucket(name, Quota::per_hour(amount)).key(key::global())
}

/// Nothing refills.
fn still() -> Clock {
    Clock::manual(ManualClock::new(BEGIN))
}

async fn left(limiter: &Limiter, rule: &str) -> u64 {
    limiter.peek([(rule, "all")]).await.standing(rule).expect("it applies").remaining()
}

/// Less is given back, more is owed, and only the first word counts; under every algorithm on every store.
#[tokio::test]
async fn the_difference_is_settled_once() {
    for backend in every_store() {
        for name in NAMES {
            let clock = ManualClock::new(BEGIN);
            let limiter = backend.limiter(&clock, [rule(name, Quota::per_hour(100), 100)]);
            let place = format!("{} {name}", backend.name);
            let remaining = async || {
                limiter.settled().await;
                limiter.peek([(name, "k")]).await.standing(name).expect("it applies").remaining()
            };
            let charge = limiter.charge(Call::new().key(name, "k").cost(40)).await;
            assert_eq!(remaining().await, 60, "{place}");
            assert!(charge.settle(15), "{place}");
            assert!(!charge.settle(1) && !charge.clone().settle(90), "{place}");
            assert_eq!(remaining().await, 85, "{place}");

            let charge = limiter.charge(Call::new().key(name, "k").cost(10)).await;
            assert!(charge.settle(30), "{place}");
            assert_eq!(remaining().await, 55, "{place}");

            let refused = limiter.charge(Call::new().key(name, "k").cost(56)).await;
            assert!(refused.decision().is_refused() && !refused.settle(0), "{place}");
            assert_eq!(remaining().await, 55, "{place}");

            let charge = limiter.charge(Call::new().key(name, "k").cost(1)).await;
            assert!(!charge.settle_rule("another", 5) && charge.settle_rule(name, u64::MAX), "{place}");
            assert_eq!(remaining().await, 0, "{place}");
        }
    }
}

/// Whatever is reserved, settled once or several times or never: what is left is what was there less what was really used.
#[tokio::test]
async fn cost_is_conserved() {
    for backend in every_store() {
        let clock = ManualClock::new(BEGIN);
        let limiter = backend.limiter(&clock, NAMES.map(|name| rule(name, Quota::per_hour(100_000), 100_000)));
        let mut dice = Dice::new(7);
        let mut used = 0;
        let mut charges: Vec<Charge> = Vec::new();
        for _ in 0..300 {
            let cost = dice.below(200);
            let call = NAMES.iter().fold(Call::new(), |call, name| call.key(name, "k").cost(cost));
            let charge = limiter.charge(call).await;
            assert!(charge.decision().is_allowed() && charge.decision().failure().is_none());
            let actual = dice.below(300);
            match dice.below(4) {
                // Never settled: the client left, the process forgot.
                0 => used += cost,
                1 => {
                    assert!(charge.settle(actual));
                    used += actual;
                }
                2 => {
                    let (one, other) = (charge.clone(), charge.clone());
                    let settled = tokio::join!(
                        tokio::spawn(async move { one.settle(actual) }),
                        tokio::spawn(async move { other.settle(actual) })
                    );
                    assert!(settled.0.expect("no panic") || settled.1.expect("no panic"));
                    used += actual;
                }
                _ => {
                    charge.settle(actual);
                    used += actual;
                    charges.push(charge);
                }
            }
            if dice.below(10) == 0 {
                assert!(charges.drain(..).all(|charge| !charge.settle(1)));
            }
        }
        limiter.settled().await;
        let call = NAMES.iter().fold(Call::new(), |call, name| call.key(name, "k"));
        for standing in limiter.peek(call).await.standings() {
            assert_eq!(standing.remaining(), 100_000 - used, "{} {}", backend.name, standing.rule());
        }
    }
}

/// The handler, the head of the response and the bytes of its body each say what it cost.
#[tokio::test]
async fn requests_are_settled_by_handler_response_and_bytes() {
    for backend in [Backend::memory(), Backend::redis(Version::Redis7), Backend::functions(Version::Valkey9)] {
        let limiter = backend.limiter(
            &ManualClock::new(BEGIN),
            [
                bucket("handler", 1_000).cost_by(|_| 100),
                bucket("response", 1_000).cost(100).settle_by(|response| {
                    response.headers["x-cost"].to_str().expect("text").parse().expect("a number")
                }),
                bucket("bytes", 1_000).cost(100).settle_by_bytes(|bytes| bytes / 2),
                bucket("requests", 1_000),
            ],
        );
        let handler = async |charge: Charge| {
            assert!(charge.settle(7));
            ([("x-cost", "150")], "x".repeat(40))
        };
        let app = Router::new().route("/", get(handler)).layer(RateLimitLayer::new(limiter.clone()));
        let response = fetch(&app, "/").await;
        limiter.settled().await;
        let all = async || {
            let mut all = Vec::new();
            for rule in ["handler", "response", "bytes", "requests"] {
                all.push(left(&limiter, rule).await);
            }
            all
        };
        assert_eq!(all().await, [993, 850, 900, 999], "{}: the body is still to come", backend.name);
        assert_eq!(text(response).await.len(), 40);
        limiter.settled().await;
        assert_eq!(all().await, [993, 850, 980, 999], "{}", backend.name);

        // Whoever wants no body has had no bytes.
        drop(fetch(&app, "/").await);
        limiter.settled().await;
        assert_eq!(all().await, [986, 700, 980, 998], "{}", backend.name);
    }
}

/// A client that goes away in the middle pays for what it got, over real HTTP.
#[tokio::test]
async fn a_client_that_leaves_pays_for_what_was_streamed() {
    let limiter = Limiter::builder(MemoryStore::new())
        .clock(still())
        .rule(bucket("bytes", 100_000_000).cost(500).settle_by_bytes(|bytes| bytes))
        .build()
        .expect("sound");
    let sent = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&sent);
    let handler = async move || {
        let count = Arc::clone(&count);
        Body::new(Endless(count))
    };
    let address = serve(Router::new().route("/", get(handler)).layer(RateLimitLayer::new(limiter.clone()))).await;
    let mut client = tokio::net::TcpStream::connect(address).await.expect("a connection");
    client.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("sent");
    let mut some = [0; 5_000];
    client.read_exact(&mut some).await.expect("some bytes");
    drop(client);
    // It is settled when the server notices.
    let began = Instant::now();
    while left(&limiter, "bytes").await == 100_000_000 - 500 {
        assert!(began.elapsed() < Duration::from_secs(10), "never settled");
        tokio::task::yield_now().await;
    }
    let streamed = 1_000 * sent.load(Ordering::SeqCst) as u64;
    assert!(streamed >= 5_000, "{streamed}");
    assert_eq!(left(&limiter, "bytes").await, 100_000_000 - streamed);
}

/// A body that goes on, and counts its pieces of a thousand bytes.
struct Endless(Arc<AtomicUsize>);

impl http_body::Body for Endless {
    type Data = bytes::Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<bytes::Bytes>, Self::Error>>> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Poll::Ready(Some(Ok(http_body::Frame::data(bytes::Bytes::from_static(&[b'x'; 1_000])))))
    }
}

/// Many at once: each is counted first, so no more get through than may fail; those that succeed are given back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_failures_count_also_under_concurrency() {
    for backend in [Backend::memory(), Backend::redis(Version::Valkey9)] {
        let rule = Rule::sliding_log("logins", Quota::per_hour(5)).key(key::global());
        let limiter = backend.limiter(&ManualClock::new(BEGIN), [rule.count_if(|response| response.status == 401)]);
        let tried = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&tried);
        let login = async move |request: Request<Body>| {
            seen.fetch_add(1, Ordering::SeqCst);
            if request.uri().query() == Some("right") { StatusCode::OK } else { StatusCode::UNAUTHORIZED }
        };
        let app = Router::new().route("/login", get(login)).layer(RateLimitLayer::new(limiter.clone()));
        for _ in 0..20 {
            assert_eq!(fetch(&app, "/login?right").await.status(), StatusCode::OK, "{}", backend.name);
            limiter.settled().await;
        }
        assert_eq!(left(&limiter, "logins").await, 5, "{}", backend.name);
        let tries: Vec<_> = (0..40)
            .map(|_| {
                let app = app.clone();
                tokio::spawn(async move { fetch(&app, "/login").await.status() })
            })
            .collect();
        let mut refused = 0;
        for each in tries {
            refused += usize::from(each.await.expect("no panic") == StatusCode::TOO_MANY_REQUESTS);
        }
        assert_eq!((refused, tried.load(Ordering::SeqCst)), (35, 25), "{}", backend.name);
    }
}

/// A store that never settles anything.
#[derive(Clone, Debug, Default)]
struct Stuck(MemoryStore);

impl Store for Stuck {
    fn acquire<'a>(&'a self, ask: &'a Ask<'a>) -> StoreFuture<'a, Answer> {
        self.0.acquire(ask)
    }

    fn settle<'a>(&'a self, _: &'a [Settlement<'a>], _: Time) -> Settling<'a> {
        Box::pin(pending())
    }

    fn reset<'a>(&'a self, lines: &'a [Line<'a>]) -> StoreFuture<'a, ()> {
        self.0.reset(lines)
    }
}

/// Nothing on the path of a response waits for a settlement, and what waits is bounded.
#[tokio::test]
async fn nobody_waits_for_a_settlement() {
    let events = Events::default();
    let builder = Limiter::builder(Stuck::default()).observer(events.clone());
    let limiter = builder.rule(bucket("r", 100_000_000).cost(2).settle_by(|_| 1)).build().expect("sound");
    let app = Router::new().route("/", get(|| async { "ok" })).layer(RateLimitLayer::new(limiter));
    for _ in 0..70_000 {
        let response = fetch(&app, "/").await;
        assert_eq!(response.status(), StatusCode::OK);
    }
    let lost = events.all();
    assert!(!lost.is_empty() && lost.len() < 5_000, "{}", lost.len());
    assert!(lost.iter().all(|event| *event == StoreEvent::NotSettled { units: 1 }));
}

/// Under load many settlements share a call, and none waits long.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settlements_go_together_and_soon() {
    for version in [Version::Redis7, Version::Valkey9] {
        let server = Server::start(version);
        let limiter = Limiter::builder(patient(&server.url()))
            .clock(still())
            .rule(bucket("a", 100_000_000))
            .rule(Rule::sliding_counter("b", Quota::per_hour(1 << 20)).key(key::global()))
            .build()
            .expect("sound");
        let mut charges = Vec::new();
        for _ in 0..1_000 {
            charges.push(limiter.charge(Call::new().key("a", "all").cost(5).key("b", "all").cost(5)).await);
        }
        let mut connection = server.connection().await;
        let _: () = redis::cmd("CONFIG").arg("RESETSTAT").query_async(&mut connection).await.expect("reset");
        assert!(charges.iter().all(|charge| charge.settle(3)));
        limiter.settled().await;
        let stats: String =
            redis::cmd("INFO").arg("commandstats").query_async(&mut connection).await.expect("statistics");
        let calls = |name: &str| -> u64 {
            let line = stats.lines().find(|line| line.starts_with(&format!("cmdstat_{name}:calls=")));
            line.map_or(0, |line| line.split(['=', ',']).nth(1).and_then(|count| count.parse().ok()).expect("a number"))
        };
        let calls = calls("evalsha") + calls("eval");
        assert!((1..=2_000 / 16).contains(&calls), "{version:?}: {calls} calls for 2000 settlements");
        assert_eq!((left(&limiter, "a").await, left(&limiter, "b").await), ((100_000_000) - 3_000, (1 << 20) - 3_000));

        // One alone waits for company, but not for long.
        let charge = limiter.charge(Call::new().key("a", "all").cost(5)).await;
        let began = Instant::now();
        charge.settle(0);
        while left(&limiter, "a").await != (100_000_000) - 3_000 {
            assert!(began.elapsed() < Duration::from_secs(5));
        }
        assert!(began.elapsed() < Duration::from_millis(50), "{version:?}: {:?}", began.elapsed());
    }
}

/// The reply is lost, so it is asked for again; the change is made once.
#[tokio::test]
async fn a_lost_reply_settles_once() {
    let server = Server::start(Version::Redis7);
    let proxy = FaultProxy::start(server.port, 3);
    let limiter = Limiter::builder(crate::support::stores::bare(&proxy.url()))
        .namespace(namespace())
        .clock(still())
        .rule(bucket("a", 1_000))
        .rule(Rule::fixed_window("b", Quota::per_hour(1_000)).from_first_request().key(key::global()))
        .build()
        .expect("sound");
    for round in 0..3u64 {
        let charge = limiter.charge(Call::new().key("a", "all").cost(50).key("b", "all").cost(50)).await;
        assert!(charge.decision().failure().is_none(), "{:?}", charge.decision());
        let cuts = Counts::of(&proxy.counts.cut);
        proxy.set(|faults| faults.cut = 1_000);
        charge.settle_rule("a", 60);
        charge.settle_rule("b", 20);
        while Counts::of(&proxy.counts.cut) == cuts {
            tokio::task::yield_now().await;
        }
        proxy.heal();
        limiter.settled().await;
        assert_eq!((left(&limiter, "a").await, left(&limiter, "b").await), (940 - 60 * round, 980 - 20 * round));
    }
}

/// The runtime that was to settle is gone; the next one does it.
#[test]
fn a_runtime_that_ends_takes_no_settlement_with_it() {
    let server = Server::start(Version::Valkey9);
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let limiter =
        Limiter::builder(patient(&server.url())).clock(still()).rule(bucket("a", 1_000)).build().expect("sound");
    runtime().block_on(async {
        for _ in 0..10 {
            let charge = limiter.charge(Call::new().key("a", "all").cost(50)).await;
            assert!(charge.settle(1));
        }
    });
    runtime().block_on(async {
        limiter.settled().await;
        assert_eq!(left(&limiter, "a").await, 990);
    });
}

#[tokio::test]
async fn a_handler_that_wants_a_charge_where_there_is_none_is_told_why() {
    let limiter = Limiter::builder(MemoryStore::new()).rule(bucket("a", 10)).build().expect("sound");
    let handler = async |charge: Charge| format!("{charge:?}");
    let app = Router::new().route("/", get(handler)).layer(RateLimitLayer::new(limiter));
    let response = ask(&app, Request::builder().uri("/")).await;
    assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
    assert!(text(response).await.contains("cost_by"));
}

#[test]
fn two_ways_to_settle_are_a_build_error() {
    let both = bucket("a", 10).settle_by(|_| 1).settle_by_bytes(|bytes| bytes);
    let error = both.check().expect_err("two ways");
    assert_eq!((error.rule_name(), error.field()), (Some("a"), "settle_by"));
}
