use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use http::{Request, Response, StatusCode, request::Parts};
use http_body::Body;
use pin_project_lite::pin_project;
use tower::Service;

use crate::{
    body::ResponseBody,
    decision::Decision,
    edge::Edge,
    headers::Noted,
    limiter::{Charge, Permit},
    refusal::{BodyFault, Refusal, RefusalBody},
};

/// What was ruled over a request.
#[derive(Debug)]
pub(crate) enum Ruling {
    /// And what it was charged, where that may change.
    Decided(Decision, Option<Charge>),
    /// A key closure refused it.
    KeyRefused(StatusCode),
    /// A rule looks into its body, which the layer does not read.
    BodyUnread,
}

/// Gives back the head of the request.
type Deciding = Pin<Box<dyn Future<Output = (Parts, Ruling)> + Send>>;

pin_project! {
    /// The future of [`RateLimit`](crate::RateLimit).
    pub struct ResponseFuture<S, F, B> {
        #[pin]
        state: State<S, F, B>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<S, F, B> {
        /// The store is asked; the service waits in readiness. Behind a pointer, as is a refusal, so that the future of a
        /// request that waits for neither is small: it is moved several times.
        Deciding { waiting: Option<Box<Waiting<S, B>>> },
        /// The service is at work. Nothing noted: its response is left as it is.
        Running {
            #[pin]
            inner: F,
            noted: Option<(Decision, Noted, Arc<Edge>)>,
            charge: Option<Charge>,
            permit: Option<Permit>,
        },
        Refused { response: Option<Box<Response<RefusalBody>>> },
    }
}

struct Waiting<S, B> {
    deciding: Deciding,
    service: S,
    body: B,
    edge: Arc<Edge>,
}

impl<S, F, B> ResponseFuture<S, F, B> {
    pub(crate) fn unlimited(inner: F) -> Self {
        ResponseFuture { state: State::Running { inner, noted: None, charge: None, permit: None } }
    }

    pub(crate) fn refused(response: Response<RefusalBody>) -> Self {
        ResponseFuture { state: State::Refused { response: Some(Box::new(response)) } }
    }

    pub(crate) fn deciding(deciding: Deciding, service: S, body: B, edge: Arc<Edge>) -> Self {
        let waiting = Some(Box::new(Waiting { deciding, service, body, edge }));
        ResponseFuture { state: State::Deciding { waiting } }
    }

    #[inline]
    pub(crate) fn ruled(ruling: Ruling, head: Parts, body: B, service: &mut S, edge: &Arc<Edge>) -> Self
    where
        S: Service<Request<B>, Future = F>,
    {
        ResponseFuture { state: follow(ruling, head, body, service, edge) }
    }

    pub(crate) fn is_refused(&self) -> bool {
        matches!(self.state, State::Refused { .. })
    }
}

/// Calls the service, or answers in its place.
#[inline]
fn follow<S, B>(ruling: Ruling, mut head: Parts, body: B, service: &mut S, edge: &Arc<Edge>) -> State<S, S::Future, B>
where
    S: Service<Request<B>>,
{
    let refused = |refusal: Refusal<'_>| State::Refused { response: Some(Box::new(refusal.response(edge))) };
    let (mut decision, charge) = match ruling {
        Ruling::KeyRefused(status) => return refused(Refusal::by_key(status, &head)),
        Ruling::BodyUnread => return refused(Refusal::by_body(BodyFault::Unread, &head)),
        Ruling::Decided(decision, charge) => (decision, charge),
    };
    if let Some(refusal) = Refusal::of(&decision, &head, edge) {
        return refused(refusal);
    }
    if let Some(charge) = &charge {
        let outer = head.extensions.remove::<Charge>();
        head.extensions.insert(charge.clone().within(outer));
    }
    let permit = decision.permit();
    let outer = head.extensions.insert(decision.clone());
    let nested = outer.is_some();
    if nested {
        decision = decision.within(outer);
        head.extensions.insert(decision.clone());
    }
    let noted = edge.headers(decision.rules()).note(&decision, &head, nested);
    let noted = noted.map(|noted| (decision, noted, Arc::clone(edge)));
    State::Running { inner: service.call(Request::from_parts(head, body)), noted, charge, permit }
}

impl<S, B, R> Future for ResponseFuture<S, S::Future, B>
where
    S: Service<Request<B>, Response = Response<R>>,
    R: Body,
{
    type Output = Result<Response<ResponseBody<R>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let next = match this.state.as_mut().project() {
                StateProj::Deciding { waiting } => {
                    // Polled again after it was ready, here and below.
                    let Some(asked) = waiting else { return Poll::Pending };
                    let (head, ruling) = ready!(asked.deciding.as_mut().poll(cx));
                    let Some(asked) = waiting.take() else { return Poll::Pending };
                    let Waiting { mut service, body, edge, .. } = *asked;
                    follow(ruling, head, body, &mut service, &edge)
                }
                StateProj::Running { inner, noted, charge, permit } => {
                    let mut response = ready!(inner.poll(cx))?;
                    if let Some((decision, noted, edge)) = noted {
                        edge.headers(decision.rules()).write_noted(decision, noted, None, &mut response);
                    }
                    let (charge, permit) = (charge.take(), permit.take());
                    let Some(charge) = charge else {
                        return Poll::Ready(Ok(response.map(|body| ResponseBody::inner(body).holding(permit))));
                    };
                    let (head, body) = response.into_parts();
                    let body = match charge.respond(&head) {
                        true => ResponseBody::counted(body, charge),
                        false => ResponseBody::inner(body),
                    };
                    return Poll::Ready(Ok(Response::from_parts(head, body.holding(permit))));
                }
                StateProj::Refused { response } => match response.take() {
                    Some(response) => return Poll::Ready(Ok((*response).map(ResponseBody::refusal))),
                    None => return Poll::Pending,
                },
            };
            this.state.set(next);
        }
    }
}

impl<S, F, B> fmt::Debug for ResponseFuture<S, F, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.state {
            State::Deciding { .. } => "ResponseFuture(deciding)",
            State::Running { .. } => "ResponseFuture(running)",
            State::Refused { .. } => "ResponseFuture(refused)",
        })
    }
}
