//! Lists at the HTTP edge: by the client's address and by keys, and what callers are told.

use std::{
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use axum::{Router, body::Body, http::Request, routing::get};
use http::{Response, StatusCode, request::Parts};
use sluicegate::{
    Charge, Decision, Limiter, LimiterBuilder, Lists, MemoryStore, Quota, RateLimitLayer, Rule,
    key::{self, TrustedProxies},
    refusal::{Cause, Denial},
};
use tower::ServiceExt;

use crate::support::{
    app::{self, field},
    frames::{Frames, Next},
    noting::Noting,
    stores::every_store,
};

fn user(head: &Parts) -> Option<Vec<u8>> {
    head.headers.get("x-user").map(|user| user.as_bytes().to_vec())
}

fn per_user() -> Rule {
    Rule::gcra("per-user", Quota::per_hour(1)).key_by(user)
}

fn limiter(builder: LimiterBuilder, rules: impl IntoIterator<Item = Rule>, lists: &Lists) -> Limiter {
    rules.into_iter().fold(builder, LimiterBuilder::rule).lists(lists).build().expect("sound")
}

async fn handler(decision: Decision) -> String {
    format!("{:?}", decision.listed())
}

fn app(limiter: Limiter) -> Router {
    Router::new().route("/", get(handler).post(handler)).layer(RateLimitLayer::new(limiter))
}

/// A request of somebody from somewhere.
async fn ask(app: &Router, user: &str, address: &str) -> Response<Body> {
    let request = Request::builder().uri("/").header("x-user", user);
    app::ask(app, request.extension(SocketAddr::new(address.parse().expect("an address"), 9))).await
}

async fn status(app: &Router, user: &str, address: &str) -> u16 {
    ask(app, user, address).await.status().as_u16()
}

#[tokio::test]
async fn requests_are_listed_by_key_and_by_address_on_every_store() {
    for backend in every_store() {
        let (name, lists) = (&backend.name, Lists::new());
        let limiter = limiter(backend.builder(), [per_user()], &lists);
        let app = app(limiter.clone());
        lists.deny("mallory").expect("room");
        let lists = lists.allow_net("10.0.0.0/8").and_then(|lists| lists.deny_net("10.6.6.0/24")).expect("sound");
        lists.deny_net("2001:db8:bad::/48").expect("sound");
        let asked = [
            ("alice", "192.0.2.1", [200, 429]),
            ("mallory", "192.0.2.1", [403, 403]),
            // Allow beats deny, whichever of the two is by key.
            ("mallory", "10.1.2.3", [200, 200]),
            ("bob", "10.6.6.6", [200, 200]),
            ("bob", "::ffff:10.6.6.6", [200, 200]),
            ("bob", "2001:db8:bad::1", [403, 403]),
            ("bob", "2001:db8:bad:ffff::", [403, 403]),
            // Nothing was spent on the way.
            ("bob", "2001:db8:bae::1", [200, 429]),
        ];
        for (user, address, expected) in asked {
            for expected in expected {
                assert_eq!(status(&app, user, address).await, expected, "{name}: {user} {address}");
            }
        }
        lists.allow("bob").expect("room");
        assert_eq!(status(&app, "bob", "2001:db8:bad::1").await, 200, "{name}");
        lists.remove("bob").remove_net("10.0.0.0/8").expect("sound");
        assert_eq!(status(&app, "carol", "10.6.6.6").await, 403, "{name}");
        assert_eq!(status(&app, "mallory", "10.1.2.3").await, 403, "{name}");
        assert_eq!(
            limiter.usage("mallory").await.expect("an answer").rules().map(|rule| rule.used()).next(),
            Some(Some(0))
        );
    }
}

#[tokio::test]
async fn no_store_is_asked_and_no_quota_is_told() {
    let lists = Lists::new();
    lists.deny("mallory").and_then(|lists| lists.allow_net("10.0.0.0/8")).expect("sound");
    let waits = Rule::gcra("session", Quota::per_hour(1)).key_by_async(async |head| user(&head));
    for rules in [vec![per_user()], vec![per_user(), waits]] {
        let store = Noting::default();
        let app = app(limiter(Limiter::builder(store.clone()), rules, &lists));
        for _ in 0..3 {
            let allowed = ask(&app, "alice", "10.0.0.1").await;
            assert!(allowed.headers().keys().all(|name| !name.as_str().contains("ratelimit")));
            assert_eq!((allowed.status(), app::text(allowed).await.as_str()), (StatusCode::OK, "Some(Allowed)"));
            let denied = ask(&app, "mallory", "192.0.2.1").await;
            assert!(denied.headers().keys().all(|name| !name.as_str().contains("ratelimit")));
            assert_eq!(denied.status(), 403);
        }
        assert_eq!(store.asked(), []);
        let passed = ask(&app, "alice", "192.0.2.1").await;
        assert_eq!((passed.status(), app::text(passed).await.as_str()), (StatusCode::OK, "None"));
        assert_eq!(store.asked().len(), 1);
        let nowhere = app::ask(&app, Request::builder().uri("/").header("x-user", "mallory")).await;
        assert_eq!(nowhere.status(), 403, "the key suffices");
    }
}

#[tokio::test]
async fn key_closures_are_asked_only_where_they_matter() {
    let lists = Lists::new();
    let strict =
        Rule::gcra("tenant", Quota::per_hour(9)).key(key::header("x-tenant").or_refuse(StatusCode::UNAUTHORIZED));
    let gold = Rule::gcra("gold", Quota::unlimited()).key_by(user);
    let app = app(limiter(Limiter::builder(MemoryStore::new()), [strict, gold], &lists));
    assert_eq!(status(&app, "alice", "192.0.2.1").await, 401);
    // A rule without a limit knows people all the same.
    lists.allow("alice").expect("room");
    assert_eq!(status(&app, "alice", "192.0.2.1").await, 200);
    lists.remove("alice").deny("alice").expect("room");
    assert_eq!(status(&app, "alice", "192.0.2.1").await, 403);
    assert_eq!(status(&app, "bob", "192.0.2.1").await, 401);
    lists.deny_net("192.0.2.1").expect("sound");
    assert_eq!(status(&app, "bob", "192.0.2.1").await, 403);
    lists.allow_net("192.0.2.0/24").expect("sound");
    assert_eq!(status(&app, "bob", "192.0.2.1").await, 200);
}

/// The status of a request by way of a proxy.
async fn through(app: &Router, proxy: &str, client: &str) -> u16 {
    let request = Request::builder().uri("/").header("x-user", client).header("x-forwarded-for", client);
    let request = request.extension(proxy.parse::<IpAddr>().expect("an address"));
    app::ask(app, request).await.status().as_u16()
}

#[tokio::test]
async fn the_address_is_the_clients_as_the_rules_find_it() {
    let trusting = || key::ip().behind(TrustedProxies::cidrs(["10.0.0.0/8"]));
    let rule = |name: &str| Rule::gcra(name, Quota::per_hour(1_000));
    let fill = |lists: &Lists| {
        lists.deny_net("203.0.113.0/24").and_then(|lists| lists.deny_net("2001:db8::/32")).map(drop).expect("sound");
    };
    let by_rule: [(&str, Vec<Rule>); 3] = [
        ("alone", vec![rule("ip").key(trusting())]),
        (
            "among others",
            vec![rule("peer").key(key::ip()), rule("ip").key(key::header("x-none").or(trusting().and(key::route())))],
        ),
        ("refusing", vec![rule("ip").key(trusting().or_refuse(StatusCode::BAD_REQUEST))]),
    ];
    for (name, rules) in by_rule {
        let lists = Lists::new();
        fill(&lists);
        let app = app(limiter(Limiter::builder(MemoryStore::new()), rules, &lists));
        assert_eq!(through(&app, "10.0.0.1", "203.0.113.9").await, 403, "{name}");
        assert_eq!(through(&app, "10.0.0.1", "::ffff:203.0.113.9").await, 403, "{name}");
        assert_eq!(through(&app, "10.0.0.1", "2001:db8::9").await, 403, "{name}");
        assert_eq!(through(&app, "10.0.0.1", "198.51.100.9").await, 200, "{name}");
        // Nobody else is believed.
        assert_eq!(through(&app, "203.0.113.9", "198.51.100.9").await, 403, "{name}");
        assert_eq!(through(&app, "198.51.100.9", "203.0.113.9").await, 200, "{name}");
    }
    // The peer's, where nothing else was said; and what the lists themselves say.
    for (lists, expected) in [(Lists::new(), 200), (Lists::by(trusting()), 403)] {
        fill(&lists);
        let app = app(limiter(Limiter::builder(MemoryStore::new()), [rule("u").key_by(user)], &lists));
        assert_eq!(through(&app, "10.0.0.1", "203.0.113.9").await, expected);
        // Without an address a request is in no subnet.
        assert_eq!(app::get(&app, "/").await.status(), 200);
    }
}

#[tokio::test]
async fn everybody_may_be_denied_but_some() {
    let lists = Lists::new();
    lists.deny_net("0.0.0.0/0").and_then(|lists| lists.deny_net("::/0")).expect("sound");
    lists.allow_net("::ffff:192.0.2.0/120").and_then(|lists| lists.allow("monitoring")).expect("sound");
    let app = app(limiter(Limiter::builder(MemoryStore::new()), [per_user()], &lists));
    for (user, address, expected) in [
        ("alice", "192.0.2.255", 200),
        ("alice", "192.0.3.0", 403),
        ("alice", "2001:db8::1", 403),
        ("monitoring", "2001:db8::1", 200),
    ] {
        assert_eq!(status(&app, user, address).await, expected, "{user} {address}");
    }
}

#[tokio::test]
async fn callers_are_told_as_the_layer_says() {
    let lists = Lists::new();
    lists.deny("mallory").expect("room");
    let limiter = limiter(Limiter::builder(MemoryStore::new()), [per_user()], &lists);
    let layer = || RateLimitLayer::new(limiter.clone());
    let app = |layer: RateLimitLayer| Router::new().route("/", get(|| async {}).post(|| async {})).layer(layer);
    let request = |method: &str| Request::builder().method(method).uri("/").header("x-user", "mallory");
    for (denial, status, title, code) in
        [(Denial::Forbidden, 403, "Forbidden", "7"), (Denial::TooManyRequests, 429, "Too Many Requests", "8")]
    {
        let app = app(layer().deny_with(denial));
        let response = app::ask(&app, request("GET")).await;
        assert_eq!(response.status(), status);
        assert_eq!(field(&response, "content-type"), Some("application/problem+json"));
        assert_eq!(field(&response, "cache-control"), Some("no-store"));
        assert_eq!(field(&response, "retry-after"), None);
        let body = format!(r#"{{"type":"about:blank","title":"{title}","status":{status}}}"#);
        assert_eq!(app::text(response).await, body);
        let head = app::ask(&app, request("HEAD")).await;
        assert_eq!((head.status().as_u16(), app::text(head).await.as_str()), (status, ""));
        let call = app::ask(&app, request("POST").header("content-type", "application/grpc")).await;
        assert_eq!(call.status(), 200);
        assert_eq!(field(&call, "grpc-status"), Some(code));
        assert_eq!(field(&call, "grpc-message"), Some(&*format!("{title}.")));
        assert_eq!(field(&call, "grpc-retry-pushback-ms"), Some("-1"));
    }
    let own = app(layer().on_refused(|refusal| {
        assert_eq!((refusal.cause(), refusal.status()), (Cause::List, StatusCode::FORBIDDEN));
        assert!(refusal.decision().is_some_and(|decision| decision.listed().is_some()));
        Response::builder().status(404).body(Body::empty()).expect("a response")
    }));
    assert_eq!(app::ask(&own, request("GET")).await.status(), 404);
    // A browser's question before the request carries no key, and passes.
    let preflight =
        request("OPTIONS").header("origin", "https://a.example").header("access-control-request-method", "GET");
    assert_eq!(app::ask(&app(layer()), preflight).await.status(), 405);
}

#[tokio::test]
async fn handlers_settle_nothing_for_those_who_are_let_through() {
    let lists = Lists::new();
    lists.allow("monitoring").expect("room");
    let tokens = Rule::token_bucket("tokens", Quota::per_hour(10)).key_by(user).cost_by(|_| 5);
    let limiter = limiter(Limiter::builder(MemoryStore::new()), [tokens], &lists);
    let handler = |charge: Charge| async move { charge.settle(9).to_string() };
    let app = Router::new().route("/", get(handler)).layer(RateLimitLayer::new(limiter.clone()));
    for (user, settled, used) in [("monitoring", "false", 0), ("alice", "true", 9)] {
        assert_eq!(app::text(ask(&app, user, "192.0.2.1").await).await, settled);
        limiter.settled().await;
        let usage = limiter.usage(user).await.expect("an answer");
        assert_eq!(usage.rule("tokens").and_then(|rule| rule.used()), Some(used), "{user}");
    }
}

#[tokio::test]
async fn a_hundred_thousand_subnets_are_looked_up_by_prefix() {
    let lists = Lists::new();
    for number in 0..50_000u32 {
        lists.deny_net(format!("{}/32", std::net::Ipv4Addr::from(0x0a00_0000 + number * 2))).expect("room");
        lists.deny_net(format!("2001:db8:{number:x}::/48")).expect("room");
    }
    assert_eq!(lists.len(), 100_000);
    let app = app(limiter(Limiter::builder(MemoryStore::new()), [per_user()], &lists));
    for number in [0, 1, 24_999, 49_999u32] {
        let denied = std::net::Ipv4Addr::from(0x0a00_0000 + number * 2).to_string();
        let passed = std::net::Ipv4Addr::from(0x0a00_0000 + number * 2 + 1).to_string();
        let user = number.to_string();
        assert_eq!(status(&app, &user, &denied).await, 403);
        assert_eq!(status(&app, &user, &passed).await, 200);
        assert_eq!(status(&app, &user, &format!("2001:db8:{number:x}:7::1")).await, 403);
    }
    assert_eq!(status(&app, "alice", "2001:db8:c350::1").await, 200);
}

/// Whoever is refused by its address need not send its body, and nobody waits for it.
#[tokio::test(start_paused = true)]
async fn the_body_of_a_denied_address_is_not_waited_for() {
    let lists = Lists::new();
    lists.deny_net("192.0.2.0/24").expect("sound");
    let rule = Rule::gcra("r", Quota::per_hour(5)).key(key::global()).cost_by_body(100, |_, body| body.len() as u64);
    let limiter = limiter(Limiter::builder(MemoryStore::new()), [rule], &lists);
    let app = Router::new().route("/", get(handler).post(handler)).layer(RateLimitLayer::new(limiter).read_bodies());
    for (address, expected) in [("192.0.2.1", 403), ("198.51.100.1", 408)] {
        let body = Body::new(Frames::new([Next::Silence]));
        let from = SocketAddr::new(address.parse().expect("an address"), 9);
        let request = Request::builder().method("POST").uri("/").extension(from).body(body).expect("a request");
        let began = tokio::time::Instant::now();
        let response = app.clone().oneshot(request).await.expect("a response");
        assert_eq!(response.status(), expected, "{address}");
        assert_eq!(began.elapsed().is_zero(), expected == 403, "{address}");
    }
}

/// The lists say so once, whatever becomes of them while the request is looked at: nobody is told 500 for a body that was not read
/// because of an entry that is gone by the next look.
#[tokio::test]
async fn an_entry_that_goes_between_two_looks_costs_nobody_a_500() {
    for (allow, expected) in [(false, 403), (true, 200)] {
        let (lists, looks) = (Arc::new(OnceLock::<Lists>::new()), Arc::new(AtomicUsize::new(0)));
        let (seen, counted) = (Arc::clone(&lists), Arc::clone(&looks));
        let client = key::ip().peer_by(move |_| {
            if counted.fetch_add(1, Ordering::Relaxed) > 0 {
                seen.get().expect("lists").remove_net("192.0.2.0/24").expect("sound");
            }
            Some([192, 0, 2, 1].into())
        });
        let lists = lists.get_or_init(|| Lists::by(client));
        let listed = if allow { lists.allow_net("192.0.2.0/24") } else { lists.deny_net("192.0.2.0/24") };
        listed.expect("sound");
        let rule =
            Rule::gcra("r", Quota::per_hour(50)).key(key::global()).cost_by_body(100, |_, body| body.len() as u64);
        let limiter = limiter(Limiter::builder(MemoryStore::new()), [rule], lists);
        let layer = RateLimitLayer::new(limiter.clone()).read_bodies();
        let app = Router::new().route("/", get(handler).post(|body: String| async { body })).layer(layer);
        let send = || Request::builder().method("POST").uri("/").body(Body::from("twelve bytes")).expect("a request");
        let response = app.clone().oneshot(send()).await.expect("a response");
        assert_eq!(response.status(), expected, "{allow}");
        assert_eq!(looks.load(Ordering::Relaxed), 1, "{allow}");
        // The next finds no entry, and is read and counted.
        assert_eq!(app.clone().oneshot(send()).await.expect("a response").status(), 200, "{allow}");
        let left = limiter.peek([("r", "all")]).await;
        assert_eq!(left.standing("r").map(|rule| rule.remaining()), Some(38), "{allow}");
    }
}

/// A layer that reads no bodies guesses no costs, also where an entry comes between two looks.
#[tokio::test]
async fn an_entry_that_comes_between_two_looks_has_no_cost_guessed() {
    let (lists, looks) = (Arc::new(OnceLock::<Lists>::new()), Arc::new(AtomicUsize::new(0)));
    let (seen, counted) = (Arc::clone(&lists), Arc::clone(&looks));
    let client = key::ip().peer_by(move |_| {
        if counted.fetch_add(1, Ordering::Relaxed) > 0 {
            seen.get().expect("lists").deny_net("192.0.2.0/24").expect("sound");
        }
        Some([192, 0, 2, 1].into())
    });
    let lists = lists.get_or_init(|| Lists::by(client));
    lists.deny_net("198.51.100.0/24").expect("sound");
    let rule = Rule::gcra("r", Quota::per_hour(50)).key(key::global()).cost_by_body(100, |_, body| body.len() as u64);
    let app = app(limiter(Limiter::builder(MemoryStore::new()), [rule], lists));
    let send = || Request::builder().method("POST").uri("/").body(Body::from("twelve bytes")).expect("a request");
    assert_eq!(app.clone().oneshot(send()).await.expect("a response").status(), 500);
    assert_eq!(app.clone().oneshot(send()).await.expect("a response").status(), 403);
}
