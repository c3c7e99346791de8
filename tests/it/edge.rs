//! The layer among other layers: readiness, bodies, errors, refusals, nesting.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    task::{Context, Poll, Waker},
};

use axum::{Extension, Router, body::Body, http::Request, routing::get};
use bytes::Buf;
use http::{Response, StatusCode};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use sluicegate::{
    Clock, Decision, Limiter, ManualClock, MemoryStore, Observer, OnFailure, Quota, RateLimitLayer, RedisStore,
    ResponseBody, Rule, key,
};
use tower::{Layer, Service, ServiceBuilder, ServiceExt, limit::ConcurrencyLimitLayer, service_fn};

use crate::support::{
    app::{ask, field, get as fetch, serve, text},
    server::free_port,
    stores::{BEGIN, every_store},
};

fn limiter(rule: Rule) -> Limiter {
    Limiter::builder(MemoryStore::new()).rule(rule).build().expect("a sound rule")
}

fn per_minute(amount: u64) -> Rule {
    Rule::fixed_window("all", Quota::per_minute(amount)).from_first_request().key(key::global())
}

fn app(layer: RateLimitLayer) -> Router {
    Router::new().route("/", get(|| async { "ok" })).layer(layer)
}

/// A layer and its type can stand in an application's state.
struct State {
    _layer: RateLimitLayer,
    _limiter: Limiter,
}

#[test]
fn the_types_have_short_names_and_are_shared() {
    fn shared<T: Clone + Send + Sync + 'static>(_: &T) {}
    let limiter = limiter(per_minute(1));
    let layer = RateLimitLayer::new(limiter.clone());
    shared(&limiter);
    shared(&layer);
    let _ = State { _layer: layer, _limiter: limiter };
}

/// A middleware that clones its inner service and calls the clone, which nobody has polled ready, makes a concurrency limit
/// right inside it panic.
#[tokio::test]
async fn the_instance_that_was_polled_ready_is_called() {
    for backend in every_store() {
        let limiter = backend.limiter(&ManualClock::new(BEGIN), [per_minute(1_000)]);
        let mut service = ServiceBuilder::new()
            .layer(RateLimitLayer::new(limiter))
            .layer(ConcurrencyLimitLayer::new(1))
            .service(service_fn(async |_: Request<Body>| Ok::<_, Infallible>(Response::new(Body::empty()))));
        for _ in 0..20 {
            let response =
                service.ready().await.expect("ready").call(Request::new(Body::empty())).await.expect("infallible");
            assert_eq!(response.status(), StatusCode::OK, "{}", backend.name);
        }
    }
}

#[tokio::test]
async fn the_inner_service_is_called_only_after_the_verdict() {
    for backend in every_store() {
        let calls = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&calls);
        let inner = service_fn(move |_: Request<Body>| {
            counted.fetch_add(1, Ordering::SeqCst);
            async { Ok::<_, Infallible>(Response::new(Body::empty())) }
        });
        let limiter = backend.limiter(&ManualClock::new(BEGIN), [per_minute(2)]);
        let service = RateLimitLayer::new(limiter).layer(inner);
        let mut statuses = Vec::new();
        for _ in 0..4 {
            statuses.push(
                service.clone().oneshot(Request::new(Body::empty())).await.expect("infallible").status().as_u16(),
            );
        }
        assert_eq!(statuses, [200, 200, 429, 429], "{}", backend.name);
        assert_eq!(calls.load(Ordering::SeqCst), 2, "{}", backend.name);
    }
}

/// A body of odd data and its own error, which neither boxes nor bounds must touch.
struct OddBody(Option<std::collections::VecDeque<u8>>);

#[derive(Debug, PartialEq)]
struct OddError;

