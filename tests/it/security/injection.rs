//! Bytes that mean something to a protocol, a script or a log, through every extractor to a real server: they are a key and
//! nothing else.

use axum::{Router, extract::connect_info::MockConnectInfo, routing::any};
use http::{Method, Request};
use redis::AsyncCommands;
use sluicegate::{
    ManualClock, Quota, RateLimitLayer, Rule,
    key::{self, KeyBy, TrustedProxies},
};

use crate::support::{
    app::ask,
    server::VERSIONS,
    stores::{BEGIN, Backend},
};

/// What a caller writes, raw where bytes may stand raw and percent-encoded where they may not.
const RAW: [&[u8]; 6] = [
    b"'; redis.call('FLUSHALL') --",
    b"\"]] redis.call('SET', 'victim', '0') --[[",
    b"a b\tc",
    b"*1\\r\\n$8\\r\\nFLUSHALL\\r\\n",
    b"\xff\xfe{victim}",
    b"${jndi:x} $(reboot) `reboot` %s%n",
];
const ENCODED: [&str; 5] = [
    "%0d%0a*1%0d%0a$8%0d%0aFLUSHALL%0d%0a",
    "%00%00victim",
    "%27%3b%20return%20redis.call(%27FLUSHALL%27)--",
    "%7bvictim%7d",
    "%22%5d%5d--%5b%5b",
];

fn extractors() -> Vec<(&'static str, KeyBy)> {
    vec![
        ("header", key::header("x-tenant")),
        ("bearer", key::bearer().into()),
        ("api_key", key::api_key("x-key").into()),
        ("cookie", key::cookie("session").into()),
        ("path", key::path()),
        ("path_param", key::path_param("tenant")),
        ("route", key::route()),
        ("method", key::method()),
        ("ip", key::ip().behind(TrustedProxies::hops(1)).into()),
        ("pair", key::header("x-tenant").and(key::path_param("tenant"))),
        ("either", key::header("x-absent").or(key::header("x-tenant"))),
        ("closure", KeyBy::new(|head| head.headers.get("x-tenant").cloned())),
    ]
}

#[tokio::test]
async fn bytes_of_a_caller_are_a_key_and_nothing_else() {
    for version in VERSIONS {
        let backend = Backend::redis(version);
        let mut connection = version.shared().connection().await;
        let victim = format!("{}-victim", backend.namespace);
        let _: () = connection.set(&victim, "untouched").await.expect("set");
        let extractors = extractors();
        let names: Vec<_> = extractors.iter().map(|(name, _)| *name).collect();
        let quota = Quota::per_hour(1_000);
        let rules = extractors.into_iter().map(|(name, key)| Rule::fixed_window(name, quota).key(key));
        let limiter = backend.limiter(&ManualClock::new(BEGIN), rules);
        let layer = RateLimitLayer::new(limiter);
        let peer = MockConnectInfo(std::net::SocketAddr::from(([192, 0, 2, 1], 1)));
        let app = Router::new().route(
            "/t/{tenant}",
            any(|decision: sluicegate::Decision| async move {
                assert!(decision.failure().is_none(), "{:?}", decision.failure());
                let applied: Vec<_> = decision.standings().map(|standing| standing.rule().to_owned()).collect();
                applied.join(" ")
            }),
        );
        let app = app.layer(layer).layer(peer);
        let methods = [Method::GET, Method::from_bytes(b"FLUSHALL|'%*").expect("a token")];
        for raw in RAW {
            for encoded in ENCODED {
                for method in &methods {
                    let cookie = [b"session=", raw].concat();
                    let request = Request::builder()
                        .method(method)
                        .uri(format!("/t/{encoded}"))
                        .header("x-tenant", raw)
                        .header("authorization", [b"Bearer ", raw].concat())
                        .header("x-key", raw)
                        .header("cookie", cookie)
                        .header("x-forwarded-for", raw);
                    let response = ask(&app, request).await;
                    assert_eq!(response.status(), 200);
                    let applied = crate::support::app::text(response).await;
                    for name in ["header", "api_key", "path", "path_param", "route", "method", "ip", "pair", "either"] {
                        assert!(applied.split(' ').any(|rule| rule == name), "{name} applies: {applied}");
                    }
                }
            }
        }
        let left: String = connection.get(&victim).await.expect("it is there");
        assert_eq!(left, "untouched");
        let keys: Vec<Vec<u8>> = connection.keys(format!("{}:*", backend.namespace)).await.expect("names");
        for key in keys {
            let key = String::from_utf8(key).expect("escaped");
            let (_, rule) = key.rsplit_once(':').expect("a rule");
            assert!(names.contains(&rule), "{key}");
            assert!(key.bytes().all(|byte| byte.is_ascii_graphic() && !b"'\"`\\".contains(&byte)), "{key}");
        }
    }
}
