//! Costs and keys that are in the body: it is read within bounds, and the service gets it as it came.

use std::{
    convert::Infallible,
    pin::pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::{Body, SizeHint};
use http_body_util::{BodyExt, Empty};
use proptest::prelude::*;
use sluicegate::{
    Charge, Clock, Decision, Limiter, ManualClock, MemoryStore, Quota, RateLimitLayer, Rule,
    bodies::{ReadBodies, RequestBody},
    key::{self, KeyBy},
};
use tokio::time::{Instant, advance};
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::support::{
    app::{layer, text},
    frames::{Broken, Frames, Next},
    stores::{BEGIN, every_store},
};

/// What a service has seen of a body.
#[derive(Clone, Debug, Default, PartialEq)]
struct Seen {
    data: Vec<u8>,
    trailers: Option<HeaderMap>,
    error: Option<Broken>,
    size_hint: (u64, Option<u64>),
    ended: bool,
}

fn hint(body: &impl Body) -> (u64, Option<u64>) {
    (body.size_hint().lower(), body.size_hint().upper())
}

async fn see(body: impl Body<Data = Bytes, Error = Broken>) -> Seen {
    let mut body = pin!(body);
    let mut seen = Seen { size_hint: hint(&body), ended: body.is_end_stream(), ..Seen::default() };
    loop {
        match body.frame().await {
            None => return seen,
            Some(Err(error)) => {
                seen.error = Some(error);
                return seen;
            }
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => seen.data.extend(data),
                Err(frame) => seen.trailers = frame.into_trailers().ok(),
            },
        }
    }
}

/// The bodies that a service was called with.
#[derive(Clone, Default)]
struct Calls(Arc<Mutex<Vec<Seen>>>);

impl Calls {
    fn add(&self, seen: Seen) {
        self.0.lock().expect("no panic").push(seen);
    }

    fn first(&self) -> Seen {
        self.0.lock().expect("no panic").first().cloned().expect("a call")
    }

    fn count(&self) -> usize {
        self.0.lock().expect("no panic").len()
    }
}

/// A service that reads bodies to the end and remembers them.
fn witness(
    calls: &Calls,
) -> impl Service<Request<RequestBody<Frames>>, Response = Response<Empty<Bytes>>, Error = Infallible, Future: Send>
+ Clone
+ use<> {
    let calls = calls.clone();
    service_fn(move |request: Request<RequestBody<Frames>>| {
        let calls = calls.clone();
        async move {
            let seen = see(request.into_body()).await;
            calls.add(seen);
            Ok(Response::new(Empty::new()))
        }
    })
}

/// One unit a byte.
fn bytes_rule(most: usize) -> Rule {
    Rule::token_bucket("bytes", Quota::per_hour(1_000_000))
        .key(key::global())
        .cost_by_body(most, |_, body| body.len() as u64)
}

fn limiter(rule: Rule) -> Limiter {
    Limiter::builder(MemoryStore::new())
        .clock(Clock::manual(ManualClock::new(BEGIN)))
        .rule(rule)
        .build()
        .expect("sound")
}

async fn spent(limiter: &Limiter) -> u64 {
    1_000_000 - limiter.peek([("bytes", "all")]).await.standing("bytes").expect("it applies").remaining()
}

fn post(body: Frames) -> Request<Frames> {
    Request::post("/").body(body).expect("a request")
}

fn trailers() -> HeaderMap {
    HeaderMap::from_iter([(http::header::ETAG, "\"7\"".parse().expect("a value"))])
}

fn next() -> impl Strategy<Value = Next> {
    prop_oneof![
        4 => prop::collection::vec(any::<u8>(), 0..20).prop_map(|data| Next::Data(data.into())),
        1 => Just(Next::Later),
    ]
}

