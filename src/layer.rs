use std::{error::Error, sync::Arc};

use bytes::Bytes;
use http::Response;
use http_body::Body;
use tower::Layer;

use crate::{
    bodies::ReadBodiesLayer,
    edge::Edge,
    headers::Headers,
    limiter::Limiter,
    refusal::{Denial, Format, OnRefused, Refusal, Settings},
    service::RateLimit,
};

/// Puts a [`Limiter`] in front of any tower service of HTTP requests.
///
/// ```
/// use axum::{Router, routing::get};
/// use sluicegate::{key, Limiter, MemoryStore, Quota, RateLimitLayer, Rule};
///
/// # fn main() -> Result<(), sluicegate::BuildError> {
/// let limiter = Limiter::builder(MemoryStore::new())
///     .rule(Rule::gcra("per-ip", Quota::per_second(20)).key(key::ip()))
///     .build()?;
/// let app: Router = Router::new().route("/", get(|| async { "hello" })).layer(RateLimitLayer::new(limiter));
/// # Ok(())
/// # }
/// ```
///
/// Requests that a rule refuses get a 429 and do not reach the service; every other response carries the quota fields. The
/// order among other layers matters: see the [guide](crate::guide::ordering).
///
/// What becomes of requests while the store gives no answer is for each rule to say: [`Rule::on_failure`](crate::Rule::on_failure).
#[derive(Clone, Debug)]
#[must_use]
pub struct RateLimitLayer {
    edge: Arc<Edge>,
}

impl RateLimitLayer {
    /// Limits by every rule of `limiter`.
    pub fn new(limiter: Limiter) -> RateLimitLayer {
        RateLimitLayer { edge: Arc::new(Edge::new(limiter)) }
    }

    /// Whether preflight requests (`OPTIONS` with `Origin` and `Access-Control-Request-Method`) pass unlimited; they do unless
    /// said otherwise. A browser sends them before the request proper, without credentials, and refusing one breaks the request.
    /// Anybody can send one: let the CORS layer, which goes outside this one, answer them, or limit them where a route does.
    pub fn skip_preflight(mut self, skip: bool) -> RateLimitLayer {
        Arc::make_mut(&mut self.edge).skip_preflight = skip;
        self
    }

    /// Which quota fields responses carry: [`Headers::default`] unless said otherwise.
    ///
    /// ```
    /// # use sluicegate::Limiter;
    /// use sluicegate::{Headers, RateLimitLayer};
    ///
    /// # fn layer(limiter: Limiter) -> RateLimitLayer {
    /// RateLimitLayer::new(limiter).headers(Headers::none())
    /// # }
    /// ```
    pub fn headers(mut self, headers: Headers) -> RateLimitLayer {
        headers.check(&self.edge.limiter);
        Arc::make_mut(&mut self.edge).headers = headers;
        self
    }

    /// Whether up to a tenth, at least one and at most five seconds are added to `Retry-After` at random, so that those who
    /// were refused together do not come back together; they are unless said otherwise. Nothing is ever taken away.
    pub fn jitter(mut self, jitter: bool) -> RateLimitLayer {
        Arc::make_mut(&mut self.edge).jitter = jitter;
        self
    }

    /// What refused HTTP requests get, `application/problem+json` unless said otherwise.
    ///
    /// ```
    /// # use sluicegate::{Limiter, RateLimitLayer};
    /// use sluicegate::refusal::Format;
    ///
    /// # fn layer(limiter: Limiter) -> RateLimitLayer {
    /// RateLimitLayer::new(limiter).refuse_with(Format::Text)
    /// # }
    /// ```
    pub fn refuse_with(mut self, format: Format) -> RateLimitLayer {
        self.refusals().format = format;
        self
    }

