//! Makes connections for deadpool.

use std::sync::Arc;

use deadpool::managed::{Metrics, RecycleResult};
use redis::ConnectionInfo;

use super::{dial::Dial, greet, link::Link, sentinel::Sentinels};
use crate::error::StoreError;

/// Makes connections to one primary.
pub(super) struct Manager {
    dial: Arc<Dial>,
    target: Target,
}

/// Where connections lead.
pub(super) enum Target {
    /// To the server at an address.
    Server(ConnectionInfo),
    /// To the server at an address, whatever its role.
    Any(ConnectionInfo),
    /// To a replica in a Cluster, to read from it.
    Replica(ConnectionInfo),
    /// To the primary that Sentinels name at the time.
    Sentinels(Sentinels),
}

impl Manager {
    pub(super) fn new(dial: &Arc<Dial>, target: Target) -> Manager {
        Manager { dial: Arc::clone(dial), target }
    }
}

impl deadpool::managed::Manager for Manager {
    type Type = Link;
    type Error = StoreError;

    async fn create(&self) -> Result<Link, StoreError> {
        match &self.target {
            Target::Server(info) => {
                let mut link = self.dial.open(info).await?;
                greet::primary(&mut link.connection).await?;
                Ok(link)
            }
            Target::Any(info) => self.dial.open(info).await,
            Target::Replica(info) => {
                let mut link = self.dial.open(info).await?;
                greet::reader(&mut link.connection).await?;
                Ok(link)
            }
            Target::Sentinels(sentinels) => sentinels.connect(&self.dial).await,
        }
    }

    /// Nothing is asked of a connection that comes back: those of no more use are taken out of the pool when that shows.
    async fn recycle(&self, _: &mut Link, _: &Metrics) -> RecycleResult<StoreError> {
        Ok(())
    }
}

/// Shows no address and no password.
impl std::fmt::Debug for Manager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Manager")
    }
}
