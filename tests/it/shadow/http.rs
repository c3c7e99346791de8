//! What responses, observers and the log say of shadow rules.

use std::sync::{Arc, Mutex};

use axum::{Router, routing::get};
use http::{Request, StatusCode};
use sluicegate::{
    Clock, Decision, Headers, Limiter, LimiterBuilder, ManualClock, MemoryStore, Observer, Quota, RateLimitLayer, Rule,
    key,
};

use crate::support::{
    app::{ask, field, get as fetch, text},
    log::Log,
    stores::BEGIN,
};

fn hourly(name: &str, amount: u64) -> Rule {
    Rule::gcra(name, Quota::per_hour(amount)).key(key::global())
}

fn builder(rules: impl IntoIterator<Item = Rule>) -> LimiterBuilder {
    let builder = Limiter::builder(MemoryStore::new()).clock(Clock::manual(ManualClock::new(BEGIN)));
    rules.into_iter().fold(builder, LimiterBuilder::rule)
}

fn app(limiter: &Limiter, headers: Headers) -> Router {
    let routes = Router::new().route("/", get(|| async { "hello" }));
    routes.layer(RateLimitLayer::new(limiter.clone()).headers(headers).jitter(false))
}

fn all_fields() -> Headers {
    Headers::builder().ietf().x_ratelimit().shadow().build().expect("sound")
}

#[tokio::test]
async fn a_would_be_refusal_is_a_response_like_any_other_with_one_more_field() {
    let limiter = builder([hourly("watched", 2).shadow(), hourly("enforced", 9)]).build().expect("sound");
    let (told, silent) = (app(&limiter, all_fields()), app(&limiter, Headers::default()));
    assert!(all_fields().names().any(|name| name == "x-ratelimit-shadow"));
    for left in [8, 7] {
        let response = fetch(&told, "/").await;
        assert_eq!(field(&response, "x-ratelimit-shadow"), None);
        // Quota fields tell of what is in force.
        assert_eq!(field(&response, "x-ratelimit-limit"), Some("9"));
        assert_eq!(field(&response, "ratelimit-policy"), Some("\"enforced\";q=9;w=3600"));
        let next = format!("\"enforced\";r={left};t=400");
        assert_eq!(field(&response, "ratelimit"), Some(&*next));
    }
    let response = fetch(&told, "/").await;
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(field(&response, "x-ratelimit-shadow"), Some("\"watched\";r=0;t=1800"));
    assert_eq!(field(&response, "retry-after"), None);
    assert_eq!(field(&response, "x-ratelimit-remaining"), Some("6"));
    assert_eq!(text(response).await, "hello");
    // Nobody hears of it who was not asked for it.
    let response = fetch(&silent, "/").await;
    assert!(response.headers().keys().all(|name| !name.as_str().contains("shadow")), "{:?}", response.headers());
}

#[tokio::test]
async fn a_refusal_names_those_who_refused() {
    let limiter = builder([hourly("watched", 1).shadow(), hourly("enforced", 1)]).build().expect("sound");
    let app = app(&limiter, all_fields());
    assert_eq!(fetch(&app, "/").await.status(), 200);
    let refused = fetch(&app, "/").await;
    assert_eq!(
        (refused.status().as_u16(), field(&refused, "x-ratelimit-shadow")),
        (429, Some("\"watched\";r=0;t=3600"))
    );
    let body = text(refused).await;
    assert!(body.contains("enforced") && !body.contains("watched"), "{body}");
}

#[tokio::test]
async fn shadows_alone_leave_no_quota_fields() {
    let limiter = builder([hourly("enforced", 1)]).shadow(true).build().expect("sound");
    let app = app(&limiter, Headers::default());
    for _ in 0..3 {
        let response = fetch(&app, "/").await;
        assert_eq!(response.status(), 200);
        assert!(response.headers().keys().all(|name| !name.as_str().contains("ratelimit")), "{:?}", response.headers());
    }
    limiter.set_shadow(false);
    let refused = fetch(&app, "/").await;
    assert_eq!((refused.status().as_u16(), field(&refused, "x-ratelimit-remaining")), (429, Some("0")));
}

