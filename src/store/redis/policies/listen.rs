//! Hears of changes at once, where the server and its user allow it.

use std::sync::Arc;

use redis::Value;
use tokio::{
    sync::watch,
    time::{Instant, timeout, timeout_at},
};

use super::{
    super::{
        Topology, failure,
        link::{Connection, Link},
    },
    LISTENS, PATIENCE, PolicyKeys,
    errand::late,
};
use crate::error::{StoreError, StoreErrorKind};

/// A connection that hears of every change, for as long as it stands.
pub(crate) struct Listening {
    hears: watch::Receiver<()>,
    _link: Link,
}

impl Listening {
    /// Waits for a change; `false` at the end of the connection.
    pub(crate) async fn news(&mut self) -> bool {
        self.hears.changed().await.is_ok()
    }
}

impl PolicyKeys {
    /// Subscribes. `None` where there is no connection to do it with.
    pub(crate) async fn listen(self: Arc<PolicyKeys>) -> Result<Option<Listening>, StoreError> {
        let patience = self.store.0.wiring.connect_timeout;
        let opened = match &self.store.0.topology {
            Topology::One(node) => timeout(patience, node.apart()).await,
            Topology::Cluster(cluster) => {
                // Any node would do.
                let node = cluster.owner_of(self.policy.as_bytes(), Instant::now() + patience).await?;
                timeout(patience, node.apart()).await
            }
        };
        let Some(mut link) = opened.map_err(|_| late("connection"))?? else { return Ok(None) };
        let Connection::Own(pipe) = &link.connection else { return Ok(None) };
        let hears = pipe.hear();
        let until = Instant::now() + PATIENCE;
        let command = redis::cmd("SUBSCRIBE").arg(&self.policy).to_owned();
        match timeout_at(until, link.connection.send(&command)).await.map_err(|_| late("answer"))? {
            Ok(Value::Array(_)) => Ok(Some(Listening { hears, _link: link })),
            Ok(Value::ServerError(error)) if failure::is_denied(&error.clone().into()) => {
                let text =
                    format!("NOPERM: the Redis user may not subscribe; add it with: ACL SETUSER <user> {LISTENS}");
                Err(StoreError::new(StoreErrorKind::Permanent, text))
            }
            // A service without the command.
            Ok(Value::ServerError(error)) => {
                let text = format!("{}: the server does not take SUBSCRIBE", error.code());
                Err(StoreError::new(StoreErrorKind::Permanent, text))
            }
            Ok(_) => Err(super::garbled()),
            Err(error) => Err(failure::greeting(&error)),
        }
    }
}
