//! Counts spread over the nodes of a Cluster, while nothing fails.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use proptest::{prelude::*, test_runner::TestRunner};
use redis::cmd;
use sluicegate::{
    Call, Clock, Decision, Limiter, LimiterBuilder, ManualClock, Quota, RedisStore, Rule, StoreErrorKind, key,
    store::{Ask, Line, Purpose, Scope, Store, Time},
};

use crate::support::{
    cluster::{CLUSTERS, Cluster, PLAIN, Shape, calls},
    hot_slot::move_while_asked,
    server::{VERSIONS, Version},
    stores::{BEGIN, namespace},
};

const CAPACITY: u64 = 1_000_000;

fn rule(name: &str, amount: u64) -> Rule {
    Rule::fixed_window(name, Quota::per_hour(amount)).from_first_request().key(key::given())
}

fn limiter(store: RedisStore, rules: impl IntoIterator<Item = Rule>) -> Limiter {
    let builder = Limiter::builder(store).namespace(namespace());
    rules.into_iter().fold(builder, LimiterBuilder::rule).build().expect("sound")
}

async fn ask<'a>(limiter: &Limiter, call: impl Into<Call<'a>>) -> Decision {
    let decision = limiter.acquire(call).await;
    assert!(decision.failure().is_none(), "{:?}", decision.failure());
    decision
}

async fn used(limiter: &Limiter, rule: &str, key: &str, amount: u64) -> u64 {
    let decision = limiter.peek([(rule, key)]).await;
    assert!(decision.failure().is_none(), "{:?}", decision.failure());
    amount - decision.standing(rule).expect("it applies").remaining()
}

/// Random bytes with many braces: where the server says they fall, there the store sends them. A store that sent one elsewhere
/// would be turned away, and say so by asking for a second node.
#[test]
fn names_fall_into_the_slots_that_the_server_says() {
    let cluster = Cluster::shared(Version::Redis7);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let store = cluster.patient();
    let limit = rule("r", 5).check().expect("a sound limit");
    let bytes = prop_oneof![Just(b'{'), Just(b'}'), any::<u8>()];
    let parts = (proptest::collection::vec(bytes, 0..12), "[a-z{}]{0,6}", "[a-z{}]{0,6}");
    let namespace = namespace();
    TestRunner::new(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })
        .run(&parts, |(key, before, rule)| {
            // The key as it is, braces and all: stores of one's own may write their lines themselves.
            let scope = Scope::new(&format!("{namespace}{before}"), &rule);
            let line = Line { on_failure: sluicegate::OnFailure::Refuse, ..Line::new(&scope, &key, &limit, 1) };
            let name = line.name().concat();
            let slot = cluster.slot(&name);
            let ask = Ask { lines: &[line], purpose: Purpose::Peek, time: Time::Store };
            runtime.block_on(store.acquire(&ask)).expect("an answer");
            // Parts are numbered in the order of the map, which begins at slot 0.
            prop_assert_eq!(store.part(&line), 1 + cluster.owner(slot), "{:?} in {}", name, slot);
            Ok(())
        })
        .expect("no counterexample");
    let errors = cluster.nodes.iter().map(|node| node.ask::<String>(cmd("INFO").arg("errorstats")));
    assert!(errors.into_iter().all(|errors| !errors.contains("MOVED") && !errors.contains("CROSSSLOT")));
}

/// Counts calls of scripts on every node.
async fn all_calls(cluster: &Cluster) -> Vec<u64> {
    let mut counts = Vec::new();
    for node in &cluster.nodes {
        counts.push(calls(&mut node.connection().await).await);
    }
    counts
}

