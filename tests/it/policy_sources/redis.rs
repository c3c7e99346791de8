//! A policy in Redis: published once, in every process within a second.

use std::time::{Duration, Instant};

use redis::{Value, cmd};
use sluicegate::{
    Limiter, MemoryStore, RedisStore,
    policy::{ChangedOverrides, Override, Policy, PolicySource, RedisPolicy},
};

use super::{Follower, policy, text, until};
use crate::support::{
    cluster::{CLUSTERS, Cluster},
    log::Log,
    server::{Server, VERSIONS, Version},
    stores::namespace,
};

/// What is promised.
pub(super) const WITHIN: Duration = Duration::from_secs(1);

pub(super) async fn follow(source: RedisPolicy) -> Follower {
    let builder = Limiter::builder(MemoryStore::new()).overrides(source.clone());
    Follower::begin(builder, source).await
}

pub(super) fn store(server: &Server) -> RedisStore {
    RedisStore::connect(server.url()).expect("sound")
}

/// How many connections of this server's clients hear of changes.
fn listeners(server: &Server, name: &str) -> u64 {
    let reply: Vec<Value> = server.ask(cmd("PUBSUB").arg("NUMSUB").arg(format!("sluicegate:policy:{{{name}}}")));
    match reply[..] {
        [_, Value::Int(count)] => count as u64,
        _ => panic!("{reply:?}"),
    }
}

/// Publishes, and sees it in two processes' worth of limiters.
async fn reaches_both(writer: &RedisPolicy, followers: &[Follower]) {
    for quota in ["20/hour", "30/hour", "40/hour"] {
        writer.publish(&policy(quota)).await.expect("published");
        for follower in followers {
            follower.reaches(&policy(quota), WITHIN).await;
        }
    }
}

#[tokio::test]
async fn what_is_published_is_heard_by_every_limiter() {
    for version in VERSIONS {
        let (server, name) = (version.shared(), namespace());
        let writer = RedisPolicy::new(&store(server), &name);
        assert_eq!(writer.publish(&policy("10/hour")).await, Ok(1));
        let followers = [
            follow(RedisPolicy::new(&store(server), &name)).await,
            follow(RedisPolicy::new(&store(server), &name)).await,
        ];
        until(Duration::from_secs(5), || listeners(server, &name) == 2).await;
        reaches_both(&writer, &followers).await;
        // Who follows no more hears nothing.
        drop(followers);
        until(Duration::from_secs(5), || listeners(server, &name) == 0).await;
    }
}

/// Who only looks sees a change half a second after the one before it.
#[tokio::test]
async fn what_is_heard_is_not_waited_for() {
    let (server, name) = (Version::Redis7.shared(), namespace());
    let writer = RedisPolicy::new(&store(server), &name);
    writer.publish(&policy("10/hour")).await.expect("published");
    let follower = follow(RedisPolicy::new(&store(server), &name)).await;
    until(Duration::from_secs(5), || listeners(server, &name) == 1).await;
    let since = Instant::now();
    for quota in 1..=10 {
        let policy = policy(&format!("{quota}/hour"));
        writer.publish(&policy).await.expect("published");
        follower.reaches(&policy, WITHIN).await;
    }
    assert!(since.elapsed() < Duration::from_secs(2), "{:?}", since.elapsed());
}

/// A user without channels: it is said once, and looking is enough.
#[tokio::test]
async fn what_is_published_is_seen_where_nothing_is_heard() {
    for version in VERSIONS {
        let (log, _guard) = Log::begin();
        let (server, name) = (version.shared(), namespace());
        let writer = RedisPolicy::new(&store(server), &name);
        writer.publish(&policy("10/hour")).await.expect("published");
        let rights = ["on", ">deaf", "resetchannels", "~sluicegate:policy:*", "+hmget", "+lrange"];
        server.ask::<()>(cmd("ACL").arg("SETUSER").arg(&name).arg(&rights));
        let url = format!("redis://{name}:deaf@127.0.0.1:{}", server.port);
        let source = RedisPolicy::new(&RedisStore::connect(url).expect("sound"), &name);
        let followers = [follow(source.clone()).await, follow(source).await];
        reaches_both(&writer, &followers).await;
        assert_eq!(listeners(server, &name), 0);
        let text = log.text();
        assert_eq!(text.matches("are not heard of at once").count(), 1, "{text}");
        assert!(text.contains("&sluicegate:policy:* +subscribe"), "{text}");
        assert!(followers.iter().all(|follower| follower.told.refused().is_empty()));
    }
}

#[tokio::test]
async fn a_cluster_keeps_all_of_it_in_one_slot() {
    for version in CLUSTERS {
        let cluster = Cluster::shared(version);
        let name = namespace();
        let source = || RedisPolicy::new(&cluster.builder().build().expect("sound"), &name);
        let writer = source();
        writer.publish(&policy("10/hour")).await.expect("published");
        let followers = [follow(source()).await, follow(source()).await];
        reaches_both(&writer, &followers).await;
        writer.set_override("acme", &Override::tier("pro")).await.expect("written");
        let listening = async || {
            let count: u64 = cluster.nodes.iter().map(|node| listeners(node, &name)).sum();
            count == 2
        };
        crate::support::sentinel::until(listening).await;
        let key = format!("sluicegate:policy:{{{name}}}");
        let slot = cluster.slot(&key);
        for more in ["overrides", "changes"] {
            assert_eq!(cluster.slot(format!("{key}:{more}")), slot);
        }
        assert!(cluster.nodes[cluster.owner(slot)].ask::<bool>(cmd("EXISTS").arg(&key)));
    }
}

