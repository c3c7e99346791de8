//! Keys: any bytes, each its own count, and nothing of them moves a slot or reaches the store unescaped.

use std::{
    collections::{HashMap, HashSet},
    net::{IpAddr, SocketAddr},
};

use axum::{Router, body::Body, extract::ConnectInfo, http::Request, routing::get};
use http::{HeaderValue, StatusCode};
use proptest::prelude::*;
use redis::AsyncCommands;
use sluicegate::{
    Limiter, ManualClock, MemoryStore, Quota, RateLimitLayer, Rule,
    key::{self, Found, IntoKey, Key, KeyBy},
};
use tower::ServiceExt;

use crate::support::{
    app::text,
    cases::cases,
    server::VERSIONS,
    stores::{BEGIN, Backend, every_store},
};

fn of(key: impl IntoKey) -> Vec<u8> {
    match key.into_key() {
        Found::Key(key) => key.as_bytes().to_vec(),
        other => panic!("no key: {other:?}"),
    }
}

proptest! {
    #![proptest_config(cases(20_000))]

    #[test]
    fn different_parts_are_different_keys(one: Vec<u8>, other: Vec<u8>) {
        prop_assert_eq!(of(one.clone()) == of(other.clone()), one == other);
    }

    #[test]
    fn different_tuples_are_different_keys(
        one: (String, String), other: (String, String), third: (String, String, String),
    ) {
        prop_assert_eq!(of(one.clone()) == of(other.clone()), one == other);
        prop_assert_ne!(of(one.clone()), of(third.clone()));
        // Nested on the left, nested on the right and flat are three keys.
        let (a, b, c) = third.clone();
        let nested = [of(((a.clone(), b.clone()), c.clone())), of((a, (b, c))), of(third)];
        prop_assert_eq!(nested.iter().collect::<HashSet<_>>().len(), 3);
    }

    #[test]
    fn what_reaches_the_store_is_bounded_and_free_of_braces(parts: (Vec<u8>, String, Vec<u8>)) {
        let key = of(parts);
        prop_assert!((1..=200).contains(&key.len()));
        let plain = key.iter().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'{' | b'}'));
        prop_assert!(plain);
    }
}

/// Texts close to each other in every way that joins, marks and escapes could confuse.
#[test]
fn look_alikes_stay_apart() {
    let long = "x".repeat(65);
    let texts = [
        "", "~", "%", "%7e", "%7E", "a,b", "b", "a%2cb", "(a,b)", "#", "&", "{}", "{a}", "a", "A", " a", "a ", "\0",
        "h.", &long,
    ];
    let mut seen = HashMap::new();
    for one in texts {
        assert_eq!(seen.insert(of(one), vec![one]), None, "{one:?}");
        for other in texts {
            assert_eq!(seen.insert(of((one, other)), vec![one, other]), None, "{one:?} {other:?}");
        }
    }
    // A digest and the text of that digest are two keys, as are a long join and its text.
    let digest = String::from_utf8(of(long.as_str())).expect("ASCII");
    assert_ne!(of(digest.as_str()), of(long.as_str()));
    let sixty = "y".repeat(60);
    let join = (sixty.clone(), sixty.clone(), sixty.clone(), sixty);
    let digest = String::from_utf8(of(join.clone())).expect("ASCII");
    assert!(digest.starts_with('&') && digest.len() == 33);
    assert_ne!(of(digest), of(join));
}

