//! Commands of many callers over one stream, and the replies to them in the same order.
//!
//! A call writes its bytes into a buffer that all share, and waits for its reply: no more, since every decision pays for it. One
//! task moves the buffer to the server and the replies to those who wait.

mod driver;
#[cfg(feature = "policy")]
mod hear;
mod replies;

use std::{
    collections::VecDeque,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Waker,
};

use redis::{Cmd, Pipeline, RedisError, RedisResult, Value};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::{oneshot, watch},
};

use self::driver::Driver;

/// A server that takes nothing for so long that this many bytes wait for it will not answer in time.
const MOST_BYTES: usize = 8 << 20;

/// A way to a server. Clones share it.
#[derive(Clone)]
pub(super) struct Pipe(Arc<Mutex<Queue>>);

/// What is on its way to the driver.
#[derive(Default)]
struct Queue {
    bytes: Vec<u8>,
    waiting: VecDeque<Wanted>,
    /// The driver's, while it sleeps.
    asleep: Option<Waker>,
    /// Who is told of replies that nobody asked for.
    heard: Option<watch::Sender<()>>,
    /// Why there is no driver any more.
    ended: Option<RedisError>,
}

/// Replies that somebody waits for, or waited.
enum Wanted {
    One(oneshot::Sender<RedisResult<Value>>),
    Several { missing: usize, replies: Vec<Value>, caller: oneshot::Sender<RedisResult<Vec<Value>>> },
}

impl Wanted {
    fn fail(self, error: RedisError) {
        // Whoever has left does not mind.
        match self {
            Wanted::One(caller) => drop(caller.send(Err(error))),
            Wanted::Several { caller, .. } => drop(caller.send(Err(error))),
        }
    }
}

impl Pipe {
    /// A pipe over `stream`, and what drives it: it ends when the stream does, or when it is dropped.
    pub(super) fn new<S>(stream: S) -> (Pipe, impl Future<Output = ()> + Send)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let queue = Arc::new(Mutex::default());
        (Pipe(Arc::clone(&queue)), Driver::new(stream, queue))
    }

    /// The reply to a command; an error reply is a value.
    pub(super) async fn send(&self, command: &Cmd) -> RedisResult<Value> {
        let (caller, reply) = oneshot::channel();
        self.add(|bytes| command.write_packed_command(bytes), Wanted::One(caller))?;
        reply.await.unwrap_or_else(|_| Err(lost(io::ErrorKind::BrokenPipe)))
    }

    /// The replies to commands that are sent together; error replies are values.
    pub(super) async fn send_all(&self, commands: &Pipeline) -> RedisResult<Vec<Value>> {
        if commands.is_empty() {
            return Ok(Vec::new());
        }
        let (caller, replies) = oneshot::channel();
        let wanted = Wanted::Several { missing: commands.len(), replies: Vec::with_capacity(commands.len()), caller };
        self.add(|bytes| bytes.extend_from_slice(&commands.get_packed_pipeline()), wanted)?;
        replies.await.unwrap_or_else(|_| Err(lost(io::ErrorKind::BrokenPipe)))
    }

    fn add(&self, write: impl FnOnce(&mut Vec<u8>), wanted: Wanted) -> RedisResult<()> {
        let mut queue = lock(&self.0);
        if let Some(error) = &queue.ended {
            return Err(error.clone());
        }
        if queue.bytes.len() > MOST_BYTES {
            return Err(lost(io::ErrorKind::BrokenPipe));
        }
        write(&mut queue.bytes);
        queue.waiting.push_back(wanted);
        if let Some(driver) = queue.asleep.take() {
            driver.wake();
        }
        Ok(())
    }
}

fn lock(queue: &Mutex<Queue>) -> MutexGuard<'_, Queue> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

