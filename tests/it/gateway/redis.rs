//! Gateways that count together on Redis, and go on without it.

use serde_json::Value;

use super::{Gateway, field, get, json, policy, until};
use crate::support::{
    cluster::Cluster,
    server::{Server, Version},
    stores::namespace,
};

/// Two gateways that count in the same place, which these arguments name.
async fn share_a_limit(store: [&str; 2]) {
    let namespace = namespace();
    let arguments = [&store[..], &["--namespace", &namespace, "--instances", "2", "--deadline", "20"]].concat();
    let gateways = [Gateway::start(&policy("10/h"), &arguments), Gateway::start(&policy("10/h"), &arguments)];
    // The first request of a process may find no connection yet, and be counted later.
    for gateway in &gateways {
        until("a healthy gateway", async || {
            (json(get(gateway.admin("/-/healthz")).await).await["status"] == "ok").then_some(())
        })
        .await;
    }
    for left in (0..10).rev() {
        let response = get(gateways[left % 2].url("/")).await;
        assert_eq!(response.status(), 200);
        assert_eq!(field(&response, "x-ratelimit-remaining"), Some(&*left.to_string()));
    }
    for gateway in &gateways {
        assert_eq!(get(gateway.url("/")).await.status(), 429);
    }
}

#[tokio::test]
async fn two_gateways_share_a_limit() {
    share_a_limit(["--redis", &Version::Redis7.shared().url()]).await;
}

#[tokio::test]
async fn two_gateways_share_a_limit_on_a_cluster() {
    share_a_limit(["--redis-cluster", &Cluster::shared(Version::Redis7).urls().join(",")]).await;
}

#[tokio::test]
async fn without_redis_it_is_degraded_and_goes_on() {
    let server = Server::start(Version::Valkey9);
    let gateway = Gateway::start(&policy("1000/h"), &["--redis", &server.url(), "--namespace", &namespace()]);
    let health = async || json(get(gateway.admin("/-/healthz")).await).await;
    let with = async |status: &str| {
        until(status, async || Some(health().await).filter(|health| health["status"] == status)).await.0
    };
    with("ok").await;
    let port = server.stop();
    let degraded: Value = with("degraded").await;
    assert!(!degraded["reasons"][0].as_str().expect("a reason").is_empty(), "{degraded}");
    assert_eq!(get(gateway.url("/")).await.status(), 200);
    let _server = Server::start_on(Version::Valkey9, port, &[]);
    with("ok").await;
}
