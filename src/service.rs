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
    limiter::{Limiter, Look, Picked, Picks, Turn},
    lists::Listed,
    refusal::{BodyFault, Refusal},
    store::Purpose,
};

/// The service that [`RateLimitLayer`](crate::RateLimitLayer) makes.
#[derive(Clone, Debug)]
pub struct RateLimit<S> {
    inner: S,
    edge: Arc<Edge>,
}

impl<S> RateLimit<S> {
    pub(crate) fn new(inner: S, edge: Arc<Edge>) -> RateLimit<S> {
        RateLimit { inner, edge }
    }

    /// Whether this request passes unlimited: a preflight, or one that this very limiter has counted further out.
    fn passes(&self, head: &mut Parts) -> bool {
        let outer = head.extensions.get::<Decision>();
        if self.edge.skip_preflight && is_preflight(head) {
            if outer.is_none() {
                // For handlers that ask for it.
                head.extensions.insert(self.edge.limiter.undecided());
            }
            return true;
        }
        if !self.is_counted(head) {
            return false;
        }
        self.edge.limiter.warn_of_layering_twice();
        true
    }

    /// Whether this very limiter has counted the request further out.
    fn is_counted(&self, head: &Parts) -> bool {
        head.extensions.get::<Decision>().and_then(|outer| outer.of(self.edge.limiter.rules())).is_some()
    }

    /// What is to be done with the request's body before it is called. The call goes by the same rules.
    pub(crate) fn look_at_body(&self, head: &mut Parts) -> Look {
        let look = self.edge.limiter.look_ahead(head).look_at_body(head);
        let passes = || self.edge.skip_preflight && is_preflight(head) || self.is_counted(head);
        if matches!(look, Look::Leave) || passes() { Look::Leave } else { look }
    }

    /// Answers a request whose body cannot be read, in place of the service.
    pub(crate) fn refuse_body<F, B>(&self, fault: BodyFault, head: &Parts) -> ResponseFuture<S, F, B> {
        ResponseFuture::refused(Refusal::by_body(fault, head).response(&self.edge))
    }
}

impl<S: Clone> RateLimit<S> {
    /// The instance that was polled ready; its clone waits for the next request.
    fn take_ready(&mut self) -> S {
        let clone = self.inner.clone();
        mem::replace(&mut self.inner, clone)
    }

    /// Carries out what a list has said.
    pub(crate) fn call_listed<B>(&mut self, listed: Listed, request: Request<B>) -> ResponseFuture<S, S::Future, B>
    where
        S: Service<Request<B>>,
    {
        let (mut head, body) = request.into_parts();
        let ruling = self.edge.limiter.of_call(&mut head).listed_ruling(listed, &mut head);
        self.follow(ruling, head, body)
    }

    /// Carries out what was ruled without waiting.
    fn follow<B>(&mut self, ruling: Ruling, head: Parts, body: B) -> ResponseFuture<S, S::Future, B>
    where
        S: Service<Request<B>>,
    {
        let future = ResponseFuture::ruled(ruling, head, body, &mut self.inner, &self.edge);
        if future.is_refused() {
            // It is ready for a request that does not come: whatever it has reserved is given back.
            drop(self.take_ready());
        }
        future
    }
}

impl<S: Clone> RateLimit<S> {
    /// Has the request wait for its turn.
    #[cold]
    fn queue<B>(
        &mut self,
        limiter: Limiter,
        turn: Turn,
        decision: Decision,
        picks: Picks,
        head: Parts,
        body: B,
    ) -> ResponseFuture<S, S::Future, B>
    where
        S: Service<Request<B>>,
    {
        let deciding = Box::pin(async move {
            turn.come().await;
            let ruling = limiter.ruling(decision.after_turn(), picks);
            (head, ruling)
        });
        ResponseFuture::deciding(deciding, self.take_ready(), body, Arc::clone(&self.edge))
    }
}

/// What a browser asks before the request proper. It carries no credentials, and refusing it breaks the request.
pub(crate) fn is_preflight(head: &Parts) -> bool {
    head.method == Method::OPTIONS
        && head.headers.contains_key(header::ORIGIN)
        && head.headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
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
        let (mut head, body) = request.into_parts();
        if self.passes(&mut head) {
            return ResponseFuture::unlimited(self.inner.call(Request::from_parts(head, body)));
        }
        let limiter = self.edge.limiter.of_call(&mut head);
        let picks = match limiter.pick_now(&head) {
            Some(Picked::Rules(picks)) => picks,
            Some(Picked::Refuse(status)) => {
                drop(limiter);
                return self.follow(Ruling::KeyRefused(status), head, body);
            }
            Some(Picked::Listed(listed)) => {
                let ruling = limiter.listed_ruling(listed, &mut head);
                drop(limiter);
                return self.follow(ruling, head, body);
            }
            Some(Picked::Unread) => {
                drop(limiter);
                return self.follow(Ruling::BodyUnread, head, body);
            }
            // A key closure must wait, and looks at the head meanwhile.
            None => {
                let (edge, limiter) = (Arc::clone(&self.edge), limiter.into_owned());
                let deciding = Box::pin(async move {
                    let ruling = match limiter.pick_later(&head).await {
                        Picked::Refuse(status) => Ruling::KeyRefused(status),
                        Picked::Listed(listed) => limiter.listed_ruling(listed, &mut head),
                        Picked::Unread => Ruling::BodyUnread,
                        Picked::Rules(picks) => {
                            edge.picked(&limiter, &picks, &mut head);
                            let decision = match limiter.decide_now(picks.iter(), Purpose::Spend) {
                                Some(decision) => decision,
                                None => limiter.decide(picks.iter(), Purpose::Spend).await,
                            };
                            let decision = limiter.wait_for_turn(decision, &picks).await;
                            limiter.ruling(decision, picks)
                        }
                    };
                    (head, ruling)
                });
                return ResponseFuture::deciding(deciding, self.take_ready(), body, Arc::clone(&self.edge));
            }
        };
        self.edge.picked(&limiter, &picks, &mut head);
        if let Some(decision) = limiter.decide_now(picks.iter(), Purpose::Spend) {
            if let Some(turn) = limiter.turn(&decision, picks.iter()) {
                let limiter = limiter.into_owned();
                return self.queue(limiter, turn, decision, picks, head, body);
            }
            let ruling = limiter.ruling(decision, picks);
            drop(limiter);
            return self.follow(ruling, head, body);
        }
        let limiter = limiter.into_owned();
        let deciding = Box::pin(async move {
            let decision = limiter.decide(picks.iter(), Purpose::Spend).await;
            let decision = limiter.wait_for_turn(decision, &picks).await;
            let ruling = limiter.ruling(decision, picks);
            (head, ruling)
        });
        ResponseFuture::deciding(deciding, self.take_ready(), body, Arc::clone(&self.edge))
    }
}
