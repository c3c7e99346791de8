//! Refused gRPC calls, as tonic's client, its types and a bare HTTP/2 client see them.

use std::time::Duration;

use axum::Router;
use http::{HeaderMap, Method, Request, StatusCode};
use proptest::prelude::*;
use sluicegate::{EXPOSED_GRPC_HEADERS, Limiter, OnFailure, Quota, RateLimitLayer, RedisStore, Rule, key};
use tokio::net::TcpStream;
use tonic::{Code, Status, body::Body};
use tonic_types::StatusExt;
use tower::{Layer, ServiceBuilder, ServiceExt};

use crate::support::{
    app::{self, layer, once},
    echo::{Echo, channel, repeat, say, serve},
    server::free_port,
};

fn metadata<'a>(status: &'a Status, name: &str) -> Option<&'a str> {
    status.metadata().get(name).map(|value| value.to_str().expect("text"))
}

async fn refused(layer: RateLimitLayer) -> Status {
    let channel = channel(serve(layer).await).await;
    say(channel.clone(), "first").await.expect("an answer");
    say(channel, "second").await.expect_err("a refusal")
}

#[tokio::test]
async fn a_refused_call_is_told_as_grpc_has_it() {
    let status = refused(layer([once("50% of it")])).await;
    assert_eq!(status.code(), Code::ResourceExhausted);
    let seconds: u64 = metadata(&status, "retry-after").expect("seconds").parse().expect("a number");
    assert!((60..=65).contains(&seconds), "{seconds}");
    assert_eq!(status.message(), format!("The quota \"50% of it\" is used up; retry in {seconds} seconds."));
    assert_eq!(metadata(&status, "grpc-retry-pushback-ms"), Some(&*format!("{seconds}000")));
    assert_eq!(metadata(&status, "ratelimit-policy"), Some(r#""50% of it";q=1;w=60"#));
    assert_eq!(metadata(&status, "cache-control"), Some("no-store"));
    assert!(status.details().is_empty(), "details come where they are asked for");
}

/// A closure that answers in JSON does not reach callers who cannot read it.
#[tokio::test]
async fn also_where_http_requests_get_something_else() {
    let layer = layer([once("r")]).on_refused(|refusal| http::Response::new(refusal.to_string()));
    assert_eq!(refused(layer).await.code(), Code::ResourceExhausted);
}

#[tokio::test]
async fn details_are_those_of_google_rpc() {
    let bucket = Rule::token_bucket("bucket", Quota::per_minute(60).burst(1)).key(key::global());
    let wide = Rule::gcra("wide", Quota::per_minute(100)).key(key::global());
    let status = refused(layer([once("tight"), wide, bucket]).grpc_details(true)).await;
    let details = status.get_error_details();
    let seconds: u64 = metadata(&status, "retry-after").expect("seconds").parse().expect("a number");
    let retry = details.retry_info().expect("a RetryInfo").retry_delay;
    assert_eq!(retry, Some(Duration::from_secs(seconds)));
    let violations = &details.quota_failure().expect("a QuotaFailure").violations;
    let told: Vec<_> = violations
        .iter()
        .map(|violation| (&*violation.subject, &*violation.description, &*violation.quota_id, violation.quota_value))
        .collect();
    assert_eq!(told, [("tight", "1 per 60s", "tight", 1), ("bucket", "60 per 60s, burst 1", "bucket", 1)]);
    // The status inside agrees with the one outside.
    let inside = <tonic_types::pb::Status as prost::Message>::decode(status.details()).expect("a google.rpc.Status");
    assert_eq!((inside.code, &*inside.message), (8, status.message()));
}

#[tokio::test]
async fn details_stay_small_whatever_the_rules() {
    let names: Vec<_> = (0..64).map(|number| format!("{number:x<64}")).collect();
    let status = refused(layer(names.iter().map(|name| once(name))).grpc_details(true)).await;
    assert!(status.message().contains("and 61 more are used up"), "{}", status.message());
    assert_eq!(status.get_error_details().quota_failure().expect("a QuotaFailure").violations.len(), 8);
    assert!(status.details().len() < 2_048, "{}", status.details().len());
}

#[tokio::test]
async fn a_call_that_can_never_fit_is_not_to_be_retried() {
    let channel = channel(serve(layer([once("small").cost(2)]).grpc_details(true)).await).await;
    let status = say(channel, "too much").await.expect_err("a refusal");
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert_eq!(metadata(&status, "grpc-retry-pushback-ms"), Some("-1"));
    assert_eq!(metadata(&status, "retry-after"), None);
    assert!(status.message().contains("retrying does not help"), "{}", status.message());
    let details = status.get_error_details();
    assert!(details.retry_info().is_none());
    assert_eq!(details.quota_failure().expect("a QuotaFailure").violations.len(), 1);
}

#[tokio::test]
async fn where_the_store_gives_no_answer_the_service_is_unavailable() {
    let store = RedisStore::connect(format!("redis://127.0.0.1:{}", free_port())).expect("a sound address");
    let limiter = Limiter::builder(store).rule(once("r").on_failure(OnFailure::Refuse)).build().expect("sound");
    let layer = RateLimitLayer::new(limiter).grpc_details(true);
    let status = say(channel(serve(layer).await).await, "anyone?").await.expect_err("a refusal");
    assert_eq!(status.code(), Code::Unavailable);
    let seconds: u64 = metadata(&status, "retry-after").expect("seconds").parse().expect("a number");
    assert_eq!(metadata(&status, "grpc-retry-pushback-ms"), Some(&*format!("{seconds}000")));
    let details = status.get_error_details();
    assert_eq!(details.retry_info().expect("a RetryInfo").retry_delay, Some(Duration::from_secs(seconds)));
    assert!(details.quota_failure().is_none());
}

#[tokio::test]
async fn a_key_closure_refuses_with_the_code_of_its_status() {
    for (status, code) in [
        (StatusCode::UNAUTHORIZED, Code::Unauthenticated),
        (StatusCode::FORBIDDEN, Code::PermissionDenied),
        (StatusCode::BAD_REQUEST, Code::InvalidArgument),
        (StatusCode::INTERNAL_SERVER_ERROR, Code::Internal),
    ] {
        let rule = Rule::gcra("r", Quota::per_minute(1)).key_by(move |_| Err::<u8, _>(status));
        let channel = channel(serve(layer([rule]).grpc_details(true)).await).await;
        let refusal = say(channel, "hello").await.expect_err("a refusal");
        assert_eq!((refusal.code(), metadata(&refusal, "grpc-retry-pushback-ms")), (code, None));
        assert!(refusal.details().is_empty(), "a bare status needs no details");
    }
}

#[tokio::test]
async fn answered_calls_have_the_fields_in_their_headers_and_not_in_their_trailers() {
    let address = serve(layer([Rule::gcra("r", Quota::per_minute(9)).key(key::global())])).await;
    let response = repeat(channel(address).await, "hello").await.expect("an answer");
    for name in ["ratelimit", "ratelimit-policy", "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"] {
        assert!(response.metadata().contains_key(name), "{name}");
    }
    let mut stream = response.into_inner();
    let mut messages = 0;
    while let Some(words) = stream.message().await.expect("a message") {
        assert_eq!(words.text, "hello");
        messages += 1;
    }
    assert_eq!(messages, 3);
    let trailers = stream.trailers().await.expect("trailers").expect("a status").into_headers();
    assert!(trailers.keys().all(|name| !name.as_str().contains("ratelimit")), "{trailers:?}");
}

/// What comes back over HTTP/2, and whether its headers ended the stream.
async fn over_h2(address: std::net::SocketAddr, method: Method, content_type: &str) -> (StatusCode, HeaderMap, bool) {
    let stream = TcpStream::connect(address).await.expect("a connection");
    let (client, connection) = h2::client::handshake(stream).await.expect("HTTP/2");
    let connection = tokio::spawn(connection);
    let mut client = client.ready().await.expect("a ready client");
    let request = Request::builder()
        .method(method)
        .uri(format!("http://{address}/test.Echo/Say"))
        .header("content-type", content_type)
        .body(())
        .expect("a request");
    let (response, _) = client.send_request(request, true).expect("sent");
    let (head, body) = response.await.expect("a response").into_parts();
    let ended = body.is_end_stream();
    connection.abort();
    (head.status, head.headers, ended)
}

/// A body that ends in a frame of its own, even an empty one, makes clients take the refusal for a broken answer.
#[tokio::test]
async fn the_headers_of_a_refusal_end_the_stream() {
    let limited = || layer([once("r").cost(2)]);
    let router = Router::new().route_service("/test.Echo/{method}", Echo).layer(limited());
    for address in [serve(limited()).await, app::serve(router).await] {
        for content_type in ["application/grpc", "application/grpc+proto", "APPLICATION/GRPC;x=y"] {
            let (status, headers, ended) = over_h2(address, Method::POST, content_type).await;
            assert_eq!((status, ended), (StatusCode::OK, true), "{content_type}");
            assert_eq!(headers["grpc-status"], "8");
            assert_eq!(headers["content-type"], "application/grpc");
        }
        // Neither has a body; anything else is a request like others.
        let (status, headers, ended) = over_h2(address, Method::POST, "application/grpcs").await;
        assert_eq!((status, ended), (StatusCode::TOO_MANY_REQUESTS, false));
        assert!(!headers.contains_key("grpc-status"));
        let (status, headers, ended) = over_h2(address, Method::HEAD, "text/plain").await;
        assert_eq!((status, ended), (StatusCode::TOO_MANY_REQUESTS, true));
        assert_ne!(headers["content-length"], "0");
    }
}

#[tokio::test]
async fn grpc_web_is_answered_in_its_own_content_type() {
    let app = Router::new().route_service("/test.Echo/{method}", Echo).layer(layer([once("r").cost(2)]));
    let address = app::serve(app).await;
    for content_type in ["application/grpc-web", "application/grpc-web+proto", "application/grpc-web-text+proto"] {
        let request = reqwest::Client::new().post(format!("http://{address}/test.Echo/Say"));
        let response = request.header("content-type", content_type).body("AAAA").send().await.expect("a response");
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], content_type);
        assert_eq!(response.headers()["grpc-status"], "8");
        let shown = |name| EXPOSED_GRPC_HEADERS.contains(name);
        assert!(response.headers().keys().filter(|name| name.as_str().starts_with("grpc-")).all(shown));
        assert_eq!(response.bytes().await.expect("a body").len(), 0);
    }
}

