use std::{
    error::Error,
    fmt,
    pin::Pin,
    sync::{Mutex, PoisonError},
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

/// What a refusal says; behind a pointer, so that the bodies of other responses are small.
///
/// One without text has ended before it began, and says so: over HTTP/2 it goes out in the frame of its headers, without which
/// gRPC clients do not understand a refusal.
#[derive(Debug, Default)]
pub(crate) struct RefusalBody(Option<Box<Kind>>);

enum Kind {
    Text(Bytes),
    Own(Own),
    /// Nothing, in place of a body whose length nobody knew: servers must not say that it was zero.
    Hidden,
}

/// A body of the application's own kind.
struct Own {
    /// Never locked: it makes the whole shareable between threads, which such a body need not be.
    body: Mutex<Pin<Box<dyn Erased>>>,
    /// As the body last told it.
    size_hint: SizeHint,
}

/// A body whose errors are told to nobody but the log.
trait Erased: Send {
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Frame<Bytes>>>;
    fn ended(&self) -> bool;
    fn size(&self) -> SizeHint;
}

impl<B> Erased for B
where
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send,
{
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Frame<Bytes>>> {
        Poll::Ready(match ready!(self.poll_frame(cx)) {
            Some(Ok(frame)) => Some(frame),
            Some(Err(error)) => {
                tell(error.into());
                None
            }
            None => None,
        })
    }

    fn ended(&self) -> bool {
        self.is_end_stream()
    }

    fn size(&self) -> SizeHint {
        self.size_hint()
    }
}

/// At most once a second: whoever is refused may well be refused again.
fn tell(error: Box<dyn Error + Send + Sync>) {
    static LAST: Mutex<Option<Instant>> = Mutex::new(None);
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if last.is_none_or(|last| last.elapsed() >= Duration::from_secs(1)) {
        *last = Some(Instant::now());
        drop(last);
        tracing::warn!(error, "the body of a refusal failed, and ends early");
    }
}

impl RefusalBody {
    pub(super) fn text(text: String) -> RefusalBody {
        RefusalBody(Some(Box::new(Kind::Text(text.into()))))
    }

    pub(super) fn own<B>(body: B) -> RefusalBody
    where
        B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
    {
        if body.is_end_stream() {
            return RefusalBody(None);
        }
        let size_hint = body.size_hint();
        RefusalBody(Some(Box::new(Kind::Own(Own { body: Mutex::new(Box::pin(body)), size_hint }))))
    }

    /// Takes the text away; answers how long it was, if that is known.
    pub(super) fn hide(&mut self) -> Option<u64> {
        let length = self.size_hint().exact();
        self.0 = length.is_none().then(|| Box::new(Kind::Hidden));
        length
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Frame<Bytes>>> {
        let own = match self.0.as_deref_mut() {
            Some(Kind::Own(own)) => own,
            Some(Kind::Text(text)) => {
                let text = std::mem::take(text);
                self.0 = None;
                return Poll::Ready(Some(Frame::data(text)));
            }
            Some(Kind::Hidden) | None => {
                self.0 = None;
                return Poll::Ready(None);
            }
        };
        let body = own.body.get_mut().unwrap_or_else(PoisonError::into_inner);
        let frame = ready!(body.as_mut().poll(cx));
        own.size_hint = body.size();
        if frame.is_none() || body.ended() {
            self.0 = None;
        }
        Poll::Ready(frame)
    }

    pub(crate) fn is_end_stream(&self) -> bool {
        self.0.is_none()
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        match self.0.as_deref() {
            None => SizeHint::with_exact(0),
            Some(Kind::Text(text)) => SizeHint::with_exact(text.len() as u64),
            Some(Kind::Own(own)) => SizeHint::clone(&own.size_hint),
            Some(Kind::Hidden) => SizeHint::default(),
        }
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Text(text) => f.debug_tuple("Text").field(text).finish(),
            Kind::Own(_) => f.write_str("Own"),
            Kind::Hidden => f.write_str("Hidden"),
        }
    }
}
