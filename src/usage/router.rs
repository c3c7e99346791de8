use axum::{Router, body::Body, routing::get};
use http::{HeaderValue, Response, StatusCode, header, request::Parts};

use crate::{
    limiter::{Asked, Limiter},
    refusal::problem,
};

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// A route, `GET /`, that tells callers how much they have left, as JSON. It is for you to mount.
///
/// ```
/// use axum::{Router, routing::get};
/// use sluicegate::{Limiter, RateLimitLayer, usage};
///
/// # fn app(limiter: Limiter) -> Router {
/// Router::new()
///     .route("/", get(|| async { "hello" }))
///     .layer(RateLimitLayer::new(limiter.clone()))
///     .nest("/usage", usage::router(limiter))
/// # }
/// ```
///
/// The rules find their keys in the head of this very request, so callers learn of themselves alone, as far as those keys can
/// be trusted: where a layer authenticates callers, it belongs around this route too. A request whose key a rule
/// [refuses](crate::key::KeyBy::or_refuse) is refused here with the same status. Keys are never told, nor are rules that find
/// none. A rule that counts by route or path tells how it stands for this route.
///
/// Each answer is one look at the store for each 21 rules, whatever their paths. On the open internet, give the route a limiter of its own. When the store gives no
/// answer, it is a 503.
pub fn router<S>(limiter: Limiter) -> Router<S>
where
    S: Clone + Send + Sync + 'static,
{
    Router::new().route("/", get(move |head: Parts| answer(limiter, head)))
}

async fn answer(limiter: Limiter, head: Parts) -> Response<Body> {
    match limiter.usage_of_caller(&head).await {
        Asked::Usage(usage) => response(StatusCode::OK, JSON, usage.to_json()),
        Asked::Refuse(status) => response(status, problem::CONTENT_TYPE, problem::blank(status)),
        Asked::Failed => {
            let status = StatusCode::SERVICE_UNAVAILABLE;
            let text = problem::reduced_capacity(status, "Usage could not be looked up; retry in 1 second.");
            let mut response = response(status, problem::CONTENT_TYPE, text);
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            response
        }
    }
}

fn response(status: StatusCode, content_type: HeaderValue, text: String) -> Response<Body> {
    let mut response = Response::new(text.into());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    response.headers_mut().insert(header::CACHE_CONTROL, NO_STORE);
    response
}
