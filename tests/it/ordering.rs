//! The page on ordering, claim by claim: each order that it recommends, and what the other order would do.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    extract::Request,
    middleware::{Next, from_fn},
    response::IntoResponse,
    routing::{any, get, post},
};
use http::{Response, StatusCode, header};
use sluicegate::{Limiter, MemoryStore, Quota, RateLimitLayer, Rule, key};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::Semaphore,
};
use tower::{
    ServiceBuilder, ServiceExt,
    limit::{ConcurrencyLimitLayer, GlobalConcurrencyLimitLayer},
    service_fn,
};
use tower_http::{
    compression::CompressionLayer, limit::RequestBodyLimitLayer, timeout::TimeoutLayer, trace::TraceLayer,
};

use crate::support::app::{ask, field, get as fetch, serve, text};

fn layer(rule: Rule) -> RateLimitLayer {
    RateLimitLayer::new(Limiter::builder(MemoryStore::new()).rule(rule).build().expect("sound"))
}

fn limit(amount: u64) -> RateLimitLayer {
    layer(Rule::gcra("r", Quota::per_hour(amount)).key(key::global()))
}

fn app() -> Router {
    Router::new().route("/", get(|| async { "hello, ".repeat(100) }))
}

async fn statuses<const N: usize>(app: &Router) -> [u16; N] {
    let mut statuses = [0; N];
    for status in &mut statuses {
        *status = fetch(app, "/").await.status().as_u16();
    }
    statuses
}

fn has_fields(response: &Response<Body>) -> bool {
    response.headers().contains_key("ratelimit")
}

#[tokio::test]
async fn trace_outside_sees_refusals() {
    let counted = |count: &Arc<AtomicU32>| {
        let count = Arc::clone(count);
        TraceLayer::new_for_http().on_response(move |_: &Response<_>, _: Duration, _: &tracing::Span| {
            count.fetch_add(1, Ordering::SeqCst);
        })
    };
    let (outside, inside) = (Arc::default(), Arc::default());
    let app = app().layer(counted(&inside)).layer(limit(1)).layer(counted(&outside));
    assert_eq!(statuses(&app).await, [200, 429, 429]);
    assert_eq!((outside.load(Ordering::SeqCst), inside.load(Ordering::SeqCst)), (3, 1));
}

#[derive(Clone)]
struct User(String);

/// Who guesses is asked for a look-up each time.
fn authentication(look_ups: &Arc<AtomicU32>) -> impl Fn(Router) -> Router {
    let look_ups = Arc::clone(look_ups);
    move |app: Router| {
        let look_ups = Arc::clone(&look_ups);
        app.layer(from_fn(move |mut request: Request, next: Next| {
            look_ups.fetch_add(1, Ordering::SeqCst);
            async move {
                let value = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
                let Some(user) = value.and_then(|value| value.strip_prefix("right ")).map(|user| User(user.into()))
                else {
                    return StatusCode::UNAUTHORIZED.into_response();
                };
                request.extensions_mut().insert(user);
                next.run(request).await
            }
        }))
    }
}

fn by_user(amount: u64) -> RateLimitLayer {
    let user = |head: &http::request::Parts| head.extensions.get::<User>().map(|user| user.0.clone());
    layer(Rule::gcra("per-user", Quota::per_hour(amount)).key_by(user))
}

#[tokio::test]
async fn a_limit_outside_authentication_bounds_guessing() {
    let look_ups = Arc::default();
    let app = authentication(&look_ups)(app()).layer(limit(3));
    assert_eq!(statuses(&app).await, [401, 401, 401, 429, 429]);
    assert_eq!(look_ups.load(Ordering::SeqCst), 3, "a refused guess costs no look-up");
    let look_ups = Arc::default();
    let app = authentication(&look_ups)(self::app().layer(limit(3)));
    assert_eq!(statuses(&app).await, [401; 5], "inside, nothing bounds it");
    assert_eq!(look_ups.load(Ordering::SeqCst), 5);
}

