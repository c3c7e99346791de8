//! What a start-up check finds on real servers.

use std::time::{Duration, Instant};

use sluicegate::{
    Limiter, MemoryStore, Quota, RedisStore, Resilient, Rule, key,
    store::{RedisStoreBuilder, Report, Store},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use crate::support::{
    cluster::{Cluster, PLAIN},
    server::{Server, VERSIONS, Version, free_port},
};

/// What the store's errors and docs say that a user needs, by engine.
const SCRIPT: &str = "+evalsha +eval +time +get +set +lrange +lindex +llen +lset +ltrim +rpush +zcard +zcount +zrange +zscore +zadd +zrem +zremrangebyscore +del +pexpire +pttl";
const PLAIN_COMMANDS: &str = "+multi +exec +time +get +set +incrby +del";

async fn check(builder: RedisStoreBuilder) -> Report {
    builder
        .connect_timeout(Duration::from_secs(20))
        .deadline(Duration::from_secs(20))
        .build()
        .expect("sound")
        .check("ns")
        .await
}

fn first<'a>(mut lines: impl Iterator<Item = &'a str>) -> &'a str {
    lines.next().unwrap_or_default()
}

async fn run(server: &Server, words: &str) {
    let mut words = words.split(' ');
    let mut command = redis::cmd(words.next().expect("a command"));
    let _: redis::Value =
        command.arg(words.collect::<Vec<_>>()).query_async(&mut server.connection().await).await.expect("done");
}

/// A user with exactly these permissions on the keys of the namespace.
async fn with_user(server: &Server, permissions: &str) -> RedisStoreBuilder {
    run(server, &format!("ACL SETUSER app reset on >pw-canary ~ns:* {permissions}")).await;
    RedisStore::builder(format!("redis://app:pw-canary@127.0.0.1:{}", server.port))
}

#[tokio::test]
async fn a_sound_server_is_described() {
    for (version, product) in
        [(Version::Redis6, "Redis 6.2."), (Version::Redis7, "Redis 7.0."), (Version::Valkey9, "Valkey 9.1.")]
    {
        let server = Server::start(version);
        for builder in [RedisStore::builder(server.url()), RedisStore::builder(server.url()).no_scripts()] {
            let report = check(builder).await;
            assert!(report.is_ok() && report.warnings().next().is_none(), "{report}");
            let text = report.to_string();
            for part in [product, "role is primary", "noeviction", "no permission is missing"] {
                assert!(text.contains(part), "{part}: {text}");
            }
        }
        let left: u64 = redis::cmd("DBSIZE").query_async(&mut server.connection().await).await.expect("a number");
        assert_eq!(left, 0, "the check left something behind");
    }
}

/// Exactly the least permissions are enough; what is missing is named in a line that adds it, and that line is enough.
#[tokio::test]
async fn missing_permissions_are_named_with_the_line_that_adds_them() {
    for version in VERSIONS {
        let server = Server::start(version);
        for (needs, plain) in [(SCRIPT, false), (PLAIN_COMMANDS, true)] {
            let store = |builder: RedisStoreBuilder| if plain { builder.no_scripts() } else { builder };
            let report = check(store(with_user(&server, needs).await)).await;
            assert!(report.is_ok(), "{version:?}: {report}");
            assert!(report.to_string().contains("not permitted to see the eviction policy"), "{report}");
            for need in needs.split(' ') {
                let rest: Vec<&str> = needs.split(' ').filter(|other| *other != need).collect();
                let report = check(store(with_user(&server, &rest.join(" ")).await)).await;
                let line = format!("add them with: ACL SETUSER <user> ~ns:* {need}");
                assert!(first(report.problems()).ends_with(&line), "{version:?} without {need}: {report}");
                assert!(!report.to_string().contains("pw-canary"));
            }
        }
    }
}

#[tokio::test]
async fn the_line_names_the_user_where_that_may_be_asked_and_repairs_all() {
    for version in VERSIONS {
        let server = Server::start(version);
        let builder = with_user(&server, "+@connection +acl resetkeys ~other:* +get").await;
        let report = check(builder).await;
        let (_, line) = first(report.problems()).split_once("add them with: ").expect("a line");
        assert!(line.starts_with("ACL SETUSER app ~ns:* "), "{report}");
        run(&server, line).await;
        // What could not be tried without the key is named now, if it is missing still.
        let again = check(RedisStore::builder(format!("redis://app:pw-canary@127.0.0.1:{}", server.port))).await;
        if let Some((_, line)) = first(again.problems()).split_once("add them with: ") {
            run(&server, line).await;
        }
        let report = check(RedisStore::builder(format!("redis://app:pw-canary@127.0.0.1:{}", server.port))).await;
        assert!(report.is_ok(), "{version:?}: {report}");
    }
}

