//! Redis Functions instead of scripts: loaded where they are missing, compared where somebody else has loaded them, and scripts
//! where there are none.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use sluicegate::{
    Call, Limiter, Quota, RedisStore, Rule, StoreErrorKind, key,
    store::{Ask, Id, Line, Purpose, Scope, Store, Time},
};

use crate::{
    support::{
        events::Events,
        server::{Server, Version},
        stores::{BEGIN, namespace},
    },
    traces,
};

/// Those that have them.
const VERSIONS: [Version; 2] = [Version::Redis7, Version::Valkey9];

fn store(url: &str) -> RedisStore {
    RedisStore::builder(url).deadline(Duration::from_secs(30)).functions().bare().build().expect("sound")
}

fn limiter(url: &str) -> (Limiter, Events) {
    let events = Events::default();
    let rules = [
        Rule::fixed_window("r", Quota::per_hour(1_000_000)).from_first_request().key(key::given()),
        Rule::sliding_log("log", Quota::per_hour(1_000)).key(key::given()),
    ];
    let builder = Limiter::builder(store(url)).namespace(namespace()).observer(events.clone());
    (rules.into_iter().fold(builder, sluicegate::LimiterBuilder::rule).build().expect("sound"), events)
}

fn both() -> Call<'static> {
    Call::new().key("r", "k").key("log", "k")
}

async fn used(limiter: &Limiter) -> u64 {
    let decision = limiter.peek(both()).await;
    assert!(decision.failure().is_none(), "{:?}", decision.failure());
    1_000_000 - decision.standing("r").expect("it applies").remaining()
}

async fn run(connection: &mut MultiplexedConnection, command: &[&str]) -> redis::Value {
    redis::cmd(command[0]).arg(&command[1..]).query_async(connection).await.expect("a reply")
}

/// How often the server has run a command.
async fn calls(connection: &mut MultiplexedConnection, command: &str) -> u64 {
    let stats: String = redis::cmd("INFO").arg("commandstats").query_async(connection).await.expect("a reply");
    let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
    line.map_or(0, |line| line.split(',').next().expect("a number").parse().expect("a number"))
}

/// The names of the libraries that the server has.
async fn libraries(connection: &mut MultiplexedConnection) -> Vec<String> {
    let list: Vec<std::collections::HashMap<String, redis::Value>> =
        redis::cmd("FUNCTION").arg("LIST").query_async(connection).await.expect("a reply");
    list.iter().map(|library| redis::from_redis_value(library["library_name"].clone()).expect("a name")).collect()
}

#[tokio::test]
async fn a_decision_is_one_call_of_a_function() {
    for version in VERSIONS {
        let server = Server::start(version);
        let mut connection = server.connection().await;
        let (limiter, events) = limiter(&server.url());
        for _ in 0..10 {
            assert!(limiter.acquire(both()).await.failure().is_none());
        }
        assert_eq!(used(&limiter).await, 10);
        assert_eq!(calls(&mut connection, "fcall").await, 11, "{version:?}");
        assert_eq!(calls(&mut connection, "function|load").await, 1, "{version:?}");
        assert_eq!(calls(&mut connection, "eval").await + calls(&mut connection, "evalsha").await, 0, "{version:?}");
        assert_eq!(events.scripts_sent(), 1);
        let names = libraries(&mut connection).await;
        assert!(names.len() == 1 && names[0].starts_with("sluicegate_v1_"), "{names:?}");
    }
}

#[tokio::test]
async fn a_function_that_is_deleted_again_and_again_costs_no_decision() {
    for version in VERSIONS {
        let server = Server::start(version);
        let mut connection = server.connection().await;
        let (limiter, events) = limiter(&server.url());
        // One that deletes them while decisions are under way,
        let (stop, mut stopped) = tokio::sync::watch::channel(false);
        let mut other = server.connection().await;
        let deleting = tokio::spawn(async move {
            let mut rounds = 0;
            while !*stopped.borrow_and_update() {
                run(&mut other, &["FUNCTION", "FLUSH"]).await;
                rounds += 1;
                tokio::task::yield_now().await;
            }
            rounds
        });
        for round in 1..=300 {
            let decision = limiter.acquire(both()).await;
            assert!(decision.failure().is_none(), "{version:?} {round}: {:?}", decision.failure());
        }
        stop.send(true).expect("it listens");
        assert!(deleting.await.expect("no panic") > 10);
        assert_eq!(used(&limiter).await, 300, "{version:?}");
        // and one that does it before each decision.
        let sent = events.scripts_sent();
        for _ in 0..20 {
            for name in libraries(&mut connection).await {
                run(&mut connection, &["FUNCTION", "DELETE", &name]).await;
            }
            assert!(limiter.acquire(both()).await.failure().is_none());
        }
        assert_eq!(events.scripts_sent(), sent + 20);
        assert_eq!(used(&limiter).await, 320, "{version:?}");
    }
}

