//! Users who may run the scripts but not every command in them. A script that is denied a command ends there, and what it has written
//! stays written: that is said, nothing is charged a second time for it, and no key stays for ever.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use sluicegate::{
    Limiter, OnFailure, Quota, RedisStore, Resilient, Rule, StoreError, StoreErrorKind, key,
    store::{Ask, Line, Purpose, Scope, Store, Time},
};

use crate::{
    support::{
        server::{Server, Version},
        stores::namespace,
    },
    traces,
};

const VERSIONS: [Version; 3] = [Version::Redis6, Version::Redis7, Version::Valkey9];
const CAPACITY: u64 = 1_000;

/// Lets the user do everything but these.
async fn allow_all_but(connection: &mut MultiplexedConnection, denied: &str) {
    let words = format!("SETUSER app reset on >secret ~* +@all {denied}");
    let _: () = redis::cmd("ACL")
        .arg(words.split_whitespace().collect::<Vec<_>>())
        .query_async(connection)
        .await
        .expect("done");
}

fn store(server: &Server) -> RedisStore {
    let url = format!("redis://app:secret@127.0.0.1:{}", server.port);
    RedisStore::builder(&*url).deadline(Duration::from_secs(30)).bare().build().expect("sound")
}

fn rule(name: &'static str) -> Rule {
    match name {
        "leases" => Rule::concurrency(name, 10).key(key::given()),
        _ => traces::rule(name, Quota::per_hour(10), 10),
    }
}

/// Charges one unit of each of these.
async fn charge(store: &dyn Store, names: &[&'static str]) -> Result<(), StoreError> {
    let scopes: Vec<Scope> = names.iter().map(|name| Scope::new("denied", name)).collect();
    let limits: Vec<_> = names.iter().map(|name| rule(name).check().expect("sound")).collect();
    let line = |(scope, limit)| Line { receipt: 7, ..Line::new(scope, b"k", limit, 1) };
    let lines: Vec<Line<'_>> = scopes.iter().zip(&limits).map(line).collect();
    store.acquire(&Ask { lines: &lines, purpose: Purpose::Spend, time: Time::Store }).await.map(drop)
}

async fn keys(connection: &mut MultiplexedConnection) -> Vec<String> {
    redis::cmd("KEYS").arg("*").query_async(connection).await.expect("keys")
}

#[tokio::test]
async fn no_key_stays_for_ever_where_none_may_be_given_a_time() {
    for version in VERSIONS {
        let server = Server::start(version);
        let mut connection = server.connection().await;
        allow_all_but(&mut connection, "-pexpire").await;
        for name in traces::NAMES.into_iter().chain(["leases"]) {
            let charged = charge(&store(&server), &[name]).await;
            for key in keys(&mut connection).await {
                let left: i64 = redis::cmd("PTTL").arg(&key).query_async(&mut connection).await.expect("a time");
                assert!(left > 0, "{version:?} {name}: {key} stays for ever");
                assert!(charged.is_ok(), "{version:?} {name}: {key} though {charged:?}");
            }
            if let Err(error) = charged {
                assert_eq!(
                    (error.kind(), error.code()),
                    (StoreErrorKind::Permanent, Some("NOPERM")),
                    "{version:?} {name}"
                );
            }
            let _: () = redis::cmd("FLUSHALL").query_async(&mut connection).await.expect("done");
        }
    }
}

/// Whoever is denied at the door has charged nothing; whoever is denied inside may have.
#[tokio::test]
async fn what_may_have_been_charged_is_said() {
    for version in VERSIONS {
        let server = Server::start(version);
        let mut connection = server.connection().await;
        for (denied, doubt) in [("-evalsha -eval", false), ("-rpush", true)] {
            allow_all_but(&mut connection, denied).await;
            let error = charge(&store(&server), &["gcra", "log"]).await.expect_err("denied");
            assert_eq!(
                (error.kind(), error.code()),
                (StoreErrorKind::Permanent, Some("NOPERM")),
                "{version:?} {denied}"
            );
            assert_eq!(error.may_have_charged(), doubt, "{version:?} {denied}: {error}");
            assert_eq!(keys(&mut connection).await.len(), usize::from(doubt), "{version:?} {denied}");
        }
    }
}

/// What was decided here meanwhile is not charged again once the user is allowed what it lacked.
#[tokio::test]
async fn nothing_is_charged_twice() {
    let server = Server::start(Version::Redis7);
    let mut connection = server.connection().await;
    allow_all_but(&mut connection, "-rpush").await;
    let builder = Limiter::builder(Resilient::new(store(&server))).namespace(namespace()).on_failure(OnFailure::Local);
    let rules = [
        Rule::fixed_window("first", Quota::per_hour(CAPACITY)).key(key::given()),
        Rule::sliding_log("second", Quota::per_hour(CAPACITY)).key(key::given()),
    ];
    let limiter = rules.into_iter().fold(builder, sluicegate::LimiterBuilder::rule).build().expect("sound");
    let ask = [("first", "k"), ("second", "k")];
    let decision = limiter.acquire(ask).await;
    assert!(decision.is_allowed() && decision.failure().is_some());
    allow_all_but(&mut connection, "").await;
    // The first answer of the store sets a commit off, if there is anything to commit; it is done before the last of these.
    for _ in 0..20 {
        assert!(limiter.acquire(ask).await.failure().is_none());
    }
    let peek = limiter.peek(ask).await;
    let used = ["first", "second"].map(|name| CAPACITY - peek.standing(name).expect("it applies").remaining());
    assert_eq!(used, [21, 20]);
}