    /// What refused HTTP requests get, by a closure that makes the whole response.
    ///
    /// ```
    /// use axum::{Json, response::IntoResponse};
    /// use http::StatusCode;
    /// # use sluicegate::{Limiter, RateLimitLayer};
    ///
    /// # fn layer(limiter: Limiter) -> RateLimitLayer {
    /// RateLimitLayer::new(limiter).on_refused(|refusal| {
    ///     let path = refusal.head().uri.path();
    ///     (StatusCode::FORBIDDEN, Json(serde_json::json!({ "message": refusal.to_string(), "path": path }))).into_response()
    /// })
    /// # }
    /// ```
    ///
    /// The status is the closure's to set, and what else it sets stays. `Retry-After`, `Cache-Control: no-store` and the
    /// quota fields are added where it did not set them, and `HEAD` requests get the headers without the body. It may
    /// return an `Option`: `None` is the layer's own response.
    ///
    /// ```
    /// use http::{Response, StatusCode};
    /// use sluicegate::refusal::Cause;
    /// # use sluicegate::{Limiter, RateLimitLayer};
    ///
    /// # fn layer(limiter: Limiter) -> RateLimitLayer {
    /// RateLimitLayer::new(limiter).on_refused(|refusal| match refusal.cause() {
    ///     Cause::Quota => Response::builder().status(StatusCode::FORBIDDEN).body(refusal.to_string()).ok(),
    ///     _ => None,
    /// })
    /// # }
    /// ```
    ///
    /// gRPC calls do not come here: an answer in anything but gRPC reaches their callers as another error, which they may
    /// retry at once. They get [theirs](crate::refusal#grpc).
    pub fn on_refused<F, R, B>(mut self, closure: F) -> RateLimitLayer
    where
        F: Fn(&Refusal<'_>) -> R + Send + Sync + 'static,
        R: Into<Option<Response<B>>>,
        B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
    {
        self.refusals().on_refused = Some(OnRefused::new(closure));
        self
    }

    /// Whether gRPC calls are refused as their clients understand it; they are unless said otherwise. Such a refusal has the
    /// status 200, and anybody can send a request that looks like a call: switch it off where the status alone decides, as in a
    /// service that a proxy asks whether to let a request in.
    ///
    /// ```
    /// # use sluicegate::{Limiter, RateLimitLayer};
    /// # fn layer(limiter: Limiter) -> RateLimitLayer {
    /// RateLimitLayer::new(limiter).grpc(false)
    /// # }
    /// ```
    pub fn grpc(mut self, grpc: bool) -> RateLimitLayer {
        self.refusals().grpc = grpc;
        self
    }

    /// Whether refused gRPC calls also get `grpc-status-details-bin`: a `google.rpc.Status` with `RetryInfo` and, for
    /// quotas, `QuotaFailure`, which names the rules that refused and their quotas. They do not unless said otherwise.
    ///
    /// ```
    /// # use sluicegate::{Limiter, RateLimitLayer};
    /// # fn layer(limiter: Limiter) -> RateLimitLayer {
    /// RateLimitLayer::new(limiter).grpc_details(true)
    /// # }
    /// ```
    pub fn grpc_details(mut self, details: bool) -> RateLimitLayer {
        self.refusals().grpc_details = details;
        self
    }

    /// What callers on a [deny list](crate::Lists) get: 403 unless said otherwise.
    ///
    /// ```
    /// # use sluicegate::{Limiter, RateLimitLayer};
    /// use sluicegate::refusal::Denial;
    ///
    /// # fn layer(limiter: Limiter) -> RateLimitLayer {
    /// RateLimitLayer::new(limiter).deny_with(Denial::TooManyRequests)
    /// # }
    /// ```
    pub fn deny_with(mut self, denial: Denial) -> RateLimitLayer {
        self.refusals().denial = denial;
        self
    }

    /// Reads the bodies of requests where a rule looks into them: [`Rule::cost_by_body`](crate::Rule::cost_by_body),
    /// [`Rule::key_by_body`](crate::Rule::key_by_body). Say it last, after the settings above.
    ///
    /// ```
    /// # use sluicegate::{Limiter, RateLimitLayer, bodies::ReadBodiesLayer};
    /// # fn layer(limiter: Limiter) -> ReadBodiesLayer {
    /// RateLimitLayer::new(limiter).read_bodies()
    /// # }
    /// ```
    ///
    /// The service then gets requests with another type of body, see [`bodies`](crate::bodies).
    pub fn read_bodies(self) -> ReadBodiesLayer {
        ReadBodiesLayer::new(self.edge)
    }

    fn refusals(&mut self) -> &mut Settings {
        &mut Arc::make_mut(&mut self.edge).refusals
    }
}

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimit<S>;

    fn layer(&self, inner: S) -> RateLimit<S> {
        self.edge.limiter.warn_of_unread_bodies();
        RateLimit::new(inner, Arc::clone(&self.edge))
    }
}
