//! Bodies that are read for the rules, over real HTTP and among other layers.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    extract::Request,
    handler::Handler,
    middleware::{Next as Then, from_fn},
    routing::{any, post},
};
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use http_body_util::BodyExt;
use sluicegate::{
    Call, Clock, Limiter, ManualClock, MemoryStore, Quota, RateLimitLayer, Rule,
    bodies::ReadBodiesLayer,
    key::{self, IntoKey, KeyBy},
    refusal::{Cause, Format},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Notify,
};
use tonic::transport::{Server, server::TcpIncoming};
use tower::ServiceBuilder;
use tower_http::{
    limit::RequestBodyLimitLayer,
    timeout::{RequestBodyTimeoutLayer, TimeoutLayer},
};

use crate::support::{
    app::{ask, field, serve, text},
    echo::{self, Echo},
    frames::{Frames, Next},
    stores::BEGIN,
};

/// One unit a byte, of bodies of ten bytes at most.
fn limiter() -> Limiter {
    let rule = Rule::token_bucket("bytes", Quota::per_hour(1_000)).key(key::global());
    Limiter::builder(MemoryStore::new())
        .clock(Clock::manual(ManualClock::new(BEGIN)))
        .rule(rule.cost_by_body(10, |_, body| body.len() as u64))
        .build()
        .expect("sound")
}

fn reading(limiter: &Limiter) -> ReadBodiesLayer {
    RateLimitLayer::new(limiter.clone()).read_bodies()
}

async fn spent(limiter: &Limiter) -> u64 {
    1_000 - limiter.peek([("bytes", "all")]).await.standing("bytes").expect("it applies").remaining()
}

/// Says what came.
async fn tell(request: Request) -> String {
    match request.into_body().collect().await {
        Ok(all) => {
            let trailers = all.trailers().map(|trailers| format!(" and {trailers:?}")).unwrap_or_default();
            format!("{}{trailers}", String::from_utf8_lossy(&all.to_bytes()))
        }
        Err(error) => format!("failed: {error}"),
    }
}

/// Sends raw bytes and reads until the server has sent `end`.
async fn exchange(stream: &mut TcpStream, sent: &str, end: &str) -> String {
    stream.write_all(sent.as_bytes()).await.expect("sent");
    let mut answer = String::new();
    while !answer.contains(end) {
        let mut some = [0; 1_024];
        let count = stream.read(&mut some).await.expect("an answer");
        assert!(count > 0, "ended after {answer:?}");
        answer.push_str(std::str::from_utf8(&some[..count]).expect("text"));
    }
    answer
}

