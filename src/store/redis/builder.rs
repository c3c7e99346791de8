use std::{fmt, sync::Arc, time::Duration};

use deadpool_redis::Pool;
use redis::{ConnectionInfo, IntoConnectionInfo, io::tcp::TcpSettings};

use super::{RedisStore, Topology, check, cluster::Cluster, supply::Supply, urls::Urls, wiring::Wiring};
use crate::error::BuildError;

const DEADLINE: Duration = Duration::from_millis(10);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The details of a [`RedisStore`].
#[must_use]
pub struct RedisStoreBuilder {
    source: Source,
    deadline: Duration,
    connect_timeout: Duration,
    connections: usize,
    nodelay: bool,
    bare: bool,
    cluster: bool,
}

/// Where connections come from.
enum Source {
    Urls(Urls),
    Pool(Pool),
}

impl RedisStoreBuilder {
    pub(super) fn new(urls: Urls) -> RedisStoreBuilder {
        RedisStoreBuilder::of(Source::Urls(urls))
    }

    pub(super) fn over(pool: Pool) -> RedisStoreBuilder {
        RedisStoreBuilder::of(Source::Pool(pool))
    }

    fn of(source: Source) -> RedisStoreBuilder {
        RedisStoreBuilder {
            source,
            deadline: DEADLINE,
            connect_timeout: CONNECT_TIMEOUT,
            connections: 1,
            nodelay: false,
            bare: false,
            cluster: false,
        }
    }

    /// The longest that a request waits for this store, whatever happens: for a connection, the server and the way there and
    /// back. 10 ms unless said otherwise.
    pub fn deadline(mut self, deadline: Duration) -> RedisStoreBuilder {
        self.deadline = deadline;
        self
    }

    /// The longest that making a connection may take, 5 s unless said otherwise. No request waits that long.
    pub fn connect_timeout(mut self, timeout: Duration) -> RedisStoreBuilder {
        self.connect_timeout = timeout;
        self
    }

    /// How many connections requests share. One is fastest for one server; more help where the network between is slow.
    pub fn connections(mut self, connections: usize) -> RedisStoreBuilder {
        self.connections = connections;
        self
    }

    /// Sends each call at once instead of letting the kernel gather small ones while a reply is outstanding (`TCP_NODELAY`). Off
    /// unless said otherwise: a busy web server on loopback spent 1.32 times the processor time of a minimal script with it and
    /// 1.08 times without (`cargo bench --bench bars -- http`). A call may then wait for the reply to the one before it, so
    /// try it where the way to the server is long and calls are few.
    pub fn nodelay(mut self, nodelay: bool) -> RedisStoreBuilder {
        self.nodelay = nodelay;
        self
    }

    /// Without the [`Resilient`](crate::Resilient) that limiters put around the store: no circuit breaker, no local counts,
    /// every request asks the server. For an application with measures of its own.
    pub fn bare(mut self) -> RedisStoreBuilder {
        self.bare = true;
        self
    }

    /// The addresses are those of nodes of a Cluster: one or several, any of which tells of the others. User, password and
    /// all else hold for every node. See the page on [Clusters](crate::guide::cluster).
    pub fn cluster(mut self) -> RedisStoreBuilder {
        self.cluster = true;
        self
    }

    /// The store. It connects when it is first asked.
    ///
    /// # Errors
    ///
    /// When the URL cannot be read, or a duration or a number is out of range.
    pub fn build(self) -> Result<RedisStore, BuildError> {
        check("deadline", self.deadline)?;
        check("connect_timeout", self.connect_timeout)?;
        if !(1..=64).contains(&self.connections) {
            return Err(BuildError::new("connections", format!("{} is out of range; give 1 to 64", self.connections)));
        }
        let wiring = Arc::new(Wiring {
            deadline: self.deadline,
            connect_timeout: self.connect_timeout,
            connections: self.connections,
            tcp: TcpSettings::default().set_nodelay(self.nodelay),
            bare: self.bare,
            scripts: Arc::default(),
            observers: Arc::default(),
        });
        if self.cluster {
            let Source::Urls(Urls(urls)) = &self.source else {
                let text = "a pool leads to one server, and a Cluster is several; give addresses of its nodes";
                return Err(BuildError::new("cluster", text));
            };
            let seeds = urls.iter().map(|url| read(url)).collect::<Result<Vec<_>, _>>()?;
            let cluster = Cluster::new(Arc::clone(&wiring), &seeds)?;
            return Ok(RedisStore::new(Topology::Cluster(Arc::new(cluster)), wiring));
        }
        let supply = match &self.source {
            Source::Pool(pool) => Supply::Given(pool.clone()),
            Source::Urls(Urls(urls)) => match &urls[..] {
                [url] => wiring.supply(read(url)?)?,
                _ => {
                    return Err(BuildError::new(
                        "url",
                        format!("{} addresses; give one, or say .cluster()", urls.len()),
                    ));
                }
            },
        };
        Ok(RedisStore::new(Topology::One(wiring.node(&supply)), wiring))
    }
}

fn read(url: &str) -> Result<ConnectionInfo, BuildError> {
    if url.starts_with("rediss:") || url.starts_with("valkeys:") {
        let text = "asks for TLS, which is not built in; use redis:// over a tunnel or a private network";
        return Err(BuildError::new("url", text));
    }
    // The error is not passed on: it may quote the URL, which holds the password.
    url.into_connection_info().map_err(|_| {
        let text = "is not the address of a Redis server; write redis://[user:password@]host[:port][/database]";
        BuildError::new("url", text)
    })
}

/// Shows no address and no password.
impl fmt::Debug for RedisStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStoreBuilder")
            .field("deadline", &self.deadline)
            .field("connect_timeout", &self.connect_timeout)
            .field("connections", &self.connections)
            .finish_non_exhaustive()
    }
}