/// A server that starts empty, and one that was the replica of another.
#[tokio::test]
async fn functions_are_found_again_after_a_restart_and_a_failover() {
    for version in VERSIONS {
        let first = Server::start(version);
        let replica = Server::start_on(version, crate::support::server::free_port(), &[]);
        let mut connection = replica.connection().await;
        let (limiter, _) = limiter(&first.url());
        assert!(limiter.acquire(both()).await.failure().is_none());
        run(&mut connection, &["REPLICAOF", "127.0.0.1", &first.port.to_string()]).await;
        let since = std::time::Instant::now();
        while libraries(&mut connection).await.is_empty() {
            assert!(since.elapsed() < Duration::from_secs(20), "{version:?}: nothing is replicated");
            tokio::task::yield_now().await;
        }
        run(&mut connection, &["REPLICAOF", "NO", "ONE"]).await;
        let (promoted, _) = self::limiter(&replica.url());
        assert!(promoted.acquire(both()).await.failure().is_none());
        assert_eq!(calls(&mut connection, "eval").await + calls(&mut connection, "evalsha").await, 0, "{version:?}");

        let port = first.stop();
        assert!(limiter.acquire(both()).await.failure().is_some());
        let server = Server::start_on(version, port, &[]);
        let since = std::time::Instant::now();
        while limiter.acquire(both()).await.failure().is_some() {
            assert!(since.elapsed() < Duration::from_secs(20), "{version:?}: no answer after the restart");
            tokio::task::yield_now().await;
        }
        assert_eq!(used(&limiter).await, 1, "{version:?}");
        let mut connection = server.connection().await;
        assert_eq!(calls(&mut connection, "eval").await + calls(&mut connection, "evalsha").await, 0, "{version:?}");
    }
}

#[tokio::test]
async fn a_server_without_functions_is_sent_scripts() {
    let server = Server::start(Version::Redis6);
    let mut connection = server.connection().await;
    let (limiter, events) = limiter(&server.url());
    for _ in 0..10 {
        assert!(limiter.acquire(both()).await.failure().is_none());
    }
    assert_eq!(used(&limiter).await, 10);
    assert_eq!(events.without_functions(), 1, "asked once, and remembered");
    assert_eq!(calls(&mut connection, "evalsha").await, 11);
    let names = || vec!["fixed", "gcra"];
    settle(&store(&server.url()), names()).await;
}

#[tokio::test]
async fn a_user_without_permission_for_functions_is_served_by_scripts() {
    let scripts = "+evalsha +eval +time +get +set +lrange +lindex +llen +lset +ltrim +rpush +zcard +zcount +zrange +zscore +zadd +zrem +zremrangebyscore +del +pexpire +pttl";
    for version in VERSIONS {
        let server = Server::start(version);
        let mut connection = server.connection().await;
        let url = format!("redis://app:secret@127.0.0.1:{}", server.port);
        for more in ["", "+fcall", "+fcall +function|list", "+function|load +function|list"] {
            let words = format!("ACL SETUSER app reset on >secret ~* {scripts} {more}");
            run(&mut connection, &words.split_whitespace().collect::<Vec<_>>()).await;
            let (limiter, events) = limiter(&url);
            for _ in 0..3 {
                let decision = limiter.acquire(both()).await;
                assert!(decision.failure().is_none(), "{version:?} {more}: {:?}", decision.failure());
            }
            assert_eq!(used(&limiter).await, 3, "{version:?} {more}");
            assert_eq!(events.without_functions(), 1, "{version:?} {more}");
        }
        // Whoever may load but not look cannot tell what stands under a name that is taken.
        let words = format!("ACL SETUSER app reset on >secret ~* {scripts} +fcall +function|load");
        run(&mut connection, &words.split_whitespace().collect::<Vec<_>>()).await;
        let (limiter, events) = limiter(&url);
        assert!(limiter.acquire(both()).await.failure().is_none());
        assert_eq!(events.without_functions(), 1, "{version:?}");
    }
}

