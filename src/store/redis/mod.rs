//! Counts on a Redis or Valkey server that many processes share.

mod address;
mod assemble;
mod builder;
mod cell;
mod check;
mod cluster;
mod connections;
mod dial;
mod engine;
mod estimate;
mod failure;
mod functions;
mod gate;
mod greet;
mod job;
mod link;
mod manager;
mod naming;
mod node;
mod pace;
mod pipe;
mod plain;
#[cfg(feature = "policy")]
mod policies;
mod replicas;
mod scripts;
mod sentinel;
mod settle;
mod skew;
mod slot;
mod sockets;
mod supply;
#[cfg_attr(not(feature = "tls"), path = "no_tls.rs")]
mod tls;
mod urls;
mod wire;
mod wiring;

use std::{fmt, sync::Arc, time::Duration};

use tokio::time::Instant;

pub use builder::RedisStoreBuilder;
#[cfg(feature = "policy")]
pub(crate) use policies::{Counts, Listening, PolicyKeys, Written};
pub use urls::Urls;

use self::{cluster::Cluster, node::Node, replicas::Replicas, wiring::Wiring};
use super::{Answer, Ask, Checking, Line, Purpose, Report, Settlement, Settling, Store, StoreFuture, Time};
use crate::{
    error::{BuildError, StoreError},
    limit::{Limit, micros},
    observer::Observer,
    resilience::Resilient,
};

/// Keeps counts on a Redis (6.2 or later) or Valkey server.
///
/// ```no_run
/// use sluicegate::RedisStore;
/// use std::time::Duration;
///
/// # fn main() -> Result<(), sluicegate::BuildError> {
/// let store = RedisStore::connect("redis://127.0.0.1:6379")?;
/// let store = RedisStore::builder("redis://127.0.0.1:6379").deadline(Duration::from_millis(5)).build()?;
/// # Ok(())
/// # }
/// ```
///
/// It connects when it is first asked, so an application starts without a server. However many rules apply, a decision is one
/// call of one script. Whatever the server does, no ask takes longer than the deadline, 10 ms unless said otherwise; a call
/// that the server comes to after that charges nothing.
///
/// For a Cluster, name some of its nodes and say so; see the page on [Clusters](crate::guide::cluster).
///
/// ```no_run
/// # fn main() -> Result<(), sluicegate::BuildError> {
/// let nodes = ["redis://10.0.0.1:6379", "redis://10.0.0.2:6379"];
/// let store = sluicegate::RedisStore::builder(nodes).cluster().build()?;
/// # Ok(())
/// # }
/// ```
///
/// Clones share the connections.
#[derive(Clone)]
pub struct RedisStore(Arc<Inner>);

struct Inner {
    topology: Topology,
    /// For look-ups only.
    replicas: Replicas,
    wiring: Arc<Wiring>,
}

/// How many changes are made in one call: some half a millisecond of a server's time.
const MOST_AT_ONCE: usize = 64;

/// How the servers hang together.
enum Topology {
    One(Box<Node>),
    Cluster(Arc<Cluster>),
}

impl RedisStore {
    /// A store on the server at `url`: `redis://user:password@host:port/database`.
    ///
    /// # Errors
    ///
    /// When the URL cannot be read. Whether a server is there shows when the store is first asked.
    pub fn connect(url: impl Into<String>) -> Result<RedisStore, BuildError> {
        RedisStore::builder(url.into()).build()
    }

    /// Like [`connect`](RedisStore::connect), with a choice of the details.
    ///
    /// Several addresses are those of a Cluster or of Sentinels; the builder wants to know which.
    pub fn builder(urls: impl Into<Urls>) -> RedisStoreBuilder {
        RedisStoreBuilder::new(urls.into())
    }

    /// A store over a pool that the application has already. It keeps as many of the pool's connections to itself as the
    /// builder says, one unless told otherwise.
    ///
    /// ```no_run
    /// # fn store(pool: deadpool_redis::Pool) -> Result<sluicegate::RedisStore, sluicegate::BuildError> {
    /// sluicegate::RedisStore::from_pool(pool).build()
    /// # }
    /// ```
    pub fn from_pool(pool: deadpool_redis::Pool) -> RedisStoreBuilder {
        RedisStoreBuilder::over(pool)
    }