#[test]
fn everything_owned_becomes_a_key() {
    let address: IpAddr = "2001:db8::1".parse().expect("an address");
    assert_eq!(of(42u8), b"42");
    assert_eq!(of(-7i64), b"-7");
    assert_eq!(of(String::from("alice@example.com")), b"alice@example.com");
    assert_eq!(of(address), b"2001:db8::1");
    assert_eq!(of("::ffff:192.0.2.1".parse::<IpAddr>().expect("an address")), b"192.0.2.1");
    assert_eq!(of(("t", 5u32)), b"t,5");
    assert_eq!(of(Some("x")), b"x");
    assert_eq!(of(Ok::<_, StatusCode>("x")), b"x");
    assert_eq!(None::<&str>.into_key(), Found::Absent);
    assert_eq!(("a", None::<u8>).into_key(), Found::Absent);
    assert_eq!(Err::<&str, _>(StatusCode::FORBIDDEN).into_key(), Found::Refuse(StatusCode::FORBIDDEN));
    assert_eq!(of(HeaderValue::from_bytes(b"\xff").expect("a value")), b"%ff");
    assert!(!format!("{:?}", Key::new(b"secret")).contains("secret"));
}

#[tokio::test]
async fn odd_keys_keep_their_own_counts_on_every_store() {
    let ten_thousand = "z".repeat(10_000);
    let keys: [&[u8]; 9] = [
        b"",
        b"\xff\xfe",
        b"{a}",
        b"}{",
        b"a\r\nSET x 1\r\n",
        b"a\0b",
        b"'; return 1 --",
        ten_thousand.as_bytes(),
        b"%7Ba%7D",
    ];
    for backend in every_store() {
        let rule = Rule::fixed_window("r", Quota::per_hour(2)).key(key::given());
        let limiter = backend.limiter(&ManualClock::new(BEGIN), [rule]);
        for round in [Some(1), Some(0), None] {
            for key in keys {
                let decision = limiter.acquire([("r", key.to_vec())]).await;
                assert!(decision.failure().is_none(), "{}", backend.name);
                let remaining = decision.standing("r").map(|standing| standing.remaining());
                assert_eq!(remaining.filter(|_| decision.is_allowed()), round, "{} {key:?}", backend.name);
            }
        }
    }
}

/// Cluster hashes what stands between the first braces: that must be our own, and the whole key.
#[tokio::test]
async fn all_rules_of_a_subject_share_a_slot_that_braces_cannot_move() {
    for version in VERSIONS {
        let backend = Backend::redis(version);
        let names = ["plain", "{odd}", "a}b{c"];
        let rules = names.map(|name| Rule::gcra(name, Quota::per_hour(5)).key(key::given()));
        let limiter = backend.limiter(&ManualClock::new(BEGIN), rules);
        let mut connection = version.shared().connection().await;
        for subject in ["x", "", "{", "}", "{}", "{a}b", "}{"] {
            let decision = limiter.acquire(names.map(|name| (name, subject))).await;
            assert!(decision.failure().is_none());
        }
        let keys: Vec<String> = connection.keys(format!("{}:*", backend.namespace)).await.expect("names");
        assert_eq!(keys.len(), 3 * 7);
        let tags: HashSet<_> = keys
            .iter()
            .map(|key| {
                let (before, rest) = key.split_once('{').expect("a brace");
                let (tag, after) = rest.split_once('}').expect("a brace");
                assert_eq!(before, format!("{}:v1:", backend.namespace));
                assert!(!tag.is_empty() && after.starts_with(':') && !after.contains(['{', '}']), "{key}");
                tag.to_owned()
            })
            .collect();
        assert_eq!(tags.len(), 7);
    }
}

fn head(request: http::request::Builder) -> http::request::Parts {
    request.body(()).expect("a request").into_parts().0
}

async fn counted_by(key: impl Into<KeyBy>, request: http::request::Builder) -> Option<String> {
    // The key as the store sees it shows in how requests are counted together; here it is asked for directly.
    let rule = Rule::gcra("r", Quota::per_hour(1)).key(key);
    let limiter = Limiter::builder(MemoryStore::new()).rule(rule).build().expect("sound");
    let app = RateLimitLayer::new(limiter);
    let service = tower::service_fn(async |_: Request<Body>| {
        Ok::<_, std::convert::Infallible>(http::Response::new(Body::empty()))
    });
    let service = tower::Layer::layer(&app, service);
    let (parts, body) = (head(request), Body::empty());
    let response = service.oneshot(Request::from_parts(parts, body)).await.expect("infallible");
    response.headers().get("x-ratelimit-remaining").map(|value| value.to_str().expect("text").to_owned())
}

