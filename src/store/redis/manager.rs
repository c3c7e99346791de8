//! Makes connections for deadpool.

use deadpool::managed::{Metrics, RecycleResult};
use deadpool_redis::redis::{AsyncConnectionConfig, Client, RedisError, aio::MultiplexedConnection};

/// Where connections lead.
pub(super) struct Manager {
    client: Client,
    config: AsyncConnectionConfig,
}

impl Manager {
    /// Connections to one server.
    pub(super) fn to(client: Client, config: AsyncConnectionConfig) -> Manager {
        Manager { client, config }
    }
}

impl deadpool::managed::Manager for Manager {
    type Type = MultiplexedConnection;
    type Error = RedisError;

    async fn create(&self) -> Result<MultiplexedConnection, RedisError> {
        self.client.get_multiplexed_async_connection_with_config(&self.config).await
    }

    /// Nothing is asked of a connection that comes back: those of no more use are taken out of the pool when that shows.
    async fn recycle(&self, _: &mut MultiplexedConnection, _: &Metrics) -> RecycleResult<RedisError> {
        Ok(())
    }
}

/// Shows no address and no password.
impl std::fmt::Debug for Manager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Manager")
    }
}
