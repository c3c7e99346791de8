//! Quota fields, read by a parser that is not ours.

use axum::{Router, body::Body, http::Request, response::IntoResponse, routing::get};
use http::{HeaderMap, HeaderValue};
use proptest::prelude::*;
use sfv::{BareItem, List, ListEntry, Parser};
use sluicegate::{Clock, Limiter, ManualClock, MemoryStore, Quota, RateLimitLayer, Rule, key};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tower::ServiceExt;

use crate::support::{
    app::{field, get as fetch},
    stores::BEGIN,
};

fn limiter(rules: impl IntoIterator<Item = Rule>) -> Limiter {
    let builder = Limiter::builder(MemoryStore::new()).clock(Clock::manual(ManualClock::new(BEGIN)));
    rules.into_iter().fold(builder, sluicegate::LimiterBuilder::rule).build().expect("sound")
}

fn app(rules: impl IntoIterator<Item = Rule>) -> Router {
    Router::new().route("/", get(|| async { "ok" })).layer(RateLimitLayer::new(limiter(rules)))
}

/// A list field over all its lines: names, and the integer parameters of each.
fn items(headers: &HeaderMap, name: &str) -> Vec<(String, Vec<(String, i64)>)> {
    let lines: Vec<_> = headers.get_all(name).iter().map(HeaderValue::as_bytes).collect();
    let list: List = Parser::new(&lines.join(&b","[..])).parse().expect("a list of items");
    list.into_iter()
        .map(|entry| {
            let ListEntry::Item(item) = entry else { panic!("an inner list") };
            let BareItem::String(name) = item.bare_item else { panic!("no string: {:?}", item.bare_item) };
            let integer = |(key, value): (sfv::Key, BareItem)| match value {
                BareItem::Integer(number) => (key.as_str().to_owned(), i64::from(number)),
                other => panic!("no integer: {other:?}"),
            };
            (name.as_str().to_owned(), item.params.into_iter().map(integer).collect())
        })
        .collect()
}

fn item(name: &str, params: &[(&str, i64)]) -> (String, Vec<(String, i64)>) {
    (name.to_owned(), params.iter().map(|(key, value)| ((*key).to_owned(), *value)).collect())
}

#[tokio::test]
async fn both_families_on_every_response() {
    let app = app([
        Rule::fixed_window("burst", Quota::per_minute(100)).from_first_request().key(key::global()),
        Rule::token_bucket("daily", Quota::per_day(1_000).burst(50)).key(key::global()),
    ]);
    let response = fetch(&app, "/").await;
    assert_eq!(
        items(response.headers(), "ratelimit-policy"),
        [item("burst", &[("q", 100), ("w", 60)]), item("daily", &[("q", 50), ("w", 4_320)])]
    );
    assert_eq!(
        items(response.headers(), "ratelimit"),
        // The next unit of the bucket comes after a thousandth of a day.
        [item("burst", &[("r", 99), ("t", 60)]), item("daily", &[("r", 49), ("t", 87)])]
    );
    assert_eq!(field(&response, "x-ratelimit-limit"), Some("50"), "the bucket has the smaller share left");
    assert_eq!(field(&response, "x-ratelimit-remaining"), Some("49"));
    let reset: u64 = field(&response, "x-ratelimit-reset").expect("a reset").parse().expect("a number");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after it").as_secs();
    assert!((now + 80..=now + 90).contains(&reset), "{reset} from {now}");
    // Also where no route matches, and on the handler's own errors.
    let missing = fetch(&app, "/missing").await;
    assert_eq!((missing.status().as_u16(), field(&missing, "x-ratelimit-remaining")), (404, Some("48")));
}

#[tokio::test]
async fn windows_of_a_part_of_a_second() {
    for (quota, expected) in [
        (Quota::per(5, Duration::from_millis(250)), vec![("q", 20), ("w", 1)]),
        (Quota::per(5, Duration::from_millis(300)), vec![("q", 5)]),
        (Quota::per(5, Duration::from_millis(1_500)), vec![("q", 5), ("w", 2)]),
    ] {
        let response = fetch(&app([Rule::fixed_window("w", quota).key(key::global())]), "/").await;
        assert_eq!(items(response.headers(), "ratelimit-policy"), [item("w", &expected)]);
    }
}

#[tokio::test]
async fn only_the_rules_that_applied_are_shown() {
    let app = app([
        Rule::gcra("all", Quota::per_minute(9)).key(key::global()),
        Rule::gcra("user", Quota::per_minute(5)).key(key::header("x-user")),
    ]);
    let response = fetch(&app, "/").await;
    assert_eq!(items(response.headers(), "ratelimit-policy"), [item("all", &[("q", 9), ("w", 60)])]);
    assert_eq!(items(response.headers(), "ratelimit").len(), 1);
}

#[tokio::test]
async fn nested_limiters_add_to_lists_and_the_tighter_one_stands_alone() {
    let rule = |name, amount| Rule::gcra(name, Quota::per_minute(amount)).key(key::global());
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
async fn retry_after_is_whole_seconds_rounded_up_and_never_zero() {
    for (quota, expected) in [
        (Quota::per_second(5).burst(1), "1"),
        (Quota::per(1, Duration::from_millis(1_001)), "2"),
        (Quota::per_minute(1), "60"),
        (Quota::per_day(1), "86400"),
    ] {
        let app = app([Rule::gcra("r", quota).key(key::global())]);
        fetch(&app, "/").await;
        let refused = fetch(&app, "/").await;
        assert_eq!(field(&refused, "retry-after"), Some(expected), "{quota}");
        let until: i64 = items(refused.headers(), "ratelimit")[0].1[1].1;
        assert!(until <= expected.parse().expect("a number"), "t must not lie after Retry-After");
    }
}

/// Printable ASCII of any kind, and numbers up to the edges of what is allowed.
fn names_and_quotas() -> impl Strategy<Value = Vec<(String, u64, u64)>> {
    let amount = prop_oneof![1u64..1_000, Just((1 << 48) - 1)];
    prop::collection::btree_map("[ -~]{1,64}", (amount, 1_000u64..10_000_000_000), 1..4)
        .prop_map(|rules| rules.into_iter().map(|(name, (amount, window))| (name, amount, window)).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn every_value_parses(rules in names_and_quotas()) {
        let rule = |(name, amount, window): &(String, u64, u64)| {
            Rule::fixed_window(name, Quota::per(*amount, Duration::from_micros(*window))).key(key::global())
        };
        let app = app(rules.iter().map(rule));
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let response = runtime.block_on(async { app.oneshot(Request::new(Body::empty())).await.expect("infallible") });
        let expected: Vec<_> = rules.iter().map(|(name, ..)| name.clone()).collect();
        for name in ["ratelimit", "ratelimit-policy"] {
            let names: Vec<_> = items(response.headers(), name).into_iter().map(|(name, _)| name).collect();
            prop_assert_eq!(&names, &expected);
        }
    }
}