/// Every algorithm, all purposes, by a user who has nothing but the permissions in the guide.
#[tokio::test]
async fn the_permissions_in_the_guide_are_enough() {
    let commands = "+time +get +set +lrange +lindex +llen +lset +ltrim +rpush +zcard +zcount +zrange +zscore +zadd +zrem +zremrangebyscore +del +pexpire +pttl";
    for version in VERSIONS {
        let server = Server::start(version);
        let mut connection = server.connection().await;
        let url = format!("redis://app:secret@127.0.0.1:{}", server.port);
        for engine in ["+fcall +function|load +function|list", "+evalsha +eval"] {
            let words = format!("ACL SETUSER app reset on >secret ~* {engine} {commands}");
            run(&mut connection, &words.split_whitespace().collect::<Vec<_>>()).await;
            let store = RedisStore::builder(&*url).deadline(Duration::from_secs(30)).bare();
            let store = if engine.contains("fcall") { store.functions() } else { store };
            settle(&store.build().expect("sound"), traces::NAMES.to_vec()).await;
        }
        assert!(calls(&mut connection, "fcall").await > 0 && calls(&mut connection, "eval").await > 0);
    }
}

/// Spends, takes, gives back and peeks.
async fn settle(store: &dyn Store, names: Vec<&'static str>) {
    let scopes: Vec<Scope> = names.iter().map(|name| Scope::new(&namespace(), name)).collect();
    let limits: Vec<_> =
        names.iter().map(|name| traces::rule(name, Quota::per_hour(10), 10).check().expect("sound")).collect();
    let line = |(scope, limit)| Line::new(scope, b"k", limit, 3);
    let mut lines: Vec<Line<'_>> = scopes.iter().zip(&limits).map(line).collect();
    let taken = Purpose::Take(Id::random());
    let asks = [(Purpose::Spend, 7), (taken, 4), (taken, 4), (Purpose::Give(Id::random()), 7), (Purpose::Peek, 7)];
    for (purpose, left) in asks {
        let time = Time::Injected(BEGIN.as_micros() as u64);
        let answer = store.acquire(&Ask { lines: &lines, purpose, time }).await.expect("an answer");
        let remaining: Vec<u64> = answer.verdicts().iter().map(|verdict| verdict.remaining).collect();
        assert_eq!(remaining, vec![left; names.len()], "{purpose:?} {names:?}");
        lines.iter_mut().zip(answer.verdicts()).for_each(|(line, verdict)| line.receipt = verdict.receipt);
    }
}

/// Whoever shares the server can put other code under our name. It is found out, and not run.
#[tokio::test]
async fn a_library_that_was_tampered_with_is_found_out() {
    for version in VERSIONS {
        let server = Server::start(version);
        let mut connection = server.connection().await;
        let (limiter, _) = limiter(&server.url());
        assert!(limiter.acquire(both()).await.failure().is_none());
        let name = libraries(&mut connection).await.remove(0);
        let admit = "function() return {1, 1, 0, 1, 1, 0, 1} end";
        for function in [&*name, "another"] {
            let code = format!("#!lua name={name}\nredis.register_function('{function}', {admit})\n");
            run(&mut connection, &["FUNCTION", "LOAD", "REPLACE", &code]).await;
            let (fresh, _) = self::limiter(&server.url());
            let decision = fresh.acquire(both()).await;
            let error = decision.failure().expect("found out");
            assert_eq!(error.kind(), StoreErrorKind::Permanent, "{version:?} {function}: {error}");
            assert!(error.to_string().contains(&name), "{error}");
        }
        // One that knew the function finds it missing, and what stands there instead.
        let decision = limiter.acquire(both()).await;
        assert_eq!(decision.failure().map(|error| error.kind()), Some(StoreErrorKind::Permanent), "{version:?}");
        // A library of another name has taken the name of the function.
        run(&mut connection, &["FUNCTION", "FLUSH"]).await;
        let code = format!("#!lua name=other\nredis.register_function('{name}', {admit})\n");
        run(&mut connection, &["FUNCTION", "LOAD", &code]).await;
        let (fresh, _) = self::limiter(&server.url());
        let error = fresh.acquire(both()).await.failure().cloned().expect("found out");
        assert_eq!(error.kind(), StoreErrorKind::Permanent, "{version:?}: {error}");
        run(&mut connection, &["FUNCTION", "FLUSH"]).await;
        assert!(fresh.acquire(both()).await.failure().is_none());
    }
}

/// A peek runs as a function that may not write, so it needs no memory.
#[tokio::test]
async fn a_server_without_memory_can_still_be_peeked_at() {
    for version in VERSIONS {
        let server = Server::start(version);
        let mut connection = server.connection().await;
        let (limiter, _) = limiter(&server.url());
        assert!(limiter.acquire(both()).await.failure().is_none());
        run(&mut connection, &["CONFIG", "SET", "maxmemory", "1"]).await;
        let kind = limiter.acquire(both()).await.failure().map(|error| error.kind());
        assert_eq!(kind, Some(StoreErrorKind::Refused), "{version:?}");
        assert_eq!(used(&limiter).await, 1, "{version:?}");
        run(&mut connection, &["CONFIG", "SET", "maxmemory", "0"]).await;
        assert!(limiter.acquire(both()).await.failure().is_none());
    }
}
