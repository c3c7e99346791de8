//! Real Clusters on free loopback ports: primaries, each with as many replicas. They end with the test process.

use std::{
    path::PathBuf,
    sync::OnceLock,
    time::{Duration, Instant},
};

use redis::{Cmd, FromRedisValue, Value, aio::MultiplexedConnection, cmd};
use sluicegate::{RedisStore, store::RedisStoreBuilder};

use super::server::{Server, Version, free_port};

pub const SLOTS: u16 = 16_384;

/// The versions that Clusters are tested on.
pub const CLUSTERS: [Version; 2] = [Version::Redis7, Version::Valkey9];

pub struct Cluster {
    /// The primaries first, then the replicas of each in turn, then those without slots.
    pub nodes: Vec<Server>,
    primaries: usize,
    /// Where clients are told to go: the nodes' own ports, unless others were given.
    announced: Vec<u16>,
    files: Vec<PathBuf>,
}

/// How a Cluster is to be.
#[derive(Clone, Copy)]
pub struct Shape<'a> {
    pub primaries: usize,
    /// For each primary.
    pub replicas: usize,
    /// Primaries that own no slots.
    pub slotless: usize,
    /// The ports that clients are told of, where proxies listen: one for each node, or none.
    pub announced: &'a [u16],
    /// The servers' ports, where they must be known before: for proxies. One for each node, or none.
    pub ports: &'a [u16],
    /// More settings of the servers: for each node, or none.
    pub settings: &'a [Vec<String>],
}

pub const PLAIN: Shape<'static> =
    Shape { primaries: 3, replicas: 0, slotless: 0, announced: &[], ports: &[], settings: &[] };

