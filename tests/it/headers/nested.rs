//! Several layers, and handlers that write fields themselves: who stands in the end.

use std::convert::Infallible;

use axum::{Router, response::IntoResponse, routing::get};
use http::{HeaderName, HeaderValue, Request, Response};
use sluicegate::{Headers, HeadersBuilder, Quota, RateLimitLayer, Rule, key};
use tower::{Layer, ServiceExt, service_fn};

use super::{app, headers, items, layer, limiter, list, routes};
use crate::support::app::{field, get as fetch};

fn rule(name: &str, amount: u64) -> Rule {
    Rule::gcra(name, Quota::per_minute(amount)).key(key::global())
}

/// `inner` around the routes, `outer` around that.
fn nested(inner: (HeadersBuilder, u64), outer: (HeadersBuilder, u64)) -> Router {
    routes()
        .layer(layer(inner.0, limiter([rule("inner", inner.1)])))
        .layer(layer(outer.0, limiter([rule("outer", outer.1)])))
}

/// Names and values of the fields that begin so, sorted.
fn fields<B>(response: &Response<B>, begins: &str) -> Vec<String> {
    let fields = response.headers().iter().filter(|(name, _)| name.as_str().starts_with(begins));
    let mut fields: Vec<_> = fields.map(|(name, value)| format!("{name}: {}", value.to_str().expect("text"))).collect();
    fields.sort();
    fields
}

#[tokio::test]
async fn nested_limiters_add_to_lists_and_the_tighter_one_stands_alone() {
    let app = app([rule("inner", 2)]).layer(RateLimitLayer::new(limiter([rule("outer", 100)])));
    let response = fetch(&app, "/").await;
    let names = |field| items(response.headers(), field).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    assert_eq!(names("ratelimit"), ["inner", "outer"]);
    assert_eq!(names("ratelimit-policy"), ["inner", "outer"]);
    assert_eq!(field(&response, "x-ratelimit-limit"), Some("2"));
    assert_eq!(response.headers().get_all("x-ratelimit-limit").iter().count(), 1);
    // The other way round, the outer one is tighter.
    let app = self::app([rule("inner", 100)]).layer(RateLimitLayer::new(limiter([rule("outer", 2)])));
    let response = fetch(&app, "/").await;
    assert_eq!(
        (field(&response, "x-ratelimit-limit"), field(&response, "x-ratelimit-remaining")),
        (Some("2"), Some("1"))
    );
    assert_eq!(response.headers().get_all("x-ratelimit-reset").iter().count(), 1);
}

#[tokio::test]
async fn what_a_handler_set_stays() {
    let handler = async || {
        ([("x-ratelimit-limit", "7"), ("x-ratelimit-remaining", "6"), ("ratelimit", "\"own\";r=6")], "ok")
            .into_response()
    };
    let app = Router::new().route("/", get(handler));
    let rule = Rule::gcra("ours", Quota::per_minute(2)).key(key::global());
    let app = app.layer(RateLimitLayer::new(limiter([rule])));
    let response = fetch(&app, "/").await;
    assert_eq!(
        (field(&response, "x-ratelimit-limit"), field(&response, "x-ratelimit-remaining")),
        (Some("7"), Some("6"))
    );
    assert_eq!(field(&response, "x-ratelimit-reset"), None);
    let names: Vec<_> = items(response.headers(), "ratelimit").into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["own", "ours"]);
}

#[tokio::test]
async fn a_family_is_taken_over_whole() {
    // The inner has more fields than the outer, which is tighter: none of the inner's stays.
    let app = nested((headers().github(), 100), (headers().x_ratelimit_delta(), 2));
    assert_eq!(
        fields(&fetch(&app, "/").await, "x-"),
        ["x-ratelimit-limit: 2", "x-ratelimit-remaining: 1", "x-ratelimit-reset: 30"]
    );
    // The other way round, the inner is tighter: the outer adds nothing.
    let app = nested((headers().x_ratelimit_delta(), 2), (headers().github(), 100));
    assert_eq!(
        fields(&fetch(&app, "/").await, "x-"),
        ["x-ratelimit-limit: 2", "x-ratelimit-remaining: 1", "x-ratelimit-reset: 30"]
    );
    // Families without a field in common do not meet.
    let app = nested((headers().x_rate_limit(), 100), (headers().x_ratelimit_delta(), 2));
    let response = fetch(&app, "/").await;
    assert_eq!((fields(&response, "x-rate-").len(), fields(&response, "x-ratelimit-").len()), (3, 3));
}

