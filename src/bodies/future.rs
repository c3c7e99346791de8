use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use http::{Request, Response, request::Parts};
use http_body::Body;
use pin_project_lite::pin_project;
use tower::Service;

use super::{RequestBody, reading::Reading};
use crate::{body::ResponseBody, future::ResponseFuture, key::ReadBody, service::RateLimit};

pin_project! {
    /// The future of [`ReadBodies`](super::ReadBodies).
    pub struct ReadBodiesFuture<S, F, B>
    where
        B: Body,
    {
        #[pin]
        state: State<S, F, B>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<S, F, B>
    where
        B: Body,
    {
        /// The service waits in readiness. Nothing is charged yet, and no store is asked.
        Reading { waiting: Option<Box<Waiting<S, B>>> },
        Called { #[pin] future: ResponseFuture<S, F, RequestBody<B>> },
    }
}

struct Waiting<S, B> {
    reading: Reading<B>,
    service: RateLimit<S>,
    head: Parts,
}

impl<S, F, B: Body> ReadBodiesFuture<S, F, B> {
    pub(super) fn called(future: ResponseFuture<S, F, RequestBody<B>>) -> Self {
        ReadBodiesFuture { state: State::Called { future } }
    }

    pub(super) fn reading(reading: Reading<B>, service: RateLimit<S>, head: Parts) -> Self {
        ReadBodiesFuture { state: State::Reading { waiting: Some(Box::new(Waiting { reading, service, head })) } }
    }
}

impl<S, B, R> Future for ReadBodiesFuture<S, S::Future, B>
where
    S: Service<Request<RequestBody<B>>, Response = Response<R>> + Clone,
    B: Body,
    R: Body,
{
    type Output = Result<Response<ResponseBody<R>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let future = match this.state.as_mut().project() {
                StateProj::Called { future } => return future.poll(cx),
                StateProj::Reading { waiting } => {
                    // Polled again after it was ready, here and below.
                    let Some(begun) = waiting else { return Poll::Pending };
                    let read = ready!(begun.reading.poll(cx));
                    let Some(begun) = waiting.take() else { return Poll::Pending };
                    let Waiting { mut service, mut head, .. } = *begun;
                    match read {
                        Ok((data, body)) => {
                            head.extensions.insert(ReadBody(data));
                            service.call(Request::from_parts(head, body))
                        }
                        Err(fault) => service.refuse_body(fault, &head),
                    }
                }
            };
            this.state.set(State::Called { future });
        }
    }
}

impl<S, F, B: Body> fmt::Debug for ReadBodiesFuture<S, F, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.state {
            State::Reading { .. } => "ReadBodiesFuture(reading)",
            State::Called { .. } => "ReadBodiesFuture(called)",
        })
    }
}
