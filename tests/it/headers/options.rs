//! Where fields are written, and where not.

use axum::{
    Router,
    response::{IntoResponse, Redirect},
    routing::get,
};
use http::{HeaderValue, Request, StatusCode};
use sfv::BareItem;
use sluicegate::{Headers, Quota, RateLimitLayer, Rule, key};

use super::{app, app_with, headers, layer, limiter, list, routes};
use crate::support::{
    app::{ask, field, get as fetch, serve, text},
    log::logged,
};

fn per_minute(amount: u64) -> Rule {
    Rule::fixed_window("r", Quota::per_minute(amount)).key(key::global())
}

#[tokio::test]
async fn none_but_retry_after() {
    let app = routes().layer(RateLimitLayer::new(limiter([per_minute(1)])).headers(Headers::none()));
    for status in [200, 429] {
        let response = fetch(&app, "/").await;
        assert_eq!(response.status(), status);
        assert!(response.headers().keys().all(|name| !name.as_str().contains("ratelimit")));
        assert_eq!(response.headers().contains_key("retry-after"), status == 429);
    }
}

#[tokio::test]
async fn only_below_a_share() {
    let app = app_with(headers().ietf().x_ratelimit().only_below(0.5), [per_minute(4)]);
    let mut seen = Vec::new();
    for _ in 0..5 {
        let response = fetch(&app, "/").await;
        assert_eq!(response.headers().contains_key("ratelimit"), response.headers().contains_key("x-ratelimit-limit"));
        seen.push((response.status().as_u16(), response.headers().contains_key("ratelimit")));
    }
    // Three left, two left (the half), one, none; refused.
    assert_eq!(seen, [(200, false), (200, false), (200, true), (200, true), (429, true)]);
    // A refusal always, also one that leaves more than the share.
    let app = app_with(headers().ietf().only_below(0.5), [per_minute(4).cost(5)]);
    assert!(fetch(&app, "/").await.headers().contains_key("ratelimit"));
}

#[tokio::test]
async fn hidden_from_strangers() {
    let headers = headers().ietf().x_ratelimit().retry_after_ms().hide_when(|req| !req.headers.contains_key("x-user"));
    let app = app_with(headers, [per_minute(2)]);
    let as_user = async || ask(&app, Request::builder().uri("/").header("x-user", "a")).await;
    let shows = |response: &http::Response<_>| {
        (response.headers().contains_key("ratelimit"), response.headers().contains_key("x-ratelimit-limit"))
    };
    assert_eq!(shows(&fetch(&app, "/").await), (false, false));
    assert_eq!(shows(&as_user().await), (true, true));
    let refused = fetch(&app, "/").await;
    assert_eq!((refused.status().as_u16(), shows(&refused)), (429, (false, false)));
    assert!(refused.headers().contains_key("retry-after") && refused.headers().contains_key("retry-after-ms"));
    // Not even the name of the quota.
    let body = text(refused).await;
    assert!(body.contains("The quota is used up; retry in") && !body.contains("violated-policies"), "{body}");
    assert!(text(as_user().await).await.contains("violated-policies"));
    assert_eq!(shows(&as_user().await), (true, true));
}

/// A handler that asks a limiter itself can show what came of it.
#[tokio::test]
async fn without_a_layer() {
    let limiter = limiter([Rule::gcra("jobs", Quota::per_minute(1)).key(key::given())]);
    let headers = headers().ietf().x_ratelimit_delta().build().expect("sound");
    let mut seen = Vec::new();
    for _ in 0..2 {
        let decision = limiter.acquire([("jobs", "a")]).await;
        let mut response = http::Response::new(());
        headers.write(&decision, &mut response);
        assert!(!response.headers().contains_key("retry-after"), "that is for the handler to say");
        seen.push(
            [field(&response, "ratelimit"), field(&response, "x-ratelimit-reset")].map(|text| text.map(str::to_owned)),
        );
    }
    let fields = |standing: &str, reset: &str| [Some(standing.to_owned()), Some(reset.to_owned())];
    assert_eq!(seen, [fields("\"jobs\";r=0;t=60", "60"), fields("\"jobs\";r=0;t=60", "60")]);
    // No rule applied: there is nothing to show.
    let mut response = http::Response::new(());
    headers.write(&limiter.acquire(sluicegate::Call::new()).await, &mut response);
    assert!(response.headers().is_empty());
}

fn answering(status: u16) -> Router {
    let status = StatusCode::from_u16(status).expect("a status");
    Router::new().route("/", get(async move || status.into_response()))
}

#[tokio::test]
async fn never_on_1xx_and_on_redirects_as_told() {
    for (status, told, expected) in [
        (101, true, false),
        (302, true, true),
        (302, false, false),
        (308, false, false),
        (304, false, true),
        (200, false, true),
        (404, false, true),
        (503, false, true),
    ] {
        let headers = headers().ietf().x_ratelimit().on_redirects(told);
        let response = fetch(&answering(status).layer(layer(headers, limiter([per_minute(9)]))), "/").await;
        assert_eq!(response.status(), status);
        for name in ["ratelimit", "ratelimit-policy", "x-ratelimit-limit"] {
            assert_eq!(response.headers().contains_key(name), expected, "{name} on {status}");
        }
    }
}

