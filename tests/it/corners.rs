//! Requests that sit between two chairs: preflights, doubled headers, fields in two dialects, layers that disagree.

use std::time::Duration;

use axum::{
    Router,
    http::Request,
    middleware::{self, Next},
    response::IntoResponse,
    routing::{any, get},
};
use http::{Response, StatusCode};
use sluicegate::{
    Clock, Decision, Headers, Limiter, ManualClock, MemoryStore, Quota, RateLimitLayer, Rule,
    key::{self, Found, KeyBy},
};
use tower::{Layer, Service, ServiceExt, limit::GlobalConcurrencyLimitLayer, service_fn};

use crate::support::{
    app::{ask, field, get as fetch},
    stores::{BEGIN, every_store},
};

fn limiter(rule: Rule) -> Limiter {
    Limiter::builder(MemoryStore::new()).rule(rule).build().expect("a sound rule")
}

fn per_hour(amount: u64) -> Rule {
    Rule::fixed_window("r", Quota::per_hour(amount)).key(key::global())
}

/// A service that was ready for a request that was refused is not kept ready: its place is for others.
#[tokio::test]
async fn a_refusal_gives_back_what_was_reserved() {
    for backend in every_store() {
        let limiter = backend.limiter(&ManualClock::new(BEGIN), [per_hour(1)]);
        let inner =
            service_fn(async |_: Request<String>| Ok::<_, std::convert::Infallible>(Response::new(String::new())));
        let inner = GlobalConcurrencyLimitLayer::new(1).layer(inner);
        let mut one = RateLimitLayer::new(limiter).layer(inner);
        let mut other = one.clone();
        let ask = || Request::new(String::new());
        assert_eq!(one.ready().await.expect("ready").call(ask()).await.expect("a response").status(), 200);
        let refused = one.ready().await.expect("ready").call(ask()).await.expect("a response");
        assert_eq!(refused.status(), 429);
        // `one` is still there. Were its place kept, this would wait for ever.
        let ready = tokio::time::timeout(Duration::from_secs(5), other.ready()).await;
        assert!(ready.is_ok(), "{backend:?}");
    }
}

#[tokio::test]
async fn a_handler_that_asks_for_the_decision_gets_one_in_a_preflight() {
    let handler = async |decision: Decision| decision.standings().count().to_string();
    let app = Router::new().route("/", any(handler)).layer(RateLimitLayer::new(limiter(per_hour(1))));
    let options = || Request::builder().method("OPTIONS").uri("/").header("access-control-request-method", "GET");
    assert_eq!(ask(&app, options().header("origin", "https://a.example")).await.status(), 200);
    // Without an origin no browser has sent it.
    assert_eq!(ask(&app, options()).await.status(), 200);
    assert_eq!(ask(&app, options()).await.status(), 429);
}

/// A gateway that adds a header to what the caller has sent must not let the caller choose.
#[tokio::test]
async fn a_doubled_header_is_nobodys() {
    let rule = Rule::fixed_window("r", Quota::per_hour(1)).key(key::header("x-tenant"));
    let app = Router::new().route("/", get(|| async {})).layer(RateLimitLayer::new(limiter(rule)));
    let doubled = Request::builder().uri("/").header("x-tenant", "victim").header("x-tenant", "me");
    assert_eq!(ask(&app, doubled).await.status(), 400);
    assert_eq!(ask(&app, Request::builder().uri("/").header("x-tenant", "victim")).await.status(), 200);
}

#[test]
fn cookies_in_several_lines_are_one_field() {
    let find = |lines: &[&str]| {
        let request = lines.iter().fold(Request::builder(), |request, line| request.header("cookie", *line));
        key::header("cookie").find_now(&request.body(()).expect("a request").into_parts().0)
    };
    assert_eq!(find(&["theme=dark", "session=a"]), find(&["theme=dark; session=a"]));
    assert_ne!(find(&["theme=dark", "session=a"]), find(&["theme=dark", "session=b"]));
    assert_eq!(find(&[]), Some(Found::Absent));
}

