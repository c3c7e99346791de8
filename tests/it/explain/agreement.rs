//! A table of requests, each explained and then sent to a limiter of the same policy: the store must be asked what was explained.

use std::{
    net::IpAddr,
    sync::{Arc, Mutex},
};

use axum::{Router, body::Body, routing::any};
use http::{Request, request::Parts};
use sluicegate::{
    Clock, Decision, Limit, Limiter, ManualClock, MemoryStore, RateLimitLayer,
    policy::{Applies, Explanation, Names, Outcome},
    store::{Answer, Ask, Line, Purpose, Store, StoreFuture},
};
use tower::ServiceExt;

use super::policies::{TABLE, policy};
use crate::support::{app, stores::BEGIN};

/// What a store is asked to charge.
#[derive(Clone, Debug, PartialEq)]
struct Charged {
    rule: String,
    key: String,
    cost: u64,
    limit: Limit,
    shadow: bool,
    critical: bool,
}

/// A store in memory that notes it. Clones are one.
#[derive(Clone, Debug, Default)]
struct Noting(Arc<Mutex<Vec<Charged>>>, MemoryStore);

impl Store for Noting {
    fn acquire<'a>(&'a self, ask: &'a Ask<'a>) -> StoreFuture<'a, Answer> {
        if matches!(ask.purpose, Purpose::Spend) {
            let charged = ask.lines.iter().map(|line| Charged {
                rule: line.scope.rule().into(),
                key: String::from_utf8(line.key.to_vec()).expect("keys are ASCII"),
                cost: line.cost,
                limit: *line.limit,
                shadow: line.shadow,
                critical: line.critical,
            });
            self.0.lock().expect("no panic").extend(charged);
        }
        self.1.acquire(ask)
    }

    fn reset<'a>(&'a self, lines: &'a [Line<'a>]) -> StoreFuture<'a, ()> {
        self.1.reset(lines)
    }
}

fn names() -> Names {
    Names::new()
        .key("user", |req| req.headers.get("x-user").cloned())
        .cost("weight", |req| if req.method == "POST" { 10 } else { 1 })
}

/// Every combination of what requests may have.
fn requests() -> Vec<Parts> {
    let mut requests = Vec::new();
    let headers = [
        ("x-plan", &["", "free", "pro", "enterprise", "gold"][..]),
        ("x-customer", &["", "acme", "globex", "initech", "10 %"]),
        ("x-user", &["", "alice", "mallory"]),
        ("x-api-key", &["", "k"]),
        ("x-priority", &["", "high"]),
    ];
    let combinations: usize = headers.iter().map(|(_, values)| values.len()).product();
    for method in ["GET", "HEAD", "POST"] {
        for path in ["/", "/v1/charges?a=b", "/v1/%63harges/7/", "/v1/charges/7/x", "//login", "/strict/x"] {
            for peer in [None, Some("10.1.2.3"), Some("192.0.2.1")] {
                for mut number in 0..combinations {
                    let mut request = Request::builder().method(method).uri(path);
                    for (name, values) in headers {
                        let value = values[number % values.len()];
                        number /= values.len();
                        if !value.is_empty() {
                            request = request.header(name, value);
                        }
                    }
                    let (mut head, ()) = request.body(()).expect("a request").into_parts();
                    if let Some(peer) = peer {
                        head.extensions.insert::<IpAddr>(peer.parse().expect("an address"));
                    }
                    requests.push(head);
                }
            }
        }
    }
    requests
}

fn explained(explanation: &Explanation) -> Vec<Charged> {
    let applying = explanation.rules().filter(|rule| rule.applies() == Applies::Yes);
    let charged = applying.map(|rule| Charged {
        rule: rule.name().into(),
        key: rule.key().expect("it applies").into(),
        cost: rule.cost().expect("it applies"),
        limit: *rule.limit(),
        shadow: rule.is_shadow(),
        critical: rule.is_critical(),
    });
    charged.collect()
}

/// What a handler sees of the decision.
fn standings(decision: &Decision) -> String {
    let of = decision.standings().map(|standing| {
        format!("{} {} {} {}\n", standing.rule(), standing.cost(), standing.is_shadow(), standing.capacity())
    });
    of.collect()
}

fn explained_standings(explanation: &Explanation) -> String {
    let applying = explanation.rules().filter(|rule| rule.applies() == Applies::Yes);
    let of = applying.map(|rule| {
        let kept = if rule.is_critical() { 0 } else { rule.reserved() };
        let capacity = rule.limit().quota().capacity() - kept;
        format!("{} {} {} {capacity}\n", rule.name(), rule.cost().expect("it applies"), rule.is_shadow())
    });
    of.collect()
}

#[tokio::test]
async fn what_is_explained_is_what_the_store_is_asked() {
    let store = Noting::default();
    let limiter = Limiter::builder(store.clone())
        .clock(Clock::manual(ManualClock::new(BEGIN)))
        .policy(policy(TABLE))
        .names(names())
        .build()
        .expect("sound");
    let handler = any(|decision: Decision| async move { standings(&decision) });
    let app = Router::new().fallback(handler).layer(RateLimitLayer::new(limiter));
    let explainer = policy(TABLE).explainer(&names()).expect("sound");
    let mut outcomes = std::collections::BTreeMap::new();
    for head in requests() {
        let explanation = explainer.explain(&head);
        let case = format!("{head:?}\n{explanation}");
        // Its response has no body.
        let is_head = head.method == http::Method::HEAD;
        let response = app.clone().oneshot(Request::from_parts(head, Body::empty())).await.expect("a response");
        let charged = std::mem::take(&mut *store.0.lock().expect("no panic"));
        assert_eq!(explained(&explanation), charged, "{case}");
        let (status, kind) = match explanation.outcome() {
            Outcome::Limited => (200, "limited"),
            Outcome::Unlimited => (200, "unlimited"),
            Outcome::Allowed { .. } => (200, "allowed"),
            Outcome::Denied { .. } => (403, "denied"),
            Outcome::Refused { status, .. } => (*status, "refused"),
            other => panic!("{other:?}"),
        };
        *outcomes.entry(kind).or_insert(0) += 1;
        assert_eq!(response.status(), status, "{case}");
        if status == 200 && !is_head {
            assert_eq!(app::text(response).await, explained_standings(&explanation), "{case}");
        }
    }
    // The table has something of everything; `all` applies to whoever is on no list.
    assert_eq!(outcomes.keys().copied().collect::<Vec<_>>(), ["allowed", "denied", "limited", "refused"]);
}

#[tokio::test]
async fn whoever_is_taken_for_somebody_has_that_limit() {
    let limiter = Limiter::builder(MemoryStore::new()).policy(policy(TABLE)).names(names()).build().expect("sound");
    let (head, ()) = Request::get("/").header("x-user", "alice").body(()).expect("a request").into_parts();
    for tier in [None, Some("free"), Some("pro"), Some("gold")] {
        for customer in ["acme", "globex", "initech"] {
            let own = limiter.for_customer(customer, tier).await;
            let usage = own.usage_of([("all", "all"), ("daily", "alice")]).await.expect("in memory");
            let mut explainer = policy(TABLE).explainer(&names()).expect("sound").customer(customer);
            if let Some(tier) = tier {
                explainer = explainer.tier(tier);
            }
            let explanation = explainer.explain(&head);
            for rule in usage.rules() {
                let explained = explanation.rule(rule.rule()).expect("a rule");
                assert_eq!(explained.limit(), rule.limit(), "{customer} of {tier:?}: {}", rule.rule());
            }
        }
    }
}