impl http_body::Body for OddBody {
    type Data = std::collections::VecDeque<u8>;
    type Error = OddError;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Self::Data>, OddError>>> {
        Poll::Ready(self.0.take().map(|data| Ok(Frame::data(data))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.as_ref().map_or(0, |data| data.remaining() as u64))
    }
}

#[tokio::test]
async fn any_body_and_any_error_pass_through() {
    let inner = service_fn(async |request: Request<()>| match request.uri().path() {
        "/fails" => Err(OddError),
        _ => Ok(Response::new(OddBody(Some(b"odd".iter().copied().collect())))),
    });
    let service = RateLimitLayer::new(limiter(per_minute(9))).layer(inner);
    let response = service.clone().oneshot(Request::new(())).await.expect("a response");
    assert_eq!(http_body::Body::size_hint(response.body()).exact(), Some(3));
    assert_eq!(response.into_body().collect().await.expect("data").to_bytes(), "odd");
    let failing = Request::builder().uri("/fails").body(()).expect("a request");
    assert_eq!(service.oneshot(failing).await.err(), Some(OddError));
}

#[tokio::test]
async fn a_refusal_explains_itself() {
    let clock = ManualClock::new(BEGIN);
    let rule = Rule::token_bucket(r#"per "user" \ 1"#, Quota::per_minute(60).burst(1)).key(key::global());
    let limiter = Limiter::builder(MemoryStore::new()).clock(Clock::manual(clock)).rule(rule).build().expect("sound");
    let app = app(RateLimitLayer::new(limiter).jitter(false));
    assert_eq!(fetch(&app, "/").await.status(), 200);
    let response = fetch(&app, "/").await;
    assert_eq!(response.status(), 429);
    assert_eq!(field(&response, "content-type"), Some("application/problem+json"));
    assert_eq!(field(&response, "cache-control"), Some("no-store"));
    assert_eq!(field(&response, "retry-after"), Some("1"));
    assert_eq!(field(&response, "x-ratelimit-remaining"), Some("0"));
    let problem: serde_json::Value = serde_json::from_str(&text(response).await).expect("JSON");
    assert_eq!(problem["status"], 429);
    assert_eq!(problem["violated-policies"], serde_json::json!([r#"per "user" \ 1"#]));
    assert!(problem["type"].as_str().is_some_and(|kind| kind.ends_with("#quota-exceeded")));
}

#[tokio::test]
async fn a_cost_that_can_never_fit_gets_no_retry_after() {
    let app = app(RateLimitLayer::new(limiter(per_minute(5).cost(6))));
    let response = fetch(&app, "/").await;
    assert_eq!((response.status().as_u16(), field(&response, "retry-after")), (429, None));
    assert!(text(response).await.contains("retrying does not help"));
}

#[tokio::test]
async fn head_is_refused_with_the_same_headers_and_no_body() {
    let app = app(RateLimitLayer::new(limiter(per_minute(1))).jitter(false));
    fetch(&app, "/").await;
    let with_body = fetch(&app, "/").await;
    let head = ask(&app, Request::builder().method("HEAD").uri("/")).await;
    assert_eq!(head.status(), 429);
    for name in ["content-type", "retry-after", "ratelimit", "ratelimit-policy"] {
        assert_eq!(field(&head, name), field(&with_body, name), "{name}");
    }
    assert_eq!(field(&head, "content-length"), Some(text(with_body).await.len().to_string().as_str()));
    assert_eq!(text(head).await, "");
}

#[tokio::test]
async fn preflight_is_not_charged() {
    let app = app(RateLimitLayer::new(limiter(per_minute(1))));
    for _ in 0..5 {
        let preflight = Request::builder()
            .method("OPTIONS")
            .uri("/")
            .header("origin", "https://a.example")
            .header("access-control-request-method", "GET");
        assert_eq!(ask(&app, preflight).await.status(), 405);
    }
    assert_eq!(fetch(&app, "/").await.status(), 200);
    // An OPTIONS request that is no preflight is a request.
    assert_eq!(ask(&app, Request::builder().method("OPTIONS").uri("/")).await.status(), 429);
}

#[tokio::test]
async fn one_limiter_layered_twice_counts_once() {
    let limiter = limiter(per_minute(3));
    let app = app(RateLimitLayer::new(limiter.clone())).layer(RateLimitLayer::new(limiter));
    let mut statuses = Vec::new();
    for _ in 0..4 {
        statuses.push(fetch(&app, "/").await.status().as_u16());
    }
    assert_eq!(statuses, [200, 200, 200, 429]);
}

#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<Decision>>>);

impl Observer for Kept {
    fn decided(&self, decision: &Decision) {
        self.0.lock().expect("no panic").push(decision.clone());
    }
}

#[tokio::test]
async fn also_with_another_limiter_in_between() {
    // The one in between has an observer that keeps every decision.
    let kept = Kept::default();
    let builder = Limiter::builder(MemoryStore::new()).observer(kept.clone());
    let (one, other) = (limiter(per_minute(3)), builder.rule(per_minute(100)).build().expect("sound"));
    let app = app(RateLimitLayer::new(one.clone())).layer(RateLimitLayer::new(other)).layer(RateLimitLayer::new(one));
    let mut statuses = Vec::new();
    for _ in 0..4 {
        statuses.push(fetch(&app, "/").await.status().as_u16());
    }
    assert_eq!(statuses, [200, 200, 200, 429]);
}

#[tokio::test]
async fn a_key_closure_may_refuse_and_async_keys_wait() {
    let rule = Rule::gcra("u", Quota::per_minute(1)).key_by_async(async |req| {
        tokio::task::yield_now().await;
        req.headers.get("x-user").cloned().ok_or(StatusCode::UNAUTHORIZED)
    });
    let app = app(RateLimitLayer::new(limiter(rule)));
    let as_user =
        async |user: &str| ask(&app, Request::builder().uri("/").header("x-user", user)).await.status().as_u16();
    assert_eq!(fetch(&app, "/").await.status(), 401);
    assert_eq!((as_user("a").await, as_user("a").await, as_user("b").await), (200, 429, 200));
}

#[tokio::test]
async fn a_rule_without_a_key_does_not_apply_and_shows_no_fields() {
    let app = app(RateLimitLayer::new(limiter(Rule::gcra("u", Quota::per_minute(1)).key(key::header("x-user")))));
    for _ in 0..3 {
        let response = fetch(&app, "/").await;
        assert_eq!((response.status().as_u16(), field(&response, "ratelimit")), (200, None));
    }
}

#[tokio::test]
async fn handlers_read_the_decision() {
    let remaining = |decision: &Decision| decision.standing("all").expect("it applied").remaining().to_string();
    let app = Router::new()
        .route("/extract", get(async move |decision: Decision| remaining(&decision)))
        .route("/extension", get(async move |Extension(decision): Extension<Decision>| remaining(&decision)))
        .layer(RateLimitLayer::new(limiter(per_minute(5))))
        .route("/outside", get(async |_: Decision| "unreachable"));
    assert_eq!(text(fetch(&app, "/extract").await).await, "4");
    assert_eq!(text(fetch(&app, "/extension").await).await, "3");
    let outside = fetch(&app, "/outside").await;
    assert_eq!(outside.status(), 500);
    assert!(text(outside).await.contains("RateLimitLayer"));
}

#[tokio::test]
async fn when_the_store_is_down_requests_pass_or_are_refused_as_told() {
    let url = format!("redis://127.0.0.1:{}", free_port());
    let limiter = |on_failure| {
        let store = RedisStore::connect(&*url).expect("a sound address");
        Limiter::builder(store).rule(per_minute(1)).on_failure(on_failure).build().expect("a sound rule")
    };
    let open = app(RateLimitLayer::new(limiter(OnFailure::Allow)));
    for _ in 0..3 {
        let response = fetch(&open, "/").await;
        assert_eq!((response.status().as_u16(), field(&response, "ratelimit")), (200, None));
    }
    let closed = app(RateLimitLayer::new(limiter(OnFailure::Refuse)).jitter(false));
    let response = fetch(&closed, "/").await;
    assert_eq!((response.status().as_u16(), field(&response, "retry-after")), (503, Some("1")));
    assert_eq!(field(&response, "cache-control"), Some("no-store"));
    let problem: serde_json::Value = serde_json::from_str(&text(response).await).expect("JSON");
    assert_eq!(problem["status"], 503);
    assert!(problem["type"].as_str().is_some_and(|kind| kind.ends_with("#temporary-reduced-capacity")));
}

/// A slow handler must not hold what the next request needs.
#[tokio::test]
async fn no_connection_is_held_while_a_handler_runs() {
    for backend in every_store() {
        let limiter = backend.limiter(&ManualClock::new(BEGIN), [per_minute(1_000)]);
        let (running, released) = (Arc::new(tokio::sync::Semaphore::new(0)), Arc::new(tokio::sync::Semaphore::new(0)));
        let (arrive, leave) = (Arc::clone(&running), Arc::clone(&released));
        let inner = service_fn(move |_: Request<Body>| {
            let (arrive, leave) = (Arc::clone(&arrive), Arc::clone(&leave));
            async move {
                arrive.add_permits(1);
                let _permit = leave.acquire().await;
                Ok::<_, Infallible>(Response::new(Body::empty()))
            }
        });
        let service = RateLimitLayer::new(limiter).layer(inner);
        let requests: Vec<_> =
            (0..50).map(|_| tokio::spawn(service.clone().oneshot(Request::new(Body::empty())))).collect();
        // All fifty get through the store while none has finished.
        let _ = running.acquire_many(50).await.expect("open");
        released.add_permits(50);
        for request in requests {
            assert_eq!(request.await.expect("no panic").expect("infallible").status(), 200, "{}", backend.name);
        }
    }
}

#[tokio::test]
async fn a_dropped_request_leaves_the_service_usable() {
    let inner = service_fn(async |_: Request<Body>| {
        std::future::pending::<()>().await;
        Ok::<_, Infallible>(Response::new(Body::empty()))
    });
    let service = RateLimitLayer::new(limiter(per_minute(1))).layer(inner);
    let mut request = Box::pin(service.clone().oneshot(Request::new(Body::empty())));
    assert!(poll_once(&mut request).is_pending());
    drop(request);
    assert_eq!(service.oneshot(Request::new(Body::empty())).await.expect("infallible").status(), 429);
}

fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

#[tokio::test]
async fn by_address_over_real_http() {
    let rule = Rule::gcra("per-ip", Quota::per_minute(2)).key(key::ip());
    let address = serve(app(RateLimitLayer::new(limiter(rule)))).await;
    let client = reqwest::Client::new();
    let mut statuses = Vec::new();
    for _ in 0..3 {
        let response = client.get(format!("http://{address}/")).send().await.expect("a response");
        assert!(response.headers().contains_key("ratelimit"));
        statuses.push(response.status().as_u16());
    }
    assert_eq!(statuses, [200, 200, 429]);
    let head = client.head(format!("http://{address}/")).send().await.expect("a response");
    assert_eq!(head.status(), 429);
    assert!(head.headers()["content-length"].to_str().is_ok_and(|length| length != "0"));
}

#[test]
fn an_empty_body_says_that_it_has_ended() {
    let body = ResponseBody::<Body>::default();
    assert!(http_body::Body::is_end_stream(&body));
}
