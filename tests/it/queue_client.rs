//! The layer around clients: what goes out is shaped, over real HTTP.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use axum::{Router, body::Body, routing::get};
use http::{Request, Response};
use http_body_util::BodyExt;
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use sluicegate::{Limiter, MemoryStore, Quota, RateLimitLayer, Rule};
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::support::app::serve;

const MS: Duration = Duration::from_millis(1);

/// A partner that counts what it gets, and its address.
async fn partner() -> (String, Arc<AtomicU32>) {
    let calls = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&calls);
    let app = Router::new().route("/", get(async move || counted.fetch_add(1, Ordering::Relaxed).to_string()));
    (format!("http://{}/", serve(app).await), calls)
}

/// Forty a second to each host, and three may wait.
fn layer() -> RateLimitLayer {
    let rule = Rule::leaky_bucket("calls", Quota::per_second(40)).queue(Duration::from_secs(10), 3);
    let rule = rule.key_by(|req| req.uri.authority().map(|authority| authority.as_str().to_owned()));
    RateLimitLayer::new(Limiter::builder(MemoryStore::new()).rule(rule).build().expect("sound"))
}

/// Six at once: four go out a fortieth of a second apart, two are refused here.
async fn six_at_once<S, B, R>(service: S, url: &str)
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: std::fmt::Debug + Send,
    B: Default + Send + 'static,
    R: http_body::Body + Send + 'static,
    R::Error: std::fmt::Debug,
{
    let began = Instant::now();
    let calls: Vec<_> = (0..6)
        .map(|_| {
            let request = Request::builder().uri(url).body(B::default()).expect("a request");
            tokio::spawn(service.clone().oneshot(request))
        })
        .collect();
    let mut refused = 0;
    for call in calls {
        let response = call.await.expect("no panic").expect("a response");
        if response.status() == 429 {
            refused += 1;
            continue;
        }
        assert_eq!(response.status(), 200);
        assert!(response.into_body().collect().await.is_ok());
    }
    assert_eq!(refused, 2);
    assert!(began.elapsed() >= 75 * MS, "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_hyper_client_is_a_service_like_any_other() {
    let (url, calls) = partner().await;
    let client = Client::builder(TokioExecutor::new()).build_http::<Body>();
    six_at_once(layer().layer(client), &url).await;
    assert_eq!(calls.load(Ordering::Relaxed), 4, "what is refused never goes out");
}

#[tokio::test]
async fn a_reqwest_client_takes_a_closure() {
    let (url, calls) = partner().await;
    let client = reqwest::Client::new();
    let service = service_fn(move |request: Request<reqwest::Body>| {
        let client = client.clone();
        async move { client.execute(request.try_into()?).await.map(Response::<reqwest::Body>::from) }
    });
    six_at_once(layer().layer(service), &url).await;
    assert_eq!(calls.load(Ordering::Relaxed), 4, "what is refused never goes out");
}
