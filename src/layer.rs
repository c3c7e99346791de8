use std::sync::Arc;

use tower::Layer;

use crate::{edge::Edge, limiter::Limiter, service::RateLimit};

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
/// Where the store gives no answer, requests are allowed; a login or a payment may want the opposite:
///
/// ```
/// # use sluicegate::{key, Limiter, MemoryStore, Quota, Rule};
/// use sluicegate::{OnFailure, RateLimitLayer};
///
/// # fn layer(limiter: Limiter) -> RateLimitLayer {
/// RateLimitLayer::new(limiter).on_failure(OnFailure::Refuse)
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct RateLimitLayer {
    limiter: Limiter,
    edge: Arc<Edge>,
}

/// What happens to a request when the store gives no answer in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnFailure {
    /// It goes on, unlimited.
    #[default]
    Allow,
    /// It is refused with 503.
    Refuse,
}

impl RateLimitLayer {
    /// Limits by every rule of `limiter`.
    pub fn new(limiter: Limiter) -> RateLimitLayer {
        RateLimitLayer { limiter, edge: Arc::default() }
    }

    /// What happens when the store gives no answer in time.
    pub fn on_failure(mut self, on_failure: OnFailure) -> RateLimitLayer {
        Arc::make_mut(&mut self.edge).on_failure = on_failure;
        self
    }

    /// Whether preflight requests (`OPTIONS` with `Access-Control-Request-Method`) pass unlimited; they do unless said
    /// otherwise. A browser sends them before the request proper, without credentials, and refusing one breaks the request.
    pub fn skip_preflight(mut self, skip: bool) -> RateLimitLayer {
        Arc::make_mut(&mut self.edge).skip_preflight = skip;
        self
    }
}

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimit<S>;

    fn layer(&self, inner: S) -> RateLimit<S> {
        RateLimit::new(inner, self.limiter.clone(), Arc::clone(&self.edge))
    }
}
