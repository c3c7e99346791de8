//! Limits, tiers and overrides, as clients and operators see them.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use axum::Router;
use reqwest::{Client, Response};
use serde_json::json;

use super::{Gateway, field, get, json, policy};
use crate::support::app::serve;

const TIERS: &str = r#"
[tier]
by = "header:x-plan"
default = "free"

[customer]
by = "header:x-customer"

[[rules]]
name = "rate"
algorithm = "token_bucket"
quota = "10/h"
key = "header:x-customer|ip"

[tiers.free]

[tiers.pro]
rate = { quota = "100/h", burst = 50 }

[overrides.acme]
rules.rate = "7000/h"

[overrides.globex]
tier = "pro"

[lists]
deny = { keys = ["mallory"] }
"#;

async fn ask(gateway: &Gateway, headers: &[(&str, &str)]) -> Response {
    let request = headers
        .iter()
        .fold(Client::new().get(gateway.url("/v1/things?q=1")), |request, (name, value)| request.header(*name, *value));
    request.send().await.expect("a response")
}

#[tokio::test]
async fn what_is_refused_never_reaches_the_upstream() {
    let served = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&served);
    let app =
        Router::new().fallback(move || async move { format!("answer {}", count.fetch_add(1, Ordering::Relaxed)) });
    let upstream = format!("http://{}", serve(app).await);
    let gateway = Gateway::start(&policy("2/h"), &["--upstream", &upstream]);
    for (left, text) in [("1", "answer 0"), ("0", "answer 1")] {
        let response = get(gateway.url("/")).await;
        assert_eq!(response.status(), 200);
        assert_eq!(
            (field(&response, "x-ratelimit-limit"), field(&response, "x-ratelimit-remaining")),
            (Some("2"), Some(left))
        );
        assert_eq!(response.text().await.expect("a body"), text);
    }
    let response = get(gateway.url("/")).await;
    assert_eq!(response.status(), 429);
    assert_eq!(field(&response, "content-type"), Some("application/problem+json"));
    let wait: u64 = field(&response, "retry-after").expect("a time").parse().expect("seconds");
    assert!((1_700..=2_000).contains(&wait), "{wait}");
    assert_eq!(served.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn tiers_and_overrides_hold_by_header() {
    let gateway = Gateway::start(TIERS, &[]);
    for (headers, limit, left) in [
        (&[("x-customer", "bob")][..], "10", "9"),
        (&[("x-customer", "bob"), ("x-plan", "gold")], "10", "8"),
        (&[("x-customer", "eve"), ("x-plan", "pro")], "50", "49"),
        (&[("x-customer", "acme"), ("x-plan", "free")], "7000", "6999"),
        (&[("x-customer", "globex")], "50", "49"),
        (&[], "10", "9"),
    ] {
        let response = ask(&gateway, headers).await;
        assert_eq!(response.status(), 200, "{headers:?}");
        assert_eq!(field(&response, "x-ratelimit-limit"), Some(limit), "{headers:?}");
        assert_eq!(field(&response, "x-ratelimit-remaining"), Some(left), "{headers:?}");
    }
    assert_eq!(ask(&gateway, &[("x-customer", "mallory")]).await.status(), 403);
}

#[tokio::test]
async fn without_an_upstream_it_shows_what_was_decided() {
    let gateway = Gateway::start(TIERS, &[]);
    let shown = json(ask(&gateway, &[("x-customer", "globex"), ("x-plan", "free")]).await).await;
    assert_eq!(shown["tier"], "pro");
    assert_eq!(shown["customer"], "globex");
    assert_eq!((&shown["method"], &shown["path"]), (&json!("GET"), &json!("/v1/things")));
    let rule = &shown["rules"][0];
    assert_eq!((&rule["rule"], &rule["limit"], &rule["remaining"]), (&json!("rate"), &json!(50), &json!(49)));
    let reset = rule["reset_after"].as_f64().expect("seconds");
    assert!((35.0..=36.0).contains(&reset), "{reset}");
    let shown = json(ask(&gateway, &[("x-plan", "pro")]).await).await;
    assert_eq!((&shown["tier"], &shown["customer"]), (&json!("pro"), &json!(null)));
    // Secrets are shown as the store has them.
    let by_key =
        TIERS.replace("header:x-customer", "api_key:x-api-key").replace("[lists]\ndeny = { keys = [\"mallory\"] }", "");
    let by_key =
        by_key.replace("acme", "'#00000000000000000000000000000000'").replace("[overrides.globex]\ntier = \"pro\"", "");
    let gateway = Gateway::start(&by_key, &[]);
    let shown = json(ask(&gateway, &[("x-api-key", "open sesame")]).await).await.to_string();
    assert!(!shown.contains("sesame") && shown.contains(r##""customer":"#"##), "{shown}");
    // Addresses too, and it is the tier that held: plans that stand twice are none.
    let by_address = TIERS.replace("header:x-customer", "ip").replace("\"mallory\"", "\"192.0.2.1\"");
    let by_address = by_address.replace("acme", "\"192.0.2.2\"").replace("globex", "\"127.0.0.1\"");
    let gateway = Gateway::start(&by_address, &[]);
    let shown = json(ask(&gateway, &[]).await).await;
    assert_eq!((&shown["tier"], &shown["customer"]), (&json!("pro"), &json!("v4:127.0.0.1")));
    let gateway = Gateway::start(TIERS, &[]);
    let shown = json(ask(&gateway, &[("x-plan", "pro"), ("x-plan", "pro")]).await).await;
    assert_eq!((&shown["tier"], &shown["rules"][0]["limit"]), (&json!("free"), &json!(10)));
}

#[tokio::test]
async fn operators_ask_elsewhere_than_clients() {
    let app =
        Router::new().fallback(|request: axum::extract::Request| async move { format!("upstream {}", request.uri()) });
    let upstream = format!("http://{}", serve(app).await);
    let gateway = Gateway::start(TIERS, &["--upstream", &upstream]);
    for path in ["/-/policy", "/-/usage", "/-/healthz"] {
        assert_eq!(get(gateway.url(path)).await.text().await.expect("a body"), format!("upstream {path}"));
        assert_eq!(get(gateway.admin(path)).await.status(), 200, "{path}");
    }
    assert_eq!(get(gateway.admin("/")).await.status(), 404);

    let shown = json(get(gateway.admin("/-/policy")).await).await;
    assert_eq!((&shown["version"], &shown["refused"]), (&json!(1), &json!(null)));
    assert_eq!(shown["policy"]["overrides"]["acme"], json!({ "rules": { "rate": { "quota": "7000/h" } } }));
    // Those of clients above, by address: asking costs nothing.
    let usage = json(get(gateway.admin("/-/usage")).await).await;
    assert_eq!((&usage["rules"][0]["rule"], &usage["rules"][0]["used"]), (&json!("rate"), &json!(3)));
    let usage =
        Client::new().get(gateway.admin("/-/usage")).header("x-customer", "acme").send().await.expect("a response");
    assert_eq!(json(usage).await["rules"][0]["limit"], 7_000);
    let health = json(get(gateway.admin("/-/healthz")).await).await;
    assert_eq!((&health["status"], &health["reasons"]), (&json!("ok"), &json!([])));
}

/// The file that readers learn from.
#[tokio::test]
async fn the_policy_of_the_example_says_what_it_says() {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/gateway.toml")).expect("a file");
    let gateway = Gateway::start(&text, &[]);
    let shown = json(ask(&gateway, &[]).await).await;
    assert_eq!(shown["tier"], "free");
    let shown = json(ask(&gateway, &[("x-api-key", "demo")]).await).await;
    assert_eq!((&shown["tier"], shown["rules"][1]["limit"].as_u64()), (&json!("pro"), Some(200)), "{shown}");
    let shown = json(ask(&gateway, &[("x-api-key", "other"), ("x-plan", "enterprise")]).await).await;
    assert_eq!(shown["rules"][1]["limit"], 1_000, "{shown}");
    let login = async || Client::new().post(gateway.url("/login")).send().await.expect("a response").status().as_u16();
    for expected in [200, 200, 200, 200, 200, 429] {
        assert_eq!(login().await, expected);
    }
}
