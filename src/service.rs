use std::{
    mem,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Method, Request, Response, header, request::Parts};
use http_body::Body;
use tower::Service;

use crate::{
    body::ResponseBody,
    decision::Decision,
    edge::Edge,
    future::{ResponseFuture, Ruling},
    limiter::{Limiter, Picked},
    store::Purpose,
};

/// The service that [`RateLimitLayer`](crate::RateLimitLayer) makes.
#[derive(Clone, Debug)]
pub struct RateLimit<S> {
    inner: S,
    limiter: Limiter,
    edge: Arc<Edge>,
}

impl<S> RateLimit<S> {
    pub(crate) fn new(inner: S, limiter: Limiter, edge: Arc<Edge>) -> RateLimit<S> {
        RateLimit { inner, limiter, edge }
    }

    /// Whether this request passes unlimited: a preflight, or one that this very limiter has counted further out.
    fn passes(&self, head: &Parts) -> bool {
        if self.edge.skip_preflight && is_preflight(head) {
            return true;
        }
        let twice = head.extensions.get::<Decision>().is_some_and(|outer| outer.is_of(self.limiter.rules()));
        if twice {
            self.limiter.warn_of_layering_twice();
        }
        twice
    }
}

/// What a browser asks before the request proper. It carries no credentials, and refusing it breaks the request.
fn is_preflight(head: &Parts) -> bool {
    head.method == Method::OPTIONS && head.headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

impl<S, B, R> Service<Request<B>> for RateLimit<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    R: Body,
{
    type Response = Response<ResponseBody<R>>;
    type Error = S::Error;
    type Future = ResponseFuture<S, S::Future, B>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (head, body) = request.into_parts();
        // The instance that was polled ready answers; its clone waits for the next request.
        let clone = self.inner.clone();
        let mut inner = mem::replace(&mut self.inner, clone);

        if self.passes(&head) {
            return ResponseFuture::unlimited(inner.call(Request::from_parts(head, body)));
        }
        let (limiter, edge) = (&self.limiter, Arc::clone(&self.edge));
        match limiter.pick_now(&head) {
            Some(Picked::Refuse(status)) => ResponseFuture::ruled(Ruling::KeyRefused(status), head, body, inner, edge),
            Some(Picked::Rules(picks)) => match limiter.decide_now(picks.iter(), Purpose::Spend) {
                Some(decision) => ResponseFuture::ruled(Ruling::Decided(decision), head, body, inner, edge),
                None => {
                    let limiter = limiter.clone();
                    let deciding =
                        Box::pin(
                            async move { (None, Ruling::Decided(limiter.decide(picks.iter(), Purpose::Spend).await)) },
                        );
                    ResponseFuture::deciding(deciding, inner, body, Some(head), edge)
                }
            },
            // A key closure must wait, and looks at the head meanwhile.
            None => {
                let limiter = limiter.clone();
                let deciding = Box::pin(async move {
                    let ruling = match limiter.pick_later(&head).await {
                        Picked::Refuse(status) => Ruling::KeyRefused(status),
                        Picked::Rules(picks) => {
                            Ruling::Decided(match limiter.decide_now(picks.iter(), Purpose::Spend) {
                                Some(decision) => decision,
                                None => limiter.decide(picks.iter(), Purpose::Spend).await,
                            })
                        }
                    };
                    (Some(head), ruling)
                });
                ResponseFuture::deciding(deciding, inner, body, None, edge)
            }
        }
    }
}
