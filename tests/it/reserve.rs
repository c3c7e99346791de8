//! What is kept for critical requests, and rules that protect the service.

use std::time::Duration;

use axum::{Router, http::Request, routing::get};
use sluicegate::{
    Call, Clock, Decision, Limiter, ManualClock, MemoryStore, Quota, RateLimitLayer, RedisStore, Resilient, Rule, key,
    refusal::{Cause, Format},
};

use crate::{
    support::{
        app::{ask, field, layer, text},
        flaky::{Flaky, Mood},
        server::VERSIONS,
        stores::{BEGIN, every_store, namespace},
    },
    traces::{NAMES, rule},
};

const TICK: Duration = Duration::from_micros(1);

fn ten(name: &'static str) -> Rule {
    rule(name, Quota::per_minute(10), 10).reserve(0.2, |_| false)
}

async fn ordinary(limiter: &Limiter, rule: &str, cost: u64) -> Decision {
    told(limiter.acquire(Call::new().key(rule, "k").cost(cost)).await)
}

async fn critical(limiter: &Limiter, rule: &str, cost: u64) -> Decision {
    told(limiter.acquire(Call::new().key(rule, "k").cost(cost).critical()).await)
}

fn told(decision: Decision) -> Decision {
    assert!(decision.failure().is_none(), "{:?}", decision.failure());
    decision
}

fn remaining(decision: &Decision) -> u64 {
    decision.standings().next().expect("it applies").remaining()
}

#[tokio::test]
async fn ordinary_requests_leave_the_reserve_and_critical_ones_use_it() {
    for backend in every_store() {
        for name in NAMES {
            let clock = ManualClock::new(BEGIN);
            let limiter = backend.limiter(&clock, [ten(name)]);
            for left in (0..8).rev() {
                let decision = ordinary(&limiter, name, 1).await;
                assert!(decision.is_allowed(), "{} {name}", backend.name);
                assert_eq!(remaining(&decision), left, "{} {name}", backend.name);
            }
            let refused = ordinary(&limiter, name, 1).await;
            assert!(refused.is_refused() && !refused.can_never_fit(), "{} {name}", backend.name);
            assert_eq!((remaining(&refused), refused.standing(name).map(|standing| standing.capacity())), (0, Some(8)));
            let first = critical(&limiter, name, 1).await;
            assert_eq!((first.is_allowed(), remaining(&first)), (true, 1), "{} {name}", backend.name);
            assert_eq!(first.standing(name).map(|standing| standing.capacity()), Some(10));
            assert!(critical(&limiter, name, 1).await.is_allowed(), "{} {name}", backend.name);
            assert!(critical(&limiter, name, 1).await.is_refused(), "{} {name}", backend.name);
        }
    }
}

/// A refused request repeated alone exactly `retry_after` later is admitted, and one tick earlier refused; in both kinds.
#[tokio::test]
async fn waits_are_exact_for_either_kind() {
    for backend in every_store() {
        for name in NAMES.into_iter().filter(|name| *name != "month") {
            for kind in [false, true] {
                let clock = ManualClock::new(BEGIN);
                let limiter = backend.limiter(&clock, [ten(name)]);
                let ask = async |cost: u64| {
                    let call = Call::new().key(name, u8::from(kind)).cost(cost);
                    told(limiter.acquire(if kind { call.critical() } else { call }).await)
                };
                let capacity = if kind { 10 } else { 8 };
                assert!(ask(capacity + 1).await.can_never_fit(), "{} {name}", backend.name);
                for cost in [capacity - 3, 2, 1] {
                    assert!(ask(cost).await.is_allowed(), "{} {name} {cost}", backend.name);
                    clock.advance(Duration::from_millis(137));
                }
                let wait = ask(3).await.retry_after().expect("a wait");
                clock.advance(wait - TICK);
                assert!(ask(3).await.is_refused(), "{} {name} {kind}", backend.name);
                clock.advance(TICK);
                assert!(ask(3).await.is_allowed(), "{} {name} {kind}", backend.name);
            }
        }
    }
}

/// Whoever spends nothing needs nothing, however little there is.
#[tokio::test]
async fn what_is_free_needs_no_reserve() {
    for backend in every_store() {
        let limiter = backend.limiter(&ManualClock::new(BEGIN), [ten("bucket")]);
        assert!(critical(&limiter, "bucket", 10).await.is_allowed());
        assert!(ordinary(&limiter, "bucket", 0).await.is_allowed(), "{}", backend.name);
    }
}

#[tokio::test]
async fn places_are_kept_too() {
    for backend in every_store() {
        let places = Rule::concurrency("places", 5).key(key::given()).reserve(0.4, |_| false);
        let clock = ManualClock::new(BEGIN);
        let limiter = backend.limiter(&clock, [places]);
        let mut held = Vec::new();
        for _ in 0..3 {
            held.push(ordinary(&limiter, "places", 1).await);
        }
        assert!(held.iter().all(Decision::is_allowed), "{}", backend.name);
        let refused = ordinary(&limiter, "places", 1).await;
        assert!(refused.is_refused() && !refused.can_never_fit(), "{}", backend.name);
        held.push(critical(&limiter, "places", 1).await);
        held.push(critical(&limiter, "places", 1).await);
        assert!(held.iter().all(Decision::is_allowed), "{}", backend.name);
        assert!(critical(&limiter, "places", 1).await.is_refused(), "{}", backend.name);
    }
}