/// An application's own pool has no connection to hear with.
#[tokio::test]
async fn a_pool_of_ones_own_will_do() {
    let (server, name) = (Version::Valkey9.shared(), namespace());
    let pool = deadpool_redis::Config::from_url(server.url()).create_pool(None).expect("a pool");
    let source = RedisPolicy::new(&RedisStore::from_pool(pool).build().expect("sound"), &name);
    source.publish(&policy("10/hour")).await.expect("published");
    let follower = follow(source.clone()).await;
    reaches_both(&source, &[follower]).await;
    assert_eq!(listeners(server, &name), 0);
}

/// The commands that the documentation shows.
#[tokio::test]
async fn operators_do_the_same_by_hand() {
    let (server, name) = (Version::Redis7.shared(), namespace());
    let key = format!("sluicegate:policy:{{{name}}}");
    let by_hand = |document: &str| {
        server.ask::<()>(cmd("HSET").arg(&key).arg("document").arg(document));
        server.ask::<()>(cmd("HINCRBY").arg(&key).arg("version").arg(1));
        server.ask::<()>(cmd("PUBLISH").arg(&key).arg("changed"));
    };
    by_hand(&text("10/hour"));
    let follower = follow(RedisPolicy::new(&store(server), &name)).await;
    by_hand(&text("20/hour"));
    follower.reaches(&policy("20/hour"), WITHIN).await;
    // Without its format a document is what it looks like.
    let json = r#"{ "rules": [{ "name": "a", "algorithm": "gcra", "quota": "5/s", "key": "ip" }] }"#;
    by_hand(json);
    follower.reaches(&Policy::from_json(json).expect("sound"), WITHIN).await;
    assert_eq!(server.ask::<i64>(cmd("TTL").arg(&key)), -1, "configuration has no TTL");
}

/// What stands on the server is what was written, and comes back the same.
#[tokio::test]
async fn documents_stand_there_as_they_were_written() {
    let (server, name) = (Version::Redis6.shared(), namespace());
    let source = RedisPolicy::new(&store(server), &name);
    let written = format!("# why it is so\n{}", text("10/hour"));
    source.publish(&Policy::from_toml(&written).expect("sound")).await.expect("published");
    let key = format!("sluicegate:policy:{{{name}}}");
    assert_eq!(server.ask::<Vec<String>>(cmd("HMGET").arg(&key).arg(&["document", "format"])), [&*written, "toml"]);
    assert_eq!(source.load().await, Ok(policy("10/hour")));
    let json = r#"{ "rules": [{ "name": "a", "algorithm": "gcra", "quota": "5/s", "key": "ip" }] }"#;
    source.publish(&Policy::from_json(json).expect("sound")).await.expect("published");
    assert_eq!(server.ask::<Vec<String>>(cmd("HMGET").arg(&key).arg(&["document", "format"])), [json, "json"]);
    assert_eq!(source.load().await, Ok(Policy::from_json(json).expect("sound")));
}

/// Who changed is named where that is known, so that nobody else is looked up again.
#[tokio::test]
async fn changed_overrides_are_named() {
    for version in VERSIONS {
        let (server, name) = (version.shared(), namespace());
        let source = RedisPolicy::new(&store(server), &name);
        source.publish(&policy("10/hour")).await.expect("published");
        source.load().await.expect("a policy");
        let changed = async || {
            tokio::time::timeout(WITHIN, source.changed()).await.expect("it has changed");
            assert_eq!(source.load().await, Ok(policy("10/hour")));
            source.changed_overrides()
        };
        let own = Override::tier("pro");
        source.set_override("acme", &own).await.expect("written");
        source.remove_override("a b").await.expect("written");
        assert_eq!(changed().await, ChangedOverrides::Of(vec!["a%20b".into(), "acme".into()]));
        assert_eq!(source.changed_overrides(), ChangedOverrides::None, "it is told once");
        source.set_override("acme", &own).await.expect("written");
        assert_eq!(changed().await, ChangedOverrides::Of(vec!["acme".into()]));
        // By hand, nobody knows whose.
        let key = format!("sluicegate:policy:{{{name}}}");
        server.ask::<()>(cmd("HINCRBY").arg(&key).arg("version").arg(1));
        assert_eq!(changed().await, ChangedOverrides::All);
        // So are more than are listed.
        server.ask::<()>(cmd("HINCRBY").arg(&key).arg("version").arg(2_000));
        server.ask::<()>(cmd("HINCRBY").arg(&key).arg("overrides").arg(2_000));
        assert_eq!(changed().await, ChangedOverrides::All);
        for _ in 0..3 {
            source.set_override("globex", &own).await.expect("written");
        }
        assert_eq!(server.ask::<u64>(cmd("LLEN").arg(format!("{key}:changes"))), 6);
    }
}
