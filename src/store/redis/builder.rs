use std::{fmt, sync::Arc, time::Duration};

use deadpool_redis::Pool;
use redis::{ConnectionInfo, RedisConnectionInfo};

use super::{
    RedisStore, Topology,
    address::{has_tls, read},
    check,
    cluster::Cluster,
    dial::Dial,
    engine::Engine,
    replicas::Replicas,
    sentinel::Sentinels,
    sockets::{KEEPALIVE, Sockets, USER_TIMEOUT},
    supply::Supply,
    tls::TlsOptions,
    urls::Urls,
    wiring::Wiring,
};
use crate::error::BuildError;

const DEADLINE: Duration = Duration::from_millis(10);
/// Short, because an attempt that began while the network lost everything does not notice when it comes back.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// The details of a [`RedisStore`].
#[must_use]
pub struct RedisStoreBuilder {
    source: Source,
    deadline: Duration,
    connect_timeout: Duration,
    connections: usize,
    sockets: Sockets,
    pub(super) tls_options: TlsOptions,
    sentinel: Option<String>,
    tls: Option<bool>,
    credentials: Option<(String, String)>,
    database: Option<u32>,
    bare: bool,
    engine: Engine,
    replicas: Vec<String>,
    cluster: bool,
    cluster_replicas: bool,
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
            sockets: Sockets { nodelay: true, keepalive: Some(KEEPALIVE), user_timeout: Some(USER_TIMEOUT) },
            tls_options: TlsOptions::default(),
            sentinel: None,
            tls: None,
            credentials: None,
            database: None,
            bare: false,
            engine: Engine::default(),
            replicas: Vec::new(),
            cluster: false,
            cluster_replicas: false,
        }
    }

    /// The longest that a request waits for this store, whatever happens: for a connection, the server and the way there and
    /// back. 10 ms unless said otherwise.
    pub fn deadline(mut self, deadline: Duration) -> RedisStoreBuilder {
        self.deadline = deadline;
        self
    }

    /// The addresses are those of Sentinels, which know the primary by this name. They are asked whenever a connection is made,
    /// one after the other until one names a server that says it is a primary.
    ///
    /// User, password and `rediss://` in the addresses are for the Sentinels. The servers' own are given by
    /// [`credentials`](RedisStoreBuilder::credentials) and [`database`](RedisStoreBuilder::database); they are spoken to over
    /// TLS if the Sentinels are, or as [`tls`](RedisStoreBuilder::tls) says.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), sluicegate::BuildError> {
    /// let store = sluicegate::RedisStore::builder(["redis://10.0.0.1:26379", "redis://10.0.0.2:26379"])
    ///     .sentinel("mymaster")
    ///     .credentials("limiter", "password of the servers")
    ///     .build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn sentinel(mut self, name: impl Into<String>) -> RedisStoreBuilder {
        self.sentinel = Some(name.into());
        self
    }

    /// The user and password of the servers, instead of those in the address. The user of a server that knows only a password
    /// is `default`.
    pub fn credentials(mut self, user: impl Into<String>, password: impl Into<String>) -> RedisStoreBuilder {
        self.credentials = Some((user.into(), password.into()));
        self
    }

    /// The number of the database, instead of the one in the address.
    pub fn database(mut self, number: u32) -> RedisStoreBuilder {
        self.database = Some(number);
        self
    }

    /// Whether servers that Sentinels name are spoken to over TLS, where that differs from the Sentinels themselves.
    pub fn tls(mut self, tls: bool) -> RedisStoreBuilder {
        self.tls = Some(tls);
        self
    }

    /// The longest that making a connection may take, 1 s unless said otherwise: the way there, TLS, logging in, and the
    /// Sentinels' answer. No request waits that long. Raise it where very many clients come to one server with TLS at once.
    pub fn connect_timeout(mut self, timeout: Duration) -> RedisStoreBuilder {
        self.connect_timeout = timeout;
        self
    }

    /// How many connections requests share. One is fastest for one server; more help where the network between is slow.
    pub fn connections(mut self, connections: usize) -> RedisStoreBuilder {
        self.connections = connections;
        self
    }

    /// Whether the kernel sends at once what it is given (`TCP_NODELAY`); it does unless said otherwise. Without it, a call may wait
    /// for the reply to the one before, which on a slow way takes longer than the deadline. Calls that are ready at the same time
    /// are written together either way: with that, a web server on loopback spent 0.98 times the processor time of one around a
    /// minimal script (`cargo bench --bench bars -- http`).
    pub fn nodelay(mut self, nodelay: bool) -> RedisStoreBuilder {
        self.sockets.nodelay = nodelay;
        self
    }

    /// After how much silence the server's host is asked whether the connection still stands (TCP keepalive): then every 5 s,
    /// and after three questions without an answer it is given up. 15 s unless said otherwise, less than firewalls and load
    /// balancers commonly allow before they forget a connection without a word; `None` never asks.
    pub fn keepalive(mut self, after: impl Into<Option<Duration>>) -> RedisStoreBuilder {
        self.sockets.keepalive = after.into();
        self
    }

    /// How long what was sent may go without the host acknowledging it before the connection is given up (`TCP_USER_TIMEOUT`,
    /// on Linux). 5 s unless said otherwise: without it the system goes on trying for a quarter of an hour. `None` leaves it
    /// to the system.
    pub fn user_timeout(mut self, timeout: impl Into<Option<Duration>>) -> RedisStoreBuilder {
        self.sockets.user_timeout = timeout.into();
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
    /// reach replicas. Several rules in one decision are one script of calls to it: all are charged or none. On a Cluster every decision is.
    pub fn cell(mut self) -> RedisStoreBuilder {
        self.engine = Engine::Cell;
        self
    }

    /// By Redis Functions (Redis 7, Valkey 8) instead of scripts: libraries `sluicegate_v1_` and a digest, one for each sequence of
    /// algorithms in use. The server replicates and saves them, so a failover or a restart finds them there. They are loaded where
    /// they are missing, and never replace what another release has loaded; delete those that nobody uses any more with
    /// `FUNCTION DELETE`.
    ///
    /// A server without functions, or whose user may not load or call them, is sent scripts all the same; the
    /// [`Observer`](crate::Observer) is told. A library of the name that holds other code is an error of kind
    /// [`Permanent`](crate::StoreErrorKind::Permanent): somebody has changed it. Of this, `cell` and the like, the last one said counts.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), sluicegate::BuildError> {
    /// let store = sluicegate::RedisStore::builder("redis://127.0.0.1:6379").functions().build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn functions(mut self) -> RedisStoreBuilder {
        self.engine = Engine::Functions;
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

    /// The same for a Cluster, whose map names the replicas of each primary: they answer look-ups in the slots of theirs, in turn. While
    /// a slot moves they may take a count that has gone already for one that was never spent.
    ///
    /// A user needs `+readonly` beside what [`peek_from_replicas`](RedisStoreBuilder::peek_from_replicas) asks for.
    pub fn peek_from_cluster_replicas(mut self) -> RedisStoreBuilder {
        self.cluster_replicas = true;
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
        for (field, duration) in [("keepalive", self.sockets.keepalive), ("user_timeout", self.sockets.user_timeout)] {
            if duration.is_some_and(|duration| !(1..=3_600).contains(&duration.as_secs())) {
                return Err(BuildError::new(field, "is out of range; give 1 s to 1 h, or None"));
            }
        }
        if self.engine == Engine::Cell && (self.cluster_replicas || !self.replicas.is_empty()) {
            let field = if self.cluster_replicas { "peek_from_cluster_replicas" } else { "peek_from_replicas" };
            let text = format!("what redis-cell counts does not reach replicas; drop {field}, or cell()");
            return Err(BuildError::new(field, text));
        }
        if self.cluster_replicas && !self.cluster {
            let text = "is for Clusters; of other servers, name the replicas with peek_from_replicas(..)";
            return Err(BuildError::new("peek_from_cluster_replicas", text));
        }
        let addresses = self.addresses()?;
        let replicas: Vec<ConnectionInfo> = self.replicas.iter().map(|url| read(url)).collect::<Result<_, _>>()?;
        let wiring = self.wiring(addresses.iter().chain(&replicas))?;
        let wiring = Arc::new(wiring);
        if self.cluster {
            return self.clustered(&addresses, wiring);
        }
        let supply = match (&self.source, &self.sentinel) {
            (Source::Pool(pool), _) => Supply::Given(pool.clone()),
            (Source::Urls(_), Some(name)) => wiring.supply_by(self.sentinels(name, addresses)?)?,
            (Source::Urls(_), None) => match <[ConnectionInfo; 1]>::try_from(addresses) {
                Ok([address]) => wiring.supply(self.greeted(address))?,
                Err(addresses) => {
                    let text = "give one, or say what several are with .sentinel(\"name\") or .cluster()";
                    return Err(BuildError::new("url", format!("{} addresses; {text}", addresses.len())));
                }
            },
        };
        let replicas: Result<Vec<Supply>, BuildError> =
            replicas.into_iter().map(|replica| wiring.supply_any(self.greeted(replica))).collect();
        let replicas = Replicas::new(&replicas?, &wiring);
        Ok(RedisStore::new(Topology::One(Box::new(wiring.node(&supply))), replicas, wiring))
    }

    fn clustered(&self, seeds: &[ConnectionInfo], wiring: Arc<Wiring>) -> Result<RedisStore, BuildError> {
        let wrong = |field, text: &str| Err(BuildError::new(field, text));
        if matches!(self.source, Source::Pool(_)) {
            return wrong(
                "cluster",
                "a pool leads to one server, and a Cluster is several; give addresses of its nodes",
            );
        }
        if self.sentinel.is_some() {
            return wrong(
                "sentinel",
                "Sentinels watch servers that are no Cluster; say .cluster() or .sentinel(..), not both",
            );
        }
        if !self.replicas.is_empty() {
            let text = "the map of a Cluster names its replicas; say peek_from_cluster_replicas() instead";
            return wrong("peek_from_replicas", text);
        }
        let seeds: Vec<ConnectionInfo> = seeds.iter().map(|seed| self.greeted(seed.clone())).collect();
        let cluster = Cluster::new(Arc::clone(&wiring), &seeds)?;
        let none = Replicas::new(&[], &wiring);
        Ok(RedisStore::new(Topology::Cluster(cluster), none, wiring))
    }

    /// The addresses, and whether the other settings go with them.
    fn addresses(&self) -> Result<Vec<ConnectionInfo>, BuildError> {
        let wrong = |field, text: &str| Err(BuildError::new(field, text));
        let urls = match &self.source {
            Source::Urls(Urls(urls)) => urls.as_slice(),
            Source::Pool(_) => &[],
        };
        let addresses = urls.iter().map(|url| read(url)).collect::<Result<Vec<_>, _>>()?;
        let tls = addresses.iter().any(has_tls) || self.tls == Some(true);
        match &self.source {
            Source::Pool(_) => {
                let set = [
                    (self.sentinel.is_some(), "sentinel"),
                    (self.tls.is_some(), "tls"),
                    (self.credentials.is_some(), "credentials"),
                    (self.database.is_some(), "database"),
                    (self.tls_options.field().is_some(), self.tls_options.field().unwrap_or("tls")),
                ];
                match set.into_iter().find(|(set, _)| *set) {
                    Some((_, field)) => wrong(field, "is the pool's own business; set it where the pool is made"),
                    None => Ok(addresses),
                }
            }
            Source::Urls(_) if self.tls.is_some() && self.sentinel.is_none() => {
                wrong("tls", "is for servers that Sentinels name; of others the address says it: rediss:// or redis://")
            }
            Source::Urls(_) => match self.tls_options.field() {
                Some(field) if !tls => wrong(field, "is set, but no address asks for TLS; write rediss://"),
                _ => Ok(addresses),
            },
        }
    }

    fn sentinels(&self, name: &str, addresses: Vec<ConnectionInfo>) -> Result<Sentinels, BuildError> {
        let wrong = |field, text: &str| Err(BuildError::new(field, text));
        if name.is_empty() {
            return wrong(
                "sentinel",
                "is empty; give the name that the Sentinels know the primary by, as in \"mymaster\"",
            );
        }
        if addresses.is_empty() {
            return wrong("url", "there is none; give at least one Sentinel's: redis://host:26379");
        }
        if addresses.iter().any(|address| address.redis_settings().db() != 0) {
            return wrong("url", "a Sentinel has no databases; choose the servers' with .database(number)");
        }
        Ok(Sentinels {
            name: name.to_owned(),
            tls: self.tls.unwrap_or_else(|| addresses.iter().any(has_tls)),
            addresses,
            server: self.settings(RedisConnectionInfo::default()),
            first: 0.into(),
        })
    }

    fn wiring<'a>(&self, mut addresses: impl Iterator<Item = &'a ConnectionInfo>) -> Result<Wiring, BuildError> {
        let tls = addresses.any(has_tls) || self.tls == Some(true);
        let tls = if tls { Some(self.tls_options.build()?) } else { None };
        Ok(Wiring {
            deadline: self.deadline,
            connect_timeout: self.connect_timeout,
            connections: self.connections,
            dial: Arc::new(Dial { sockets: self.sockets.clone(), tls, timeout: self.connect_timeout }),
            bare: self.bare,
            engine: self.engine,
            injected: Arc::default(),
            cluster_replicas: self.cluster_replicas,
            scripts: Arc::default(),
            observers: Arc::default(),
        })
    }

    fn greeted(&self, address: ConnectionInfo) -> ConnectionInfo {
        let settings = self.settings(address.redis_settings().clone());
        address.set_redis_settings(settings)
    }

    /// How servers are greeted: by what the builder was told, or else by what the address says.
    fn settings(&self, mut settings: RedisConnectionInfo) -> RedisConnectionInfo {
        if let Some((user, password)) = &self.credentials {
            settings = settings.set_username(user).set_password(password);
        }
        match self.database {
            Some(number) => settings.set_db(number.into()),
            None => settings,
        }
    }
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
