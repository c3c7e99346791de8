use std::{
    mem,
    task::{Context, Poll},
    time::Duration,
};

use http::{Request, Response, header, request::Parts};
use http_body::Body;
use tower::Service;

use super::{ReadBodiesFuture, RequestBody, reading::Reading};
use crate::{body::ResponseBody, key::ReadBody, limiter::Look, refusal::BodyFault, service::RateLimit};

/// The service that [`ReadBodiesLayer`](super::ReadBodiesLayer) makes.
#[derive(Clone, Debug)]
pub struct ReadBodies<S> {
    inner: RateLimit<S>,
    within: Duration,
}

impl<S> ReadBodies<S> {
    pub(super) fn new(inner: RateLimit<S>, within: Duration) -> ReadBodies<S> {
        ReadBodies { inner, within }
    }
}

impl<S: Clone> ReadBodies<S> {
    /// The instance that was polled ready; its clone waits for the next request.
    fn take_ready(&mut self) -> RateLimit<S> {
        let clone = self.inner.clone();
        mem::replace(&mut self.inner, clone)
    }
}

/// How long the body will be at least, by what its sender says.
fn announced(head: &Parts, body: &impl Body) -> u64 {
    let length = head.headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    body.size_hint().lower().max(length.unwrap_or(0))
}

impl<S, B, R> Service<Request<B>> for ReadBodies<S>
where
    S: Service<Request<RequestBody<B>>, Response = Response<R>> + Clone,
    B: Body,
    R: Body,
{
    type Response = Response<ResponseBody<R>>;
    type Error = S::Error;
    type Future = ReadBodiesFuture<S, S::Future, B>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (mut head, body) = request.into_parts();
        match self.inner.look_at_body(&mut head) {
            Look::Leave => {}
            Look::Listed(listed) => {
                let request = Request::from_parts(head, RequestBody::untouched(body));
                return ReadBodiesFuture::called(self.inner.call_listed(listed, request));
            }
            Look::Read(most) => {
                if announced(&head, &body) > most as u64 {
                    let refusal = self.inner.refuse_body(BodyFault::TooLarge(most), &head);
                    // It is ready for a request that does not come: whatever it has reserved is given back.
                    drop(self.take_ready());
                    return ReadBodiesFuture::called(refusal);
                }
                if !body.is_end_stream() {
                    return ReadBodiesFuture::reading(Reading::new(body, most, self.within), self.take_ready(), head);
                }
                head.extensions.insert(ReadBody::default());
            }
        }
        ReadBodiesFuture::called(self.inner.call(Request::from_parts(head, RequestBody::untouched(body))))
    }
}
