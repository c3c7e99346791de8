//! Which rules apply to a request, and what happens where a key is missing.

use std::{collections::HashMap, net::IpAddr};

use axum::{Router, http::Request, routing::get};
use http::{Method, StatusCode, request::Builder};
use sluicegate::{
    Limiter, MemoryStore, Quota, RateLimitLayer, Rule,
    key::{self, Found, KeyBy},
};

use crate::support::{
    app::{ask, field},
    log::Log,
};

fn limiter(rules: impl IntoIterator<Item = Rule>) -> Limiter {
    let builder = Limiter::builder(MemoryStore::new());
    rules.into_iter().fold(builder, sluicegate::LimiterBuilder::rule).build().expect("sound rules")
}

fn app(layer: RateLimitLayer) -> Router {
    Router::new().route("/", get(|| async {}).post(|| async {})).layer(layer)
}

fn all(name: &str) -> Rule {
    Rule::fixed_window(name, Quota::per_hour(2)).key(key::global())
}

#[tokio::test]
async fn a_rule_applies_when_its_closure_says_so() {
    let waiting = || KeyBy::new_async(async |_| "all");
    for key in [key::global(), waiting()] {
        let rule = all("posts").key(key).when(|req| req.method == Method::POST);
        let app = app(RateLimitLayer::new(limiter([rule])));
        let mut statuses = Vec::new();
        for method in ["GET", "POST", "GET", "POST", "GET", "POST", "GET"] {
            let response = ask(&app, Request::builder().uri("/").method(method)).await;
            assert_eq!(field(&response, "ratelimit").is_some(), method == "POST");
            statuses.push(response.status().as_u16());
        }
        assert_eq!(statuses, [200, 200, 200, 200, 200, 429, 200]);
    }
}

#[tokio::test]
async fn conditions_add_up_and_spare_the_key() {
    let rule = all("r").when(|req| req.method == Method::POST).when(|req| req.headers.contains_key("x-on"));
    let strict = all("s").key(key::header("x-user").or_refuse(StatusCode::UNAUTHORIZED)).when(|_| false);
    let limiter = limiter([rule, strict]);
    assert!(limiter.acquire([("r", "k")]).await.standing("r").is_some(), "a call names the rules that apply");
    let app = app(RateLimitLayer::new(limiter));
    let limited = async |request: Builder| field(&ask(&app, request.uri("/")).await, "ratelimit").is_some();
    assert!(!limited(Request::builder().method("POST")).await);
    assert!(!limited(Request::builder().header("x-on", "1")).await);
    assert!(limited(Request::builder().method("POST").header("x-on", "1")).await);
}

#[tokio::test]
async fn a_missing_key_skips_refuses_or_takes_another() {
    let waiting = || KeyBy::new_async(async |req| req.headers.get("x-user").cloned());
    for key in [key::header("x-user"), waiting()] {
        let rule = |key| [Rule::fixed_window("r", Quota::per_hour(1)).key(key)];
        let status = async |app: &Router, user: Option<&str>| {
            let request =
                user.iter().fold(Request::builder().uri("/"), |request, user| request.header("x-user", *user));
            ask(app, request).await.status().as_u16()
        };
        let skips = app(RateLimitLayer::new(limiter(rule(key.clone()))));
        assert_eq!((status(&skips, None).await, status(&skips, None).await), (200, 200));

        let refuses = app(RateLimitLayer::new(limiter(rule(key.clone().or_refuse(StatusCode::UNAUTHORIZED)))));
        assert_eq!((status(&refuses, None).await, status(&refuses, Some("a")).await), (401, 200));
        assert_eq!((status(&refuses, None).await, status(&refuses, Some("a")).await), (401, 429));

        let other = app(RateLimitLayer::new(limiter(rule(key.or(key::global())))));
        assert_eq!((status(&other, None).await, status(&other, Some("a")).await), (200, 200));
        // The other key's text as a user's name is another count.
        assert_eq!((status(&other, Some("all")).await, status(&other, Some("|all")).await), (200, 200));
        assert_eq!((status(&other, None).await, status(&other, Some("a")).await), (429, 429));
    }
}