proptest! {
    /// Whatever the pieces, the waits between them, and the end: the service and the closure see the body that came.
    #[test]
    fn the_service_gets_the_body_that_came(
        mut pieces in prop::collection::vec(next(), 0..8),
        end in prop_oneof![Just(None), Just(Some(Next::Trailers(trailers()))), Just(Some(Next::Error))],
        exact in any::<bool>(),
    ) {
        pieces.extend(end);
        let mut body = Frames::new(pieces);
        if exact {
            body.size_hint = SizeHint::with_exact(160);
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        runtime.block_on(async {
            let expected = see(body.clone()).await;
            let looked_at = Arc::new(Mutex::new(None));
            let looks = Arc::clone(&looked_at);
            let rule = bytes_rule(160).cost_by_body(160, move |_, body| {
                *looks.lock().expect("no panic") = Some(body.to_vec());
                body.len() as u64
            });
            let (limiter, calls) = (limiter(rule), Calls::default());
            let service = RateLimitLayer::new(limiter.clone()).read_bodies().layer(witness(&calls));
            let response = service.oneshot(post(body)).await.expect("a response");
            assert_eq!(response.status(), 200);
            let mut seen = calls.first();
            if expected.data.is_empty() && expected.trailers.is_none() && expected.error.is_none() {
                // It is known now that nothing will come.
                seen.ended = expected.ended;
            }
            assert_eq!(seen, expected);
            assert_eq!(looked_at.lock().expect("no panic").as_deref(), Some(&*expected.data));
            assert_eq!(spent(&limiter).await, expected.data.len() as u64);
        });
    }
}

/// What is left of the hint when the data was taken.
#[tokio::test]
async fn the_size_hint_shrinks_with_what_was_taken() {
    let mut body = Frames::data(["ab", "c"]);
    body.size_hint = SizeHint::with_exact(3);
    let service = service_fn(async |request: Request<RequestBody<Frames>>| {
        let (_head, mut body) = request.into_parts();
        assert_eq!((hint(&body), body.is_end_stream()), ((3, Some(3)), false));
        let data = body.frame().await.expect("a frame").expect("no error").into_data().expect("data");
        assert_eq!(data, "abc");
        // The copy that the rules looked at is gone: nobody else holds on to it.
        assert!(data.is_unique());
        assert_eq!((hint(&body), body.is_end_stream()), ((0, Some(0)), true));
        assert!(body.frame().await.is_none());
        Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
    });
    let service = RateLimitLayer::new(limiter(bytes_rule(3))).read_bodies().layer(service);
    assert_eq!(service.oneshot(post(body)).await.expect("a response").status(), 200);
}

/// As much as is allowed passes; a byte more does not, is not paid for, and nothing is read after it.
#[tokio::test]
async fn a_body_above_the_bound_is_answered_413() {
    let (limiter, calls) = (limiter(bytes_rule(10)), Calls::default());
    let service = RateLimitLayer::new(limiter.clone()).read_bodies().layer(witness(&calls));
    let ask = async |body: &Frames| service.clone().oneshot(post(body.clone())).await.expect("a response");
    for body in [Frames::data(["0123456789"]), Frames::data(["01234", "56789"]), Frames::data(["0123456789", ""])] {
        assert_eq!(ask(&body).await.status(), 200);
    }
    assert_eq!((calls.count(), spent(&limiter).await), (3, 30));

    for (body, read) in [
        (Frames::data(["0123456789x", "never read"]), 1),
        (Frames::data(["0123456789", "x", "never read"]), 2),
        (Frames::new([Next::Endless("0123".into())]), 3),
    ] {
        let response = ask(&body).await;
        assert_eq!((response.status(), body.polled()), (StatusCode::PAYLOAD_TOO_LARGE, read));
        assert_eq!(response.headers()["content-type"], "application/problem+json");
        assert_eq!(response.headers()["cache-control"], "no-store");
        assert!(!response.headers().contains_key("retry-after"));
        let text = String::from_utf8(response.into_body().collect().await.expect("a body").to_bytes().to_vec());
        assert_eq!(
            text.expect("text"),
            r#"{"type":"about:blank","title":"Payload Too Large","status":413,"detail":"The body is longer than 10 bytes."}"#
        );
    }
    // Where the length is known, nothing is read at all.
    let mut long = Frames::data(["0123456789x"]);
    long.size_hint = SizeHint::with_exact(11);
    assert_eq!((ask(&long).await.status(), long.polled()), (StatusCode::PAYLOAD_TOO_LARGE, 0));
    let said = Frames::data(["0123"]);
    let request = Request::post("/").header("content-length", "11").body(said.clone()).expect("a request");
    let response = service.clone().oneshot(request).await.expect("a response");
    assert_eq!((response.status(), said.polled()), (StatusCode::PAYLOAD_TOO_LARGE, 0));
    assert_eq!((calls.count(), spent(&limiter).await), (3, 30), "nobody has paid");
}

/// The largest bound of the rules that apply counts, and rules that do not apply read nothing.
#[tokio::test]
async fn only_rules_that_apply_have_the_body_read() {
    let small = |name: &str| Rule::gcra(name, Quota::per_hour(1_000)).key(key::global());
    let rules = || {
        [
            small("small").cost_by_body(4, |_, body| body.len() as u64),
            small("large").when(|req| req.uri.path() == "/large").cost_by_body(8, |_, body| body.len() as u64),
            small("keyed").key(key::header("x-user")).cost_by_body(16, |_, body| body.len() as u64),
            Rule::gcra("unlimited", Quota::unlimited()).key(key::global()).cost_by_body(32, |_, _| 1),
        ]
    };
    let calls = Calls::default();
    let service = layer(rules()).read_bodies().layer(witness(&calls));
    let ask = async |path: &str, user: Option<&str>, body: &'static str| {
        let request = user.into_iter().fold(Request::post(path), |request, user| request.header("x-user", user));
        let request = request.body(Frames::data([body])).expect("a request");
        service.clone().oneshot(request).await.expect("a response").status().as_u16()
    };
    assert_eq!(ask("/", None, "1234").await, 200);
    assert_eq!(ask("/", None, "12345").await, 413);
    assert_eq!(ask("/large", None, "12345678").await, 200);
    assert_eq!(ask("/large", None, "123456789").await, 413);
    assert_eq!(ask("/", Some("alice"), "1234567890123456").await, 200);
    assert_eq!(ask("/", Some("alice"), "12345678901234567").await, 413);

    // Here none applies: the service has the body while it is still coming.
    let [_, large, keyed, unlimited] = rules();
    let body = Frames::new([Next::Data("much too long, and it does not end".into()), Next::Silence]);
    let untouched = service_fn(async |request: Request<RequestBody<Frames>>| {
        let first = request.into_body().frame().await.expect("a frame").expect("no error").into_data();
        assert_eq!(first.expect("data"), "much too long, and it does not end");
        Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
    });
    let service = layer([large, keyed, unlimited]).read_bodies().layer(untouched);
    assert_eq!(service.oneshot(post(body.clone())).await.expect("a response").status(), 200);
    assert_eq!(body.polled(), 1);
}