fn lost(kind: io::ErrorKind) -> RedisError {
    io::Error::from(kind).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Poll;
    use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream, duplex};

    fn pipe(room: usize) -> (Pipe, DuplexStream) {
        let (near, far) = duplex(room);
        let (pipe, driver) = Pipe::new(near);
        tokio::spawn(driver);
        (pipe, far)
    }

    fn echo(number: usize) -> Cmd {
        redis::cmd("ECHO").arg(number).to_owned()
    }

    /// Answers every command with its one argument, a few bytes at a time.
    async fn serve(far: DuplexStream, piece: usize) {
        let (input, mut output) = tokio::io::split(far);
        let mut lines = BufReader::new(input).lines();
        // *2, $4, ECHO, $1, 7
        let mut place = 0;
        while let Ok(Some(line)) = lines.next_line().await {
            place += 1;
            if place % 5 == 0 {
                for piece in format!(":{line}\r\n").as_bytes().chunks(piece) {
                    output.write_all(piece).await.expect("room");
                }
            }
        }
    }

    #[tokio::test]
    async fn everybody_gets_the_reply_to_the_own_command() {
        for (room, piece) in [(64, 1), (64 << 10, 3), (1 << 20, 1 << 20)] {
            let (pipe, far) = pipe(room);
            tokio::spawn(serve(far, piece));
            let calls: Vec<_> = (0..300usize)
                .map(|number| {
                    let pipe = pipe.clone();
                    tokio::spawn(async move {
                        for round in 0..3 {
                            let number = number * 10 + round;
                            if number % 7 == 0 {
                                let mut commands = Pipeline::new();
                                for more in 0..3 {
                                    commands.add_command(echo(number + more));
                                }
                                let expected: Vec<_> = (0..3).map(|more| Value::Int((number + more) as i64)).collect();
                                assert_eq!(pipe.send_all(&commands).await.expect("replies"), expected);
                            }
                            assert_eq!(pipe.send(&echo(number)).await.expect("a reply"), Value::Int(number as i64));
                        }
                    })
                })
                .collect();
            for call in calls {
                call.await.expect("no panic");
            }
        }
    }

    /// Those who leave do not move the replies of the others.
    #[tokio::test]
    async fn a_caller_who_leaves_takes_nobody_elses_reply() {
        let (pipe, far) = pipe(1 << 16);
        for number in 0..50 {
            let (command, leaving) = (echo(number), pipe.clone());
            let mut call = Box::pin(async move { leaving.send(&command).await.map(drop) });
            assert!(std::future::poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx).is_pending())).await);
        }
        tokio::spawn(serve(far, 2));
        assert_eq!(pipe.send(&echo(77)).await.ok(), Some(Value::Int(77)));
    }

    #[tokio::test]
    async fn the_end_of_the_stream_is_the_end_of_every_wait() {
        let (pipe, mut far) = pipe(1 << 16);
        let calls: Vec<_> = (0..20)
            .map(|number| {
                let pipe = pipe.clone();
                tokio::spawn(async move { pipe.send(&echo(number)).await })
            })
            .collect();
        let mut buffer = [0; 10];
        far.read_exact(&mut buffer).await.expect("commands");
        drop(far);
        for call in calls {
            assert!(call.await.expect("no panic").expect_err("no reply").is_connection_dropped());
        }
        assert!(pipe.send(&echo(1)).await.expect_err("no reply").is_connection_dropped());
    }

    #[tokio::test]
    async fn what_nobody_asked_for_ends_it_with_its_reason() {
        let (pipe, mut far) = pipe(1 << 16);
        far.write_all(b"-ERR max number of clients reached\r\n").await.expect("room");
        while lock(&pipe.0).ended.is_none() {
            tokio::task::yield_now().await;
        }
        let error = pipe.send(&echo(1)).await.expect_err("refused");
        assert_eq!(error.detail(), Some("max number of clients reached"));
    }

    /// A server that takes nothing is not sent more and more.
    #[tokio::test]
    async fn what_waits_to_be_sent_is_bounded() {
        let (pipe, _far) = pipe(64);
        let command = redis::cmd("ECHO").arg(vec![b'x'; 1 << 20]).to_owned();
        for _ in 0..20 {
            let mut call = Box::pin(pipe.send(&command));
            // It waits, or is turned away.
            let _ = std::future::poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx).map(drop))).await;
        }
        assert!(lock(&pipe.0).bytes.len() < MOST_BYTES + (2 << 20));
        assert!(pipe.send(&command).await.is_err());
    }
}
