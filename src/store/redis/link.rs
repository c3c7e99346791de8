//! A connection and the task that drives it.

use std::sync::Arc;

use redis::{Cmd, Pipeline, RedisResult, Value, aio::MultiplexedConnection};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::watch,
    task::AbortHandle,
};

use super::pipe::Pipe;

/// A connection that clones share. It is closed when the last is dropped.
#[derive(Clone)]
pub(super) struct Link {
    pub(super) connection: Connection,
    /// None where somebody else made the connection; its end is not noticed then before it is used.
    driver: Option<Arc<Driver>>,
}

/// What commands go over.
#[derive(Clone)]
pub(super) enum Connection {
    Own(Pipe),
    Given(MultiplexedConnection),
}

struct Driver {
    task: AbortHandle,
    ended: watch::Receiver<()>,
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Connection {
    /// The reply to a command; an error reply is a value.
    #[inline]
    pub(super) async fn send(&mut self, command: &Cmd) -> RedisResult<Value> {
        match self {
            Connection::Own(pipe) => pipe.send(command).await,
            // Boxed, since it would make the future of every call larger.
            Connection::Given(connection) => Box::pin(connection.send_packed_command(command)).await,
        }
    }

    /// The replies to commands that are sent together; error replies are values.
    pub(super) async fn send_all(&mut self, commands: &Pipeline) -> RedisResult<Vec<Value>> {
        match self {
            Connection::Own(pipe) => pipe.send_all(commands).await,
            Connection::Given(connection) => {
                Box::pin(connection.send_packed_commands(commands, 0, commands.len())).await
            }
        }
    }
}

impl Link {
    /// A connection over `stream`. Nothing is sent.
    pub(super) fn begin<S>(stream: S) -> Link
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (pipe, driver) = Pipe::new(stream);
        let (running, ended) = watch::channel(());
        let task = tokio::spawn(async move {
            driver.await;
            drop(running);
        });
        let driver = Driver { task: task.abort_handle(), ended };
        Link { connection: Connection::Own(pipe), driver: Some(Arc::new(driver)) }
    }

    /// A connection that somebody else made.
    pub(super) fn given(connection: MultiplexedConnection) -> Link {
        Link { connection: Connection::Given(connection), driver: None }
    }

    /// Whether the connection is known to be closed. What is sent over it then never leaves.
    pub(super) fn is_ended(&self) -> bool {
        self.driver.as_ref().is_some_and(|driver| driver.ended.has_changed().is_err())
    }

    /// Wakes when the connection closes.
    pub(super) fn end(&self) -> Option<watch::Receiver<()>> {
        self.driver.as_ref().map(|driver| driver.ended.clone())
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.is_ended() { "Link(ended)" } else { "Link" })
    }
}