impl Cluster {
    /// Three primaries that all tests share. Do no harm to it, and give each test a namespace of its own.
    pub fn shared(version: Version) -> &'static Cluster {
        static CLUSTERS: [OnceLock<Cluster>; 3] = [const { OnceLock::new() }; 3];
        CLUSTERS[version as usize].get_or_init(|| Cluster::start(version, PLAIN))
    }

    pub fn start(version: Version, shape: Shape<'_>) -> Cluster {
        let count = shape.primaries * (1 + shape.replicas) + shape.slotless;
        let ports: Vec<u16> = (0..count).map(|node| *shape.ports.get(node).unwrap_or(&free_port())).collect();
        let announced: Vec<u16> = (0..count).map(|node| *shape.announced.get(node).unwrap_or(&ports[node])).collect();
        let mut files = Vec::new();
        let mut nodes = Vec::new();
        for (place, (port, announced)) in ports.iter().zip(&announced).enumerate() {
            let file = std::env::temp_dir().join(format!("sluicegate-{}-{port}.conf", std::process::id()));
            let (name, announced) = (file.to_string_lossy().into_owned(), announced.to_string());
            files.push(file);
            let more = ["--cluster-enabled", "yes", "--cluster-node-timeout", "2000", "--cluster-config-file", &name];
            let announce = ["--cluster-announce-ip", "127.0.0.1", "--cluster-announce-port", &announced];
            // Or all slots are refused while one primary is being replaced.
            let announce = [&announce[..], &["--cluster-require-full-coverage", "no"]].concat();
            let quick = ["--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0"];
            let settings: Vec<&str> = shape.settings.get(place).into_iter().flatten().map(String::as_str).collect();
            nodes.push(Server::start_on(version, *port, &[&more[..], &announce, &quick, &settings].concat()));
        }
        let cluster = Cluster { nodes, primaries: shape.primaries, announced, files };
        cluster.form(shape.replicas);
        cluster
    }

    fn form(&self, replicas: usize) {
        let share = usize::from(SLOTS).div_ceil(self.primaries);
        for (place, node) in self.nodes.iter().enumerate() {
            node.ask::<()>(cmd("CLUSTER").arg("SET-CONFIG-EPOCH").arg(place + 1));
            if place < self.primaries {
                // ADDSLOTSRANGE is not there on 6.2.
                let slots: Vec<usize> = (place * share..((place + 1) * share).min(SLOTS.into())).collect();
                node.ask::<()>(cmd("CLUSTER").arg("ADDSLOTS").arg(slots));
            }
            for other in &self.nodes[..place] {
                node.ask::<()>(cmd("CLUSTER").arg("MEET").arg("127.0.0.1").arg(other.port).arg(other.port + 10_000));
            }
        }
        let known = format!("cluster_known_nodes:{}", self.nodes.len());
        self.until("all nodes know all", |node| node.info().contains(&known));
        for (place, node) in self.nodes.iter().enumerate().skip(self.primaries).take(self.primaries * replicas) {
            let primary = self.nodes[place % self.primaries].id();
            until("the primary is known", || node.try_ask::<()>(cmd("CLUSTER").arg("REPLICATE").arg(&primary)).is_ok());
        }
        self.until("the Cluster is ready", |node| {
            let replication: String = node.ask(cmd("INFO").arg("replication"));
            let Value::Array(ranges) = node.ask(cmd("CLUSTER").arg("SLOTS")) else { return false };
            // First, last, the primary, and its replicas.
            let complete = |range: &Value| matches!(range, Value::Array(parts) if parts.len() == 3 + replicas);
            node.info().contains("cluster_state:ok")
                && !replication.contains("master_link_status:down")
                && ranges.len() == self.primaries
                && ranges.iter().all(complete)
        });
    }

    fn until(&self, what: &str, ready: impl Fn(&Server) -> bool) {
        until(what, || self.nodes.iter().all(&ready));
    }

    /// The addresses of the primaries, as clients are to see them.
    pub fn urls(&self) -> Vec<String> {
        self.announced[..self.primaries].iter().map(|port| format!("redis://127.0.0.1:{port}")).collect()
    }

    pub fn builder(&self) -> RedisStoreBuilder {
        RedisStore::builder(self.urls()).cluster()
    }

    /// A store for tests about numbers, not about time.
    pub fn patient(&self) -> RedisStore {
        self.builder().deadline(Duration::from_secs(30)).build().expect("sound addresses")
    }

    /// The place of the primary that slots were given to at the beginning.
    pub fn owner(&self, slot: u16) -> usize {
        usize::from(slot) / usize::from(SLOTS).div_ceil(self.primaries)
    }

    pub fn slot(&self, name: impl AsRef<[u8]>) -> u16 {
        self.nodes[0].ask(cmd("CLUSTER").arg("KEYSLOT").arg(name.as_ref()))
    }

    /// A key of `rule` that falls to the primary at this place, and to a slot that none of the `others` is in.
    pub fn key_at(&self, place: usize, others: &[&str]) -> String {
        let taken: Vec<u16> = others.iter().map(|other| self.slot(other)).collect();
        let mut keys = (0..).map(|number| format!("k{number}"));
        keys.find(|key| {
            let slot = self.slot(key);
            self.owner(slot) == place && !taken.contains(&slot)
        })
        .expect("some key")
    }

    /// Gives a slot, and what is in it, to another primary, key by key, the way operators do. `between` runs after each step.
    pub async fn migrate(&self, slot: u16, from: usize, to: usize, between: impl AsyncFn()) {
        let (source, target) = (&self.nodes[from], &self.nodes[to]);
        let (source_id, target_id) = (source.id(), target.id());
        let setslot = |node: &Server, what: &str, id: &str| {
            node.ask::<()>(cmd("CLUSTER").arg("SETSLOT").arg(slot).arg(what).arg(id));
        };
        setslot(target, "IMPORTING", &source_id);
        setslot(source, "MIGRATING", &target_id);
        between().await;
        loop {
            let keys: Vec<Vec<u8>> = source.ask(cmd("CLUSTER").arg("GETKEYSINSLOT").arg(slot).arg(1));
            let Some(key) = keys.first() else { break };
            source.ask::<Value>(cmd("MIGRATE").arg("127.0.0.1").arg(target.port).arg(key).arg(0).arg(5_000));
            between().await;
        }
        setslot(target, "NODE", &target_id);
        setslot(source, "NODE", &target_id);
        // Or the next move of the slot may be undone by one who has not heard of this one.
        self.until("all nodes know where the slot is", |node| node.owner_of(slot).as_ref() == Some(&target_id));
    }
}