/// A cost that never fits has no time to wait for; a family of one rule shows it only while it is in force.
#[tokio::test]
async fn what_can_never_fit_has_no_time() {
    let limiter = builder([hourly("watched", 5).cost(6)]).shadow(true).build().expect("sound");
    let headers = Headers::builder().openai("requests").of_rule("watched").shadow().build().expect("sound");
    let response = fetch(&app(&limiter, headers), "/").await;
    assert_eq!(field(&response, "x-ratelimit-shadow"), Some("\"watched\";r=5"));
    assert_eq!(field(&response, "x-ratelimit-limit-requests"), None);
}

#[tokio::test]
async fn a_handlers_list_and_a_limiters_are_one() {
    let inner = builder([hourly("inner", 1).shadow()]).build().expect("sound");
    let outer = builder([hourly("outer", 1).shadow()]).build().expect("sound");
    let app = app(&inner, all_fields()).layer(RateLimitLayer::new(outer).headers(all_fields()));
    assert_eq!(fetch(&app, "/").await.status(), 200);
    let response = fetch(&app, "/").await;
    let lines: Vec<_> = response.headers().get_all("x-ratelimit-shadow").iter().collect();
    assert_eq!(lines, ["\"inner\";r=0;t=3600", "\"outer\";r=0;t=3600"]);
}

/// What a key closure refuses has no key, so it holds when the rule is enforced for all.
#[tokio::test]
async fn a_key_closure_refuses_only_under_a_rule_that_is_enforced() {
    let strict =
        |name: &str| Rule::gcra(name, Quota::per_hour(9)).key(key::header("x-user").or_refuse(StatusCode::BAD_REQUEST));
    for (rule, status) in [(strict("r"), 400), (strict("r").roll_out(99), 200), (strict("r").shadow(), 200)] {
        let limiter = builder([rule]).build().expect("sound");
        assert_eq!(fetch(&app(&limiter, Headers::default()), "/").await.status(), status);
        limiter.set_shadow(true);
        assert_eq!(fetch(&app(&limiter, Headers::default()), "/").await.status(), 200);
    }
}

#[tokio::test]
async fn count_if_gives_back_nothing_that_a_shadow_did_not_charge() {
    let rule = Rule::fixed_window("watched", Quota::per_hour(2)).key(key::global()).shadow().cost(2);
    let rule = rule.count_if(|response| response.headers.contains_key("x-count"));
    let limiter = builder([rule]).build().expect("sound");
    let counted = |req: Request<axum::body::Body>| async move {
        let counts = req.headers().contains_key("x-count");
        (if counts { [("x-count", "1")] } else { [("x-other", "1")] }, "ok")
    };
    let app = Router::new().route("/", get(counted)).layer(RateLimitLayer::new(limiter.clone()));
    let left = async || {
        limiter.settled().await;
        limiter.peek([("watched", "all")]).await.standing("watched").expect("it applies").remaining()
    };
    for (counts, remaining) in [(false, 2), (true, 0), (false, 0), (false, 0)] {
        let request = Request::builder().uri("/");
        let request = if counts { request.header("x-count", "1") } else { request };
        assert_eq!(ask(&app, request).await.status(), 200);
        assert_eq!(left().await, remaining);
    }
}

#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<(bool, bool)>>>);

impl Observer for Told {
    fn decided(&self, decision: &Decision) {
        self.0.lock().expect("no panic").push((decision.is_refused(), decision.would_refuse()));
    }
}

#[tokio::test]
async fn observers_tell_it_from_refusals_and_the_log_says_it_once_a_second() {
    let (log, _guard) = Log::begin();
    let told = Told::default();
    let limiter = builder([hourly("watched", 1).shadow(), hourly("enforced", 3)]).observer(told.clone()).build();
    let limiter = limiter.expect("sound");
    let app = app(&limiter, Headers::default());
    for _ in 0..4 {
        fetch(&app, "/").await;
    }
    let seen = told.0.lock().expect("no panic").clone();
    assert_eq!(seen, [(false, false), (false, true), (false, true), (true, true)]);
    let text = log.text();
    assert_eq!(text.matches("a shadow rule would have refused").count(), 1, "{text}");
    assert!(text.contains("rule=\"watched\" requests=1"), "{text}");
}
