//! What every node of a store is made with.

use std::{sync::Arc, time::Duration};

use deadpool::managed::Pool;
use redis::{AsyncConnectionConfig, Client, ConnectionInfo, io::tcp::TcpSettings};

use super::{
    connections::Connections,
    estimate::ServerClock,
    manager::Manager,
    node::Node,
    scripts::{Given, Scripts},
    supply::Supply,
};
use crate::{error::BuildError, observer::Observers};

pub(super) struct Wiring {
    pub(super) deadline: Duration,
    pub(super) connect_timeout: Duration,
    pub(super) connections: usize,
    pub(super) tcp: TcpSettings,
    /// Whether a limiter is to use the store as it is.
    pub(super) bare: bool,
    pub(super) scripts: Arc<Scripts>,
    pub(super) observers: Arc<Observers>,
}

impl Wiring {
    /// Connections to the server at an address.
    pub(super) fn supply(&self, info: ConnectionInfo) -> Result<Supply, BuildError> {
        let info = info.set_tcp_settings(self.tcp.clone());
        let config = AsyncConnectionConfig::new()
            // One deadline is set around everything; another inside would only cost a timer.
            .set_response_timeout(None)
            .set_connection_timeout(Some(self.connect_timeout));
        // The error is not passed on: it may quote the URL, which holds the password.
        let client = Client::open(info).map_err(|_| BuildError::new("url", "leads to no server"))?;
        let pool = Pool::builder(Manager::to(client, config)).max_size(self.connections).build();
        pool.map(Supply::Own).map_err(|_| BuildError::new("connections", "no pool can be made of them"))
    }

    pub(super) fn node(&self, supply: &Supply) -> Node {
        Node {
            connections: Connections::new(supply, self.connections, self.connect_timeout, &self.observers),
            scripts: Arc::clone(&self.scripts),
            given: Given::default(),
            clock: ServerClock::new(),
            deadline: self.deadline,
            observers: Arc::clone(&self.observers),
        }
    }
}
