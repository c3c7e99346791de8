use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Buf, Bytes};
use http::HeaderMap;
use http_body::{Body, SizeHint};
use tokio::{
    runtime::Handle,
    time::{Sleep, sleep},
};

use super::RequestBody;
use crate::refusal::BodyFault;

/// So many frames at a time: a body that always has another, empty one must let others have their turn.
const FRAMES: usize = 64;

/// What follows the data of a body.
pub(super) type Tail<E> = Option<Result<HeaderMap, E>>;

/// What rules are to look at, and what the service is to get.
pub(super) type Whole<B> = (Bytes, RequestBody<B>);

/// A body that is being read.
pub(super) struct Reading<B> {
    body: Pin<Box<B>>,
    /// As it was at first.
    size_hint: SizeHint,
    read: Read,
    most: usize,
    within: Duration,
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<B: Body> Reading<B> {
    pub(super) fn new(body: B, most: usize, within: Duration) -> Reading<B> {
        let size_hint = body.size_hint();
        Reading { body: Box::pin(body), size_hint, read: Read::default(), most, within, deadline: None }
    }

    /// Reads on.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Whole<B>, BodyFault>> {
        for _ in 0..FRAMES {
            let tail = match self.body.as_mut().poll_frame(cx) {
                Poll::Pending => return self.poll_deadline(cx),
                Poll::Ready(None) => None,
                Poll::Ready(Some(Err(error))) => Some(Err(error)),
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => {
                        if data.remaining() > self.most.saturating_sub(self.read.len()) {
                            return Poll::Ready(Err(BodyFault::TooLarge(self.most)));
                        }
                        self.read.add(data, self.most);
                        continue;
                    }
                    // Nothing comes after trailers.
                    Err(frame) => frame.into_trailers().ok().map(Ok),
                },
            };
            let data = self.read.take();
            return Poll::Ready(Ok((data.clone(), RequestBody::read(data, tail, SizeHint::clone(&self.size_hint)))));
        }
        cx.waker().wake_by_ref();
        self.poll_deadline(cx)
    }

    fn poll_deadline<T>(&mut self, cx: &mut Context<'_>) -> Poll<Result<T, BodyFault>> {
        let within = self.within;
        if self.deadline.is_none() && Handle::try_current().is_ok() {
            self.deadline = Some(Box::pin(sleep(within)));
        }
        match &mut self.deadline {
            Some(deadline) => deadline.as_mut().poll(cx).map(|()| Err(BodyFault::TooSlow(within))),
            // Nobody here tells the time.
            None => Poll::Pending,
        }
    }
}

/// What has been read.
#[derive(Default)]
struct Read {
    /// Most bodies come in one piece, which is not copied.
    only: Bytes,
    pieces: Vec<u8>,
}

impl Read {
    fn len(&self) -> usize {
        self.only.len() + self.pieces.len()
    }

    /// Adds what keeps the whole within `most`.
    fn add(&mut self, mut data: impl Buf, most: usize) {
        let length = data.remaining();
        if self.len() == 0 {
            self.only = data.copy_to_bytes(length);
            return;
        }
        let needed = self.len() + length;
        if needed > self.pieces.capacity() {
            // Twice as much each time, but never more than may come.
            let room = (2 * self.pieces.capacity()).max(needed).min(most);
            self.pieces.reserve_exact(room.saturating_sub(self.pieces.len()));
        }
        self.pieces.extend_from_slice(&std::mem::take(&mut self.only));
        while data.has_remaining() {
            let piece = data.chunk();
            self.pieces.extend_from_slice(piece);
            let length = piece.len();
            data.advance(length);
        }
    }

    fn take(&mut self) -> Bytes {
        if self.pieces.is_empty() { std::mem::take(&mut self.only) } else { std::mem::take(&mut self.pieces).into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_room_is_taken_than_may_come() {
        for most in [1, 7, 100, 1_000] {
            let mut read = Read::default();
            let mut expected = Vec::new();
            for number in 0..most {
                let piece = [number as u8];
                expected.extend(piece);
                read.add(&piece[..], most);
                assert!(read.pieces.capacity() <= most && read.len() == number + 1, "{number} of {most}");
            }
            assert_eq!(read.take(), expected);
            assert_eq!(read.len(), 0);
        }
        // What comes in several parts is put together too.
        let mut read = Read::default();
        read.add(&b"a"[..], 5);
        read.add((&b"bc"[..]).chain(&b"de"[..]), 5);
        assert_eq!(read.take(), "abcde");
    }
}
