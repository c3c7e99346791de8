//! Which rules apply, by path and method, and how many may.

use sluicegate::{Limiter, MemoryStore, policy::Policy};

use super::{app, ask, policy};
use crate::support::app::field;

fn rule(name: &str, more: &str) -> String {
    rule_of(name, 1, more)
}

/// In windows of so many hours: rules of one window for the same requests would be superfluous.
fn rule_of(name: &str, hours: u64, more: &str) -> String {
    format!("[[rules]]\nname = {name:?}\nalgorithm = \"gcra\"\nquota = \"100/{hours}h\"\nkey = \"global\"\n{more}\n")
}

#[tokio::test]
async fn rules_apply_by_path_and_method_in_the_order_of_the_document() {
    let text = [
        "headers = [\"ietf\"]\n".to_owned(),
        rule_of("all", 2, ""),
        rule("charges", "paths = [\"/v1/charges\", \"/v1/charges/{id}\"]\nmethods = [\"POST\"]"),
        rule_of("v1", 3, "paths = [\"/v1/{*rest}\"]"),
        rule_of("reads", 4, "methods = [\"GET\"]"),
    ];
    let limiter = Limiter::builder(MemoryStore::new()).policy(policy(&text.concat())).build().expect("sound");
    let app = app(&limiter);
    let applied = async |method: &str, path: &str| {
        let request = http::Request::builder().method(method).uri(path);
        let response = crate::support::app::ask(&app, request).await;
        let policies = field(&response, "ratelimit-policy").unwrap_or_default();
        policies.split(", ").filter_map(|policy| policy.split('"').nth(1)).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(applied("POST", "/v1/charges").await, "all charges v1");
    assert_eq!(applied("GET", "/v1/charges").await, "all v1 reads");
    assert_eq!(applied("HEAD", "/v1/charges/7?x=1").await, "all v1 reads");
    assert_eq!(applied("POST", "/v1/%63harges/7/").await, "all charges v1");
    assert_eq!(applied("POST", "/v2").await, "all");
    // Routers that take dots for names call the handler of the one path, and servers that resolve them of the other.
    assert_eq!(applied("POST", "/v1/x/../../v2").await, "all v1");
    assert_eq!(applied("POST", "/x/%2e%2e/v1/charges").await, "all charges v1");
    let response = ask(&app, "/v1", &[]).await;
    assert_eq!(response.status(), 200);
}

#[tokio::test]
async fn a_path_with_dots_that_meets_more_rules_than_a_decision_takes_is_refused() {
    let forty = |from: u64, path: &str| {
        let one = |n: u64| rule_of(&format!("rule-{n}"), n + 1, &format!("paths = [{path:?}]"));
        (from..from + 40).map(one).collect::<String>()
    };
    let text = format!("{}{}", forty(0, "/a/{*rest}"), forty(40, "/b"));
    let app = app(&Limiter::builder(MemoryStore::new()).policy(policy(&text)).build().expect("sound"));
    assert_eq!(ask(&app, "/a/b", &[]).await.status(), 200);
    assert_eq!(ask(&app, "/b", &[]).await.status(), 200);
    assert_eq!(ask(&app, "/a/../b", &[]).await.status(), 400);
}

#[tokio::test]
async fn more_rules_than_one_decision_takes_are_refused_when_the_policy_is_set() {
    let many = |paths: &str| {
        let one = |n: u64| rule_of(&format!("rule-{n}"), n + 1, &paths.replace('N', &n.to_string()));
        (0..65).map(one).collect::<String>()
    };
    let build = |text: &str| {
        let policy = Policy::from_toml(text).map_err(|error| error.to_string())?;
        Limiter::builder(MemoryStore::new()).policy(policy).build().map_err(|error| error.to_string())
    };
    // One request each.
    build(&many("paths = [\"/N\"]")).expect("sound");
    for together in ["", "paths = [\"/N/{*rest}\", \"/x/{y}\"]", "paths = [\"/x\", \"/{y}\"]"] {
        let error = build(&many(together)).expect_err("too many");
        assert!(error.contains("at most 64"), "{together}: {error}");
    }
    // Also where only tiers give them quotas.
    let names = || (0..65).map(|n| format!("rule-{n}"));
    let rules = names()
        .map(|name| format!("[[rules]]\nname = {name:?}\nalgorithm = \"gcra\"\nkey = \"global\"\npaths = [\"/x\"]\n"));
    let quotas = (1..).zip(names()).map(|(hours, name)| format!("{name} = \"100/{hours}h\"\n"));
    let by = "[tier]\nby = \"header:x-plan\"\ndefault = \"free\"\n";
    let text = format!("{by}{}[tiers.free]\n{}", rules.collect::<String>(), quotas.collect::<String>());
    let error = build(&text).expect_err("too many");
    assert!(error.contains("at most 64"), "{error}");
    let by_method = (0..65).map(|n| {
        let method = if n % 2 == 0 { "GET" } else { "POST" };
        rule_of(&format!("rule-{n}"), n + 1, &format!("methods = [\"{method}\"]"))
    });
    build(&by_method.collect::<String>()).expect("no request has both methods");
}

#[tokio::test]
async fn ten_thousand_rules_for_paths_of_their_own_are_one_limiter() {
    let text: String =
        (0..10_000).map(|n| rule(&format!("rule-{n}"), &format!("paths = [\"/v1/{n}/{{id}}\"]"))).collect();
    let limiter = Limiter::builder(MemoryStore::new()).policy(policy(&text)).build().expect("sound");
    let app = app(&limiter);
    let response = ask(&app, "/v1/7777/x", &[]).await;
    assert_eq!(field(&response, "ratelimit-policy"), Some("\"rule-7777\";q=100;w=3600"));
    let response = ask(&app, "/v1/7777/x/y", &[]).await;
    assert_eq!(field(&response, "ratelimit-policy"), None);
    // Looks at more counts than one decision may have.
    let usage = limiter.usage("all").await.expect("in memory");
    assert_eq!(usage.rules().count(), 10_000);
    assert_eq!(usage.rule("rule-7777").and_then(|rule| rule.used()), Some(1));
    limiter.reset_key("all").await.expect("in memory");
    let usage = limiter.usage("all").await.expect("in memory");
    assert_eq!(usage.rule("rule-7777").and_then(|rule| rule.used()), Some(0));
}