/// All or nothing, where one rule of several keeps something: what is refused has spent nothing in the others.
#[tokio::test]
async fn one_that_keeps_something_refuses_for_all() {
    for backend in every_store() {
        let plain = Rule::gcra("plain", Quota::per_minute(100)).key(key::given());
        let limiter = backend.limiter(&ManualClock::new(BEGIN), [plain, ten("log")]);
        let call = |cost| Call::new().key("plain", "k").cost(1).key("log", "k").cost(cost);
        assert!(told(limiter.acquire(call(8)).await).is_allowed());
        assert!(told(limiter.acquire(call(1)).await).is_refused(), "{}", backend.name);
        assert!(told(limiter.acquire(call(1).critical()).await).is_allowed(), "{}", backend.name);
        let left = told(limiter.peek([("plain", "k")]).await);
        assert_eq!(remaining(&left), 98, "{}", backend.name);
    }
}

#[tokio::test]
async fn without_scripts_it_is_kept_too_and_redis_cell_says_that_it_cannot() {
    for version in VERSIONS {
        let store = RedisStore::builder(version.shared().url()).no_scripts().deadline(Duration::from_secs(30));
        let rule = || Rule::fixed_window("hourly", Quota::per_hour(10)).key(key::given()).reserve(0.2, |_| false);
        let builder = Limiter::builder(store.build().expect("sound")).namespace(namespace());
        let limiter = builder.rule(rule()).clock(Clock::manual(ManualClock::new(BEGIN))).build().expect("sound");
        assert!(ordinary(&limiter, "hourly", 9).await.can_never_fit());
        assert!(ordinary(&limiter, "hourly", 8).await.is_allowed());
        assert!(ordinary(&limiter, "hourly", 1).await.is_refused());
        let decision = critical(&limiter, "hourly", 2).await;
        assert_eq!((decision.is_allowed(), remaining(&decision)), (true, 0), "{version:?}");
        assert!(critical(&limiter, "hourly", 1).await.is_refused());
    }
    let store = RedisStore::builder("redis://127.0.0.1:1").cell().build().expect("sound");
    let rule = Rule::gcra("r", Quota::per_second(10)).key(key::given()).reserve(0.2, |_| false);
    let error = Limiter::builder(store).rule(rule).build().expect_err("the module keeps nothing");
    assert_eq!((error.rule_name(), error.field()), (Some("r"), "reserve"), "{error}");
}

/// While the store is away the share of a process keeps its share of the reserve, and leaves ordinary requests a unit.
#[tokio::test]
async fn it_is_kept_while_the_store_is_away() {
    for (amount, usable) in [(100, 8), (10, 1)] {
        let store = Flaky::default();
        store.set(Mood::Fails(sluicegate::StoreErrorKind::Unavailable));
        let store = Resilient::new(store).instances(10).share(1.0);
        let rule = Rule::fixed_window("r", Quota::per_hour(amount)).key(key::given()).reserve(0.2, |_| false);
        let clock = Clock::manual(ManualClock::new(BEGIN));
        let limiter = Limiter::builder(store).rule(rule).clock(clock).build().expect("sound");
        for _ in 0..usable {
            assert!(limiter.acquire([("r", "k")]).await.is_allowed(), "{amount}");
        }
        assert!(limiter.acquire([("r", "k")]).await.is_refused(), "{amount}");
        assert_eq!(limiter.acquire(Call::new().key("r", "k").critical()).await.is_allowed(), amount == 100);
    }
}

#[test]
fn a_reserve_that_leaves_nothing_is_a_build_error() {
    for share in [0.0, 1.0, -0.1, 1.2, f64::NAN, f64::INFINITY, 0.95] {
        let rule = Rule::gcra("r", Quota::per_minute(10)).key(key::given()).reserve(share, |_| false);
        let error = Limiter::builder(MemoryStore::new()).rule(rule).build().expect_err("nothing is left");
        assert_eq!((error.rule_name(), error.field()), (Some("r"), "reserve"), "{error}");
        assert!(error.to_string().contains("less than 1"), "{error}");
    }
    // Where there is no limit there is nothing to keep.
    let rule = Rule::gcra("r", Quota::unlimited()).key(key::given()).reserve(0.2, |_| false);
    assert!(rule.check().is_ok());
}

fn app(rules: impl IntoIterator<Item = Rule>) -> Router {
    Router::new().route("/", get(|| async {})).layer(layer(rules))
}

fn paying(req: &http::request::Parts) -> bool {
    req.headers.contains_key("x-paying")
}

