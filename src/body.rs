use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::{limiter::Permit, refusal::RefusalBody};

pin_project! {
    /// The service's own body, or the explanation of a refusal.
    ///
    /// Asks nothing of the service's body but that it is one. Data comes as [`Bytes`], which costs a copy only where it was
    /// something else. A body that [`on_refused`](crate::RateLimitLayer::on_refused) gave cannot fail with the service's error:
    /// where it does fail it ends, and that is logged.
    #[derive(Debug)]
    pub struct ResponseBody<B> {
        #[pin]
        kind: Kind<B>,
        // Places that the request holds until its response has ended.
        permit: Option<Permit>,
    }
}

pin_project! {
    #[project = KindProj]
    #[derive(Debug)]
    enum Kind<B> {
        Inner { #[pin] body: B },
        Refusal { body: RefusalBody },
    }
}

impl<B> ResponseBody<B> {
    pub(crate) fn inner(body: B) -> ResponseBody<B> {
        ResponseBody { kind: Kind::Inner { body }, permit: None }
    }

    pub(crate) fn holding(self, permit: Option<Permit>) -> ResponseBody<B> {
        ResponseBody { permit, ..self }
    }

    pub(crate) fn refusal(body: RefusalBody) -> ResponseBody<B> {
        ResponseBody { kind: Kind::Refusal { body }, permit: None }
    }
}

/// An empty body, whatever the service's is like; other layers make their own responses of it.
impl<B> Default for ResponseBody<B> {
    fn default() -> ResponseBody<B> {
        ResponseBody::refusal(RefusalBody::default())
    }
}

impl<B: Body> Body for ResponseBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.project();
        match this.kind.project() {
            KindProj::Inner { mut body } => {
                let polled = body.as_mut().poll_frame(cx);
                if this.permit.is_some()
                    && (matches!(polled, Poll::Ready(None | Some(Err(_)))) || polled.is_ready() && body.is_end_stream())
                {
                    *this.permit = None;
                }
                polled.map_ok(|frame| {
                    frame.map_data(|mut data| {
                        let length = data.remaining();
                        data.copy_to_bytes(length)
                    })
                })
            }
            KindProj::Refusal { body } => body.poll(cx).map(|frame| frame.map(Ok)),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Inner { body } => body.is_end_stream(),
            Kind::Refusal { body } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Inner { body } => body.size_hint(),
            Kind::Refusal { body } => body.size_hint(),
        }
    }
}
