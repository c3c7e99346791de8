//! Functions, redis-cell and TLS on Clusters.

use std::time::{Duration, Instant};

use redis::cmd;
use sluicegate::{Call, Limiter, LimiterBuilder, Quota, Rule, key, store::RedisStoreBuilder};

use crate::support::{
    cluster::{CLUSTERS, Cluster, PLAIN, Shape, calls_of},
    stores::namespace,
};

const MANY: u64 = 1_000;

/// One rule that runs out after two, on the second node, and one that does not, on the first. None comes back while a test runs.
fn limiter(builder: RedisStoreBuilder, rule: fn(&str, u64) -> Rule) -> Limiter {
    let store = builder.deadline(Duration::from_secs(30)).bare().build().expect("sound");
    let rules = [rule("many", MANY), rule("two", 2)].map(|rule| rule.key(key::given()));
    let builder = Limiter::builder(store).namespace(namespace());
    rules.into_iter().fold(builder, LimiterBuilder::rule).build().expect("sound")
}

fn sliding(name: &str, units: u64) -> Rule {
    Rule::sliding_counter(name, Quota::per_day(units))
}

async fn used(limiter: &Limiter, rule: &str, key: &str, of: u64) -> u64 {
    let decision = limiter.peek([(rule, key)]).await;
    assert!(decision.failure().is_none(), "{:?}", decision.failure());
    of - decision.standing(rule).expect("it applies").remaining()
}

async fn spend(limiter: &Limiter, key: &str) {
    let decision = limiter.acquire([("many", key)]).await;
    assert!(decision.is_allowed() && decision.failure().is_none(), "{decision:?}");
}

/// Admits two of five, and gives back what the other three were granted.
async fn admits_two_of_five(limiter: &Limiter, keys: &[String; 3]) {
    let call = || Call::new().key("many", &*keys[0]).cost(3).key("two", &*keys[1]);
    for round in 1..=5 {
        let decision = limiter.acquire(call()).await;
        assert!(decision.failure().is_none(), "{:?}", decision.failure());
        assert_eq!(decision.is_allowed(), round <= 2, "{decision:?}");
    }
    let since = Instant::now();
    while used(limiter, "many", &keys[0], MANY).await != 6 {
        assert!(since.elapsed() < Duration::from_secs(10), "{} are used", used(limiter, "many", &keys[0], MANY).await);
    }
    assert_eq!(used(limiter, "two", &keys[1], 2).await, 2);
}

/// A slot is moved while it is asked for.
async fn follows_a_slot(cluster: &Cluster, limiter: &Limiter) {
    let key = cluster.key_at(2, &[&cluster.key_at(2, &[])]);
    spend(limiter, &key).await;
    cluster.migrate(cluster.slot(&key), 2, 0, async || spend(limiter, &key).await).await;
    spend(limiter, &key).await;
    // Before, at both steps on the way, and after.
    assert_eq!(used(limiter, "many", &key, MANY).await, 4);
}

fn loaded(cluster: &Cluster) -> Vec<u64> {
    cluster.nodes.iter().map(|node| calls_of(node, "function|load")).collect()
}

#[tokio::test]
async fn functions_are_loaded_on_each_primary_and_again_where_they_are_deleted() {
    for version in CLUSTERS {
        let cluster = Cluster::start(version, PLAIN);
        let keys = [0, 1, 2].map(|place| cluster.key_at(place, &[]));
        let limiter = limiter(cluster.builder().functions(), sliding);
        admits_two_of_five(&limiter, &keys).await;
        assert_eq!(loaded(&cluster)[2], 0, "{version:?}: nobody asked there");
        spend(&limiter, &keys[2]).await;
        let before = loaded(&cluster);
        assert!(before.iter().all(|loads| *loads > 0), "{version:?}: {before:?}");
        cluster.nodes[1].ask::<()>(cmd("FUNCTION").arg("FLUSH"));
        for key in &keys {
            spend(&limiter, key).await;
        }
        assert_eq!(loaded(&cluster), [before[0], before[1] + 1, before[2]], "{version:?}");
        follows_a_slot(&cluster, &limiter).await;
        let scripts: u64 = cluster.nodes.iter().map(|node| calls_of(node, "eval")).sum();
        assert_eq!(scripts, 0, "{version:?}");
    }
}

