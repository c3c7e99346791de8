//! Look-ups from the replicas of a Cluster; charges stay with its primaries.

use std::time::{Duration, Instant};

use redis::cmd;
use sluicegate::{Limiter, Quota, RedisStore, Rule, key, store::RedisStoreBuilder};

use crate::support::{
    cluster::{CLUSTERS, Cluster, PLAIN, Shape, calls_of},
    server::Version,
    stores::namespace,
};

/// Chooses one.
type Engine = fn(RedisStoreBuilder) -> RedisStoreBuilder;

const REPLICAS: Shape<'static> = Shape { replicas: 1, ..PLAIN };

fn limiter(builder: RedisStoreBuilder, deadline: Duration) -> Limiter {
    let store = builder.peek_from_cluster_replicas().bare().deadline(deadline).build().expect("sound");
    let rule = Rule::fixed_window("r", Quota::per_day(10)).key(key::given());
    Limiter::builder(store).namespace(namespace()).rule(rule).build().expect("sound")
}

/// Three are spent of each key, and the replicas know.
async fn spend(cluster: &Cluster, limiter: &Limiter, keys: &[String; 3]) {
    for (place, key) in keys.iter().enumerate() {
        for _ in 0..3 {
            assert!(limiter.acquire([("r", &**key)]).await.failure().is_none());
        }
        let mut primary = cluster.nodes[place].connection().await;
        // WAIT is about what this connection wrote, and all before it.
        let _: () = cmd("SET").arg(key).arg(1).query_async(&mut primary).await.expect("done");
        let since = Instant::now();
        while cmd("WAIT").arg(1).arg(100).query_async::<u64>(&mut primary).await.expect("an answer") == 0 {
            assert!(since.elapsed() < Duration::from_secs(20), "the replica lags behind");
        }
    }
}

async fn remaining(limiter: &Limiter, key: &str) -> u64 {
    let decision = limiter.peek([("r", key)]).await;
    assert!(decision.failure().is_none(), "{:?}", decision.failure());
    decision.standing("r").expect("it applies").remaining()
}

#[tokio::test]
async fn the_replicas_of_each_primary_answer_look_ups_in_its_slots() {
    for version in CLUSTERS {
        let cluster = Cluster::start(version, REPLICAS);
        let (primaries, replicas) = cluster.nodes.split_at(3);
        let keys = [0, 1, 2].map(|place| cluster.key_at(place, &[]));
        let engines: [(Engine, &str, [&str; 2]); 3] = [
            (|builder| builder, "evalsha_ro:", ["eval", "fcall"]),
            (RedisStoreBuilder::functions, "evalsha_ro:", ["eval", "fcall"]),
            (RedisStoreBuilder::no_scripts, "get:", ["get:", "incrby:"]),
        ];
        for (engine, read, others) in engines {
            let limiter = limiter(engine(cluster.builder()), Duration::from_secs(30));
            spend(&cluster, &limiter, &keys).await;
            let asked = |nodes: &[crate::support::server::Server]| -> Vec<u64> {
                let calls = |node| others.iter().map(|command| calls_of(node, command)).sum();
                nodes.iter().map(calls).collect()
            };
            let sizes = || cluster.nodes.iter().map(|node| node.ask::<u64>(&cmd("DBSIZE"))).collect::<Vec<_>>();
            let (before, size) = (asked(primaries), sizes());
            for (key, replica) in keys.iter().zip(replicas) {
                let reads = calls_of(replica, read);
                for _ in 0..3 {
                    assert_eq!(remaining(&limiter, key).await, 7, "{version:?} {read}");
                }
                assert!(calls_of(replica, read) >= reads + 2, "{version:?} {read}");
            }
            // One that nobody has spent of, so that a write would be seen.
            let other = cluster.key_at(0, &[&keys[0]]);
            assert_eq!(remaining(&limiter, &other).await, 10, "{version:?} {read}");
            assert_eq!(asked(primaries), before, "{version:?} {read}: no primary was asked");
            assert_eq!(sizes(), size, "{version:?} {read}: nothing was written");
            let report = limiter.check().await;
            assert!(
                report.is_ok() && report.notes().any(|note| note.contains("replica: its role is replica")),
                "{report}"
            );
        }
    }
}

/// A replica hangs, and one is gone: their primaries answer, and so do the replicas of others.
#[tokio::test]
async fn where_a_replica_does_not_answer_its_primary_does() {
    for version in CLUSTERS {
        let cluster = Cluster::start(version, REPLICAS);
        let keys = [0, 1, 2].map(|place| cluster.key_at(place, &[]));
        let limiter = limiter(cluster.builder(), Duration::from_secs(4));
        spend(&cluster, &limiter, &keys).await;
        for key in &keys {
            assert_eq!(remaining(&limiter, key).await, 7, "{version:?}");
        }
        cluster.nodes[3].signal("KILL");
        cluster.nodes[4].signal("STOP");
        let calls = || [0, 1, 2].map(|place| calls_of(&cluster.nodes[place], "eval"));
        let before = calls();
        for _ in 0..3 {
            for key in &keys {
                assert_eq!(remaining(&limiter, key).await, 7, "{version:?}");
            }
        }
        let after = calls();
        assert_eq!([after[0] - before[0], after[1] - before[1], after[2] - before[2]], [3, 3, 0], "{version:?}");
    }
}

/// A server that cannot read by script on a replica: it says so once, and the primary answers.
#[tokio::test]
async fn the_oldest_server_has_its_primaries_asked() {
    let cluster = Cluster::start(Version::Redis6, REPLICAS);
    let keys = [0, 1, 2].map(|place| cluster.key_at(place, &[]));
    let limiter = limiter(cluster.builder(), Duration::from_secs(30));
    spend(&cluster, &limiter, &keys).await;
    for key in &keys {
        assert_eq!(remaining(&limiter, key).await, 7);
    }
}

#[test]
fn what_cannot_be_is_a_build_error() {
    let field = |builder: RedisStoreBuilder| builder.build().expect_err("an error").field().to_owned();
    let builder = || RedisStore::builder("redis://127.0.0.1:1");
    assert_eq!(field(builder().peek_from_cluster_replicas()), "peek_from_cluster_replicas");
    assert_eq!(field(builder().cluster().cell().peek_from_cluster_replicas()), "peek_from_cluster_replicas");
    assert_eq!(field(builder().cluster().peek_from_replicas("redis://127.0.0.1:2")), "peek_from_replicas");
}