impl Cluster {
    /// Gives all slots of a primary, and what is in them, to one whose epoch is higher.
    pub async fn empty(&self, from: usize, to: usize) {
        let (source, target) = (&self.nodes[from], self.nodes[to].id());
        let slots = || (0..SLOTS).filter(|slot| self.owner(*slot) == from);
        let of_each = |node: &Server, command: &dyn Fn(&mut redis::Pipeline, u16)| -> Vec<Value> {
            let mut commands = redis::pipe();
            slots().for_each(|slot| command(&mut commands, slot));
            let client = redis::Client::open(node.url()).expect("an address");
            commands.query(&mut client.get_connection().expect("a connection")).expect("answers")
        };
        let counts = of_each(source, &|commands, slot| {
            commands.cmd("CLUSTER").arg("COUNTKEYSINSLOT").arg(slot);
        });
        for (slot, _) in slots().zip(counts).filter(|(_, count)| *count != Value::Int(0)) {
            self.migrate(slot, from, to, async || {}).await;
        }
        // The new owner first, then the old one.
        let others = (0..self.nodes.len()).filter(|place| ![from, to].contains(place));
        for place in [to, from].into_iter().chain(others) {
            of_each(&self.nodes[place], &|commands, slot| {
                commands.cmd("CLUSTER").arg("SETSLOT").arg(slot).arg("NODE").arg(&target);
            });
        }
        let (source, [first, last]) = (source.id(), [slots().min(), slots().max()].map(Option::unwrap_or_default));
        self.until("all nodes know that it is empty", |node| {
            let nodes: String = node.ask(cmd("CLUSTER").arg("NODES"));
            let is_empty = nodes.lines().any(|line| line.starts_with(&source) && line.split(' ').count() == 8);
            is_empty && [first, last].iter().all(|slot| node.owner_of(*slot).as_ref() == Some(&target))
        });
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.nodes.clear();
        for file in &self.files {
            let _ = std::fs::remove_file(file);
        }
    }
}

impl Server {
    /// Asks the server something, over a connection of its own.
    pub fn ask<T: FromRedisValue>(&self, command: &Cmd) -> T {
        self.try_ask(command).expect("an answer")
    }

    pub fn try_ask<T: FromRedisValue>(&self, command: &Cmd) -> redis::RedisResult<T> {
        let client = redis::Client::open(self.url())?;
        command.query(&mut client.get_connection()?)
    }

    pub fn id(&self) -> String {
        self.ask(cmd("CLUSTER").arg("MYID"))
    }

    /// The id of the primary that owns a slot, as far as this node knows.
    fn owner_of(&self, slot: u16) -> Option<String> {
        let nodes: String = self.ask(cmd("CLUSTER").arg("NODES"));
        let owns = |range: &str| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            // What is on its way stands in brackets.
            matches!((first.parse::<u16>(), last.parse::<u16>()), (Ok(first), Ok(last)) if (first..=last).contains(&slot))
        };
        let mut lines = nodes.lines().map(|line| line.split(' '));
        // Id, address, flags, primary, two times, epoch, state of the link, and slots.
        lines.find(|line| line.clone().skip(8).any(owns)).and_then(|mut line| line.next().map(str::to_owned))
    }

    fn info(&self) -> String {
        self.ask(cmd("CLUSTER").arg("INFO"))
    }
}

/// The slot of a name without braces, as the specification of Clusters has it (CRC-16/XMODEM).
pub fn slot(name: &str) -> u16 {
    let step = |sum: u16| if sum & 0x8000 == 0 { sum << 1 } else { sum << 1 ^ 0x1021 };
    let sum = name.bytes().fold(0, |sum, byte| (0..8).fold(sum ^ u16::from(byte) << 8, |sum, _| step(sum)));
    sum % SLOTS
}

pub fn until(what: &str, mut ready: impl FnMut() -> bool) {
    let since = Instant::now();
    while !ready() {
        assert!(since.elapsed() < Duration::from_secs(30), "not in time: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// How often a script was called on a node, by EVAL or EVALSHA.
pub async fn calls(connection: &mut MultiplexedConnection) -> u64 {
    let stats: String = cmd("INFO").arg("commandstats").query_async(connection).await.expect("statistics");
    let number = |line: &str| line.split_once("calls=")?.1.split(',').next()?.parse::<u64>().ok();
    let scripts = stats.lines().filter(|line| line.starts_with("cmdstat_eval"));
    scripts.filter_map(number).sum()
}

/// How often a node has run commands whose name begins so.
pub fn calls_of(node: &Server, command: &str) -> u64 {
    let stats: String = node.ask(cmd("INFO").arg("commandstats"));
    let lines = stats.lines().filter_map(|line| line.strip_prefix(&format!("cmdstat_{command}")));
    lines.filter_map(|line| line.split_once("calls=")?.1.split(',').next()?.parse::<u64>().ok()).sum()
}