#[tokio::test]
async fn a_limit_by_user_inside_authentication_counts_users_and_nobody_else() {
    let app = authentication(&Arc::default())(app().layer(by_user(1)));
    let with = async |value: &str| ask(&app, Request::builder().uri("/").header("authorization", value)).await;
    for _ in 0..5 {
        assert_eq!(with("wrong alice").await.status(), 401);
    }
    let first = with("right alice").await;
    assert_eq!((first.status().as_u16(), field(&first, "x-ratelimit-remaining")), (200, Some("0")));
    assert_eq!((with("right alice").await.status().as_u16(), with("right bob").await.status().as_u16()), (429, 200));
}

#[tokio::test]
async fn a_limit_by_user_outside_authentication_does_not_apply() {
    let app = authentication(&Arc::default())(app()).layer(by_user(1));
    for _ in 0..5 {
        let response = ask(&app, Request::builder().uri("/").header("authorization", "right alice")).await;
        assert_eq!((response.status().as_u16(), has_fields(&response)), (200, false));
    }
}

#[tokio::test(start_paused = true)]
async fn a_timeout_inside_leaves_the_fields_on_its_response() {
    let timeout = || TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, Duration::from_secs(5));
    let slow = || Router::new().route("/", get(|| async { std::future::pending::<&str>().await }));
    let inside = slow().layer(timeout()).layer(limit(1));
    let response = fetch(&inside, "/").await;
    assert_eq!((response.status().as_u16(), has_fields(&response)), (504, true));
    assert_eq!(fetch(&inside, "/").await.status(), 429, "what timed out was charged");
    let outside = slow().layer(limit(1)).layer(timeout());
    let response = fetch(&outside, "/").await;
    assert_eq!((response.status().as_u16(), has_fields(&response)), (504, false));
    assert_eq!(fetch(&outside, "/").await.status(), 429, "here too");
}

#[tokio::test]
async fn compression_inside_leaves_refusals_alone() {
    let zipped = async |app: &Router, content_type: &str| {
        let method = if content_type == "application/grpc" { "POST" } else { "GET" };
        let request = Request::builder().method(method).uri("/").header("accept-encoding", "gzip");
        let request = request.header("content-type", content_type);
        let response = ask(app, request).await;
        let encoding = field(&response, "content-encoding").map(str::to_owned);
        (response.status().as_u16(), encoding, http_body::Body::is_end_stream(response.body()))
    };
    let gzip = || Some("gzip".to_owned());
    let inside = app().layer(CompressionLayer::new()).layer(limit(1));
    assert_eq!(zipped(&inside, "text/plain").await, (200, gzip(), false));
    assert_eq!(zipped(&inside, "text/plain").await, (429, None, false));
    let outside = app().layer(limit(1)).layer(CompressionLayer::new());
    assert_eq!(zipped(&outside, "text/plain").await, (200, gzip(), false));
    assert_eq!(zipped(&outside, "text/plain").await, (429, gzip(), false));
    // To gRPC calls the refusal is the same in both orders.
    assert_eq!(zipped(&inside, "application/grpc").await, (200, None, true));
    assert_eq!(zipped(&outside, "application/grpc").await, (200, None, true));
}

#[tokio::test]
async fn a_body_limit_inside_charges_for_what_is_too_large() {
    let upload = || Router::new().route("/", post(|body: String| async move { body }));
    let large = async |app: &Router| {
        let request = Request::builder().method("POST").uri("/").header("content-length", "100");
        let response = ask(app, request).await;
        (response.status().as_u16(), has_fields(&response))
    };
    let inside = upload().layer(RequestBodyLimitLayer::new(10)).layer(limit(1));
    assert_eq!((large(&inside).await, large(&inside).await), ((413, true), (429, true)));
    let outside = upload().layer(limit(1)).layer(RequestBodyLimitLayer::new(10));
    assert_eq!((large(&outside).await, large(&outside).await), ((413, false), (413, false)));
}

/// The answer to a request that asks before it sends its body, up to the first empty line.
async fn with_expectation(address: std::net::SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    let head = "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\nexpect: 100-continue\r\n\r\n";
    stream.write_all(head.as_bytes()).await.expect("written");
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(stream.read_u8().await.expect("an answer"));
    }
    String::from_utf8(answer).expect("text")
}

#[tokio::test]
async fn the_body_of_a_refused_request_is_not_asked_for() {
    let address = serve(Router::new().route("/", post(|body: String| async move { body })).layer(limit(1))).await;
    assert!(with_expectation(address).await.starts_with("HTTP/1.1 100 "));
    assert!(with_expectation(address).await.starts_with("HTTP/1.1 429 "));
}