/// A client that follows redirects is counted twice, and reads what the second response says.
#[tokio::test]
async fn redirects_over_real_http() {
    let app = routes().route("/old", get(async || Redirect::temporary("/")));
    let headers = headers().ietf().x_ratelimit().on_redirects(false);
    let address = serve(app.layer(layer(headers, limiter([per_minute(3)])))).await;
    let client = reqwest::Client::new();
    let response = client.get(format!("http://{address}/old")).send().await.expect("a response");
    assert_eq!((response.status().as_u16(), response.url().path()), (200, "/"));
    assert_eq!(response.headers()["x-ratelimit-remaining"], "1");
    let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().expect("a client");
    let response = client.get(format!("http://{address}/old")).send().await.expect("a response");
    assert_eq!(response.status(), 307);
    assert!(!response.headers().contains_key("ratelimit") && !response.headers().contains_key("x-ratelimit-limit"));
    // A refusal is no redirect, and its fields are there.
    let response = client.get(format!("http://{address}/old")).send().await.expect("a response");
    assert_eq!(
        (response.status().as_u16(), &response.headers()["x-ratelimit-remaining"]),
        (429, &HeaderValue::from_static("0"))
    );
}

#[tokio::test]
async fn the_partition_key_tells_counts_apart_and_not_whose_they_are() {
    let rules = || {
        let user = Rule::gcra("user", Quota::per_minute(1)).key(key::header("x-user"));
        [user, Rule::gcra("all", Quota::per_minute(9)).key(key::global())]
    };
    let later = Rule::gcra("later", Quota::per_minute(9)).key_by_async(async |_| "all");
    let builder = || headers().ietf().partition_key("0123456789abcdef");
    // Keys that must wait and keys that need not take different ways.
    let (now, waits) = (app_with(builder(), rules()), app_with(builder(), rules().into_iter().chain([later])));
    let partitions = async |app: &Router, user: &str| {
        let response = ask(app, Request::builder().uri("/").header("x-user", user)).await;
        let of = |name| {
            let items = list(response.headers(), name).into_iter();
            items
                .map(|(_, mut params)| match params.pop() {
                    Some((key, BareItem::ByteSequence(bytes))) if key == "pk" => bytes,
                    other => panic!("no partition: {other:?}"),
                })
                .collect::<Vec<_>>()
        };
        let standings = of("ratelimit");
        assert_eq!(of("ratelimit-policy"), standings);
        (response.status().as_u16(), standings)
    };
    let (status, first) = partitions(&now, "alice").await;
    let (again, second) = partitions(&now, "alice").await;
    assert_eq!((status, again), (200, 429));
    assert_eq!(first, second, "refusals tell it too");
    let (_, other) = partitions(&now, "bob").await;
    assert!(first[0] != other[0] && first[1] == other[1]);
    // HMAC-SHA256 of `all`, worked out elsewhere.
    assert_eq!(first[1], PARTITION_OF_ALL);
    let (_, waited) = partitions(&waits, "alice").await;
    assert_eq!(waited, [&first[..], &first[1..]].concat());
    // Another secret, another partition.
    let app = app_with(headers().ietf().partition_key("another one of 16"), rules());
    assert_ne!(partitions(&app, "alice").await.1[1], first[1]);
}

const PARTITION_OF_ALL: [u8; 12] = [0xe6, 0x93, 0xc3, 0x06, 0x7b, 0x7e, 0xee, 0xdf, 0x7b, 0x54, 0x3c, 0x74];

#[tokio::test]
async fn no_partition_unless_asked_for() {
    let response = fetch(&app([per_minute(9)]), "/").await;
    assert!(!field(&response, "ratelimit").is_some_and(|value| value.contains("pk")));
}

/// A family that shows nobody is a mistake in the configuration, and said when the layer is made.
#[test]
fn a_rule_that_is_not_there_is_told_of() {
    let headers = headers().openai("tokens").of_rule("tokns").build().expect("sound alone");
    let layer = RateLimitLayer::new(limiter([Rule::gcra("tokens", Quota::per_minute(2)).key(key::global())]));
    let text = logged(|| drop(layer.headers(headers)));
    assert!(text.contains("ERROR") && text.contains("\"tokns\", but the limiter has tokens"), "{text}");
}

#[tokio::test]
async fn a_capped_ratio_lowers_what_is_told_and_nothing_else() {
    let rule = || Rule::token_bucket("r", Quota::per_minute(60).burst(1_000)).key(key::global());
    for (ratio, told) in [(Some(10.0), "\"r\";r=10;t=1"), (Some(0.1), "\"r\";r=1;t=1"), (None, "\"r\";r=999;t=1")] {
        let headers = ratio.iter().fold(headers().ietf().x_ratelimit(), |headers, ratio| headers.cap_ratio(*ratio));
        let response = fetch(&app_with(headers, [rule()]), "/").await;
        assert_eq!(
            (field(&response, "ratelimit"), field(&response, "x-ratelimit-remaining")),
            (Some(told), Some("999"))
        );
    }
    for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let error = headers().ietf().cap_ratio(wrong).build().expect_err("no rate");
        assert!(error.to_string().contains("cap_ratio"), "{error}");
    }
}