/// A body that falls silent, one that trickles, and one of empty pieces without end.
#[tokio::test(start_paused = true)]
async fn a_body_that_never_ends_is_answered_408() {
    let (limiter, calls) = (limiter(bytes_rule(1_000)), Calls::default());
    let layer = RateLimitLayer::new(limiter.clone()).read_bodies();
    let silent = Frames::new([Next::Data("some".into()), Next::Silence]);
    for (layer, seconds) in [(layer.clone(), 10), (layer.clone().within(Duration::from_secs(3)), 3)] {
        let begin = Instant::now();
        let response = layer.layer(witness(&calls)).oneshot(post(silent.clone())).await.expect("a response");
        assert_eq!(response.status(), StatusCode::REQUEST_TIMEOUT);
        // A timer is good to the millisecond.
        let waited = begin.elapsed();
        assert!(
            waited >= Duration::from_secs(seconds) && waited < Duration::from_secs(seconds) + Duration::from_millis(2)
        );
        let text = String::from_utf8(response.into_body().collect().await.expect("a body").to_bytes().to_vec());
        assert!(text.expect("text").contains(&format!("The body did not come within {seconds}s.")));
    }

    // A byte each second is progress, but not enough.
    let (sender, trickle) = tokio::sync::mpsc::channel::<Bytes>(1);
    tokio::spawn(async move {
        while sender.send("x".into()).await.is_ok() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    });
    let service =
        service_fn(async |_: Request<RequestBody<Trickle>>| Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new())));
    let begin = Instant::now();
    let request = Request::post("/").body(Trickle(trickle)).expect("a request");
    let response = layer.layer(service).oneshot(request).await.expect("a response");
    assert_eq!((response.status(), begin.elapsed().as_secs()), (StatusCode::REQUEST_TIMEOUT, 10));

    // Many pieces at once are not: they are read in several turns.
    let many = Frames::new((0..500).map(|_| Next::Data("x".into())));
    let response = layer.layer(witness(&Calls::default())).oneshot(post(many)).await.expect("a response");
    assert_eq!(response.status(), StatusCode::OK);

    assert_eq!(spent(&limiter).await, 500);
    let empty = Frames::new([Next::Endless(Bytes::new())]);
    let (response, ()) = tokio::join!(layer.layer(witness(&calls)).oneshot(post(empty)), async {
        tokio::task::yield_now().await;
        advance(Duration::from_secs(11)).await;
    });
    assert_eq!(response.expect("a response").status(), StatusCode::REQUEST_TIMEOUT);
    assert_eq!((calls.count(), spent(&limiter).await), (0, 500));
}