#[test]
fn only_a_refusal_refuses() {
    for status in
        [StatusCode::OK, StatusCode::CONTINUE, StatusCode::FOUND, StatusCode::from_u16(600).expect("a status")]
    {
        let rule = Rule::gcra("r", Quota::per_second(1)).key(key::ip().or_refuse(status));
        let error = rule.check().expect_err("no refusal");
        assert_eq!((error.rule_name(), error.field()), (Some("r"), "key"));
        assert!(error.to_string().contains("400 to 599"), "{error}");
    }
    // What is wrong with the key itself is said first.
    let rule = Rule::gcra("r", Quota::per_second(1)).key(key::header("a b").or_refuse(StatusCode::OK));
    assert!(rule.check().expect_err("a name").to_string().contains("header name"));
}

/// Two requests count together only where they took the same way to the same values, however keys are put together.
#[test]
fn alternatives_never_meet() {
    let [a, b, c] = ["a", "b", "c"].map(|name| move || key::header(name));
    let shapes: [(KeyBy, &[&str]); 4] = [
        (a().or(b()).or(c()), &["a", "b", "c"]),
        (a().or(b().or(c())), &["a", "b", "c"]),
        (a().or(b()).and(c()).or(b().and(a())), &["ac", "bc", "ba"]),
        (a().and(b().or(c())).or(b().or(c())).or(a()), &["ab", "ac", "b", "c", "a"]),
    ];
    let values = [None, Some("x"), Some("y"), Some("x,y"), Some("|x"), Some("")];
    for (shape, ways) in shapes {
        let mut seen = HashMap::new();
        for place in 0..values.len().pow(3) {
            let value = |name: char| values[place / values.len().pow(u32::from(name) - u32::from('a')) % values.len()];
            let request = ['a', 'b', 'c'].into_iter().fold(Request::builder(), |request, name| match value(name) {
                Some(value) => request.header(name.to_string(), value),
                None => request,
            });
            let found = shape.find_now(&request.body(()).expect("a request").into_parts().0);
            let way = ways.iter().find_map(|way| Some((way, way.chars().map(value).collect::<Option<Vec<_>>>()?)));
            match (found, way) {
                (Some(Found::Key(key)), Some(way)) => {
                    let first = seen.entry(key.clone()).or_insert_with(|| way.clone());
                    assert_eq!(*first, way, "{:?}", String::from_utf8_lossy(key.as_bytes()));
                }
                (found, way) => assert_eq!((found, way), (Some(Found::Absent), None)),
            }
        }
    }
    // An address as a user's name is not that address.
    let key = key::header("x-user").or(key::ip());
    let address: IpAddr = "192.0.2.1".parse().expect("an address");
    let of = |request: Builder| key.find_now(&request.extension(address).body(()).expect("a request").into_parts().0);
    let by_address = of(Request::builder());
    for name in ["v4:192.0.2.1", "|v4:192.0.2.1"] {
        assert_ne!(of(Request::builder().header("x-user", name)), by_address);
    }
}

#[tokio::test]
async fn preflight_is_charged_where_told() {
    let preflight = || {
        Request::builder()
            .method("OPTIONS")
            .uri("/")
            .header("origin", "https://a.example")
            .header("access-control-request-method", "GET")
    };
    for (skip, expected) in [(true, [405, 405, 405]), (false, [405, 405, 429])] {
        let app = app(RateLimitLayer::new(limiter([all("r")])).skip_preflight(skip));
        let mut statuses = Vec::new();
        for _ in 0..3 {
            statuses.push(ask(&app, preflight()).await.status().as_u16());
        }
        assert_eq!(statuses, expected);
    }
}

#[tokio::test]
async fn one_limiter_layered_twice_is_told_once() {
    let (log, _guard) = Log::begin();
    let limiter = limiter([all("r")]);
    let app = app(RateLimitLayer::new(limiter.clone())).layer(RateLimitLayer::new(limiter));
    for expected in [200, 200, 429] {
        assert_eq!(ask(&app, Request::builder().uri("/")).await.status(), expected);
    }
    assert_eq!(log.text().matches("layered twice").count(), 1, "{}", log.text());
}
