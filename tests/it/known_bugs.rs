//! Mistakes that rate limiters have been shipped with, each a test of ours. Others stand where their subject is tested.

use std::time::Duration;

use axum::{Router, body::Body, http::Request, routing::get};
use sluicegate::{
    Call, Limiter, ManualClock, MemoryStore, Quota, RateLimitLayer, RedisStore, Rule, StoreErrorKind, key,
};
use tower::ServiceExt;
use tower_http::cors::{Any, CorsLayer};

use crate::support::{
    server::{Server, Version},
    stores::{BEGIN, bare, every_store, namespace},
};

/// Every algorithm under one quota.
fn rules(quota: Quota) -> Vec<Rule> {
    let burst = quota.burst(quota.amount());
    let rules = vec![
        Rule::fixed_window("fixed", quota).from_first_request(),
        Rule::sliding_log("log", quota),
        Rule::sliding_counter("counter", quota),
        Rule::token_bucket("bucket", burst),
        Rule::gcra("gcra", burst),
        Rule::leaky_bucket("leaky", burst),
    ];
    rules.into_iter().map(|rule| rule.key(key::given())).collect()
}

/// What is admitted of so many calls at one instant.
async fn admitted(limiter: &Limiter, rule: &str, calls: u64, cost: u64) -> u64 {
    let mut admitted = 0;
    for _ in 0..calls {
        let decision = limiter.acquire(Call::new().key(rule, "k").cost(cost)).await;
        assert!(decision.failure().is_none(), "{rule}: {:?}", decision.failure());
        admitted += u64::from(decision.is_allowed());
    }
    admitted
}

/// Truncated to whole milliseconds a unit, fast quotas became unlimited, or errors, or a TTL of zero.
#[tokio::test]
async fn thousands_a_second_are_neither_unlimited_nor_an_error() {
    for backend in every_store() {
        for amount in [1_500, 10_000, 5_000_000] {
            for rule in rules(Quota::per_second(amount)) {
                let clock = ManualClock::new(BEGIN);
                let name = rule.name().to_owned();
                let limiter = backend.limiter(&clock, [rule]);
                let spent = limiter.acquire(Call::new().key(&name, amount).cost(amount)).await;
                assert!(spent.is_allowed() && spent.failure().is_none(), "{} {name} {amount}", backend.name);
                let refused = limiter.acquire(Call::new().key(&name, amount)).await;
                let wait = refused.retry_after().unwrap_or_default();
                assert!(
                    refused.is_refused() && !wait.is_zero() && wait <= Duration::from_secs(2),
                    "{} {name} {amount} {wait:?}",
                    backend.name
                );
            }
        }
    }
}

/// Kept in floating point, ten tokens came to nine point nine and something, and nine were admitted.
#[tokio::test]
async fn a_burst_is_admitted_whole_and_no_more() {
    for backend in every_store() {
        for amount in [1, 3, 7, 10, 100] {
            for rule in rules(Quota::per(amount, Duration::from_millis(997))) {
                let (clock, name) = (ManualClock::new(BEGIN), rule.name().to_owned());
                let limiter = backend.limiter(&clock, [rule]);
                limiter.reset([(&*name, "k")]).await.expect("an answer");
                assert_eq!(admitted(&limiter, &name, amount + 3, 1).await, amount, "{} {name} {amount}", backend.name);
            }
        }
    }
}

/// Idling for long earned more than the capacity: seventeen of ten.
#[tokio::test]
async fn idling_earns_no_more_than_the_capacity() {
    for backend in every_store() {
        for rule in rules(Quota::per_second(10)) {
            let (clock, name) = (ManualClock::new(BEGIN), rule.name().to_owned());
            let limiter = backend.limiter(&clock, [rule]);
            assert_eq!(admitted(&limiter, &name, 4, 1).await, 4, "{} {name}", backend.name);
            clock.advance(Duration::from_secs(3_600));
            assert_eq!(admitted(&limiter, &name, 30, 1).await, 10, "{} {name}", backend.name);
        }
    }
}

/// A cost of n was n members of a set, and near 8,000 the script failed. Here it is one entry.
#[tokio::test]
async fn a_large_cost_is_one_entry() {
    for backend in every_store() {
        for rule in rules(Quota::per_hour(1_000_000)) {
            let (clock, name) = (ManualClock::new(BEGIN), rule.name().to_owned());
            let limiter = backend.limiter(&clock, [rule]);
            assert_eq!(admitted(&limiter, &name, 12, 100_000).await, 10, "{} {name}", backend.name);
        }
        if let Some(version) = backend.version() {
            let mut connection = version.shared().connection().await;
            let entry = format!("{}:v1:{{k}}:log", backend.namespace);
            let length: u64 = redis::cmd("LLEN").arg(entry).query_async(&mut connection).await.expect("a list");
            assert_eq!(length, 11, "ten admissions, and one that they are counted from");
        }
    }
}