/// Whole and in pieces, with HTTP/1.1 and HTTP/2: ten bytes arrive, eleven get 413.
#[tokio::test]
async fn bodies_arrive_unchanged_over_http() {
    let limiter = limiter();
    let address = serve(Router::new().route("/", any(tell)).layer(reading(&limiter))).await;
    let url = format!("http://{address}/");
    for client in [reqwest::Client::builder(), reqwest::Client::builder().http2_prior_knowledge()] {
        let client = client.build().expect("a client");
        let before = spent(&limiter).await;
        for (body, expected) in [
            (reqwest::Body::from("0123456789"), "0123456789"),
            (reqwest::Body::wrap(Frames::data(["01", "234", "56789"])), "0123456789"),
            (reqwest::Body::from(""), ""),
        ] {
            let response = client.post(&url).body(body).send().await.expect("a response");
            assert_eq!(response.status(), 200);
            assert_eq!(response.text().await.expect("text"), expected);
        }
        assert_eq!(client.get(&url).send().await.expect("a response").status(), 200);
        for body in ["0123456789x".into(), reqwest::Body::wrap(Frames::data(["0123456789", "x"]))] {
            let response = client.post(&url).body(body).send().await.expect("a response");
            assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
            assert!(response.text().await.expect("text").contains("The body is longer than 10 bytes."));
        }
        assert_eq!(spent(&limiter).await, before + 20);
    }
    let trailers = HeaderMap::from_iter([(http::header::ETAG, "\"7\"".parse().expect("a value"))]);
    let client = reqwest::Client::builder().http2_prior_knowledge().build().expect("a client");
    let body = Frames::new([Next::Data("abc".into()), Next::Trailers(trailers)]);
    let response = client.post(&url).body(reqwest::Body::wrap(body)).send().await.expect("a response");
    assert_eq!(response.text().await.expect("text"), r#"abc and {"etag": "\"7\""}"#);

    let mut stream = TcpStream::connect(address).await.expect("a connection");
    let sent = "POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\ntrailer: etag\r\n\r\n\
                2\r\nab\r\n1\r\nc\r\n0\r\netag: \"8\"\r\n\r\n";
    let answer = exchange(&mut stream, sent, "}").await;
    assert!(answer.ends_with(r#"abc and {"etag": "\"8\""}"#), "{answer}");
}

/// Who asks first whether to send the body is told to when it is wanted, and 413 where it is too long.
#[tokio::test]
async fn expectations_are_met() {
    let limiter = limiter();
    let address = serve(Router::new().route("/", any(tell)).layer(reading(&limiter))).await;
    let head =
        |length: u32| format!("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\nexpect: 100-continue\r\n\r\n");
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    let answer = exchange(&mut stream, &head(5), "\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 100 "), "{answer}");
    assert_eq!(spent(&limiter).await, 0);
    let answer = exchange(&mut stream, "hello", "hello").await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert_eq!(spent(&limiter).await, 5);
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    let answer = exchange(&mut stream, &head(11), "\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
}

/// Keys that must wait see the body too, alone and together with others.
#[tokio::test]
async fn keys_that_must_wait_go_with_bodies() {
    let looked_up = KeyBy::new_async(async |_| {
        tokio::task::yield_now().await;
        Some("user")
    });
    let rule = |name| Rule::token_bucket(name, Quota::per_hour(1_000)).cost_by_body(10, |_, body| body.len() as u64);
    let first = |_: &_, body: &[u8]| body.first().copied();
    let limiter = Limiter::builder(MemoryStore::new())
        .clock(Clock::manual(ManualClock::new(BEGIN)))
        .rule(rule("waits").key(looked_up.clone()))
        .rule(rule("joined").key(looked_up.and(KeyBy::by_body(10, first))))
        .build()
        .expect("sound");
    let app = Router::new().route("/", any(tell)).layer(reading(&limiter));
    let request = http::Request::post("/").body(Frames::data(["ab", "c"])).expect("a request");
    let response = tower::ServiceExt::oneshot(app, request.map(axum::body::Body::new)).await.expect("a response");
    assert_eq!(text(response).await, "abc");
    let decision = limiter.peek(Call::new().key("waits", "user").key("joined", ("user", b'a'))).await;
    assert_eq!(decision.standings().map(|standing| standing.remaining()).collect::<Vec<_>>(), [997, 997]);
}

/// A key of several parts has the body read for the one that looks into it.
#[tokio::test]
async fn a_part_of_a_key_may_be_in_the_body() {
    let first = || KeyBy::by_body(10, |_, body| body.first().copied());
    for (key, counted) in [
        (key::method().and(first()), ("POST", "97").into_key()),
        (first().and(key::method()), ("97", "POST").into_key()),
        (first().or_refuse(StatusCode::BAD_REQUEST), "97".into_key()),
    ] {
        let rule = Rule::gcra("r", Quota::per_hour(10)).key(key);
        let limiter = Limiter::builder(MemoryStore::new()).rule(rule).build().expect("sound");
        let app = Router::new().route("/", any(tell)).layer(reading(&limiter));
        let request = http::Request::post("/").body(axum::body::Body::from("abc")).expect("a request");
        let response = tower::ServiceExt::oneshot(app.clone(), request).await.expect("a response");
        assert_eq!((field(&response, "x-ratelimit-remaining"), response.status().as_u16()), (Some("9"), 200));
        let decision = limiter.peek([("r", counted)]).await;
        assert_eq!(decision.standing("r").map(|standing| standing.remaining()), Some(9));
    }
}

/// A client that sends a part and then nothing is told, and its connection is closed.
#[tokio::test]
async fn a_silent_client_is_told_408() {
    let limiter = limiter();
    let layer = reading(&limiter).within(Duration::from_millis(20));
    let address = serve(Router::new().route("/", any(tell)).layer(layer)).await;
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    stream.write_all(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nabc").await.expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer and an end");
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!(answer.ends_with(r#""detail":"The body did not come within 20ms."}"#), "{answer}");
    assert_eq!(spent(&limiter).await, 0);
}

/// Tells when a request has begun, and when it is over, whatever became of it.
struct Course {
    begun: Arc<Notify>,
    over: Arc<Notify>,
}

impl Drop for Course {
    fn drop(&mut self) {
        self.over.notify_one();
    }
}

/// A client that goes away in the middle of its body has paid exactly if the service was called.
#[tokio::test]
async fn leaving_clients_are_charged_if_they_are_served() {
    let rule = Rule::token_bucket("bytes", Quota::per_hour(1_000)).key(key::global()).cost_by_body(10, |_, _| 1);
    let limiter = Limiter::builder(MemoryStore::new()).rule(rule).clock(Clock::manual(ManualClock::new(BEGIN)));
    let limiter = limiter.build().expect("sound");
    let served = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&served);
    let handler = async move |request: Request| {
        count.fetch_add(1, Ordering::SeqCst);
        tell(request).await
    };
    let (begun, over) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (told_begun, told_over) = (Arc::clone(&begun), Arc::clone(&over));
    let outermost = from_fn(move |request: Request, then: Then| {
        let course = Course { begun: Arc::clone(&told_begun), over: Arc::clone(&told_over) };
        async move {
            course.begun.notify_one();
            then.run(request).await
        }
    });
    let address = serve(Router::new().route("/", any(handler)).layer(reading(&limiter)).layer(outermost)).await;
    let paid_if_served = async || {
        tokio::time::timeout(Duration::from_secs(10), over.notified()).await.expect("it ends");
        assert_eq!(spent(&limiter).await, served.load(Ordering::SeqCst) as u64);
    };
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    stream.write_all(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nabc").await.expect("sent");
    begun.notified().await;
    assert_eq!(spent(&limiter).await, 0);
    drop(stream);
    paid_if_served().await;

    // A stream that is reset before its end.
    let client = h2::client::handshake(TcpStream::connect(address).await.expect("a connection")).await;
    let (client, connection) = client.expect("HTTP/2");
    tokio::spawn(connection);
    let mut client = client.ready().await.expect("ready");
    let request = http::Request::post(format!("http://{address}/")).body(()).expect("a request");
    let (_response, mut body) = client.send_request(request, false).expect("sent");
    body.send_data(Bytes::from_static(b"abc"), false).expect("sent");
    begun.notified().await;
    body.send_reset(h2::Reason::CANCEL);
    paid_if_served().await;
}

/// It goes where the plain layer goes, and other layers around and inside it.
#[tokio::test]
async fn it_composes() {
    let limiter = limiter();
    let layer = || reading(&limiter);
    let status = async |app: Router, body: Frames| {
        let request = http::Request::post("/").body(axum::body::Body::new(body)).expect("a request");
        tower::ServiceExt::oneshot(app, request).await.expect("a response").status().as_u16()
    };
    let others = || {
        ServiceBuilder::new()
            .layer(TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, Duration::from_secs(60)))
            .layer(RequestBodyTimeoutLayer::new(Duration::from_secs(60)))
            .layer(layer())
            .layer(RequestBodyTimeoutLayer::new(Duration::from_secs(60)))
            .layer(TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, Duration::from_secs(60)))
    };
    for app in [
        Router::new().route("/", any(tell)).layer(layer()),
        Router::new().route("/", any(tell)).route_layer(layer()),
        Router::new().route("/", any(tell).layer(layer())),
        Router::new().route("/", post(tell.layer(layer()))),
        Router::new().route("/", any(tell)).layer(others()),
        Router::new()
            .route("/", any(tell))
            .layer(from_fn(async |request, then: Then| then.run(request).await))
            .layer(layer()),
    ] {
        assert_eq!(status(app.clone(), Frames::data(["01234", "56789"])).await, 200);
        assert_eq!(status(app, Frames::data(["01234", "56789x"])).await, 413);
    }
    assert_eq!(spent(&limiter).await, 6 * 10);

    // An error from outside is the service's to answer: axum has its own 413 for this one.
    let limited = ServiceBuilder::new().layer(RequestBodyLimitLayer::new(5)).layer(layer());
    let app = Router::new().route("/", post(async |body: Bytes| body)).layer(limited);
    let request =
        http::Request::post("/").body(axum::body::Body::new(Frames::data(["123", "456"]))).expect("a request");
    let response = tower::ServiceExt::oneshot(app, request).await.expect("a response");
    assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
    assert!(field(&response, "x-ratelimit-remaining").is_some());
    assert!(text(response).await.contains("length limit exceeded"));

    // A timeout outside ends the wait for a body.
    let app = Router::new().route("/", any(tell)).layer(
        ServiceBuilder::new()
            .layer(TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, Duration::ZERO))
            .layer(layer()),
    );
    assert_eq!(status(app, Frames::new([Next::Silence])).await, 504);
    assert_eq!(spent(&limiter).await, 6 * 10 + 3);
}

/// Text, a response of one's own, `HEAD`.
#[tokio::test]
async fn refusals_of_bodies_have_every_form() {
    let layer = || RateLimitLayer::new(limiter());
    let app = |layer: ReadBodiesLayer| Router::new().route("/", any(tell)).layer(layer);
    let long = |method: &str| http::Request::builder().method(method).uri("/").header("content-length", "11");
    let response = ask(&app(layer().refuse_with(Format::Text).read_bodies()), long("POST")).await;
    assert_eq!(response.status(), 413);
    assert_eq!(text(response).await, "The body is longer than 10 bytes.\n");
    let own = layer().on_refused(|refusal| {
        assert_eq!((refusal.cause(), refusal.status().as_u16()), (Cause::Body, 413));
        assert!(refusal.decision().is_none() && refusal.retry_after().is_none());
        http::Response::builder().status(400).body(refusal.to_string()).expect("a response")
    });
    let response = ask(&app(own.read_bodies()), long("POST")).await;
    assert_eq!(
        (response.status().as_u16(), text(response).await),
        (400, "The body is longer than 10 bytes.".to_owned())
    );
    let response = ask(&app(layer().read_bodies()), long("HEAD")).await;
    assert_eq!((response.status().as_u16(), text(response).await), (413, String::new()));
}

/// gRPC calls are counted by their messages, and refused as their clients understand it.
#[tokio::test]
async fn grpc_calls_are_read_too() {
    let limiter = limiter();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address: SocketAddr = listener.local_addr().expect("its address");
    let server = Server::builder().layer(reading(&limiter)).add_service(Echo);
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
    let channel = echo::channel(address).await;
    let answer = echo::say(channel.clone(), "abc").await.expect("an answer");
    assert_eq!(answer.into_inner().text, "abc");
    // Five bytes of frame, two of field.
    assert_eq!(spent(&limiter).await, 10);
    let status = echo::say(channel, "abcd").await.expect_err("too long");
    assert_eq!(
        (status.code(), status.message()),
        (tonic::Code::ResourceExhausted, "The body is longer than 10 bytes.")
    );
    assert_eq!(status.metadata().get("grpc-retry-pushback-ms").expect("a pushback"), "-1");
}