#[tokio::test]
async fn one_slot_is_one_call_and_several_are_one_each() {
    for version in CLUSTERS {
        let cluster = Cluster::start(version, PLAIN);
        let keys = [0, 1, 2].map(|place| cluster.key_at(place, &[]));
        let call = || Call::new().key("a", &*keys[0]).key("b", &*keys[1]).key("c", &*keys[2]);
        let same = || Call::new().key("a", &*keys[1]).key("b", &*keys[1]).key("c", &*keys[1]);
        let rules = || ["a", "b", "c"].map(|name| rule(name, CAPACITY));
        let apart = limiter(cluster.patient(), rules());
        let builder = Limiter::builder(cluster.patient()).namespace(namespace()).same_slot();
        let together = rules().into_iter().fold(builder, LimiterBuilder::rule).build().expect("sound");
        let steps: [(&str, &Limiter, Call<'_>, &[u64]); 3] = [
            ("another key for each", &apart, call(), &[1, 1, 1]),
            ("equal keys", &apart, same(), &[0, 0, 1]),
            ("the same slot", &together, call(), &[0, 0, 1]),
        ];
        for (what, limiter, call, expected) in steps {
            // Scripts are known after the first.
            let _ = ask(limiter, call.clone()).await;
            let before = all_calls(&cluster).await;
            let _ = ask(limiter, call).await;
            let after = all_calls(&cluster).await;
            let mut made: Vec<u64> = after.iter().zip(&before).map(|(after, before)| after - before).collect();
            made.sort_unstable();
            assert_eq!(made, expected, "{what} on {version:?}");
        }
    }
}

/// Many callers over keys on three nodes, one of which runs out: what it refuses is given back to the others, all of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_refused_request_was_granted_elsewhere_is_given_back() {
    for version in CLUSTERS {
        let cluster = Cluster::shared(version);
        let keys = [0, 1, 2].map(|place| cluster.key_at(place, &[]));
        let limiter = limiter(cluster.patient(), [rule("a", 5_000), rule("b", 100), rule("c", CAPACITY)]);
        let callers: Vec<_> = (0..20)
            .map(|_| {
                let (limiter, keys) = (limiter.clone(), keys.clone());
                tokio::spawn(async move {
                    let mut admitted = 0;
                    for _ in 0..30 {
                        let call = Call::new().key("a", &*keys[0]).cost(3).key("b", &*keys[1]).key("c", &*keys[2]);
                        let decision = ask(&limiter, call.cost(2)).await;
                        let refused = decision.standing("b").is_some_and(|b| b.is_refused());
                        assert_eq!(decision.is_refused(), refused, "only b runs out: {decision:?}");
                        admitted += u64::from(decision.is_allowed());
                    }
                    admitted
                })
            })
            .collect();
        let mut admitted = 0;
        for caller in callers {
            admitted += caller.await.expect("no panic");
        }
        assert_eq!(admitted, 100, "{version:?}");
        let since = Instant::now();
        let mut left = (0, 0, 0);
        while left != (300, 100, 200) {
            assert!(since.elapsed() < Duration::from_secs(10), "{version:?}: {left:?} are used");
            left = (
                used(&limiter, "a", &keys[0], 5_000).await,
                used(&limiter, "b", &keys[1], 100).await,
                used(&limiter, "c", &keys[2], CAPACITY).await,
            );
        }
    }
}

/// The refused request is told how all lines stand, as if nothing had been charged.
#[tokio::test]
async fn a_refusal_names_every_standing_as_it_was_before() {
    let cluster = Cluster::shared(Version::Valkey9);
    let keys = [0, 1].map(|place| cluster.key_at(place, &[]));
    let clock = Clock::manual(ManualClock::new(BEGIN));
    let builder = Limiter::builder(cluster.patient()).namespace(namespace()).clock(clock);
    let limiter = builder.rule(rule("many", 10)).rule(rule("one", 1)).build().expect("sound");
    let call = || Call::new().key("many", &*keys[0]).cost(4).key("one", &*keys[1]);
    assert!(ask(&limiter, call()).await.is_allowed());
    for _ in 0..3 {
        let refused = ask(&limiter, call()).await;
        let left: Vec<u64> = refused.standings().map(|standing| standing.remaining()).collect();
        assert!(refused.is_refused() && left == [6, 0], "{refused:?}");
    }
    limiter.reset(call()).await.expect("both slots");
    assert_eq!((used(&limiter, "many", &keys[0], 10).await, used(&limiter, "one", &keys[1], 1).await), (0, 0));
}

