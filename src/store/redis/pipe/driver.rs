//! Moves bytes between a pipe and its stream.

use std::{
    collections::VecDeque,
    io,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, ready},
};

use redis::{RedisError, Value};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{Queue, Wanted, lock, lost, replies};

/// Replies to decisions are a few dozen bytes, so this holds those to hundreds.
const READ_AT_ONCE: usize = 16 << 10;
/// Half of the replies are handed out at once, and not fewer than this.
const AT_ONCE: usize = 16;
/// A buffer that has grown beyond this is not kept.
const KEPT_BYTES: usize = 256 << 10;

pub(super) struct Driver<S> {
    stream: S,
    queue: Arc<Mutex<Queue>>,
    /// On its way out, and how far it is.
    out: Vec<u8>,
    written: usize,
    flushed: bool,
    /// Whether others have been let go first.
    gathered: bool,
    /// Those whose commands are in `out`, or gone.
    waiting: VecDeque<Wanted>,
    /// Come in, from `begin` to `end`; the rest is room.
    input: Vec<u8>,
    begin: usize,
    end: usize,
}

impl<S> Driver<S> {
    pub(super) fn new(stream: S, queue: Arc<Mutex<Queue>>) -> Driver<S> {
        Driver {
            stream,
            queue,
            out: Vec::new(),
            written: 0,
            flushed: true,
            gathered: false,
            waiting: VecDeque::new(),
            input: vec![0; READ_AT_ONCE],
            begin: 0,
            end: 0,
        }
    }

    /// Takes over what callers have written.
    fn take(&mut self) {
        let mut queue = lock(&self.queue);
        self.out.clear();
        self.written = 0;
        if self.out.capacity() > KEPT_BYTES {
            self.out = Vec::new();
        }
        std::mem::swap(&mut self.out, &mut queue.bytes);
        if self.waiting.is_empty() {
            std::mem::swap(&mut self.waiting, &mut queue.waiting);
        } else {
            self.waiting.append(&mut queue.waiting);
        }
    }

    /// Hands out replies that are there whole. Answers whether there may be more: those who have theirs go first, so that the
    /// server has their next commands while the others get their replies.
    fn hand_out(&mut self) -> Result<bool, RedisError> {
        let most = (self.waiting.len() / 2).max(AT_ONCE);
        for _ in 0..most {
            let input = self.input.get(self.begin..self.end).unwrap_or_default();
            let found = if input.is_empty() { None } else { replies::first(input)? };
            let Some((length, reply)) = found else {
                if self.begin == self.end {
                    (self.begin, self.end) = (0, 0);
                }
                return Ok(false);
            };
            self.begin += length;
            self.hand(reply)?;
        }
        Ok(true)
    }

    fn hand(&mut self, reply: Value) -> Result<(), RedisError> {
        // Whoever has left does not mind.
        match self.waiting.front_mut() {
            Some(Wanted::Several { missing, replies, .. }) if *missing > 1 => {
                *missing -= 1;
                replies.push(reply);
                return Ok(());
            }
            _ => {}
        }
        match self.waiting.pop_front() {
            Some(Wanted::One(caller)) => drop(caller.send(Ok(reply))),
            Some(Wanted::Several { mut replies, caller, .. }) => {
                replies.push(reply);
                drop(caller.send(Ok(replies)));
            }
            None => return self.unasked(&reply),
        }
        Ok(())
    }

    /// Takes a reply that nobody asked for: whoever subscribes is told, and nobody else expects one.
    #[cold]
    fn unasked(&self, reply: &Value) -> Result<(), RedisError> {
        match (&lock(&self.queue).heard, reply) {
            (Some(heard), Value::Array(_)) => {
                heard.send_replace(());
                Ok(())
            }
            _ => Err(refusal(reply)),
        }
    }

    /// Nobody gets an answer any more.
    fn finish(&mut self, error: &RedisError) {
        let unsent = {
            let mut queue = lock(&self.queue);
            queue.ended.get_or_insert_with(|| error.clone());
            queue.bytes = Vec::new();
            queue.heard = None;
            std::mem::take(&mut queue.waiting)
        };
        self.waiting.drain(..).chain(unsent).for_each(|wanted| wanted.fail(error.clone()));
    }
}

/// A server says so unasked that it takes no more clients, and closes.
fn refusal(reply: &Value) -> RedisError {
    match reply {
        Value::ServerError(error) => error.clone().into(),
        _ => (redis::ErrorKind::Parse, "a reply that nobody asked for").into(),
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Driver<S> {
    /// Writes until nothing is left. Ready when there is nothing to do until a caller wakes the task.
    fn write(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), RedisError>> {
        loop {
            while self.written < self.out.len() {
                let rest = self.out.get(self.written..).unwrap_or_default();
                match ready!(Pin::new(&mut self.stream).poll_write(cx, rest))? {
                    0 => return Poll::Ready(Err(lost(io::ErrorKind::WriteZero))),
                    count => self.written += count,
                }
                self.flushed = false;
            }
            if !self.flushed {
                ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
                self.flushed = true;
            }
            {
                let mut queue = lock(&self.queue);
                if queue.bytes.is_empty() {
                    self.gathered = false;
                    if !queue.asleep.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                        queue.asleep = Some(cx.waker().clone());
                    }
                    return Poll::Ready(Ok(()));
                }
            }
            // Others go first: requests that are ready add their commands meanwhile, and all go out in one packet.
            if !self.gathered {
                self.gathered = true;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            self.gathered = false;
            self.take();
        }
    }

    /// Reads until nothing is there. Never ready but with an error.
    fn read(&mut self, cx: &mut Context<'_>) -> Poll<RedisError> {
        loop {
            match self.hand_out() {
                Ok(false) => {}
                Ok(true) => {
                    self.gathered = true;
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Err(error) => return Poll::Ready(error),
            }
            if self.end == self.input.len() {
                self.make_room();
            }
            let mut room = ReadBuf::new(self.input.get_mut(self.end..).unwrap_or_default());
            if let Err(error) = ready!(Pin::new(&mut self.stream).poll_read(cx, &mut room)) {
                return Poll::Ready(error.into());
            }
            match room.filled().len() {
                0 => return Poll::Ready(lost(io::ErrorKind::UnexpectedEof)),
                count => self.end += count,
            }
        }
    }

    /// For more of a reply that is not whole.
    fn make_room(&mut self) {
        self.input.copy_within(self.begin..self.end, 0);
        (self.begin, self.end) = (0, self.end - self.begin);
        let most = if self.end < READ_AT_ONCE { READ_AT_ONCE } else { 2 * self.end };
        self.input.resize(most, 0);
        if self.input.capacity() > KEPT_BYTES && most == READ_AT_ONCE {
            self.input.shrink_to_fit();
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Future for Driver<S> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let error = match this.write(cx) {
            Poll::Ready(Err(error)) => error,
            _ => ready!(this.read(cx)),
        };
        this.finish(&error);
        Poll::Ready(())
    }
}

impl<S> Drop for Driver<S> {
    fn drop(&mut self) {
        self.finish(&lost(io::ErrorKind::BrokenPipe));
    }
}