struct Trickle(tokio::sync::mpsc::Receiver<Bytes>);

impl Body for Trickle {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|data| data.map(|data| Ok(http_body::Frame::data(data))))
    }
}

/// A request that is dropped while its body is read was never there. One whose body broke is the service's to answer.
#[tokio::test]
async fn whoever_leaves_meanwhile_pays_nothing() {
    let (limiter, calls) = (limiter(bytes_rule(1_000)), Calls::default());
    let service = RateLimitLayer::new(limiter.clone()).read_bodies().layer(witness(&calls));
    let body = Frames::new([Next::Data("some".into()), Next::Silence]);
    {
        let mut leaving = pin!(service.clone().oneshot(post(body.clone())));
        assert!(leaving.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    assert_eq!(body.polled(), 2);
    assert_eq!((calls.count(), spent(&limiter).await), (0, 0));

    let broken = Frames::new([Next::Data("some".into()), Next::Error]);
    assert_eq!(service.oneshot(post(broken)).await.expect("a response").status(), 200);
    let seen = calls.first();
    assert_eq!((&*seen.data, seen.error), (&b"some"[..], Some(Broken)));
    assert_eq!(spent(&limiter).await, 4);
}

/// Without a body there is none to read: the closure gets an empty slice, at once.
#[tokio::test]
async fn no_body_is_an_empty_slice() {
    let rule = Rule::gcra("r", Quota::per_hour(9))
        .key(key::global())
        .cost_by_body(4, |head, body| if body.is_empty() && head.method == "GET" { 2 } else { 9 });
    let service = layer([rule]).read_bodies().layer(witness(&Calls::default()));
    let mut service: ReadBodies<_> = service;
    let request = Request::get("/").body(Frames::default()).expect("a request");
    let response = service.ready().await.expect("ready").call(request).await.expect("a response");
    assert_eq!(response.headers()["x-ratelimit-remaining"], "7");
}

/// Costs and keys from bodies on every store: charged when the body is there, all or nothing, and settled by the handler.
#[tokio::test]
async fn costs_and_keys_from_bodies_count_on_every_store() {
    for backend in every_store() {
        let clock = ManualClock::new(BEGIN);
        let name = |body: &[u8]| body.split(|byte| *byte == b'=').next().map(<[u8]>::to_vec);
        let points = |body: &[u8]| std::str::from_utf8(body).ok()?.split('=').nth(1)?.parse::<u64>().ok();
        let limiter = backend.limiter(
            &clock,
            [
                Rule::token_bucket("points", Quota::per_hour(1_000))
                    .key_by_body(64, move |_, body| name(body))
                    .cost_by_body(64, move |_, body| points(body).unwrap_or(1)),
                Rule::token_bucket("per-user-and-method", Quota::per_hour(3))
                    .key(key::method().and(KeyBy::by_body(64, move |_, body| name(body)))),
            ],
        );
        let service = service_fn(async |request: Request<RequestBody<Frames>>| {
            let charge = request.extensions().get::<Charge>().cloned().expect("a charge");
            let body = request.into_body().collect().await.expect("a body").to_bytes();
            if body.ends_with(b"!") {
                assert!(charge.settle(1));
            }
            Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
        });
        let service = RateLimitLayer::new(limiter.clone()).read_bodies().layer(service);
        let ask = async |pieces: [&'static str; 2]| {
            let response = service.clone().oneshot(post(Frames::data(pieces))).await.expect("a response");
            limiter.settled().await;
            response.status().as_u16()
        };
        let left = async |user: &str| {
            let points = limiter.peek([("points", user)]).await;
            points.standing("points").expect("it applies").remaining()
        };
        assert_eq!(ask(["alice=", "400"]).await, 200, "{}", backend.name);
        assert_eq!(ask(["alice=", "601"]).await, 429, "{}", backend.name);
        assert_eq!(ask(["alice=", "600=!"]).await, 200, "{}: a refusal spends nothing", backend.name);
        assert_eq!((left("alice").await, left("bob").await), (599, 1_000), "{}", backend.name);
        assert_eq!(ask(["bob=", "1000"]).await, 200, "{}", backend.name);
        assert_eq!(ask(["alice=", "1"]).await, 200, "{}", backend.name);
        assert_eq!(ask(["alice=", "1"]).await, 429, "{}: the fourth of the other rule", backend.name);
        assert_eq!((left("alice").await, left("bob").await), (598, 0), "{}", backend.name);
    }
}

/// A layer that does not read bodies says so, when it is made and to those who need it.
#[tokio::test]
async fn a_layer_that_does_not_read_bodies_says_so() {
    let (log, _guard) = crate::support::log::Log::begin();
    let rule = Rule::gcra("queries", Quota::per_hour(5)).key(key::global()).when(|req| req.method == "POST");
    let plain = layer([rule.cost_by_body(10, |_, body| body.len() as u64)]);
    let service =
        plain.layer(service_fn(async |_: Request<Frames>| Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))));
    assert!(log.text().contains("queries") && log.text().contains("read_bodies()"), "{}", log.text());
    let body = Frames::data(["abc"]);
    let response = service.clone().oneshot(post(body.clone())).await.expect("a response");
    assert_eq!((response.status(), body.polled()), (StatusCode::INTERNAL_SERVER_ERROR, 0));
    assert!(text(response.map(axum::body::Body::new)).await.contains("it lacks .read_bodies()"));
    assert!(log.text().contains("requests get 500"), "{}", log.text());
    let get = Request::get("/").body(body).expect("a request");
    assert_eq!(service.oneshot(get).await.expect("a response").status(), 200, "the rule does not apply");
}

