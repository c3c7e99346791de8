//! What every node of a store is made with.

use std::{
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use deadpool::managed::Pool;
use redis::ConnectionInfo;

use super::{
    connections::Connections,
    dial::Dial,
    engine::Engine,
    estimate::ServerClock,
    functions::Functions,
    manager::{Manager, Target},
    node::Node,
    scripts::{Given, Scripts},
    sentinel::Sentinels,
    skew::Skew,
    supply::Supply,
};
use crate::{error::BuildError, observer::Observers};

pub(super) struct Wiring {
    pub(super) deadline: Duration,
    pub(super) connect_timeout: Duration,
    pub(super) connections: usize,
    /// How connections are opened.
    pub(super) dial: Arc<Dial>,
    /// Whether a limiter is to use the store as it is.
    pub(super) bare: bool,
    pub(super) engine: Engine,
    /// The last time that was injected, or zero. A reset names none, and [`Engine::Plain`] has times in names.
    pub(super) injected: Arc<AtomicU64>,
    /// Whether replicas that the map of a Cluster names answer look-ups.
    pub(super) cluster_replicas: bool,
    pub(super) scripts: Arc<Scripts>,
    pub(super) observers: Arc<Observers>,
}

impl Wiring {
    /// Connections to the server at an address.
    pub(super) fn supply(&self, info: ConnectionInfo) -> Result<Supply, BuildError> {
        self.pool(Target::Server(info))
    }

    /// Connections to a server that may be a replica.
    pub(super) fn supply_any(&self, info: ConnectionInfo) -> Result<Supply, BuildError> {
        self.pool(Target::Any(info))
    }

    /// Connections to a replica in a Cluster.
    pub(super) fn supply_replica(&self, info: ConnectionInfo) -> Result<Supply, BuildError> {
        self.pool(Target::Replica(info))
    }

    /// Connections to the primary that Sentinels name.
    pub(super) fn supply_by(&self, sentinels: Sentinels) -> Result<Supply, BuildError> {
        self.pool(Target::Sentinels(sentinels))
    }

    fn pool(&self, target: Target) -> Result<Supply, BuildError> {
        let pool = Pool::builder(Manager::new(&self.dial, target)).max_size(self.connections).build();
        pool.map(Supply::Own).map_err(|_| BuildError::new("connections", "no pool can be made of them"))
    }

    pub(super) fn node(&self, supply: &Supply) -> Node {
        Node {
            connections: Connections::new(supply, self.connections, self.connect_timeout, &self.observers),
            engine: self.engine,
            place: None,
            is_replica: false,
            injected: Arc::clone(&self.injected),
            scripts: Arc::clone(&self.scripts),
            functions: Functions::default(),
            given: Given::default(),
            clock: ServerClock::new(),
            skew: Skew::default(),
            deadline: self.deadline,
            observers: Arc::clone(&self.observers),
        }
    }
}