#[tokio::test]
async fn each_caller_is_told_what_it_could_use() {
    let rule = Rule::token_bucket("fleet", Quota::per_minute(10)).key(key::global()).reserve(0.2, paying);
    let app = app([rule]);
    let response = ask(&app, Request::builder().uri("/")).await;
    assert_eq!(field(&response, "ratelimit-policy"), Some("\"fleet\";q=8;w=48"));
    assert_eq!(field(&response, "ratelimit"), Some("\"fleet\";r=7;t=6"));
    assert_eq!(field(&response, "x-ratelimit-limit"), Some("8"));
    assert_eq!(field(&response, "x-ratelimit-remaining"), Some("7"));
    let response = ask(&app, Request::builder().uri("/").header("x-paying", "1")).await;
    assert_eq!(field(&response, "ratelimit-policy"), Some("\"fleet\";q=10;w=60"));
    assert_eq!(field(&response, "ratelimit"), Some("\"fleet\";r=8;t=6"));
    assert_eq!(field(&response, "x-ratelimit-limit"), Some("10"));
    assert_eq!(field(&response, "x-ratelimit-remaining"), Some("8"));
}

#[tokio::test]
async fn what_protects_the_service_refuses_with_503_and_is_not_spoken_of() {
    let fleet = || Rule::fixed_window("fleet", Quota::per_hour(1)).key(key::global()).protects_service();
    let wide = || Rule::gcra("wide", Quota::per_minute(100)).key(key::global());
    let app = app([fleet(), wide()]);
    let response = ask(&app, Request::builder().uri("/")).await;
    assert_eq!(response.status(), 200);
    assert_eq!(field(&response, "ratelimit-policy"), Some("\"wide\";q=100;w=60"));
    assert_eq!(field(&response, "ratelimit"), Some("\"wide\";r=99;t=1"));
    assert_eq!(field(&response, "x-ratelimit-remaining"), Some("99"));
    let response = ask(&app, Request::builder().uri("/")).await;
    assert_eq!(response.status(), 503);
    let seconds: u64 = field(&response, "retry-after").expect("a wait").parse().expect("seconds");
    assert!((2_000..=4_000).contains(&seconds), "{seconds}");
    assert_eq!(field(&response, "ratelimit"), Some("\"wide\";r=99;t=1"));
    let problem: serde_json::Value = serde_json::from_str(&text(response).await).expect("JSON");
    assert_eq!(
        problem,
        serde_json::json!({
            "type": "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
            "title": "Temporary Reduced Capacity",
            "status": 503,
            "detail": format!("The service is at its capacity; retry in {seconds} seconds."),
        })
    );
}

#[tokio::test]
async fn where_both_kinds_refuse_the_quota_is_told_and_the_wait_is_for_both() {
    let fleet = Rule::fixed_window("fleet", Quota::per_hour(1)).key(key::global()).protects_service();
    let own = Rule::gcra("own", Quota::per_minute(1)).key(key::global());
    let app = app([fleet, own]);
    assert_eq!(ask(&app, Request::builder().uri("/")).await.status(), 200);
    let response = ask(&app, Request::builder().uri("/")).await;
    assert_eq!(response.status(), 429);
    let seconds: u64 = field(&response, "retry-after").expect("a wait").parse().expect("seconds");
    assert!(seconds > 2_000, "{seconds}: the service has no room before");
    let problem: serde_json::Value = serde_json::from_str(&text(response).await).expect("JSON");
    assert_eq!(problem["violated-policies"], serde_json::json!(["own"]));
    assert_eq!(problem["type"], "https://iana.org/assignments/http-problem-types#quota-exceeded");
}

#[tokio::test]
async fn what_never_fits_the_service_says_so() {
    let rule = Rule::gcra("fleet", Quota::per_minute(1)).key(key::global()).cost(2).protects_service();
    let app = Router::new().route("/", get(|| async {})).layer(layer([rule]).refuse_with(Format::Text));
    let response = ask(&app, Request::builder().uri("/")).await;
    assert_eq!((response.status().as_u16(), field(&response, "retry-after")), (503, None));
    assert_eq!(text(response).await, "The request costs more than the service can take; retrying does not help.\n");
}

#[tokio::test]
async fn closures_learn_who_refused() {
    let limiter = Limiter::builder(MemoryStore::new())
        .rule(Rule::gcra("fleet", Quota::per_minute(1)).key(key::global()).protects_service())
        .clock(Clock::manual(ManualClock::new(BEGIN)))
        .build()
        .expect("sound");
    let layer = RateLimitLayer::new(limiter).on_refused(|refusal| {
        assert_eq!((refusal.cause(), refusal.status().as_u16()), (Cause::Service, 503));
        let standings = refusal.decision().into_iter().flat_map(Decision::standings);
        assert!(standings.into_iter().all(|standing| standing.protects_service() && standing.is_refused()));
        http::Response::builder().status(507).body(String::new()).ok()
    });
    let app = Router::new().route("/", get(|| async {})).layer(layer);
    assert_eq!(ask(&app, Request::builder().uri("/")).await.status(), 200);
    assert_eq!(ask(&app, Request::builder().uri("/")).await.status(), 507);
}
