//! What the upstream gets of a request, what clients get when it fails, and both versions of HTTP.

use std::time::Duration;

use axum::{Json, Router, http::HeaderMap, routing::get as route};
use reqwest::Client;
use serde_json::{Value, json};
use sluicegate::{Quota, Rule, key};
use tokio::net::TcpListener;

use super::{Gateway, field, get, json, policy, soon, until};
use crate::support::{
    app::{layer, serve},
    echo,
    server::free_port,
};

/// Answers with the fields that it got, each a list.
async fn fields() -> String {
    let app = Router::new().fallback(|headers: HeaderMap| async move {
        let mut all = serde_json::Map::new();
        for (name, value) in &headers {
            let list = all.entry(name.as_str()).or_insert_with(|| json!([]));
            list.as_array_mut().expect("a list").push(value.to_str().expect("text").into());
        }
        ([("connection", "x-secret"), ("x-secret", "1"), ("keep-alive", "timeout=5"), ("x-kept", "1")], Json(all))
    });
    format!("http://{}", serve(app).await)
}

#[tokio::test]
async fn the_upstream_learns_who_asked_and_callers_cannot_make_it_up() {
    let upstream = fields().await;
    let gateway = Gateway::start(&policy("1000/h"), &["--upstream", &upstream]);
    let ask = async |gateway: &Gateway| {
        let request = Client::new()
            .get(gateway.url("/"))
            .header("host", "api.example")
            .header("x-forwarded-for", "198.51.100.1")
            .header("x-forwarded-proto", "https")
            .header("x-forwarded-host", "front.example")
            .header("connection", "keep-alive, x-only-here")
            .header("x-only-here", "1")
            .header("te", "trailers, deflate")
            .header("proxy-authorization", "secret")
            .header("x-twice", "1")
            .header("x-twice", "2");
        request.send().await.expect("a response")
    };
    let response = ask(&gateway).await;
    assert_eq!(
        (field(&response, "x-kept"), field(&response, "x-secret"), field(&response, "keep-alive")),
        (Some("1"), None, None)
    );
    let seen = json(response).await;
    assert_eq!(seen["host"], json!(["api.example"]));
    assert_eq!(seen["x-forwarded-for"], json!(["127.0.0.1"]));
    assert_eq!(seen["x-forwarded-proto"], json!(["http"]));
    assert_eq!(seen["x-forwarded-host"], json!(["api.example"]));
    assert_eq!(seen["te"], json!(["trailers"]));
    assert_eq!(seen["x-twice"], json!(["1", "2"]));
    assert_eq!(
        (&seen["x-only-here"], &seen["proxy-authorization"], &seen["connection"]),
        (&Value::Null, &Value::Null, &Value::Null)
    );

    // A policy that names proxies says that one stands in front.
    let fronted = format!("{}\n[proxies]\nhops = 1\n", policy("1000/h").replace("global", "ip"));
    let seen = json(ask(&Gateway::start(&fronted, &["--upstream", &upstream])).await).await;
    assert_eq!(seen["x-forwarded-for"], json!(["198.51.100.1, 127.0.0.1"]));
    assert_eq!(seen["x-forwarded-proto"], json!(["https"]));
    assert_eq!(seen["x-forwarded-host"], json!(["front.example"]));
    // Who is none of them, or where none is named, is not believed.
    for proxies in ["trust = [\"203.0.113.0/24\"]", "ipv6_prefix = 56"] {
        let guarded = format!("{}\n[proxies]\n{proxies}\n", policy("1000/h").replace("global", "ip"));
        let seen = json(ask(&Gateway::start(&guarded, &["--upstream", &upstream])).await).await;
        assert_eq!(seen["x-forwarded-for"], json!(["127.0.0.1"]), "{proxies}");
        assert_eq!(seen["x-forwarded-proto"], json!(["http"]), "{proxies}");
    }
}

#[tokio::test]
async fn an_upstream_that_is_down_is_a_502_and_one_that_is_slow_a_504() {
    let upstream = format!("http://127.0.0.1:{}", free_port());
    let gateway = Gateway::start(&policy("1000/h"), &["--upstream", &upstream]);
    let response = get(gateway.url("/")).await;
    assert_eq!(response.status(), 502);
    assert_eq!(field(&response, "x-ratelimit-remaining"), Some("999"), "it counts all the same");
    let problem = json(response).await;
    assert_eq!(problem["detail"], "the upstream cannot be reached");

    // One that says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let upstream = format!("http://{}", silent.local_addr().expect("its address"));
    let gateway = Gateway::start(&policy("1000/h"), &["--upstream", &upstream, "--timeout", "0.2"]);
    let (response, silence) = tokio::join!(soon("a 504", get(gateway.url("/"))), silent.accept());
    assert_eq!(response.status(), 504);
    // One that hangs up.
    drop(silence.expect("a connection"));
    let (response, hung_up) = tokio::join!(soon("a 502", get(gateway.url("/"))), async {
        drop(silent.accept().await.expect("a connection"));
    });
    let () = hung_up;
    assert_eq!(response.status(), 502);
    // It is written before the answer, and read here after it.
    until("a line in the log", async || gateway.log().contains("the upstream did not answer").then_some(())).await;
}

#[tokio::test]
async fn clients_may_speak_http_2() {
    let app = Router::new()
        .route("/", route(|headers: HeaderMap| async move { headers["host"].to_str().expect("text").to_owned() }));
    let upstream = format!("http://{}", serve(app).await);
    let gateway = Gateway::start(&policy("1000/h"), &["--upstream", &upstream]);
    let client = Client::builder().http2_prior_knowledge().timeout(Duration::from_secs(20)).build().expect("a client");
    let response = client.get(gateway.url("/")).send().await.expect("a response");
    assert_eq!((response.status().as_u16(), response.version()), (200, http::Version::HTTP_2));
    assert_eq!(field(&response, "x-ratelimit-remaining"), Some("999"));
    assert_eq!(response.text().await.expect("a body"), gateway.public);
}

#[tokio::test]
async fn grpc_passes_and_is_refused_as_grpc() {
    let free = Rule::gcra("upstream", Quota::per_second(1_000)).key(key::global());
    let upstream = format!("h2c://{}", echo::serve(layer([free])).await);
    let gateway = Gateway::start(&policy("2/h"), &["--upstream", &upstream]);
    let channel = echo::channel(gateway.public.parse().expect("an address")).await;
    assert_eq!(echo::say(channel.clone(), "hello").await.expect("an answer").into_inner().text, "hello");
    let mut words = echo::repeat(channel.clone(), "again").await.expect("an answer").into_inner();
    for _ in 0..3 {
        assert_eq!(words.message().await.expect("no error").expect("a message").text, "again");
    }
    assert_eq!(words.message().await.expect("trailers"), None);
    let refused = echo::say(channel, "too much").await.expect_err("a refusal");
    assert_eq!(refused.code(), tonic::Code::ResourceExhausted, "{refused}");
}
