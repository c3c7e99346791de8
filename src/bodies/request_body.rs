use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::reading::Tail;

pin_project! {
    /// The body of a request, whether it was read before or not.
    ///
    /// To the service it is the body that came: the same data, trailers, error and size hint. Only the boundaries between pieces
    /// of data are lost: what was read comes as one.
    pub struct RequestBody<B>
    where
        B: Body,
    {
        #[pin]
        kind: Kind<B>,
    }
}

pin_project! {
    #[project = KindProj]
    enum Kind<B>
    where
        B: Body,
    {
        Untouched { #[pin] body: B },
        // To its end, or until it failed.
        Read { data: Bytes, tail: Tail<B::Error>, size_hint: SizeHint },
    }
}

impl<B: Body> RequestBody<B> {
    pub(super) fn untouched(body: B) -> RequestBody<B> {
        RequestBody { kind: Kind::Untouched { body } }
    }

    pub(super) fn read(data: Bytes, tail: Tail<B::Error>, size_hint: SizeHint) -> RequestBody<B> {
        RequestBody { kind: Kind::Read { data, tail, size_hint } }
    }
}

/// What is left of it when so many bytes were taken.
fn less(size_hint: &SizeHint, taken: u64) -> SizeHint {
    let mut left = SizeHint::new();
    left.set_lower(size_hint.lower().saturating_sub(taken));
    if let Some(upper) = size_hint.upper() {
        left.set_upper(upper.saturating_sub(taken));
    }
    left
}

impl<B: Body> Body for RequestBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.project().kind.project() {
            KindProj::Untouched { body } => body.poll_frame(cx).map_ok(|frame| {
                frame.map_data(|mut data| {
                    let length = data.remaining();
                    data.copy_to_bytes(length)
                })
            }),
            KindProj::Read { data, tail, size_hint } => Poll::Ready(if data.is_empty() {
                tail.take().map(|tail| tail.map(Frame::trailers))
            } else {
                *size_hint = less(size_hint, data.len() as u64);
                Some(Ok(Frame::data(std::mem::take(data))))
            }),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Untouched { body } => body.is_end_stream(),
            Kind::Read { data, tail, .. } => data.is_empty() && tail.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Untouched { body } => body.size_hint(),
            Kind::Read { size_hint, .. } => SizeHint::clone(size_hint),
        }
    }
}

impl<B: Body> fmt::Debug for RequestBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            Kind::Untouched { .. } => "RequestBody(untouched)",
            Kind::Read { .. } => "RequestBody(read)",
        })
    }
}
