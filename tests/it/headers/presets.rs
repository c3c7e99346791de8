//! Each preset's fields, as its vendor has them.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use http::Response;
use sluicegate::{
    HeadersBuilder, Quota, Rule, key,
    store::{Verdict, Wait},
};

use super::{app_with, headers, layer, routes, scripted};
use crate::support::app::{field, get as fetch};

/// The quota fields of a response.
fn fields<B>(response: &Response<B>) -> BTreeMap<&str, &str> {
    let fields = response.headers().iter().map(|(name, value)| (name.as_str(), value.to_str().expect("text")));
    fields.filter(|(name, _)| name.contains("rate") || name.contains("retry")).collect()
}

/// One rule of a hundred a minute that stands so.
async fn shown(headers: HeadersBuilder, rule: &str, verdict: Verdict) -> BTreeMap<String, String> {
    let rule = Rule::fixed_window(rule, Quota::per_minute(100)).key(key::global());
    let response = fetch(&routes().layer(layer(headers, scripted([rule], vec![verdict]))), "/").await;
    fields(&response).into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn map(fields: &[(&str, &str)]) -> BTreeMap<String, String> {
    fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

const ALLOWED: Verdict =
    Verdict { wait: Wait::None, remaining: 42, reset_after: 17_000_100, receipt: 0, tenant_receipt: 0 };
const REFUSED: Verdict =
    Verdict { wait: Wait::Micros(17_000_100), remaining: 3, reset_after: 17_000_100, receipt: 0, tenant_receipt: 0 };

fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after it")
}

#[tokio::test]
async fn drafts_6_and_7() {
    assert_eq!(
        shown(headers().ietf_draft6(), "r", ALLOWED).await,
        map(&[
            ("ratelimit-limit", "100"),
            ("ratelimit-policy", "100;w=60"),
            ("ratelimit-remaining", "42"),
            ("ratelimit-reset", "18")
        ])
    );
    assert_eq!(
        shown(headers().ietf_draft7(), "r", ALLOWED).await,
        map(&[("ratelimit", "limit=100, remaining=42, reset=18"), ("ratelimit-policy", "100;w=60")])
    );
    // Of two policies with one quota, and of one that has no whole seconds, nothing can be said.
    let rules = [
        Rule::fixed_window("a", Quota::per_minute(100)),
        Rule::fixed_window("b", Quota::per_hour(100)),
        Rule::fixed_window("c", Quota::per(7, Duration::from_millis(300))),
        Rule::fixed_window("d", Quota::per_day(1_000)),
    ];
    let app = app_with(headers().ietf_draft7(), rules.map(|rule| rule.key(key::global())));
    assert_eq!(field(&fetch(&app, "/").await, "ratelimit-policy"), Some("100;w=60, 1000;w=86400"));
}

#[tokio::test]
async fn only_the_policies_that_applied_also_in_older_drafts() {
    let rules = [
        Rule::gcra("all", Quota::per_minute(9)).key(key::global()),
        Rule::gcra("user", Quota::per_minute(5)).key(key::header("x-user")),
    ];
    let response = fetch(&app_with(headers().ietf_draft6(), rules), "/").await;
    assert_eq!(field(&response, "ratelimit-policy"), Some("9;w=60"));
}

#[tokio::test]
async fn deltas_and_the_plain_zero_of_refusals() {
    assert_eq!(
        shown(headers().x_ratelimit_delta(), "r", ALLOWED).await,
        map(&[("x-ratelimit-limit", "100"), ("x-ratelimit-remaining", "42"), ("x-ratelimit-reset", "18")])
    );
    // Three are left, and the request cost more.
    assert_eq!(
        shown(headers().x_ratelimit_delta().ietf(), "r", REFUSED).await,
        map(&[
            ("ratelimit", "\"r\";r=3;t=18"),
            ("ratelimit-policy", "\"r\";q=100;w=60"),
            ("retry-after", "18"),
            ("x-ratelimit-limit", "100"),
            ("x-ratelimit-remaining", "0"),
            ("x-ratelimit-reset", "18")
        ])
    );
}

#[tokio::test]
async fn unix_seconds_are_rounded_up() {
    for (preset, reset) in [
        (headers().x_ratelimit(), "x-ratelimit-reset"),
        (headers().x_rate_limit(), "x-rate-limit-reset"),
        (headers().github(), "x-ratelimit-reset"),
    ] {
        let before = since_epoch() + Duration::from_micros(ALLOWED.reset_after);
        let shown = shown(preset, "r", ALLOWED).await;
        let after = since_epoch() + Duration::from_micros(ALLOWED.reset_after);
        let reset = Duration::from_secs(shown[reset].parse().expect("whole seconds"));
        assert!(reset >= before, "early");
        assert!(reset < after + Duration::from_secs(1), "late");
    }
}

#[tokio::test]
async fn github() {
    let mut shown = shown(headers().github(), "core api", ALLOWED).await;
    assert!(shown.remove("x-ratelimit-reset").is_some());
    assert_eq!(
        shown,
        map(&[
            ("x-ratelimit-limit", "100"),
            ("x-ratelimit-remaining", "42"),
            ("x-ratelimit-resource", "core api"),
            ("x-ratelimit-used", "58")
        ])
    );
}

#[tokio::test]
async fn discord() {
    let mut allowed = shown(headers().discord(), "r", ALLOWED).await;
    let reset = allowed.remove("x-ratelimit-reset").expect("a reset");
    let (seconds, millis) = reset.split_once('.').expect("a decimal");
    assert_eq!(millis.len(), 3);
    assert!(seconds.parse::<u64>().expect("seconds") >= since_epoch().as_secs() + 10);
    let bucket = allowed.remove("x-ratelimit-bucket").expect("a bucket");
    assert!(bucket.len() == 32 && bucket.bytes().all(|byte| byte.is_ascii_hexdigit()));
    assert_eq!(
        allowed,
        map(&[("x-ratelimit-limit", "100"), ("x-ratelimit-remaining", "42"), ("x-ratelimit-reset-after", "17.001")])
    );
    for (rule, scope, global) in [("r", "user", None), ("shared", "shared", None), ("global", "global", Some("true"))] {
        let refused = shown(headers().discord(), rule, REFUSED).await;
        assert_eq!(refused["x-ratelimit-scope"], scope);
        assert_eq!(refused.get("x-ratelimit-global").map(String::as_str), global);
        assert_eq!((&*refused["retry-after"], &*refused["x-ratelimit-remaining"]), ("18", "0"));
        assert_eq!(refused["x-ratelimit-bucket"] == bucket, rule == "r");
        let allowed = shown(headers().discord(), rule, ALLOWED).await;
        assert!(!allowed.contains_key("x-ratelimit-scope") && !allowed.contains_key("x-ratelimit-global"));
    }
}

#[tokio::test]
async fn openai() {
    for (reset_after, expected) in [
        (0, "0s"),
        (1, "1ms"),
        (12_000, "12ms"),
        (999_001, "1s"),
        (1_500_000, "1.5s"),
        (8_640_000, "8.64s"),
        (59_999_000, "59.999s"),
        (360_000_000, "6m0s"),
        (3_723_000_000, "1h2m3s"),
        (3_600_020_000, "1h0m0.02s"),
        (86_400_000_000, "24h0m0s"),
    ] {
        let verdict = Verdict { wait: Wait::None, remaining: 42, reset_after, receipt: 0, tenant_receipt: 0 };
        assert_eq!(
            shown(headers().openai("tokens"), "r", verdict).await,
            map(&[
                ("x-ratelimit-limit-tokens", "100"),
                ("x-ratelimit-remaining-tokens", "42"),
                ("x-ratelimit-reset-tokens", expected)
            ])
        );
    }
}

#[tokio::test]
async fn anthropic() {
    let shown = shown(headers().anthropic("input-tokens"), "r", ALLOWED).await;
    assert_eq!(shown["anthropic-ratelimit-input-tokens-limit"], "100");
    assert_eq!(shown["anthropic-ratelimit-input-tokens-remaining"], "42");
    let reset = &shown["anthropic-ratelimit-input-tokens-reset"];
    assert!(reset.len() == 20 && reset.ends_with('Z'), "{reset}");
}

/// The reset is told to the second; far ones stop where four digits of a year do.
#[tokio::test]
async fn dates_far_off() {
    let verdict = Verdict { wait: Wait::None, remaining: 1, reset_after: u64::MAX, receipt: 0, tenant_receipt: 0 };
    let shown = shown(headers().anthropic("r").cap(Duration::MAX), "r", verdict).await;
    assert_eq!(shown["anthropic-ratelimit-r-reset"], "9999-12-31T23:59:59Z");
}

#[tokio::test]
async fn a_family_shows_the_rule_it_is_told_to() {
    let rules = [
        Rule::fixed_window("requests", Quota::per_minute(100)).key(key::global()),
        Rule::fixed_window("tokens", Quota::per_minute(9_000)).cost(2_000).key(key::global()),
        Rule::fixed_window("images", Quota::per_minute(5)).key(key::header("x-images")),
    ];
    let headers = headers()
        .openai("requests")
        .of_rule("requests")
        .openai("tokens")
        .of_rule("tokens")
        .openai("images")
        .of_rule("images")
        .x_ratelimit_delta();
    let app = app_with(headers, rules);
    let response = fetch(&app, "/").await;
    let remaining = |name| field(&response, name);
    assert_eq!(remaining("x-ratelimit-remaining-requests"), Some("99"));
    assert_eq!(remaining("x-ratelimit-remaining-tokens"), Some("7000"));
    assert_eq!(remaining("x-ratelimit-remaining-images"), None, "the rule did not apply");
    assert_eq!(remaining("x-ratelimit-limit"), Some("9000"), "the tightest");
    for _ in 0..3 {
        fetch(&app, "/").await;
    }
    // The tokens refuse: the requests say what is true of them.
    let refused = fetch(&app, "/").await;
    assert_eq!(refused.status(), 429);
    assert_eq!(field(&refused, "x-ratelimit-remaining-tokens"), Some("0"));
    assert_eq!(field(&refused, "x-ratelimit-remaining-requests"), Some("96"));
}

#[tokio::test]
async fn a_field_of_ones_own() {
    let headers = headers()
        .custom("X-Call-Limit", |decision| {
            let standing = decision.tightest()?;
            let capacity = standing.limit().quota().capacity();
            Some(format!("{}/{capacity}", capacity - standing.remaining()))
        })
        .custom("x-rate-number", |decision| decision.tightest().map(|standing| standing.remaining()))
        .custom("x-rate-none", |_| None::<String>)
        .custom("x-rate-garbage", |_| Some("two\r\nlines"));
    let rule = Rule::fixed_window("r", Quota::per_minute(40)).key(key::global());
    let response = fetch(&app_with(headers, [rule]), "/").await;
    assert_eq!(field(&response, "x-call-limit"), Some("1/40"));
    assert_eq!(fields(&response), BTreeMap::from([("x-rate-number", "39")]));
}