#[tokio::test]
async fn addresses_count_by_customer() {
    let rule = Rule::fixed_window("ip", Quota::per_hour(100)).key(key::ip());
    let limiter = Limiter::builder(MemoryStore::new()).rule(rule).build().expect("sound");
    let app = Router::new().route("/", get(|| async {})).layer(RateLimitLayer::new(limiter));
    let remaining = async |address: &str| {
        let mut request = Request::new(Body::empty());
        let address: SocketAddr = address.parse().expect("an address");
        request.extensions_mut().insert(ConnectInfo(address));
        let response = app.clone().oneshot(request).await.expect("infallible");
        response.headers()["x-ratelimit-remaining"].to_str().expect("text").to_owned()
    };
    // Ports do not matter, an IPv4 address inside IPv6 is that address, and IPv6 counts by /64.
    assert_eq!(remaining("192.0.2.1:1").await, "99");
    assert_eq!(remaining("192.0.2.1:2").await, "98");
    assert_eq!(remaining("[::ffff:192.0.2.1]:3").await, "97");
    assert_eq!(remaining("[2001:db8:1:2:aaaa::1]:1").await, "99");
    assert_eq!(remaining("[2001:db8:1:2:bbbb::2]:1").await, "98");
    assert_eq!(remaining("[2001:db8:1:3::1]:1").await, "99");
}

#[tokio::test]
async fn extractors_find_what_they_say() {
    let request = || Request::builder().uri("/users/7?page=2").method("PUT").header("x-tenant", "acme");
    assert!(counted_by(key::header("x-tenant"), request()).await.is_some());
    assert!(counted_by(key::header("x-absent"), request()).await.is_none());
    assert!(counted_by(key::header("x-tenant").and(key::header("x-absent")), request()).await.is_none());
    assert!(counted_by(key::method().and(key::path()), request()).await.is_some());
    assert!(counted_by(key::global(), request()).await.is_some());
    assert!(counted_by(key::given(), request()).await.is_none());
    assert!(counted_by(key::ip(), request()).await.is_none());
    let with_peer = request().extension("192.0.2.1:1".parse::<SocketAddr>().expect("an address"));
    assert!(counted_by(key::ip(), with_peer).await.is_some());
    let texts: [(KeyBy, &[u8]); 6] = [
        (key::header("X-Tenant"), b"acme"),
        (key::method(), b"PUT"),
        (key::path(), b"/users/7"),
        (key::global(), b"all"),
        (key::method().and(key::path()).and(key::header("x-tenant")), b"(PUT,/users/7),acme"),
        (key::header("x-absent").or(key::method()), b"|PUT"),
    ];
    for (key, expected) in texts {
        assert_eq!(key.find_now(&head(request())).map(of), Some(expected.to_vec()));
    }
    let waiting = key::header("x-tenant").and(KeyBy::new_async(async |req| req.method.clone()));
    assert_eq!(waiting.find_now(&head(request())), None);
    assert!(counted_by(waiting, request()).await.is_some());
}

#[tokio::test]
async fn a_route_is_its_pattern_without_the_query() {
    let rule = Rule::fixed_window("route", Quota::per_hour(10)).key(key::route());
    let limiter = Limiter::builder(MemoryStore::new()).rule(rule).build().expect("sound");
    let show = async |decision: sluicegate::Decision| {
        decision.standing("route").map_or(String::new(), |standing| standing.remaining().to_string())
    };
    let app = Router::new()
        .route("/users/{id}", get(show))
        .route("/items/{id}", get(show))
        .layer(RateLimitLayer::new(limiter));
    let ask = async |uri: &str| text(crate::support::app::get(&app, uri).await).await;
    assert_eq!(
        (ask("/users/1").await, ask("/users/2?x=1").await, ask("/items/1").await),
        ("9".into(), "8".into(), "9".into())
    );
}

