//! A connection and the task that drives it.

use std::sync::Arc;

use redis::{AsyncConnectionConfig, RedisConnectionInfo, RedisResult, aio::MultiplexedConnection};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::watch,
    task::AbortHandle,
};

/// A connection that clones share. It is closed when the last is dropped.
#[derive(Clone)]
pub(super) struct Link {
    pub(super) connection: MultiplexedConnection,
    /// None where somebody else made the connection; its end is not noticed then before it is used.
    driver: Option<Arc<Driver>>,
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

impl Link {
    /// A connection over `stream`. Nothing is sent.
    pub(super) async fn begin<S>(stream: S) -> RedisResult<Link>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        // One deadline is set around every call; another inside would only cost a timer.
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let silent = RedisConnectionInfo::default().set_skip_set_lib_name();
        let (connection, driver) = MultiplexedConnection::new_with_config(&silent, stream, config).await?;
        let (running, ended) = watch::channel(());
        let task = tokio::spawn(async move {
            driver.await;
            drop(running);
        });
        Ok(Link { connection, driver: Some(Arc::new(Driver { task: task.abort_handle(), ended })) })
    }

    /// A connection that somebody else made.
    pub(super) fn given(connection: MultiplexedConnection) -> Link {
        Link { connection, driver: None }
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