/// Two drafts in one field are read by nobody, so what was there stays alone.
#[tokio::test]
async fn a_field_in_another_draft_is_left_alone() {
    let older = [("ratelimit", "limit=100, remaining=50, reset=5"), ("ratelimit-policy", "100;w=10")];
    let newer = [("ratelimit", "\"a\";r=50;t=5"), ("ratelimit-policy", "\"a\";q=100;w=10")];
    for (set, headers, added) in [
        (older, Headers::default(), false),
        (newer, Headers::default(), true),
        (newer, Headers::builder().ietf_draft7().build().expect("sound"), false),
    ] {
        let layer = RateLimitLayer::new(limiter(per_hour(9))).headers(headers);
        let app = Router::new().route("/", get(move || async move { set.into_response() })).layer(layer);
        let response = fetch(&app, "/").await;
        for (name, value) in set {
            let lines: Vec<_> = response.headers().get_all(name).iter().collect();
            assert_eq!(
                (lines[0], lines.len()),
                (&value.parse().expect("a value"), if added { 2 } else { 1 }),
                "{name}"
            );
        }
    }
}

#[tokio::test]
async fn grpc_can_be_switched_off() {
    for (grpc, method, status) in [(true, "POST", 200), (true, "GET", 429), (false, "POST", 429)] {
        let rule = per_hour(1).cost(2);
        let layer = RateLimitLayer::new(limiter(rule)).grpc(grpc);
        let app = Router::new().route("/", any(|| async {})).layer(layer);
        let request = Request::builder().method(method).uri("/").header("content-type", "application/grpc");
        let response = ask(&app, request).await;
        assert_eq!((response.status().as_u16(), field(&response, "grpc-status").is_some()), (status, status == 200));
    }
}

/// A key that another extractor found keeps its marks apart from those of the closure that hands it on.
#[test]
fn keys_that_are_handed_on_do_not_meet() {
    let inner = key::header("x-user").or(key::header("x-address"));
    let outer = KeyBy::new(move |head| inner.find_now(head)).or(key::header("x-name"));
    let find = |name: &str, value: &str| {
        let request = Request::builder().header(name, value).body(()).expect("a request");
        outer.find_now(&request.into_parts().0)
    };
    assert_ne!(find("x-address", "a"), find("x-name", "a"));
    assert_ne!(find("x-user", "a"), find("x-address", "a"));
}

/// Behind a middleware that rewrites paths, the path that was sent is not the one that was matched.
#[tokio::test]
async fn a_path_parameter_comes_from_the_path_that_matched() {
    let rule = Rule::fixed_window("r", Quota::per_hour(1)).key(key::path_param("tenant"));
    let inner = Router::new().route("/tenants/{tenant}/items", get(|| async {}));
    let inner = inner.layer(RateLimitLayer::new(limiter(rule)));
    let rewrite = async |mut request: axum::extract::Request, next: Next| {
        let tenant = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
        *request.uri_mut() = format!("/tenants/{tenant}/items").parse().expect("a path");
        next.run(request).await
    };
    let app = Router::new().fallback_service(inner).layer(middleware::from_fn(rewrite));
    // Were it the path as sent, the second segment would be the key: `x` and `y`.
    let mut statuses = Vec::new();
    for path in ["/old/x/of/acme", "/old/y/of/acme", "/old/x/of/other"] {
        statuses.push(fetch(&app, path).await.status());
    }
    assert_eq!(statuses, [StatusCode::OK, StatusCode::TOO_MANY_REQUESTS, StatusCode::OK]);
}

/// Keys of a short quota matter for a short time, and make room after it.
#[tokio::test]
async fn short_quotas_do_not_fill_the_memory_store() {
    let clock = ManualClock::new(BEGIN);
    let store = MemoryStore::new().max_keys(100);
    let rule = Rule::gcra("r", Quota::per(1, Duration::from_millis(10))).key(key::given());
    let limiter =
        Limiter::builder(store.clone()).clock(Clock::manual(clock.clone())).rule(rule).build().expect("sound");
    for number in 0..1_000 {
        assert!(limiter.acquire([("r", number)]).await.is_allowed(), "{number}");
        clock.advance(Duration::from_millis(1));
    }
    assert!(store.keys() <= 100);
}