#[tokio::test]
async fn the_module_decides_on_each_primary() {
    let module = std::env::var("SLUICEGATE_CELL").expect("SLUICEGATE_CELL: run the tests with tests/run");
    let settings = [(); 3].map(|()| vec!["--loadmodule".to_owned(), module.clone()]);
    for version in CLUSTERS {
        let cluster = Cluster::start(version, Shape { settings: &settings, ..PLAIN });
        let keys = [0, 1, 2].map(|place| cluster.key_at(place, &[]));
        // One unit in five minutes.
        let slow = |name: &str, burst| Rule::gcra(name, Quota::per_hour(12).burst(burst));
        let limiter = limiter(cluster.builder().cell(), slow);
        admits_two_of_five(&limiter, &keys).await;
        follows_a_slot(&cluster, &limiter).await;
        assert!(cluster.nodes.iter().all(|node| calls_of(node, "cl.throttle") > 0), "{version:?}");
        limiter.reset(Call::new().key("many", &*keys[0]).key("two", &*keys[1])).await.expect("both slots");
        assert_eq!(used(&limiter, "two", &keys[1], 2).await, 0, "{version:?}");
    }
}

#[cfg(feature = "tls")]
mod tls {
    use sluicegate::{RedisStore, StoreErrorKind};

    use super::*;
    use crate::support::{
        folder::Folder,
        server::{Version, free_port},
        tls::Authority,
    };

    /// The nodes speak TLS to each other as well. Only Debian's server is built with TLS.
    #[tokio::test]
    async fn every_node_is_spoken_to_over_tls() {
        let (authority, folder) = (Authority::new(), Folder::new());
        let (ports, tls_ports) = ([0; 3].map(|_| free_port()), [0; 3].map(|_| free_port()));
        let settings = [0, 1, 2].map(|place| {
            let mut settings = authority.settings(&folder, "127.0.0.1", "no", tls_ports[place]);
            let (bus, port) = ((ports[place] + 10_000).to_string(), tls_ports[place].to_string());
            let more = ["--tls-cluster", "yes", "--cluster-port", &bus, "--cluster-announce-tls-port", &port];
            settings.extend(more.map(str::to_owned));
            settings
        });
        let cluster = Cluster::start(Version::Redis7, Shape { ports: &ports, settings: &settings, ..PLAIN });
        let keys = [0, 1, 2].map(|place| cluster.key_at(place, &[]));
        let builder = || RedisStore::builder(format!("rediss://127.0.0.1:{}", tls_ports[0])).cluster();
        let limiter = super::limiter(builder().tls_ca(authority.pem()), sliding);
        admits_two_of_five(&limiter, &keys).await;
        spend(&limiter, &keys[2]).await;
        // One that holds no keys, since moving those would take more than a plain word between nodes.
        let other = cluster.key_at(2, &[&keys[2]]);
        cluster.migrate(cluster.slot(&other), 2, 0, async || {}).await;
        spend(&limiter, &other).await;
        assert_eq!(used(&limiter, "many", &other, MANY).await, 1);
        let errors: String = cluster.nodes[2].ask(cmd("INFO").arg("errorstats"));
        assert!(errors.contains("errorstat_MOVED:count=1"), "{errors}");

        let stranger = super::limiter(builder().tls_ca(Authority::new().pem()), sliding);
        let error = stranger.acquire([("many", &*keys[0])]).await.failure().cloned().expect("a stranger");
        assert_eq!(error.kind(), StoreErrorKind::Permanent, "{error}");
        assert!(error.to_string().contains("not trusted"), "{error}");
    }
}