#[tokio::test]
async fn policies_that_evict_counts_are_warned_of() {
    for version in VERSIONS {
        let server = Server::start(version);
        for (policy, warned) in [("allkeys-lru", true), ("volatile-lru", true), ("volatile-ttl", false)] {
            run(&server, &format!("CONFIG SET maxmemory-policy {policy}")).await;
            let report = check(RedisStore::builder(server.url())).await;
            assert!(report.is_ok(), "{report}");
            assert_eq!(first(report.warnings()).contains(policy), warned, "{report}");
        }
    }
}

#[tokio::test]
async fn a_replica_is_a_problem_as_a_primary_and_none_for_look_ups() {
    let primary = Server::start_on(Version::Redis7, free_port(), &["--repl-diskless-sync-delay", "0"]);
    let replica =
        Server::start_on(Version::Redis7, free_port(), &["--replicaof", "127.0.0.1", &primary.port.to_string()]);
    let report = check(RedisStore::builder(replica.url())).await;
    assert!(first(report.problems()).contains("is a replica"), "{report}");
    let report = check(RedisStore::builder(primary.url()).peek_from_replicas(replica.url())).await;
    assert!(report.is_ok() && report.notes().any(|note| note.contains("replica, for look-ups")), "{report}");
    let nobody = format!("redis://127.0.0.1:{}", free_port());
    let report = check(RedisStore::builder(primary.url()).peek_from_replicas(nobody)).await;
    assert!(report.is_ok() && first(report.warnings()).starts_with("replica: cannot connect"), "{report}");
}

#[tokio::test]
async fn a_server_that_is_down_or_hangs_is_a_problem_and_no_hang() {
    let report = check(RedisStore::builder(format!("redis://127.0.0.1:{}", free_port()))).await;
    assert!(first(report.problems()).contains("cannot connect"), "{report}");
    let server = Server::start(Version::Redis7);
    server.signal("STOP");
    let store = RedisStore::builder(server.url()).connect_timeout(Duration::from_millis(200)).build().expect("sound");
    let since = Instant::now();
    let report = store.check("ns").await;
    assert!(since.elapsed() < Duration::from_secs(5), "{:?}", since.elapsed());
    assert!(!report.is_ok(), "{report}");
}

/// A server that answers each command by its name, or hangs up where there is no answer.
async fn acting(answer: fn(&str) -> Option<&'static str>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = listener.local_addr().expect("its address").port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut buffer = [0; 65_536];
                loop {
                    let Ok(read @ 1..) = stream.read(&mut buffer).await else { return };
                    let text = String::from_utf8_lossy(&buffer[..read]).to_uppercase();
                    // Those that are asked together come one after the other.
                    let names = text.split('*').filter_map(|command| command.split("\r\n").nth(2));
                    for name in names {
                        let Some(reply) = answer(name) else { return };
                        if stream.write_all(reply.as_bytes()).await.is_err() {
                            return;
                        }
                    }
                }
            });
        }
    });
    format!("redis://127.0.0.1:{port}")
}

#[tokio::test]
async fn what_is_odd_about_a_server_is_said() {
    let old = acting(|name| match name {
        "INFO" => Some("$38\r\nredis_version:6.0.16\r\nrole:master\r\nx:y\r\n"),
        _ => Some("+OK\r\n"),
    });
    let report = check(RedisStore::builder(old.await)).await;
    assert!(first(report.problems()).contains("older than 6.2; upgrade it"), "{report}");
    let lost = acting(|name| if name == "SET" { None } else { Some("+OK\r\n") });
    let report = check(RedisStore::builder(lost.await)).await;
    assert!(first(report.problems()).contains("lost while permissions were tried"), "{report}");
    assert!(report.notes().any(|note| note.contains("not permitted to see the server's version")), "{report}");
    // A primary among those that are to answer look-ups: they are not taken off the primary then.
    let primary = Version::Redis7.shared();
    let report = check(RedisStore::builder(primary.url()).peek_from_replicas(primary.url())).await;
    assert!(report.is_ok(), "{report}");
    assert_eq!(first(report.warnings()), "replica: a server given to peek_from_replicas(..) is a primary");
}