/// An app whose handlers run until they are let go.
fn held() -> (Arc<Semaphore>, Arc<Semaphore>, Router) {
    let (running, release) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let (arrive, leave) = (Arc::clone(&running), Arc::clone(&release));
    let app = Router::new().route(
        "/",
        get(move || async move {
            arrive.add_permits(1);
            let _permit = leave.acquire().await;
            "ok"
        }),
    );
    (running, release, app)
}

#[tokio::test]
async fn a_refusal_does_not_wait_for_a_concurrency_limit_layered_before_it() {
    let (running, release, app) = held();
    let app = app.layer(GlobalConcurrencyLimitLayer::new(1)).layer(limit(1));
    let first = tokio::spawn(app.clone().oneshot(Request::new(Body::empty())));
    running.acquire().await.expect("open").forget();
    // The only place is taken, and the refusal needs none.
    assert_eq!(fetch(&app, "/").await.status(), 429);
    release.add_permits(1);
    assert_eq!(first.await.expect("no panic").expect("infallible").status(), 200);
}

/// In one `ServiceBuilder` a service is ready when everything inside it is.
#[tokio::test]
async fn in_one_stack_it_waits_for_its_place_and_is_judged_then() {
    let (running, release, app) = held();
    let app = app.layer(ServiceBuilder::new().layer(limit(1)).layer(GlobalConcurrencyLimitLayer::new(1)));
    let first = tokio::spawn(app.clone().oneshot(Request::new(Body::empty())));
    running.acquire().await.expect("open").forget();
    let mut second = Box::pin(fetch(&app, "/"));
    tokio::select! {
        biased;
        _ = &mut second => panic!("it did not wait"),
        () = tokio::task::yield_now() => {}
    }
    release.add_permits(1);
    assert_eq!(first.await.expect("no panic").expect("infallible").status(), 200);
    assert_eq!(second.await.status(), 429);
}

#[tokio::test]
async fn a_concurrency_limit_that_is_not_global_is_each_routes_own() {
    let (running, release, app) = held();
    let app: Router = app.route("/other", get(|| async { "ok" })).layer(ConcurrencyLimitLayer::new(1)).with_state(());
    let first = tokio::spawn(app.clone().oneshot(Request::new(Body::empty())));
    running.acquire().await.expect("open").forget();
    assert_eq!(fetch(&app, "/other").await.status(), 200);
    release.add_permits(1);
    assert_eq!(first.await.expect("no panic").expect("infallible").status(), 200);
}

#[tokio::test]
async fn layer_limits_what_matches_no_route_and_route_layer_does_not() {
    let around = app().layer(limit(1));
    let missing = async |app: &Router| fetch(app, "/missing").await.status().as_u16();
    assert_eq!((missing(&around).await, missing(&around).await), (404, 429));
    let routes = app().route_layer(limit(1));
    assert_eq!((missing(&routes).await, missing(&routes).await), (404, 404));
    // By the matched route, either way.
    let by_route = || layer(Rule::gcra("r", Quota::per_hour(1)).key(key::route()));
    let items = || Router::new().route("/items/{id}", any(|| async { "ok" }));
    for app in [items().layer(by_route()), items().route_layer(by_route())] {
        let (one, two) = (fetch(&app, "/items/1").await.status(), fetch(&app, "/items/2").await.status());
        assert_eq!((one.as_u16(), two.as_u16()), (200, 429));
    }
}

/// Layers outside may make responses of their own of the body type.
#[tokio::test]
async fn around_any_service_of_tower() {
    let inner = service_fn(async |_: Request| Ok::<_, Infallible>(Response::new(Body::from("ok"))));
    let service = ServiceBuilder::new()
        .layer(TraceLayer::new_for_http())
        .layer(CompressionLayer::new())
        .layer(limit(1))
        .layer(TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, Duration::from_secs(5)))
        .service(inner);
    let app = Router::new().fallback_service(service);
    assert_eq!(text(fetch(&app, "/").await).await, "ok");
    assert_eq!(fetch(&app, "/").await.status(), 429);
}
