//! Stores that find their primary through Sentinels.

use std::time::{Duration, Instant};

use sluicegate::{RedisStore, StoreErrorKind};

use crate::support::{
    asking::{ask, failure, limiter, until_answered, used},
    sentinel::{NAME, SentinelSet, query, until},
    server::{Version, free_port},
};

/// The longest from the primary's death to a decision on the new one; its Sentinels notice after a second.
const FAILOVER: Duration = Duration::from_secs(5);

async fn fail_over(version: Version) {
    let set = SentinelSet::start(version).await;
    let dead = format!("redis://127.0.0.1:{}", free_port());
    let urls: Vec<_> = std::iter::once(dead).chain(set.urls()).collect();
    let store = RedisStore::builder(urls).sentinel(NAME).deadline(Duration::from_millis(100)).bare().build();
    let (limiter, events) = limiter(store.expect("sound"));
    until_answered(&limiter).await;
    assert_eq!((events.connected(), events.connect_failed()), (1, 0), "a dead Sentinel costs no attempt");
    let mut replica = set.replica.connection().await;
    until(async || query::<u64>(&mut replica, "DBSIZE").await == 1).await;

    let since = Instant::now();
    set.primary.signal("KILL");
    until_answered(&limiter).await;
    let took = since.elapsed();
    assert!(took <= FAILOVER, "{version:?} took {took:?}");
    crate::support::load::figure("failover", took);
    // Sentinels close the connections of a server whose role changes.
    let mut replica = set.replica.connection().await;
    let role: (String, u64, Vec<Vec<String>>) = query(&mut replica, "ROLE").await;
    assert_eq!(role.0, "master");
    assert!(used(&limiter).await >= 2, "the count of the old primary goes on");

    // The promoted one is found by any Sentinel that is left.
    set.sentinels[0].signal("KILL");
    let _: u64 = query(&mut replica, "CLIENT KILL TYPE normal SKIPME yes").await;
    events.until(|events| events.disconnected() == 2).await;
    until_answered(&limiter).await;
    assert_eq!(events.connected(), 3);
}

#[tokio::test]
async fn a_failover_is_followed_on_redis() {
    fail_over(Version::Redis7).await;
}

#[tokio::test]
async fn a_failover_is_followed_on_valkey() {
    fail_over(Version::Valkey9).await;
}

/// An operator moves the primary while all are well. The old one serves until it is made a replica; from then on it takes at
/// most a second until the new one does.
#[tokio::test]
async fn a_switch_by_hand_is_followed_within_a_second() {
    let set = SentinelSet::start(Version::Valkey9).await;
    let store = RedisStore::builder(set.urls()).sentinel(NAME).deadline(Duration::from_millis(100)).bare().build();
    let (limiter, events) = limiter(store.expect("sound"));
    until_answered(&limiter).await;
    let _: () = query(&mut set.sentinels[0].connection().await, &format!("SENTINEL FAILOVER {NAME}")).await;
    until(async || {
        let _ = ask(&limiter).await;
        events.disconnected() >= 1
    })
    .await;
    let took = until_answered(&limiter).await;
    assert!(took <= Duration::from_secs(1), "{took:?}");
    let promoted: u64 = query(&mut set.replica.connection().await, "DBSIZE").await;
    assert_eq!(promoted, 1);
    let clients: String = query(&mut set.replica.connection().await, "CLIENT LIST TYPE normal").await;
    assert!(clients.contains("cmd=evalsha") || clients.contains("cmd=eval"), "{clients}");
}

/// Each step that fails is named, and needs an operator where waiting does not help.
#[tokio::test]
async fn what_fails_is_named() {
    let set = SentinelSet::start(Version::Redis7).await;
    let build = |urls: Vec<String>, name: &str| {
        RedisStore::builder(urls).sentinel(name).deadline(Duration::from_secs(5)).bare().build().expect("sound")
    };
    let (unknown, _) = limiter(build(set.urls(), "nobody"));
    let error = failure(&unknown).await;
    assert_eq!(error.kind(), StoreErrorKind::Permanent);
    assert!(error.to_string().contains("Sentinel") && error.to_string().contains("`nobody`"), "{error}");

    let (server, _) = limiter(build(vec![set.primary.url()], NAME));
    let error = failure(&server).await;
    assert_eq!(error.kind(), StoreErrorKind::Permanent);
    assert!(error.to_string().contains("no Sentinel"), "{error}");

    let (sentinel, _) = limiter(RedisStore::connect(set.sentinels[0].url()).expect("sound"));
    let error = failure(&sentinel).await;
    assert_eq!(error.kind(), StoreErrorKind::Permanent);
    assert!(error.to_string().contains(".sentinel("), "{error}");

    let (silent, _) = limiter(build(vec![format!("redis://127.0.0.1:{}", free_port())], NAME));
    let error = failure(&silent).await;
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    assert!(error.to_string().contains("asking a Sentinel") && error.to_string().contains("refused"), "{error}");

    let urls = set.urls();
    set.primary.stop();
    let (gone, _) = limiter(build(urls, NAME));
    let error = failure(&gone).await;
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    assert!(error.to_string().contains("that a Sentinel names") && error.to_string().contains("refused"), "{error}");
}

/// The servers' user and database are the builder's; those in the addresses are for the Sentinels.
#[tokio::test]
async fn servers_and_sentinels_have_their_own_credentials() {
    let set = SentinelSet::start(Version::Redis7).await;
    for server in [&set.primary, &set.replica] {
        let mut connection = server.connection().await;
        let _: () = query(&mut connection, "ACL SETUSER app on >hunter2 ~* +@all").await;
    }
    let mut sentinels = Vec::new();
    for sentinel in &set.sentinels {
        let _: () =
            query(&mut sentinel.connection().await, "ACL SETUSER asker on >hunter3 +sentinel|get-master-addr-by-name")
                .await;
        sentinels.push(format!("redis://asker:hunter3@127.0.0.1:{}", sentinel.port));
    }
    let builder = || RedisStore::builder(sentinels.clone()).sentinel(NAME).deadline(Duration::from_secs(5)).bare();
    let (right, _) = limiter(builder().credentials("app", "hunter2").database(3).build().expect("sound"));
    let decision = ask(&right).await;
    assert!(decision.failure().is_none(), "{:?}", decision.failure());
    let text: String = query(&mut set.primary.connection().await, "INFO keyspace").await;
    assert!(text.contains("db3:keys=1"), "{text}");
    let (wrong, _) = limiter(builder().credentials("app", "wrong-secret").build().expect("sound"));
    let error = failure(&wrong).await;
    assert_eq!(error.kind(), StoreErrorKind::Permanent);
    assert!(!format!("{error} {error:?}").contains("secret"));
}
