//! What refused HTTP requests get: problems, text, responses of one's own; `HEAD`; redirects.

use std::{
    cell::Cell,
    collections::BTreeSet,
    io,
    pin::Pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use axum::{
    Json, Router,
    body::Body,
    response::{IntoResponse, Redirect},
    routing::get,
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body::{Frame, SizeHint};
use http_body_util::{BodyExt, Empty, Full};
use proptest::prelude::*;
use sluicegate::{
    Decision, Limiter, OnFailure, Quota, RateLimitLayer, RedisStore, ResponseBody, Rule, key,
    refusal::{Cause, Format},
};
use tower::{Layer, ServiceExt, service_fn};

use crate::support::{
    app::{ask, field, get as fetch, layer, once, serve, text},
    log::Log,
    server::free_port,
};

/// Every request is refused, and none will ever fit.
fn never() -> RateLimitLayer {
    layer([once("small").cost(2)])
}

fn down() -> RateLimitLayer {
    let store = RedisStore::connect(format!("redis://127.0.0.1:{}", free_port())).expect("a sound address");
    let limiter = Limiter::builder(store).rule(once("r").on_failure(OnFailure::Refuse)).build().expect("sound");
    RateLimitLayer::new(limiter)
}

/// Its handler sets what must not be in a refusal.
fn app(layer: RateLimitLayer) -> Router {
    let fields = [("set-cookie", "id=7"), ("etag", "\"1\""), ("cache-control", "max-age=60"), ("x-inner", "1")];
    Router::new().route("/", get(move || async move { (fields, "ok") })).layer(layer)
}

/// The second answer of an app that has one to give.
async fn refused(layer: RateLimitLayer) -> Response<Body> {
    let app = app(layer);
    assert_eq!(fetch(&app, "/").await.status(), 200);
    fetch(&app, "/").await
}

fn seconds<B>(response: &Response<B>) -> u64 {
    field(response, "retry-after").expect("Retry-After").parse().expect("whole seconds")
}

async fn json(response: Response<Body>) -> serde_json::Value {
    serde_json::from_str(&text(response).await).expect("JSON")
}

#[tokio::test]
async fn a_problem_names_the_rules_that_refused() {
    let wide = Rule::gcra("wide", Quota::per_minute(100)).key(key::global());
    let response = refused(layer([once("a"), wide, once("b")])).await;
    assert_eq!(response.status(), 429);
    let seconds = seconds(&response);
    assert!((60..=65).contains(&seconds), "{seconds}");
    let expected = serde_json::json!({
        "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
        "title": "Quota Exceeded",
        "status": 429,
        "detail": format!("The quotas \"a\", \"b\" are used up; retry in {seconds} seconds."),
        "violated-policies": ["a", "b"],
    });
    assert_eq!(json(response).await, expected);
}

#[tokio::test]
async fn a_problem_of_the_store_names_none() {
    let response = fetch(&app(down()), "/").await;
    assert_eq!((response.status().as_u16(), field(&response, "cache-control")), (503, Some("no-store")));
    let seconds = seconds(&response);
    let problem = json(response).await;
    assert_eq!(problem["type"], "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity");
    assert_eq!((&problem["status"], problem.get("violated-policies")), (&503.into(), None));
    let detail = problem["detail"].as_str().expect("a detail");
    assert!(detail.contains(&format!("retry in {seconds} second")), "{detail}");
}

#[tokio::test]
async fn a_cost_that_can_never_fit_is_blamed_on_the_rule_that_cannot_hold_it() {
    let cost = |head: &http::request::Parts| if head.uri.path() == "/large" { 4 } else { 1 };
    let app = app(layer([once("full"), Rule::gcra("tiny", Quota::per_minute(3)).cost_by(cost).key(key::global())]));
    assert_eq!(fetch(&app, "/").await.status(), 200);
    let response = fetch(&app, "/large").await;
    assert_eq!((response.status().as_u16(), field(&response, "retry-after")), (429, None));
    let problem = json(response).await;
    assert_eq!(problem["violated-policies"], serde_json::json!(["full", "tiny"]));
    let detail = &problem["detail"];
    assert_eq!(detail, "The request costs more than the quota \"tiny\" ever allows; retrying does not help.");
}

#[tokio::test]
async fn nothing_of_the_service_is_in_a_refusal() {
    let response = refused(layer([once("r")])).await;
    let names: BTreeSet<_> = response.headers().keys().map(|name| name.as_str()).collect();
    let known = [
        "cache-control",
        "content-length",
        "content-type",
        "ratelimit",
        "ratelimit-policy",
        "retry-after",
        "x-ratelimit-limit",
        "x-ratelimit-remaining",
        "x-ratelimit-reset",
    ];
    assert_eq!(names, BTreeSet::from(known));
    assert_eq!(field(&response, "cache-control"), Some("no-store"));
}

#[tokio::test]
async fn plain_text_where_it_is_asked_for() {
    let response = refused(layer([once("r")]).refuse_with(Format::Text)).await;
    assert_eq!(response.status(), 429);
    assert_eq!(field(&response, "content-type"), Some("text/plain; charset=utf-8"));
    assert_eq!(field(&response, "cache-control"), Some("no-store"));
    let seconds = seconds(&response);
    assert_eq!(text(response).await, format!("The quota \"r\" is used up; retry in {seconds} seconds.\n"));
    let response = fetch(&app(down().refuse_with(Format::Text)), "/").await;
    assert_eq!(response.status(), 503);
    assert!(text(response).await.starts_with("The request could not be checked against its quota; retry in "));
    let unknown = once("r").key_by(|_| Err::<u8, _>(StatusCode::UNAUTHORIZED));
    let response = fetch(&app(layer([unknown]).refuse_with(Format::Text)), "/").await;
    assert_eq!((response.status().as_u16(), text(response).await.as_str()), (401, "Unauthorized.\n"));
}

#[tokio::test]
async fn a_closure_makes_the_response_and_the_rest_is_added() {
    let layer = layer([once("r")]).on_refused(|refusal| {
        let rule = refusal.decision().and_then(Decision::tightest).map(|standing| standing.rule().to_owned());
        let seconds = refusal.retry_after().map(|wait| wait.as_secs());
        assert_eq!((refusal.cause(), refusal.status()), (Cause::Quota, StatusCode::TOO_MANY_REQUESTS));
        let body = serde_json::json!({ "rule": rule, "wait": seconds, "path": refusal.head().uri.path(), "never": refusal.can_never_fit() });
        (StatusCode::FORBIDDEN, [("x-own", "1")], Json(body)).into_response()
    });
    let response = refused(layer).await;
    assert_eq!((response.status(), field(&response, "x-own")), (StatusCode::FORBIDDEN, Some("1")));
    assert_eq!(field(&response, "content-type"), Some("application/json"));
    assert_eq!(field(&response, "cache-control"), Some("no-store"));
    assert_eq!(
        (field(&response, "x-ratelimit-remaining"), field(&response, "ratelimit-policy")),
        (Some("0"), Some(r#""r";q=1;w=60"#))
    );
    let seconds = seconds(&response);
    assert_eq!(json(response).await, serde_json::json!({ "rule": "r", "wait": seconds, "path": "/", "never": false }));
}

#[tokio::test]
async fn what_a_closure_set_stays() {
    let layer = layer([once("r")]).on_refused(|_| {
        let fields = [
            ("retry-after", "99"),
            ("cache-control", "private"),
            ("x-ratelimit-limit", "7"),
            ("ratelimit", "\"own\";r=6"),
        ];
        (fields, "later").into_response()
    });
    let response = refused(layer).await;
    assert_eq!((response.status().as_u16(), field(&response, "retry-after")), (200, Some("99")));
    assert_eq!(field(&response, "cache-control"), Some("private"));
    assert_eq!((field(&response, "x-ratelimit-limit"), field(&response, "x-ratelimit-remaining")), (Some("7"), None));
    let lines: Vec<_> = response.headers().get_all("ratelimit").iter().collect();
    assert_eq!(lines.first(), Some(&&HeaderValue::from_static("\"own\";r=6")));
    assert_eq!(text(response).await, "later");
}

#[tokio::test]
async fn bodies_of_any_kind() {
    let string = layer([once("r")]).on_refused(|refusal| Response::new(refusal.to_string()));
    assert!(text(refused(string).await).await.starts_with("The quota"));
    let full = layer([once("r")]).on_refused(|_| Response::new(Full::new(Bytes::from_static(b"full"))));
    assert_eq!(text(refused(full).await).await, "full");
    let none = layer([once("r")]).on_refused(|_| Response::new(Empty::new()));
    let response = refused(none).await;
    assert!(http_body::Body::is_end_stream(response.body()));
    assert_eq!(field(&response, "content-length"), Some("0"));
    assert_eq!(text(response).await, "");
}

/// For a closure that knows better in some cases only.
#[tokio::test]
async fn none_is_the_response_of_the_layer() {
    let only_quota = |layer: RateLimitLayer| {
        layer.on_refused(|refusal| (refusal.cause() == Cause::Quota).then(|| Response::new(String::from("own"))))
    };
    assert_eq!(text(refused(only_quota(layer([once("r")]))).await).await, "own");
    let response = fetch(&app(only_quota(down())), "/").await;
    assert_eq!((response.status().as_u16(), field(&response, "content-type")), (503, Some("application/problem+json")));
    let key = once("r").key_by(|_| Err::<u8, _>(StatusCode::BAD_REQUEST));
    let response = fetch(&app(only_quota(layer([key]))), "/").await;
    assert_eq!((response.status().as_u16(), field(&response, "cache-control")), (400, Some("no-store")));
    assert_eq!(
        json(response).await,
        serde_json::json!({ "type": "about:blank", "title": "Bad Request", "status": 400 })
    );
}

#[tokio::test]
async fn a_closure_sees_who_refused() {
    let seen = |layer: RateLimitLayer| async {
        let told = layer.on_refused(|refusal| {
            let applied = refusal.decision().map(|decision| decision.standings().count());
            Response::new(format!(
                "{:?} {} {applied:?} {}",
                refusal.cause(),
                refusal.status().as_u16(),
                refusal.can_never_fit()
            ))
        });
        text(fetch(&app(told), "/").await).await
    };
    assert_eq!(seen(never()).await, "Quota 429 Some(1) true");
    assert_eq!(seen(down()).await, "Store 503 Some(0) false");
    let key = once("r").key_by(|_| Err::<u8, _>(StatusCode::IM_A_TEAPOT));
    assert_eq!(seen(layer([key])).await, "Key 418 None false");
}

#[tokio::test]
async fn a_refusal_that_is_logged_has_no_secrets() {
    let app = app(never().on_refused(|refusal| Response::new(format!("{refusal:?} {refusal}"))));
    let told = text(ask(&app, Request::builder().uri("/?token=hush").header("authorization", "hush")).await).await;
    assert!(told.contains("Quota") && !told.contains("hush"), "{told}");
}

/// Two frames of data and one of trailers; only one thread may use it at a time. Fails where the data would be empty.
struct Odd {
    frames: Vec<Frame<&'static str>>,
    _not_shared: Cell<u8>,
}

impl Odd {
    fn new(first: &'static str, second: &'static str) -> Odd {
        let trailers = HeaderMap::from_iter([("x-end".parse().expect("a name"), HeaderValue::from_static("1"))]);
        Odd {
            frames: vec![Frame::trailers(trailers), Frame::data(second), Frame::data(first)],
            _not_shared: Cell::new(0),
        }
    }
}

impl http_body::Body for Odd {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        Poll::Ready(self.frames.pop().map(|frame| match frame.data_ref() {
            Some(&"") => Err(io::Error::other("no data")),
            _ => Ok(frame.map_data(|text| Bytes::from_static(text.as_bytes()))),
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.frames.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        let lower = self.frames.iter().filter_map(Frame::data_ref).map(|text| text.len() as u64).sum();
        let mut hint = SizeHint::new();
        hint.set_lower(lower);
        hint
    }
}

async fn odd(first: &'static str, second: &'static str) -> ResponseBody<Empty<Bytes>> {
    let inner = service_fn(async |_: Request<()>| Ok::<_, io::Error>(Response::new(Empty::new())));
    let layer = never().on_refused(move |_| Response::new(Odd::new(first, second)));
    layer.layer(inner).oneshot(Request::new(())).await.expect("a refusal").into_body()
}

#[tokio::test]
async fn a_body_of_ones_own_passes_frame_by_frame() {
    use http_body::Body as _;
    fn shared<T: Send + Sync>(_: &T) {}
    let mut body = odd("one", "three").await;
    shared(&body);
    let mut told = vec![(body.size_hint().lower(), body.is_end_stream())];
    while let Poll::Ready(Some(frame)) = Pin::new(&mut body).poll_frame(&mut Context::from_waker(Waker::noop())) {
        let frame = frame.expect("infallible");
        assert!(frame.is_data() || frame.trailers_ref().is_some_and(|fields| fields["x-end"] == "1"));
        told.push((body.size_hint().lower(), body.is_end_stream()));
    }
    assert_eq!(told, [(8, false), (5, false), (0, false), (0, true)]);
    assert_eq!(body.size_hint().exact(), Some(0));
}

/// It cannot become an error of the service.
#[tokio::test]
async fn a_body_that_fails_ends_and_is_logged() {
    let (logs, _guard) = Log::begin();
    let body = odd("one", "").await.collect().await.expect("infallible");
    assert!(body.trailers().is_none());
    assert_eq!(body.to_bytes(), "one");
    let lines = logs.text();
    assert_eq!(lines.matches("the body of a refusal failed").count(), 1, "{lines}");
    assert!(lines.contains("no data"), "{lines}");
}

#[tokio::test]
async fn head_has_the_fields_of_get_and_no_body() {
    let streamed = || never().on_refused(|_| Response::new(Odd::new("one", "three")));
    let text = || never().refuse_with(Format::Text);
    let own = || never().on_refused(|_| (StatusCode::FORBIDDEN, "own").into_response());
    for layer in [never(), text(), own(), streamed()] {
        let address = serve(app(layer)).await;
        for client in [reqwest::Client::builder(), reqwest::Client::builder().http2_prior_knowledge()] {
            let client = client.build().expect("a client");
            let get = client.get(format!("http://{address}/")).send().await.expect("a response");
            let head = client.head(format!("http://{address}/")).send().await.expect("a response");
            let fields = |response: &reqwest::Response| {
                let names =
                    ["content-length", "content-type", "cache-control", "ratelimit", "ratelimit-policy", "retry-after"];
                names.map(|name| response.headers().get(name).cloned())
            };
            assert_eq!((head.status(), fields(&head)), (get.status(), fields(&get)), "{:?}", get.version());
            assert_eq!(head.bytes().await.expect("no body"), "");
            assert_ne!(get.bytes().await.expect("a body"), "");
        }
    }
}

/// Without a server that would leave the body out by itself.
#[tokio::test]
async fn a_head_request_to_the_bare_service() {
    let inner = service_fn(async |_: Request<()>| Ok::<_, io::Error>(Response::new(Empty::<Bytes>::new())));
    let head = Request::builder().method("HEAD").body(()).expect("a request");
    let response = never().layer(inner).oneshot(head).await.expect("a refusal");
    assert!(field(&response, "content-length").is_some_and(|length| length != "0"));
    assert!(http_body::Body::is_end_stream(response.body()));
}

/// A client that follows redirects pays for each request, and sees the fields of the last.
#[tokio::test]
async fn redirects_are_charged_and_refused_like_any_request() {
    let rule = Rule::gcra("r", Quota::per_minute(3)).key(key::global());
    let app = Router::new()
        .route("/old", get(|| async { Redirect::temporary("/new") }))
        .route("/new", get(|| async { "ok" }))
        .layer(layer([rule]));
    let old = format!("http://{}/old", serve(app).await);
    let response = reqwest::get(&old).await.expect("a response");
    assert_eq!((response.status().as_u16(), response.url().path()), (200, "/new"));
    assert_eq!(response.headers()["x-ratelimit-remaining"], "1");
    // The last unit goes to the redirect, and its target is refused.
    let response = reqwest::get(&old).await.expect("a response");
    assert_eq!((response.status().as_u16(), response.url().path()), (429, "/new"));
    assert!(response.headers().contains_key("retry-after"));
    let still = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().expect("a client");
    let response = still.get(&old).send().await.expect("a response");
    assert_eq!((response.status().as_u16(), response.headers().get("location")), (429, None));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn every_problem_is_json_and_agrees_with_its_fields(
        names in prop::collection::btree_set("[ -~]{1,64}", 1..6),
        window in 1u64..10_000_000_000,
    ) {
        let rule = |name: &String| Rule::gcra(name, Quota::per(1, Duration::from_micros(window + 1_000))).key(key::global());
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let (status, seconds, problem) = runtime.block_on(async {
            let response = refused(layer(names.iter().map(rule))).await;
            (response.status(), seconds(&response), json(response).await)
        });
        prop_assert_eq!(&problem["status"], status.as_u16());
        prop_assert_eq!(&problem["violated-policies"], &serde_json::json!(names));
        let detail = problem["detail"].as_str().expect("a detail");
        let told = detail.rsplit("; retry in ").next().and_then(|rest| rest.split(' ').next());
        prop_assert_eq!(told, Some(&*seconds.to_string()));
    }
}

#[tokio::test]
async fn a_refusal_further_in_gets_the_fields_of_both() {
    let wide = Rule::gcra("wide", Quota::per_minute(100)).key(key::global());
    let app = app(never().on_refused(|_| Response::new(String::from("own")))).layer(layer([wide]));
    let response = ask(&app, Request::builder().uri("/")).await;
    let policies: Vec<_> = response.headers().get_all("ratelimit-policy").iter().collect();
    assert_eq!(policies, [r#""small";q=1;w=60"#, r#""wide";q=100;w=60"#]);
    assert_eq!(field(&response, "x-ratelimit-remaining"), Some("0"));
    assert_eq!(text(response).await, "own");
}
