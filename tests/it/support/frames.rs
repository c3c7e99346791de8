//! Request bodies by script: frame after frame, and then whatever is to come.

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};

/// What the body has next.
#[derive(Clone, Debug)]
pub enum Next {
    Data(Bytes),
    Trailers(HeaderMap),
    /// It is not there yet, and comes when it is asked for again.
    Later,
    Error,
    /// Nothing more, and no end either.
    Silence,
    /// The same again, for ever.
    Endless(Bytes),
}

#[derive(Clone, Debug, Default)]
pub struct Frames {
    next: VecDeque<Next>,
    pub size_hint: SizeHint,
    polled: Arc<AtomicUsize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the body broke")
    }
}

impl std::error::Error for Broken {}

impl Frames {
    pub fn new(next: impl IntoIterator<Item = Next>) -> Frames {
        Frames { next: next.into_iter().collect(), ..Frames::default() }
    }

    pub fn data<const N: usize>(pieces: [&'static str; N]) -> Frames {
        Frames::new(pieces.map(|piece| Next::Data(piece.into())))
    }

    /// How many frames were asked for, by this or its clones.
    pub fn polled(&self) -> usize {
        self.polled.load(Ordering::SeqCst)
    }
}

impl Body for Frames {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        self.polled.fetch_add(1, Ordering::SeqCst);
        Poll::Ready(match self.next.pop_front() {
            None => None,
            Some(Next::Data(data)) => Some(Ok(Frame::data(data))),
            Some(Next::Trailers(trailers)) => Some(Ok(Frame::trailers(trailers))),
            Some(Next::Error) => Some(Err(Broken)),
            Some(Next::Later) => {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            Some(Next::Silence) => {
                self.next.push_front(Next::Silence);
                return Poll::Pending;
            }
            Some(Next::Endless(data)) => {
                self.next.push_front(Next::Endless(data.clone()));
                Some(Ok(Frame::data(data)))
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.next.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::clone(&self.size_hint)
    }
}