#[test]
fn bounds_that_cannot_be_are_build_errors() {
    for wrong in [0, (1 << 30) + 1, usize::MAX] {
        let rule = Rule::gcra("r", Quota::per_hour(5));
        let error = rule.clone().key(key::global()).cost_by_body(wrong, |_, _| 1).check().expect_err("out of range");
        assert_eq!((error.rule_name(), error.field()), (Some("r"), "cost_by_body"));
        assert!(error.to_string().contains("give 1 to 1073741824"), "{error}");
        let error = rule.key_by_body(wrong, |_, _| 1).check().expect_err("out of range");
        assert_eq!(error.field(), "key");
    }
    let places = Rule::concurrency("c", 5).key(key::global()).cost_by_body(5, |_, _| 1).check().expect_err("no costs");
    assert_eq!(places.field(), "cost");
}

/// One limiter around another reads for itself, and one that is layered twice counts once.
#[tokio::test]
async fn nested_layers_each_see_the_body() {
    let (outer, inner, calls) = (limiter(bytes_rule(10)), limiter(bytes_rule(10)), Calls::default());
    let record = {
        let calls = calls.clone();
        service_fn(move |request: Request<RequestBody<RequestBody<RequestBody<Frames>>>>| {
            let calls = calls.clone();
            async move {
                assert!(request.extensions().get::<Decision>().is_some());
                calls.add(see(request.into_body()).await);
                Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
            }
        })
    };
    let read = |limiter: &Limiter| RateLimitLayer::new(limiter.clone()).read_bodies();
    let service = read(&outer).layer(read(&inner).layer(read(&outer).layer(record)));
    let body = Frames::new([Next::Data("abc".into()), Next::Data("de".into()), Next::Trailers(trailers())]);
    assert_eq!(service.oneshot(post(body)).await.expect("a response").status(), 200);
    let seen = calls.first();
    assert_eq!((&*seen.data, seen.trailers), (&b"abcde"[..], Some(trailers())));
    assert_eq!((spent(&outer).await, spent(&inner).await), (5, 5));
}

/// What passes unlimited is not read either.
#[tokio::test]
async fn preflights_are_not_read() {
    let request =
        Request::options("/").header("origin", "https://a.example").header("access-control-request-method", "POST");
    let body = Frames::new([Next::Silence]);
    let service =
        service_fn(async |_: Request<RequestBody<Frames>>| Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new())));
    let service = RateLimitLayer::new(limiter(bytes_rule(10))).read_bodies().layer(service);
    let response = service.oneshot(request.body(body.clone()).expect("a request")).await.expect("a response");
    assert_eq!((response.status(), body.polled()), (StatusCode::OK, 0));
}