/// The limit goes outside the layer that translates gRPC-Web, or inside: clients see the same.
#[tokio::test]
async fn a_grpc_web_client_understands_it_outside_and_inside_the_translation() {
    let web = tonic_web::GrpcWebLayer::new;
    let outside = ServiceBuilder::new().layer(layer([once("r")])).layer(web()).service(Echo);
    let client = tonic_web::GrpcWebClientLayer::new().layer(outside);
    assert_eq!(say(client.clone(), "first").await.expect("an answer").into_inner().text, "first");
    assert_eq!(say(client, "second").await.expect_err("a refusal").code(), Code::ResourceExhausted);

    let inside = ServiceBuilder::new().layer(web()).layer(layer([once("r")])).service(Echo);
    let client = tonic_web::GrpcWebClientLayer::new().layer(inside);
    assert_eq!(say(client.clone(), "first").await.expect("an answer").into_inner().text, "first");
    assert_eq!(say(client, "second").await.expect_err("a refusal").code(), Code::ResourceExhausted);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_message_and_detail_is_read_back(name in "[ -~]{1,64}", amount in 1u64..1 << 32, window in 1u64..4_000_000) {
        let rule = Rule::fixed_window(&name, Quota::per(amount, Duration::from_secs(window))).key(key::global()).cost(1 << 32);
        let service = layer([rule]).grpc_details(true).layer(Echo);
        let request = Request::post("/").header("content-type", "application/grpc").body(Body::empty()).expect("a request");
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let response = runtime.block_on(service.oneshot(request)).expect("infallible");
        let status = Status::from_header_map(response.headers()).expect("a status");
        let needle = format!("\"{name}\"");
        prop_assert!(status.message().contains(&needle), "{}", status.message());
        let details = status.get_error_details();
        let violation = details.quota_failure().and_then(|failure| failure.violations.first()).expect("a violation");
        prop_assert_eq!((&*violation.quota_id, violation.quota_value), (&*name, amount as i64));
    }
}