#[tokio::test]
async fn a_path_parameter_is_what_axum_extracts() {
    let rule = Rule::fixed_window("tenant", Quota::per_hour(10)).key(key::path_param("tenant"));
    let limiter = Limiter::builder(MemoryStore::new()).rule(rule).build().expect("sound");
    let layer = RateLimitLayer::new(limiter.clone());
    // What the layer counts by, and what axum extracts.
    let show = async |params: axum::extract::RawPathParams, head: http::request::Parts| {
        let Some(found) = key::path_param("tenant").find_now(&head) else { panic!("it need not wait") };
        let extracted = params.iter().find(|(name, _)| *name == "tenant").map(|(_, value)| value.to_owned());
        assert_eq!(found, extracted.clone().into_key(), "{}", head.uri);
        extracted.unwrap_or_default()
    };
    let inner = Router::new().route("/{tenant}/items/{id}", get(show)).route("/rest/{*tenant}", get(show));
    let app = Router::new()
        .route("/t/{tenant}", get(show))
        .route("/t/{tenant}/x", get(show))
        .route("/a/{id}/b/{tenant}", get(show))
        .route("/u_{tenant}/y", get(show))
        .route("/{{literal}}/{tenant}", get(show))
        .route("/none/{id}", get(show))
        .nest("/n/{id}", inner.clone().layer(layer.clone()))
        .nest("/m", Router::new().nest("/{id}/k", inner))
        .layer(layer);
    for (uri, expected) in [
        ("/t/acme", "acme"),
        ("/t/acme?tenant=other", "acme"),
        ("/t/acme/x", "acme"),
        ("/t/%61c%6De", "acme"),
        ("/t/a%2Fb", "a/b"),
        ("/t/%7Ba%7D", "{a}"),
        ("/a/1/b/acme", "acme"),
        ("/u_acme/y", "acme"),
        ("/{literal}/acme", "acme"),
        ("/none/1", ""),
        ("/n/1/acme/items/2", "acme"),
        ("/n/1/rest/a/b/c", "a/b/c"),
        ("/m/1/k/acme/items/2", "acme"),
    ] {
        let response = crate::support::app::get(&app, uri).await;
        assert_eq!(response.headers().contains_key("ratelimit"), !expected.is_empty(), "{uri}");
        assert_eq!(text(response).await, expected, "{uri}");
    }
    // However it was written, it is one count.
    let decision = limiter.peek([("tenant", "acme")]).await;
    assert_eq!(decision.standing("tenant").map(|standing| standing.remaining()), Some(1));
    for name in ["", "{tenant}", "a/b", "*rest"] {
        let rule = Rule::gcra("r", Quota::per_second(1)).key(key::path_param(name));
        assert_eq!(rule.check().expect_err(name).field(), "key");
    }
}

/// Any bytes in any place: two extractors put together keep different requests apart, and write what a tuple would.
#[test]
fn composites_of_extractors_are_the_tuples_of_their_keys() {
    let value = || prop::collection::vec((0x20..=0xff_u8).prop_filter("no header has it", |byte| *byte != 0x7f), 0..90);
    let pair = || (value(), value());
    let (name, other) = (key::header("a"), key::header("b"));
    proptest!(cases(1_000), |(one in pair(), two in pair())| {
        let of = |key: &KeyBy, (a, b): &(Vec<u8>, Vec<u8>)| {
            let head = head(Request::builder().header("a", &a[..]).header("b", &b[..]));
            let Some(Found::Key(key)) = key.find_now(&head) else { panic!("no key") };
            key
        };
        let flat = name.clone().and(other.clone());
        let nested = flat.clone().and(flat.clone());
        for key in [&flat, &nested] {
            prop_assert_eq!(of(key, &one) == of(key, &two), one == two);
        }
        prop_assert_eq!(Found::Key(of(&flat, &one)), one.clone().into_key());
        prop_assert_eq!(Found::Key(of(&nested, &one)), (one.clone(), one.clone()).into_key());
        prop_assert!(of(&nested, &one).as_bytes().len() <= 200);
    });
}