#[tokio::test]
async fn the_tightest_of_three_stands() {
    let order = [[2, 50, 100], [100, 2, 50], [50, 100, 2]];
    for amounts in order {
        let mut app = routes();
        for (place, amount) in amounts.into_iter().enumerate() {
            let rule = rule(&format!("{place}"), amount);
            app = app.layer(RateLimitLayer::new(limiter([rule])));
        }
        let response = fetch(&app, "/").await;
        assert_eq!(field(&response, "x-ratelimit-limit"), Some("2"), "{amounts:?}");
        assert_eq!(fields(&response, "x-").len(), 3);
        assert_eq!(items(response.headers(), "ratelimit").len(), 3);
    }
}

#[tokio::test]
async fn a_dictionary_is_never_written_twice() {
    let app = nested((headers().ietf_draft7(), 100), (headers().ietf_draft7(), 2));
    let response = fetch(&app, "/").await;
    assert_eq!(response.headers().get_all("ratelimit").iter().count(), 1);
    assert_eq!(field(&response, "ratelimit"), Some("limit=2, remaining=1, reset=30"));
    assert_eq!(list(response.headers(), "ratelimit-policy").len(), 2);
}

#[tokio::test]
async fn a_refusal_further_in_stands() {
    let app = nested((headers().x_ratelimit_delta(), 1), (headers().x_ratelimit_delta(), 2));
    fetch(&app, "/").await;
    // The outer has nothing left either, but the inner has refused.
    let refused = fetch(&app, "/").await;
    assert_eq!(refused.status(), 429);
    assert_eq!(field(&refused, "x-ratelimit-limit"), Some("1"));
}

/// Half a family of ours beside half of a handler's would be a lie.
#[tokio::test]
async fn a_family_that_a_handler_set_in_part_stays_as_it_is() {
    for (name, value) in [
        ("x-ratelimit-limit", "7"),
        ("x-ratelimit-remaining", "6"),
        ("x-ratelimit-reset", "5"),
        ("x-ratelimit-used", "1"),
    ] {
        let handler = get(async move || ([(name, value)], "ok").into_response());
        // Two layers, so that the outer one looks at what the inner one left.
        let app = Router::new()
            .route("/", handler)
            .layer(layer(headers().github(), limiter([rule("inner", 100)])))
            .layer(layer(headers().github(), limiter([rule("outer", 2)])));
        assert_eq!(fields(&fetch(&app, "/").await, "x-"), [format!("{name}: {value}")]);
    }
}

/// The inner layer's family and the handler's field do not meet, and the outer layer's has fields of both: it stays away.
#[tokio::test]
async fn nothing_is_taken_over_beside_what_a_handler_set() {
    let app = Router::new()
        .route("/", get(async || ([("x-ratelimit-used", "1")], "ok").into_response()))
        .layer(layer(headers().x_ratelimit_delta(), limiter([rule("inner", 100)])))
        .layer(layer(headers().github(), limiter([rule("outer", 2)])));
    assert_eq!(
        fields(&fetch(&app, "/").await, "x-"),
        ["x-ratelimit-limit: 100", "x-ratelimit-remaining: 99", "x-ratelimit-reset: 1", "x-ratelimit-used: 1"]
    );
}

/// A service may fill a response with as many fields as it can hold.
#[tokio::test]
async fn a_full_response_stays_as_it_is() {
    let full = service_fn(async |_: Request<()>| {
        let mut response = Response::new(String::new());
        let mut names = (0..).map(|number| HeaderName::try_from(format!("x-{number}")).expect("a name"));
        while response.headers_mut().try_append(names.next().expect("more"), HeaderValue::from_static("")).is_ok() {}
        Ok::<_, Infallible>(response)
    });
    let service = RateLimitLayer::new(limiter([rule("r", 9)])).layer(full);
    let response = service.oneshot(Request::new(())).await.expect("infallible");
    assert!(response.headers().len() > 20_000 && !response.headers().contains_key("x-ratelimit-limit"));
}

/// A layer in between that says nothing must not make the outer one think that a handler has spoken.
#[tokio::test]
async fn a_silent_layer_in_between_changes_nothing() {
    let silent = RateLimitLayer::new(limiter([rule("silent", 9)])).headers(Headers::none());
    let app = app([rule("inner", 100)]).layer(silent).layer(RateLimitLayer::new(limiter([rule("outer", 2)])));
    assert_eq!(field(&fetch(&app, "/").await, "x-ratelimit-limit"), Some("2"));
}
