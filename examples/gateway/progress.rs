use std::{
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, ready},
    time::Duration,
};

use hyper::body::{Body, Frame, SizeHint};
use tokio::time::Instant;

/// When a request last moved on: a long upload is not a slow upstream.
#[derive(Clone)]
pub(super) struct Progress(Arc<Mutex<Instant>>);

impl Progress {
    pub(super) fn new() -> Progress {
        Progress(Arc::new(Mutex::new(Instant::now())))
    }

    fn last(&self) -> Instant {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Waits until nothing has moved for so long.
    pub(super) async fn stalls(&self, patience: Duration) {
        loop {
            let last = self.last();
            tokio::time::sleep_until(last + patience).await;
            if self.last() == last {
                return;
            }
        }
    }
}

/// A request's body as it comes in, piece by piece.
pub(super) struct Upload<B> {
    pub(super) body: B,
    pub(super) progress: Progress,
}

impl<B: Body + Unpin> Body for Upload<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        self.progress.note();
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt, Full};
    use hyper::body::Bytes;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    /// An upload that takes longer than the upstream may is not the upstream's fault, as long as it moves.
    #[tokio::test(start_paused = true)]
    async fn what_moves_does_not_stall_however_long_it_takes() {
        let (progress, began) = (Progress::new(), Instant::now());
        let moving = async {
            for _ in 0..10 {
                tokio::time::sleep(PATIENCE * 9 / 10).await;
                progress.note();
            }
        };
        tokio::join!(moving, progress.stalls(PATIENCE));
        assert_eq!(began.elapsed(), PATIENCE * 9 + PATIENCE);
    }

    #[tokio::test(start_paused = true)]
    async fn every_piece_of_an_upload_is_a_move() {
        let progress = Progress::new();
        let mut upload = Upload { body: Full::new(Bytes::from("a piece")), progress: progress.clone() };
        tokio::time::sleep(PATIENCE).await;
        assert!(upload.frame().await.is_some_and(|frame| frame.is_ok()));
        assert_eq!(progress.last(), Instant::now());
    }

    #[tokio::test(start_paused = true)]
    async fn what_does_not_move_stalls() {
        let (progress, began) = (Progress::new(), Instant::now());
        progress.stalls(PATIENCE).await;
        assert_eq!(began.elapsed(), PATIENCE);
    }
}
