//! A stream that gathers what is written in one turn.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Lets others go first before it writes: requests that are ready add their calls meanwhile, and all go out together. Without
/// it each call is a packet of its own where the kernel does not gather them (`TCP_NODELAY`), and where it does, a call may
/// wait for the reply to the one before.
pub(super) struct Gather<S> {
    stream: S,
    waited: bool,
}

impl<S> Gather<S> {
    pub(super) fn new(stream: S) -> Gather<S> {
        Gather { stream, waited: false }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Gather<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Gather<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if !self.waited {
            self.waited = true;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        if written.is_ready() {
            self.waited = false;
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use super::*;

    /// Takes what is written, or nothing while it is full.
    struct Sink {
        writes: Vec<usize>,
        full: bool,
    }

    impl AsyncWrite for Sink {
        fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            if self.full {
                return Poll::Pending;
            }
            self.writes.push(bytes.len());
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl std::task::Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Each write is put off once, for one turn, and asks to be polled again itself.
    #[test]
    fn every_write_lets_others_go_first_once() {
        let (wakes, sink) = (Arc::<Wakes>::default(), Sink { writes: Vec::new(), full: false });
        let (waker, mut gather) = (Arc::clone(&wakes).into(), Gather::new(sink));
        let write = |gather: &mut Gather<Sink>, length: usize| {
            let poll = Pin::new(gather).poll_write(&mut Context::from_waker(&waker), &vec![0; length]);
            (poll.is_ready(), wakes.0.load(Ordering::Relaxed))
        };
        for turn in 1..=3 {
            assert_eq!(write(&mut gather, 5), (false, turn));
            // Others have added theirs.
            assert_eq!(write(&mut gather, 70), (true, turn));
            assert_eq!(gather.stream.writes, vec![70; turn]);
        }
        // Who waits for room has let others go first already.
        gather.stream.full = true;
        assert_eq!((write(&mut gather, 5), write(&mut gather, 5)), ((false, 4), (false, 4)));
        gather.stream.full = false;
        assert_eq!(write(&mut gather, 5), (true, 4));
    }
}
