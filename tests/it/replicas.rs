//! Look-ups from a real replica; charges stay with the primary.

use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use sluicegate::{Limiter, Quota, RedisStore, Rule, key, store::RedisStoreBuilder};

use crate::support::server::{Server, VERSIONS, Version, free_port};

fn store(primary: &Server) -> RedisStoreBuilder {
    RedisStore::builder(primary.url()).bare().deadline(Duration::from_secs(30))
}

fn limiter(store: RedisStoreBuilder) -> Limiter {
    let rule = Rule::fixed_window("r", Quota::per_day(10)).key(key::given());
    Limiter::builder(store.build().expect("sound")).namespace("ns").rule(rule).build().expect("sound")
}

fn primary(version: Version) -> Server {
    // Others would be waited for, to be served the same copy.
    Server::start_on(version, free_port(), &["--repl-diskless-sync-delay", "0"])
}

async fn replica_of(primary: &Server, version: Version) -> Server {
    let replica = Server::start_on(version, free_port(), &["--replicaof", "127.0.0.1", &primary.port.to_string()]);
    let mut connection = replica.connection().await;
    let since = Instant::now();
    while !info(&mut connection, "replication").await.contains("master_link_status:up") {
        assert!(since.elapsed() < Duration::from_secs(20), "it does not follow");
        tokio::task::yield_now().await;
    }
    replica
}

async fn info(connection: &mut MultiplexedConnection, section: &str) -> String {
    redis::cmd("INFO").arg(section).query_async(connection).await.expect("an answer")
}

/// How often each of these commands ran.
async fn calls(server: &Server, command: &str) -> u64 {
    let stats = info(&mut server.connection().await, "commandstats").await;
    let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
    line.map_or(0, |line| line.split(',').next().and_then(|number| number.parse().ok()).expect("a number"))
}

/// Until the replica has all that the primary wrote.
async fn caught_up(primary: &Server) {
    let mut connection = primary.connection().await;
    // WAIT is about what this connection wrote, and all before it.
    let _: () = redis::cmd("SET").arg("mark").arg(1).query_async(&mut connection).await.expect("done");
    let since = Instant::now();
    // Shortly and again: the connection gives up before a replica that is busy acknowledges.
    while redis::cmd("WAIT").arg(1).arg(100).query_async::<u64>(&mut connection).await.expect("an answer") == 0 {
        assert!(since.elapsed() < Duration::from_secs(20), "the replica lags behind");
    }
}

async fn remaining(limiter: &Limiter) -> u64 {
    let decision = limiter.peek([("r", "k")]).await;
    assert!(decision.failure().is_none(), "{:?}", decision.failure());
    decision.standing("r").expect("it applies").remaining()
}

#[tokio::test]
async fn replicas_answer_peeks_and_see_no_charge() {
    for version in [Version::Redis7, Version::Valkey9] {
        let primary = primary(version);
        let replica = replica_of(&primary, version).await;
        let limiter = limiter(store(&primary).peek_from_replicas(replica.url()));
        for _ in 0..3 {
            assert!(limiter.acquire([("r", "k")]).await.failure().is_none());
        }
        caught_up(&primary).await;
        let before = calls(&primary, "evalsha").await;
        for _ in 0..5 {
            assert_eq!(remaining(&limiter).await, 7, "{version:?}");
        }
        assert_eq!(calls(&primary, "evalsha").await, before, "{version:?}: the primary was not asked");
        assert!(calls(&replica, "evalsha_ro").await >= 4, "{version:?}");
        assert_eq!(calls(&replica, "evalsha").await + calls(&replica, "eval").await, 0, "{version:?}: no charge");
    }
}

/// A replica has its library from the primary, if at all; it is asked by read-only scripts, which need none.
#[tokio::test]
async fn replicas_answer_peeks_where_primaries_run_functions() {
    for version in [Version::Redis7, Version::Valkey9] {
        let primary = primary(version);
        let replica = replica_of(&primary, version).await;
        let limiter = limiter(store(&primary).functions().peek_from_replicas(replica.url()));
        for _ in 0..3 {
            assert!(limiter.acquire([("r", "k")]).await.failure().is_none());
        }
        assert_eq!(calls(&primary, "fcall").await, 3, "{version:?}: charges are calls of a function");
        caught_up(&primary).await;
        for _ in 0..5 {
            assert_eq!(remaining(&limiter).await, 7, "{version:?}");
        }
        assert_eq!(calls(&primary, "fcall").await, 3, "{version:?}: the primary was not asked");
        assert!(calls(&replica, "evalsha_ro").await >= 4, "{version:?}");
        for may_write in ["evalsha", "eval", "fcall"] {
            assert_eq!(calls(&replica, may_write).await, 0, "{version:?}: {may_write}");
        }
    }
}

#[tokio::test]
async fn replicas_answer_peeks_without_scripts_too() {
    for version in VERSIONS {
        let primary = primary(version);
        let replica = replica_of(&primary, version).await;
        let limiter = limiter(store(&primary).no_scripts().peek_from_replicas(replica.url()));
        assert!(limiter.acquire([("r", "k")]).await.failure().is_none());
        caught_up(&primary).await;
        let before = calls(&primary, "get").await;
        assert_eq!(remaining(&limiter).await, 9);
        assert_eq!((calls(&primary, "get").await, calls(&replica, "get").await), (before, 1), "{version:?}");
    }
}

/// No replica there, or one that cannot run read-only scripts: the primary answers.
#[tokio::test]
async fn where_no_replica_can_answer_the_primary_does() {
    let primary = primary(Version::Redis6);
    let replica = replica_of(&primary, Version::Redis6).await;
    let nobody = format!("redis://127.0.0.1:{}", free_port());
    for urls in [vec![nobody], vec![replica.url()]] {
        let limiter = limiter(store(&primary).peek_from_replicas(urls));
        assert!(limiter.reset([("r", "k")]).await.is_ok());
        assert!(limiter.acquire([("r", "k")]).await.failure().is_none());
        for _ in 0..3 {
            assert_eq!(remaining(&limiter).await, 9);
        }
    }
    assert!(calls(&primary, "evalsha").await >= 8);
    assert!(info(&mut replica.connection().await, "errorstats").await.contains("ERR"), "it was tried");
}

#[test]
fn counts_that_reach_no_replica_are_a_build_error() {
    let store = RedisStore::builder("redis://127.0.0.1:1").cell().peek_from_replicas("redis://127.0.0.1:2");
    let error = store.build().expect_err("they do not");
    assert_eq!(error.field(), "peek_from_replicas");
}
