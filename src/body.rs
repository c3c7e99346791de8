use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::{
    limiter::{Charge, Permit},
    refusal::RefusalBody,
};

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
        Counted { #[pin] body: B, streamed: Option<Streamed> },
        Refusal { body: RefusalBody },
    }
}

/// What a body has let through. Settles the charge when no more will come: the body has ended, or nobody wants it any more.
#[derive(Debug)]
struct Streamed {
    charge: Charge,
    bytes: u64,
}

impl Drop for Streamed {
    fn drop(&mut self) {
        self.charge.streamed(self.bytes);
    }
}

/// Whether what is held for a body can go: its end has come, or is known.
fn is_over<B: Body>(frame: &Poll<Option<Result<Frame<Bytes>, B::Error>>>, body: &B, held: bool) -> bool {
    held && (matches!(frame, Poll::Ready(None | Some(Err(_)))) || frame.is_ready() && body.is_end_stream())
}

fn poll_bytes<B: Body>(body: Pin<&mut B>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
    body.poll_frame(cx).map_ok(|frame| {
        frame.map_data(|mut data| {
            let length = data.remaining();
            data.copy_to_bytes(length)
        })
    })
}

impl<B> ResponseBody<B> {
    pub(crate) fn inner(body: B) -> ResponseBody<B> {
        ResponseBody { kind: Kind::Inner { body }, permit: None }
    }

    pub(crate) fn holding(self, permit: Option<Permit>) -> ResponseBody<B> {
        ResponseBody { permit, ..self }
    }

    /// The service's own body, whose length tells what the request cost.
    pub(crate) fn counted(body: B, charge: Charge) -> ResponseBody<B> {
        ResponseBody { kind: Kind::Counted { body, streamed: Some(Streamed { charge, bytes: 0 }) }, permit: None }
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
                let frame = poll_bytes(body.as_mut(), cx);
                is_over(&frame, &*body, this.permit.is_some()).then(|| *this.permit = None);
                frame
            }
            KindProj::Counted { mut body, streamed } => {
                let frame = ready!(poll_bytes(body.as_mut(), cx));
                match (&frame, streamed.as_mut()) {
                    (Some(Ok(frame)), Some(streamed)) => {
                        streamed.bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
                    }
                    // The last word on it.
                    (None, _) => *streamed = None,
                    _ => {}
                }
                let frame = Poll::Ready(frame);
                is_over(&frame, &*body, this.permit.is_some()).then(|| *this.permit = None);
                frame
            }
            KindProj::Refusal { body } => body.poll(cx).map(|frame| frame.map(Ok)),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Inner { body } | Kind::Counted { body, .. } => body.is_end_stream(),
            Kind::Refusal { body } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Inner { body } | Kind::Counted { body, .. } => body.size_hint(),
            Kind::Refusal { body } => body.size_hint(),
        }
    }
}