#[tokio::test]
async fn a_moved_slot_is_followed_at_once_and_remembered() {
    for version in CLUSTERS {
        let cluster = Cluster::start(version, PLAIN);
        let key = cluster.key_at(0, &[]);
        let limiter = limiter(cluster.patient(), [rule("r", CAPACITY)]);
        let _ = ask(&limiter, [("r", &*key)]).await;
        cluster.migrate(cluster.slot(&key), 0, 1, async || {}).await;
        for _ in 0..5 {
            let _ = ask(&limiter, [("r", &*key)]).await;
        }
        assert_eq!(used(&limiter, "r", &key, CAPACITY).await, 6, "{version:?}");
        let errors: String = cluster.nodes[0].ask(cmd("INFO").arg("errorstats"));
        assert!(errors.contains("errorstat_MOVED:count=1"), "{version:?}: {errors}");
    }
}

/// A hot slot on its way, key by key, while all ask: nobody is turned away, and every charge counts once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hot_slot_moves_under_load_and_every_charge_is_exact() {
    for version in CLUSTERS {
        let cluster = Cluster::start(version, PLAIN);
        let key = cluster.key_at(2, &[]);
        // Two rules over one key: their counts are torn apart while the slot moves. One runs out on the way.
        let limiter = limiter(cluster.patient(), [rule("a", 200), rule("b", CAPACITY)]);
        let admitted = move_while_asked(&cluster, &limiter, &key).await;
        assert_eq!(admitted, 200, "{version:?}");
        let since = Instant::now();
        while used(&limiter, "b", &key, CAPACITY).await != 200 {
            assert!(since.elapsed() < Duration::from_secs(10), "{}", used(&limiter, "b", &key, CAPACITY).await);
        }
    }
}

/// Host names instead of addresses, a user with a password, one seed of three: every node is reached.
#[tokio::test]
async fn nodes_are_reached_by_name_and_as_the_user_of_the_url() {
    for version in CLUSTERS {
        let cluster = Cluster::start(version, PLAIN);
        let keys = [0, 1, 2].map(|place| cluster.key_at(place, &[]));
        for node in &cluster.nodes {
            for setting in [["cluster-announce-hostname", "localhost"], ["cluster-preferred-endpoint-type", "hostname"]]
            {
                node.ask::<()>(cmd("CONFIG").arg("SET").arg(&setting));
            }
            let user = ["SETUSER", "app", "on", ">hunter2", "~*", "+@all", "-cluster", "+cluster|slots"];
            node.ask::<()>(cmd("ACL").arg(&user));
            node.ask::<()>(cmd("ACL").arg(&["SETUSER", "default", "-@all", "+ping"]));
        }
        let url = format!("redis://app:hunter2@localhost:{}", cluster.nodes[1].port);
        let store = RedisStore::builder(&url).cluster().deadline(Duration::from_secs(30)).build().expect("sound");
        assert!(!format!("{store:?}").contains("hunter2"));
        let stranger =
            RedisStore::builder(url.replace("hunter2", "hunter3")).cluster().deadline(Duration::from_secs(30));
        let stranger = limiter(stranger.build().expect("sound"), [rule("r", CAPACITY)]);
        let error = stranger.acquire([("r", &*keys[0])]).await.failure().cloned().expect("a wrong password");
        assert_eq!(error.kind(), StoreErrorKind::Permanent, "{version:?}: {error}");
        assert!(error.to_string().contains("user and password"), "{version:?}: {error}");
        let limiter = limiter(store, [rule("r", CAPACITY)]);
        for key in &keys {
            let _ = ask(&limiter, [("r", &**key)]).await;
        }
    }
}

