//! `Quota::unlimited()`: never refuses, asks nobody, and is not spoken of.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use axum::{Router, http::Request, routing::get};
use http::StatusCode;
use sluicegate::{
    BuildError, Limit, Limiter, LimiterBuilder, MemoryStore, Quota, RateLimitLayer, RedisStore, Rule, key,
    store::{Answer, Ask, Line, Store, StoreFuture},
};

use crate::support::app::{self, field};

/// Counts how many lines it is asked about.
#[derive(Clone, Debug, Default)]
struct Counting {
    store: MemoryStore,
    lines: Arc<AtomicUsize>,
}

impl Store for Counting {
    fn acquire<'a>(&'a self, ask: &'a Ask<'a>) -> StoreFuture<'a, Answer> {
        assert!(!ask.lines.is_empty(), "an ask about nothing");
        self.lines.fetch_add(ask.lines.len(), Ordering::Relaxed);
        self.store.acquire(ask)
    }

    fn reset<'a>(&'a self, lines: &'a [Line<'a>]) -> StoreFuture<'a, ()> {
        self.lines.fetch_add(lines.len(), Ordering::Relaxed);
        self.store.reset(lines)
    }

    fn accept(&self, rules: &[(&str, &Limit)]) -> Result<(), BuildError> {
        self.lines.fetch_add(rules.len(), Ordering::Relaxed);
        Ok(())
    }
}

fn free(name: &str) -> Rule {
    Rule::token_bucket(name, Quota::unlimited()).key(key::header("x-user").or_refuse(StatusCode::UNAUTHORIZED))
}

fn build(store: impl Store, rules: impl IntoIterator<Item = Rule>) -> Limiter {
    rules.into_iter().fold(Limiter::builder(store), LimiterBuilder::rule).build().expect("sound")
}

#[tokio::test]
async fn alone_it_asks_no_store_and_says_nothing() {
    let store = Counting::default();
    let limiter = build(store.clone(), [free("gold")]);
    for cost in [0, 1, u64::MAX] {
        let call = || sluicegate::Call::new().key("gold", "alice").cost(cost);
        assert!(limiter.acquire(call()).await.is_allowed());
        let decision = limiter.peek(call()).await;
        assert!(decision.is_allowed() && decision.standings().next().is_none() && decision.failure().is_none());
    }
    assert_eq!(limiter.reset([("gold", "alice")]).await, Ok(()));
    assert_eq!(limiter.reset_key("alice").await, Ok(()));
    let usage = limiter.usage("alice").await.expect("nobody is asked");
    assert!(usage.rules().all(|rule| rule.is_unlimited()), "{usage:?}");
    let app = Router::new().route("/", get(|| async {})).layer(RateLimitLayer::new(limiter));
    for _ in 0..3 {
        let response = app::ask(&app, Request::builder().uri("/").header("x-user", "alice")).await;
        assert_eq!(response.status(), 200);
        let told = response.headers().keys().filter(|name| name.as_str().contains("ratelimit")).count();
        assert_eq!(told, 0, "{:?}", response.headers());
    }
    // The key is looked for all the same: it is what keeps strangers out.
    assert_eq!(app::get(&app, "/").await.status(), 401);
    assert_eq!(store.lines.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn beside_others_only_they_are_judged_and_told() {
    let store = Counting::default();
    let limited = Rule::fixed_window("pages", Quota::per_hour(2)).key(key::global());
    let limiter = build(store.clone(), [free("gold"), limited, free("more")]);
    let asked = store.lines.load(Ordering::Relaxed);
    assert_eq!(asked, 1, "only what is limited must be accepted");
    let app = Router::new().route("/", get(|| async {})).layer(RateLimitLayer::new(limiter.clone()));
    for expected in [200, 200, 429] {
        let response = app::ask(&app, Request::builder().uri("/").header("x-user", "alice")).await;
        assert_eq!(response.status(), expected);
        assert_eq!(field(&response, "ratelimit-policy"), Some("\"pages\";q=2;w=3600"));
        assert!(field(&response, "ratelimit").is_some_and(|field| !field.contains("gold")));
        assert_eq!(field(&response, "x-ratelimit-limit"), Some("2"));
    }
    assert_eq!(store.lines.load(Ordering::Relaxed), asked + 3);
    let decision = limiter.acquire([("gold", "alice"), ("pages", "other"), ("more", "alice")]).await;
    assert!(decision.standing("gold").is_none() && decision.standing("pages").is_some());
}

#[test]
fn it_asks_nothing_of_a_store_and_takes_no_burst() {
    // Neither could keep a token bucket.
    for builder in
        [RedisStore::builder("redis://127.0.0.1:1").no_scripts(), RedisStore::builder("redis://127.0.0.1:1").cell()]
    {
        build(builder.build().expect("sound"), [free("gold")]);
    }
    // Nor is there anything to share or to keep.
    for rule in [free("gold").fair_share(0.2, key::given()), free("gold").reserve(0.2, |_| false)] {
        assert!(rule.check().is_ok_and(|limit| limit.reserved() == 0));
    }
    let error = free("gold");
    let error = Rule::gcra(error.name(), Quota::unlimited().burst(5)).key(key::global()).check().expect_err("a burst");
    assert_eq!((error.rule_name(), error.field()), (Some("gold"), "burst"));
    let quota = Quota::unlimited();
    assert!(quota.is_unlimited() && quota.to_string() == "unlimited" && quota.amount() == u64::MAX);
}