/// Cost times interval overflowed, and the largest costs were the cheapest.
#[tokio::test]
async fn absurd_costs_can_never_fit_and_change_nothing() {
    for backend in every_store() {
        for rule in rules(Quota::per(10, Duration::from_secs(366 * 86_400))) {
            let (clock, name) = (ManualClock::new(BEGIN), rule.name().to_owned());
            let limiter = backend.limiter(&clock, [rule]);
            for cost in [11, 1 << 32, 1 << 53, (1 << 53) + 1, u64::MAX - 1, u64::MAX] {
                let decision = limiter.acquire(Call::new().key(&name, "k").cost(cost)).await;
                assert!(decision.failure().is_none(), "{} {name} {cost}: {:?}", backend.name, decision.failure());
                assert!(decision.can_never_fit(), "{} {name} {cost}", backend.name);
            }
            assert_eq!(admitted(&limiter, &name, 12, 1).await, 10, "{} {name}", backend.name);
        }
    }
}

/// Sliding counters: the reset was worked out from the newest entry, the remaining ignored the previous window.
#[tokio::test]
async fn the_previous_window_counts_and_the_oldest_entry_resets() {
    for backend in every_store() {
        let clock = ManualClock::new(BEGIN);
        let limiter = backend.limiter(&clock, rules(Quota::per_minute(10)));
        let ask = async || limiter.acquire([("log", "k"), ("counter", "k")]).await;
        let first = ask().await;
        clock.advance(Duration::from_secs(20));
        let second = ask().await;
        let reset =
            |decision: &sluicegate::Decision| decision.standing("log").expect("it applies").reset_after().as_secs();
        assert_eq!((reset(&first), reset(&second)), (60, 40), "{}", backend.name);
        clock.advance(Duration::from_secs(55));
        let third = ask().await;
        // Two of the previous window count three quarters: one and a half, rounded against the caller, and this one.
        assert_eq!(third.standing("counter").map(|standing| standing.remaining()), Some(7), "{}", backend.name);
    }
}

/// A 429 without `Access-Control-Allow-Origin` is a network error to a browser.
#[tokio::test]
async fn refusals_carry_cors_headers_when_cors_is_outside() {
    let rule = Rule::gcra("r", Quota::per_minute(1)).key(key::global());
    let limiter = Limiter::builder(MemoryStore::new()).rule(rule).build().expect("sound");
    let app = Router::new()
        .route("/", get(|| async { "ok" }))
        .layer(RateLimitLayer::new(limiter))
        .layer(CorsLayer::new().allow_origin(Any));
    for status in [200, 429] {
        let request = Request::builder().header("origin", "http://example.com").body(Body::empty()).expect("a request");
        let response = app.clone().oneshot(request).await.expect("infallible");
        assert_eq!(response.status(), status);
        assert_eq!(response.headers()["access-control-allow-origin"], "*");
    }
}

/// A script that never ends, and a server with no room for another client: failures, told apart, and over when they end.
#[tokio::test]
async fn busy_and_crowded_servers_are_failures_that_pass() {
    let server =
        Server::start_on(Version::Redis7, crate::support::server::free_port(), &["--busy-reply-threshold", "1"]);
    let mut connection = server.connection().await;
    let rule = || Rule::gcra("r", Quota::per_hour(1_000)).key(key::given());
    let build = |store: RedisStore| Limiter::builder(store).namespace(namespace()).rule(rule()).build().expect("sound");
    let limiter = build(bare(&server.url()));
    assert!(limiter.acquire([("r", "k")]).await.failure().is_none());

    let mut other = server.connection().await;
    let endless = tokio::spawn(async move {
        let _: redis::RedisResult<()> =
            redis::cmd("EVAL").arg("while true do end").arg(0).query_async(&mut other).await;
    });
    let busy = loop {
        // Until the script runs, decisions go through; once it does, the server says so.
        if let Some(error) = limiter.acquire([("r", "k")]).await.failure() {
            break error.clone();
        }
    };
    assert_eq!(busy.kind(), StoreErrorKind::Refused, "{busy}");
    assert!(busy.to_string().contains("BUSY"), "{busy}");
    let _: redis::RedisResult<()> = redis::cmd("SCRIPT").arg("KILL").query_async(&mut connection).await;
    endless.await.expect("no panic");
    assert!(limiter.acquire([("r", "k")]).await.failure().is_none());

    let _: () =
        redis::cmd("CONFIG").arg("SET").arg("maxclients").arg("1").query_async(&mut connection).await.expect("set");
    let crowded = build(bare(&server.url())).acquire([("r", "k")]).await.failure().cloned().expect("no room");
    assert!(crowded.is_transient(), "{crowded}");
}