#[tokio::test]
async fn nodes_are_asked_at_the_ports_they_announce() {
    let ports: Vec<u16> = (0..3).map(|_| crate::support::server::free_port()).collect();
    let open = Arc::new(tokio::sync::Semaphore::new(1));
    let mut proxies = Vec::new();
    for port in &ports {
        proxies.push(crate::support::proxy::holding_back(*port, open.clone()).await);
    }
    let announced: Vec<u16> = proxies.iter().map(|(address, _)| address.port()).collect();
    let shape = Shape { announced: &announced, ports: &ports, ..PLAIN };
    let cluster = Cluster::start(Version::Redis7, shape);
    let limiter = limiter(cluster.patient(), [rule("r", CAPACITY)]);
    for place in 0..3 {
        let _ = ask(&limiter, [("r", cluster.key_at(place, &[]))]).await;
    }
    for (_, connections) in &proxies {
        assert_eq!(connections.load(Ordering::SeqCst), 1);
    }
}

#[tokio::test]
async fn the_oldest_server_has_clusters_too() {
    let cluster = Cluster::start(Version::Redis6, PLAIN);
    let limiter = limiter(cluster.patient(), [rule("a", CAPACITY), rule("b", CAPACITY)]);
    let keys = [0, 2].map(|place| cluster.key_at(place, &[]));
    for _ in 0..3 {
        let _ = ask(&limiter, Call::new().key("a", &*keys[0]).key("b", &*keys[1])).await;
    }
    assert_eq!(used(&limiter, "a", &keys[0], CAPACITY).await, 3);
    assert_eq!(used(&limiter, "b", &keys[1], CAPACITY).await, 3);
}

#[tokio::test]
async fn a_server_that_is_no_cluster_says_so_and_so_does_one_that_is() {
    for version in VERSIONS {
        let store = RedisStore::builder(version.shared().url()).cluster().deadline(Duration::from_secs(30));
        let error = limiter(store.build().expect("sound"), [rule("r", 1)]).acquire([("r", "k")]).await;
        let error = error.failure().cloned().expect("no Cluster");
        assert_eq!(error.kind(), StoreErrorKind::Permanent);
        assert!(error.to_string().contains("no Cluster node"), "{error}");
    }
    let cluster = Cluster::shared(Version::Valkey9);
    let store = RedisStore::builder(cluster.nodes[0].url()).deadline(Duration::from_secs(30)).build().expect("sound");
    let error = limiter(store, [rule("r", 1)]).acquire([("r", cluster.key_at(2, &[]))]).await;
    let error = error.failure().cloned().expect("a redirect");
    assert_eq!(error.kind(), StoreErrorKind::Permanent);
    assert!(error.to_string().contains(".cluster()"), "{error}");
}

#[test]
fn a_cluster_that_cannot_be_is_an_error() {
    let why = |builder: sluicegate::store::RedisStoreBuilder| builder.build().expect_err("an error").to_string();
    let of = |urls: &[&str]| RedisStore::builder(urls.to_vec()).cluster();
    assert!(why(of(&["redis://h:1/3"])).contains("no database 3"));
    assert!(why(of(&["redis://h:1", "redis://h:2/1"])).contains("no database 1"));
    assert!(why(of(&[])).contains("give one or several"));
    assert!(why(of(&["redis+unix:///tmp/socket"])).contains("unix socket"));
    assert!(why(RedisStore::builder(["redis://h:1", "redis://h:2"])).contains(".cluster()"));
    let pool = deadpool_redis::Config::from_url("redis://h:1").create_pool(None).expect("a pool");
    assert!(why(RedisStore::from_pool(pool).cluster()).contains("addresses of its nodes"));
    let brace = Limiter::builder(sluicegate::MemoryStore::new()).namespace("a}b").same_slot().rule(rule("r", 1));
    assert_eq!(brace.build().expect_err("a brace").field(), "namespace");
}
