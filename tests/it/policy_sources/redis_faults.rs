//! Servers that are away, refuse, or hold a policy of no use: the last good one stays.

use std::time::Duration;

use redis::cmd;
use sluicegate::{
    RedisStore,
    policy::{OverrideSource, PolicySource, RedisPolicy},
};

use super::{
    policy,
    redis::{WITHIN, follow, store},
    text,
};
use crate::support::{
    log::Log,
    sentinel::{NAME, SentinelSet, until},
    server::{Server, Version, free_port},
    stores::namespace,
};

/// A server is looked for every second, and what it lost is seen at the next look.
const AGAIN: Duration = Duration::from_secs(5);

#[tokio::test]
async fn a_server_that_is_restarted_changes_nothing_until_it_has_a_policy_again() {
    let (log, _guard) = Log::begin();
    let server = Server::start(Version::Valkey9);
    let source = RedisPolicy::new(&store(&server), "shop");
    source.publish(&policy("10/hour")).await.expect("published");
    source.publish(&policy("20/hour")).await.expect("published");
    let follower = follow(source.clone()).await;
    let port = server.stop();
    follower.refuses("the policy `shop` in Redis cannot be read", AGAIN).await;
    assert!(follower.holds(&policy("20/hour")));
    let server = Server::start_on(Version::Valkey9, port, &[]);
    follower.refuses("there is no policy `shop` in Redis", AGAIN).await;
    assert!(follower.holds(&policy("20/hour")));
    // As the first one was, by its number too.
    let again = RedisPolicy::new(&store(&server), "shop");
    again.publish(&policy("10/hour")).await.expect("published");
    follower.reaches(&policy("10/hour"), AGAIN).await;
    again.publish(&policy("30/hour")).await.expect("published");
    follower.reaches(&policy("30/hour"), WITHIN).await;
    let refused = follower.told.refused();
    assert_eq!(refused.len(), 2, "{refused:?}");
    assert_eq!(log.text().matches("a policy cannot be used").count(), 2, "{}", log.text());
}

/// A server that hangs is told of once as well, and what it has is as good as before.
#[tokio::test]
async fn a_server_that_hangs_is_away_until_it_goes_on() {
    let server = Server::start(Version::Redis7);
    let source = RedisPolicy::new(&store(&server), "shop");
    source.publish(&policy("10/hour")).await.expect("published");
    let follower = follow(source).await;
    server.signal("STOP");
    follower.refuses("cannot be read", AGAIN).await;
    assert!(follower.holds(&policy("10/hour")));
    server.signal("CONT");
    follower.reaches(&policy("10/hour"), AGAIN).await;
    assert_eq!(follower.told.refused().len(), 1, "{:?}", follower.told.all());
}

#[tokio::test]
async fn a_failover_keeps_the_last_good_policy() {
    let set = SentinelSet::start(Version::Valkey9).await;
    let sentinels = || RedisStore::builder(set.urls()).sentinel(NAME).build().expect("sound");
    let writer = RedisPolicy::new(&sentinels(), "shop");
    writer.publish(&policy("10/hour")).await.expect("published");
    let follower = follow(RedisPolicy::new(&sentinels(), "shop")).await;
    writer.publish(&policy("20/hour")).await.expect("published");
    follower.reaches(&policy("20/hour"), WITHIN).await;
    let version = || set.replica.ask::<u64>(cmd("HGET").arg("sluicegate:policy:{shop}").arg("version"));
    until(async || version() == 2).await;
    set.primary.signal("KILL");
    follower.refuses("cannot be read", AGAIN).await;
    assert!(follower.holds(&policy("20/hour")));
    // Once the replica is promoted.
    until(async || writer.publish(&policy("30/hour")).await.is_ok()).await;
    follower.reaches(&policy("30/hour"), AGAIN).await;
    assert_eq!(follower.told.refused().len(), 1, "{:?}", follower.told.all());
}

#[tokio::test]
async fn what_is_wrong_at_the_start_is_named() {
    let load = async |url: String, name: &str| {
        let source = RedisPolicy::new(&RedisStore::connect(url).expect("sound"), name);
        source.load().await.expect_err("of no use").to_string()
    };
    let away = load(format!("redis://127.0.0.1:{}", free_port()), "shop").await;
    assert_eq!(away, "the policy `shop` in Redis cannot be read: cannot connect: refused, nothing listens there");
    let (server, name) = (Version::Redis7.shared(), namespace());
    let none = load(server.url(), &name).await;
    assert!(none.contains(&format!("the hash `sluicegate:policy:{{{name}}}` has no field `document`")), "{none}");
    let login = load(format!("redis://nobody:pw-canary@127.0.0.1:{}", server.port), &name).await;
    assert!(login.contains("user and password") && !login.contains("canary"), "{login}");
    server.ask::<()>(cmd("ACL").arg("SETUSER").arg(&name).arg(&["on", ">pw", "~other:*", "+ping"]));
    let url = format!("redis://{name}:pw@127.0.0.1:{}", server.port);
    let denied = load(url.clone(), &name).await;
    assert!(denied.ends_with("ACL SETUSER <user> ~sluicegate:policy:* +hmget +lrange"), "{denied}");
    let source = RedisPolicy::new(&RedisStore::connect(url).expect("sound"), &name);
    let denied = source.publish(&policy("10/hour")).await.expect_err("denied").to_string();
    assert!(denied.ends_with("+multi +exec +hset +hdel +hincrby +lpush +ltrim +publish"), "{denied}");
    for odd in ["", "a{b}", "a b", &"x".repeat(65)] {
        let source = RedisPolicy::new(&store(server), odd);
        assert!(source.load().await.expect_err("no name").to_string().contains("is no name of a policy"));
        assert!(source.publish(&policy("10/hour")).await.is_err());
        assert!(source.look_up(&["acme".into()]).await.is_err());
    }
    let key = format!("sluicegate:policy:{{{name}}}");
    server.ask::<()>(cmd("SET").arg(&key).arg("a string"));
    let string = load(server.url(), &name).await;
    assert!(string.contains("WRONGTYPE"), "{string}");
}

/// A policy that cannot be used, written by hand: told once, and the next good one holds.
#[tokio::test]
async fn a_document_of_no_use_is_told_of_once() {
    let (log, _guard) = Log::begin();
    let (server, name) = (Version::Redis6.shared(), namespace());
    let source = RedisPolicy::new(&store(server), &name);
    source.publish(&policy("10/hour")).await.expect("published");
    let follower = follow(source.clone()).await;
    let key = format!("sluicegate:policy:{{{name}}}");
    for _ in 0..3 {
        server.ask::<()>(cmd("HSET").arg(&key).arg("document").arg(text("10/fortnight")));
        server.ask::<()>(cmd("HINCRBY").arg(&key).arg("version").arg(1));
        follower.refuses("fortnight", WITHIN).await;
    }
    let refused = follower.told.refused();
    assert!(refused.len() == 1 && refused[0].starts_with(&format!("{key}:10:9: SG010")), "{refused:?}");
    assert!(follower.holds(&policy("10/hour")));
    source.publish(&policy("20/hour")).await.expect("published");
    follower.reaches(&policy("20/hour"), WITHIN).await;
    assert_eq!(log.text().matches("a policy cannot be used").count(), 1, "{}", log.text());
}