#[tokio::test]
async fn scripts_that_are_forbidden_and_a_module_that_is_not_there_are_problems() {
    for version in VERSIONS {
        let settings = ["--rename-command", "EVAL", "", "--rename-command", "EVALSHA", ""];
        let server = Server::start_on(version, free_port(), &settings);
        let report = check(RedisStore::builder(server.url())).await;
        assert!(first(report.problems()).contains("no_scripts()"), "{version:?}: {report}");
        assert!(check(RedisStore::builder(server.url()).no_scripts()).await.is_ok());
        let report = check(RedisStore::builder(version.shared().url()).cell()).await;
        assert!(first(report.problems()).contains("load the module redis-cell"), "{version:?}: {report}");
    }
}

#[test]
fn others_may_add_what_they_know() {
    let mut report = Report::default();
    report.warn("every instance counts for itself");
    assert!(report.is_ok());
    assert!(report.to_string().ends_with("\nwarning: every instance counts for itself"), "{report}");
}

fn limiter(store: impl Store) -> Limiter {
    let rule = Rule::gcra("r", Quota::per_second(1)).key(key::given());
    Limiter::builder(store).namespace("ns").rule(rule).build().expect("sound")
}

#[tokio::test]
async fn what_local_counts_mean_for_a_fleet_is_said() {
    let report = limiter(Resilient::new(MemoryStore::new())).check().await;
    assert!(report.is_ok() && first(report.warnings()).contains("a fleet of 8 admits 6.4 times the quota"), "{report}");
    let report = limiter(Resilient::new(MemoryStore::new()).instances(8)).check().await;
    assert!(report.warnings().next().is_none() && first(report.notes()).contains("0.100 of each quota"), "{report}");
    let report = limiter(Resilient::new(MemoryStore::new()).instances_by(|| 0)).check().await;
    assert!(first(report.notes()).ends_with("0.800 of each quota by itself, as one of 1"), "{report}");
    // Nothing can be wrong with memory.
    assert_eq!(limiter(MemoryStore::new()).check().await, Report::default());
}

#[tokio::test]
async fn every_node_of_a_cluster_is_checked() {
    for version in [Version::Redis7, Version::Valkey9] {
        let report = limiter(Cluster::shared(version).patient()).check().await;
        assert!(report.is_ok(), "{report}");
        assert_eq!(first(report.notes()), "a Cluster of 3 primaries");
        for node in 1..=3 {
            let named = |text: &str| report.notes().any(|note| note == format!("node {node}: {text}"));
            assert!(named("scripts run") && named("its role is primary"), "{report}");
        }
        let store = Cluster::shared(version).patient();
        let rule = Rule::gcra("r", Quota::per_second(1)).key(key::given());
        let one = Limiter::builder(store).namespace("ns").same_slot().rule(rule).build().expect("sound");
        let report = one.check().await;
        assert!(report.is_ok() && report.warnings().all(|warning| !warning.contains("no slots")), "{report}");
        assert_eq!(report.notes().filter(|note| note.contains("scripts run")).count(), 1, "{report}");
    }
}

/// On a Cluster more is needed than on one server; what is missing is named there too.
#[tokio::test]
async fn permissions_that_only_a_cluster_needs_are_named() {
    for version in [Version::Redis7, Version::Valkey9] {
        let cluster = Cluster::start(version, PLAIN);
        for (plain, needs) in [(false, SCRIPT), (true, PLAIN_COMMANDS)] {
            let report = async |more: &str| {
                for node in &cluster.nodes {
                    let _ = with_user(node, &format!("{needs} {more}")).await;
                }
                let urls: Vec<String> =
                    cluster.nodes.iter().map(|node| format!("redis://app:pw-canary@127.0.0.1:{}", node.port)).collect();
                let builder = RedisStore::builder(urls).cluster();
                check(if plain { builder.no_scripts() } else { builder }).await
            };
            assert!(report("+cluster|slots +asking").await.is_ok(), "{version:?}");
            let without = report("+cluster|slots").await;
            assert_eq!(without.problems().count(), 3, "{version:?}: {without}");
            let line = "add them with: ACL SETUSER <user> ~ns:* +asking";
            assert!(without.problems().all(|problem| problem.ends_with(line)), "{version:?}: {without}");
            let without = report("+asking").await;
            let line = "add it with: ACL SETUSER <user> +cluster|slots";
            assert!(first(without.problems()).ends_with(line), "{version:?}: {without}");
        }
    }
}

#[tokio::test]
async fn a_cluster_that_nobody_answers_for_is_a_problem() {
    let nobody = [free_port(), free_port()].map(|port| format!("redis://127.0.0.1:{port}"));
    let report = check(RedisStore::builder(nobody.to_vec()).cluster()).await;
    assert_eq!(report.problems().count(), 1, "{report}");
    assert!(report.notes().next().is_none(), "nothing is known of it: {report}");
}