    async fn look(&self, namespace: &str) -> Report {
        let patience = self.0.wiring.connect_timeout;
        let mut report = match &self.0.topology {
            Topology::One(node) => check::node(node, namespace, patience).await,
            Topology::Cluster(cluster) => cluster.check(namespace, patience).await,
        };
        for node in self.0.replicas.nodes() {
            check::add_replica(&mut report, &check::node(node, namespace, patience).await);
        }
        report
    }

    fn new(topology: Topology, replicas: Replicas, wiring: Arc<Wiring>) -> RedisStore {
        RedisStore(Arc::new(Inner { topology, replicas, wiring }))
    }

    /// Asks the one server. Its future is boxed for every request, so what is rare takes its room elsewhere.
    async fn decide(&self, node: &Node, ask: &Ask<'_>) -> Result<Answer, StoreError> {
        let until = Instant::now() + self.0.wiring.deadline;
        if ask.purpose == Purpose::Peek
            && let Some(Ok(answer)) = Box::pin(self.0.replicas.peek(ask, until)).await
        {
            return Ok(answer);
        }
        node.within(until, async move |used| node.decide(ask, Duration::ZERO, used).await).await
    }

    async fn settle_all(&self, settlements: &[Settlement<'_>], time: Time) -> Vec<Result<(), StoreError>> {
        let mut outcomes = Vec::with_capacity(settlements.len());
        for some in settlements.chunks(MOST_AT_ONCE) {
            let since = Instant::now();
            let until = since + self.0.wiring.deadline;
            match &self.0.topology {
                Topology::One(node) => {
                    let settled =
                        node.within(until, async move |used| node.settle(some, time, since, used).await).await;
                    outcomes.extend(some.iter().map(|_| settled.clone()));
                }
                Topology::Cluster(cluster) => outcomes.extend(cluster.settle(some, time, until).await),
            }
        }
        outcomes
    }

    async fn forget(&self, lines: &[Line<'_>]) -> Result<(), StoreError> {
        let until = Instant::now() + self.0.wiring.deadline;
        match &self.0.topology {
            Topology::One(node) => node.within(until, async move |used| node.forget(lines, used).await).await,
            Topology::Cluster(cluster) => cluster.forget(lines, until).await,
        }
    }
}

impl Store for RedisStore {
    fn acquire<'a>(&'a self, ask: &'a Ask<'a>) -> StoreFuture<'a, Answer> {
        match &self.0.topology {
            Topology::One(node) => Box::pin(self.decide(node, ask)),
            Topology::Cluster(cluster) => Box::pin(cluster.decide(ask, Instant::now() + self.0.wiring.deadline)),
        }
    }

    fn settle<'a>(&'a self, settlements: &'a [Settlement<'a>], time: Time) -> Settling<'a> {
        Box::pin(self.settle_all(settlements, time))
    }

    fn reset<'a>(&'a self, lines: &'a [Line<'a>]) -> StoreFuture<'a, ()> {
        Box::pin(self.forget(lines))
    }

    fn observe(&self, observer: &Arc<dyn Observer>) {
        self.0.wiring.observers.add(observer);
    }

    fn accept(&self, rules: &[(&str, &Limit)]) -> Result<(), BuildError> {
        self.0.wiring.engine.accept(rules)
    }

    fn part(&self, line: &Line<'_>) -> usize {
        match &self.0.topology {
            Topology::One(_) => 0,
            Topology::Cluster(cluster) => cluster.part(line),
        }
    }

    fn deadline(&self) -> Option<Duration> {
        Some(self.0.wiring.deadline)
    }

    fn check<'a>(&'a self, namespace: &'a str) -> Checking<'a> {
        Box::pin(self.look(namespace))
    }

    fn boxed(self) -> Box<dyn Store> {
        if self.0.wiring.bare { Box::new(self) } else { Box::new(Resilient::new(self)) }
    }
}

/// Shows no address and no password.
impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").field("deadline", &self.0.wiring.deadline).finish_non_exhaustive()
    }
}

/// A duration that a deadline may be.
fn check(field: &'static str, duration: Duration) -> Result<Duration, BuildError> {
    match micros(duration) {
        1_000..=60_000_000 => Ok(duration),
        _ => Err(BuildError::new(field, format!("{duration:?} is out of range; give 1 ms to 60 s"))),
    }
}
