use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

pin_project! {
    /// The service's own body, or the explanation of a refusal.
    ///
    /// Asks nothing of the service's body but that it is one. Data comes as [`Bytes`], which costs a copy only where it was
    /// something else.
    #[derive(Debug)]
    pub struct ResponseBody<B> {
        #[pin]
        kind: Kind<B>,
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
        ResponseBody { kind: Kind::Inner { body } }
    }

    pub(crate) fn refusal(body: RefusalBody) -> ResponseBody<B> {
        ResponseBody { kind: Kind::Refusal { body } }
    }
}

/// An empty body, whatever the service's is like; other layers make their own responses of it.
impl<B> Default for ResponseBody<B> {
    fn default() -> ResponseBody<B> {
        ResponseBody::refusal(RefusalBody(None))
    }
}

impl<B: Body> Body for ResponseBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.project().kind.project() {
            KindProj::Inner { body } => body.poll_frame(cx).map_ok(|frame| {
                frame.map_data(|mut data| {
                    let length = data.remaining();
                    data.copy_to_bytes(length)
                })
            }),
            KindProj::Refusal { body } => Poll::Ready(body.0.take().map(|text| Ok(Frame::data(text)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Inner { body } => body.is_end_stream(),
            Kind::Refusal { body } => body.0.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Inner { body } => body.size_hint(),
            Kind::Refusal { body } => SizeHint::with_exact(body.0.as_ref().map_or(0, |text| text.len() as u64)),
        }
    }
}

/// The text of a refusal; says that it has ended when there is none.
#[derive(Debug)]
pub(crate) struct RefusalBody(Option<Bytes>);

impl RefusalBody {
    pub(crate) fn new(text: String) -> RefusalBody {
        RefusalBody(Some(text.into()))
    }

    /// Drops the text; answers how long it was.
    pub(crate) fn clear(&mut self) -> usize {
        self.0.take().map_or(0, |text| text.len())
    }
}
