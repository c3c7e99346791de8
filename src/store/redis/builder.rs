use std::{fmt, sync::Arc, time::Duration};

use deadpool_redis::Pool;
use redis::{ConnectionInfo, IntoConnectionInfo, io::tcp::TcpSettings};

use super::{
    RedisStore, Topology, check, engine::Engine, replicas::Replicas, supply::Supply, urls::Urls, wiring::Wiring,
};
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
    engine: Engine,
    replicas: Vec<String>,
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
            engine: Engine::default(),
            replicas: Vec::new(),
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

    /// Without scripts, for services that forbid them: fixed windows by pipelined commands. Any other algorithm is an error when
    /// the limiter is built, and so are windows from the first request and those shorter than a second. Of this, `cell` and the
    /// like, the last one said counts.
    ///
    /// What is admitted never exceeds a limit, and a request that any rule refuses has spent nothing in the end; how it gets
    /// there differs. A decision adds its cost first and takes it back in a second round trip if a rule refuses. So two requests
    /// that race for the last unit may both be refused. The server's `TIME` decides which window it is: a call that finds itself
    /// in another than it was sent for is taken back and made again.
    ///
    /// A call that gives up at its deadline is taken back if the server still answers within a second; what it answers later
    /// stays counted until the window ends. A changed window length begins afresh.
    pub fn no_scripts(mut self) -> RedisStoreBuilder {
        self.engine = Engine::Plain;
        self
    }

    /// By `CL.THROTTLE` of the module [redis-cell](https://github.com/brandur/redis-cell) where the server has it loaded. Only GCRA
    /// rules; any other, and a quota that the module cannot keep exactly, is an error when the limiter is built. A server without
    /// the module is an error of kind [`Permanent`](crate::StoreErrorKind::Permanent) when it is first asked.
    ///
    /// The module tells times in whole seconds, rounded down: `retry_after` and `reset_after` are rounded up to the second after, so
    /// they are never too short. It knows the server's clock only, so a limiter with a clock of its own gets errors. It has no
    /// guard against charging for calls that gave up, forgets a count up to a millisecond early, and what it counts does not
    /// reach replicas. Several rules in one decision are one script of calls to it: all are charged or none.
    pub fn cell(mut self) -> RedisStoreBuilder {
        self.engine = Engine::Cell;
        self
    }

    /// Lets replicas at these addresses answer [`Limiter::peek`](crate::Limiter::peek), in turn, to take look-ups off the primary.
    ///
    /// What they say is as old as replication is behind, and reckoned by their own clocks: good for a usage page, not for a
    /// decision. A replica that does not answer within half the deadline, or cannot (scripts that only read need Redis 7), is left
    /// alone for a while and the primary asked. Charges never go there. A user needs `+evalsha_ro +eval_ro` on them beside the
    /// commands that read.
    pub fn peek_from_replicas(mut self, urls: impl Into<Urls>) -> RedisStoreBuilder {
        self.replicas = urls.into().0;
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
        let wiring = Wiring {
            deadline: self.deadline,
            connect_timeout: self.connect_timeout,
            connections: self.connections,
            tcp: TcpSettings::default().set_nodelay(self.nodelay),
            bare: self.bare,
            engine: self.engine,
            scripts: Arc::default(),
            observers: Arc::default(),
        };
        let supply = match &self.source {
            Source::Pool(pool) => Supply::Given(pool.clone()),
            Source::Urls(Urls(urls)) => match &urls[..] {
                [url] => wiring.supply(read(url)?)?,
                _ => {
                    return Err(BuildError::new("url", format!("{} addresses; give one", urls.len())));
                }
            },
        };
        if self.engine == Engine::Cell && !self.replicas.is_empty() {
            let text = "what redis-cell counts does not reach replicas; drop peek_from_replicas(..), or cell()";
            return Err(BuildError::new("peek_from_replicas", text));
        }
        let replicas: Result<Vec<Supply>, BuildError> =
            self.replicas.iter().map(|url| wiring.supply(read(url)?)).collect();
        let replicas = Replicas::new(&replicas?, &wiring);
        Ok(RedisStore::new(Topology::One(wiring.node(&supply)), replicas, wiring))
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
