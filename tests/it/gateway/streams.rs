//! Bodies pass piece by piece, both ways: each piece is there before the next one is sent.

use std::{convert::Infallible, sync::Arc};

use axum::{
    Router,
    body::{Body, Bytes},
    routing::{get, post},
};
use http::Request;
use http_body_util::BodyExt;
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use tokio::sync::{Mutex, mpsc};
use tonic::codegen::tokio_stream::{StreamExt, wrappers::ReceiverStream};

use super::{Gateway, policy, soon};
use crate::support::app::serve;

/// A body that is as long as somebody sends.
fn body() -> (mpsc::Sender<&'static str>, Body) {
    let (sender, receiver) = mpsc::channel(1);
    let pieces =
        ReceiverStream::new(receiver).map(|text: &str| Ok::<_, Infallible>(Bytes::from_static(text.as_bytes())));
    (sender, Body::from_stream(pieces))
}

async fn piece(body: &mut (impl http_body::Body<Data = Bytes, Error: std::fmt::Debug> + Unpin)) -> Option<Bytes> {
    let frame = soon("a piece", body.frame()).await?;
    Some(frame.expect("no error").into_data().expect("data"))
}

#[tokio::test]
async fn answers_arrive_before_they_end() {
    let (sender, sent) = body();
    let sent = Arc::new(Mutex::new(Some(sent)));
    let app = Router::new().route("/", get(async move || sent.lock().await.take().expect("asked once")));
    let upstream = format!("http://{}", serve(app).await);
    let gateway = Gateway::start(&policy("1000/h"), &["--upstream", &upstream]);
    let client = Client::builder(TokioExecutor::new()).build_http::<Body>();
    let asking = client.get(gateway.url("/").parse().expect("an address"));
    let mut response = soon("the head", asking).await.expect("a response");
    assert_eq!(response.status(), 200);
    for text in ["one", "two", "three"] {
        sender.send(text).await.expect("somebody listens");
        assert_eq!(piece(response.body_mut()).await.as_deref(), Some(text.as_bytes()));
    }
    drop(sender);
    assert_eq!(piece(response.body_mut()).await, None);
}

#[tokio::test]
async fn uploads_arrive_before_they_end() {
    let (arrived, mut arriving) = mpsc::channel(1);
    let app = Router::new().route(
        "/",
        post(async move |body: Body| {
            let mut body = body;
            while let Some(piece) = piece(&mut body).await {
                arrived.send(piece).await.expect("somebody listens");
            }
            "all"
        }),
    );
    let upstream = format!("http://{}", serve(app).await);
    let gateway = Gateway::start(&policy("1000/h"), &["--upstream", &upstream]);
    let (sender, body) = body();
    let client = Client::builder(TokioExecutor::new()).build_http::<Body>();
    let asked = tokio::spawn(client.request(Request::post(gateway.url("/")).body(body).expect("a request")));
    for _ in 0..5 {
        sender.send("some").await.expect("somebody listens");
        assert_eq!(soon("a piece", arriving.recv()).await.as_deref(), Some(&b"some"[..]));
    }
    drop(sender);
    let response = soon("an answer", asked).await.expect("no panic").expect("a response");
    assert_eq!(response.status(), 200);
    assert_eq!(response.into_body().collect().await.expect("a body").to_bytes(), "all");
}
