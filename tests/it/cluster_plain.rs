//! Without scripts on a Cluster: slots that move are followed, nothing is charged twice, and what is taken back goes where the
//! count is by then.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use redis::cmd;
use sluicegate::{
    Call, Clock, Limiter, LimiterBuilder, ManualClock, Quota, Rule, key,
    store::{Id, Purpose},
};
use tokio::sync::Semaphore;

use crate::support::{
    cluster::{Cluster, PLAIN, Shape, calls_of, until},
    hot_slot::move_while_asked,
    proxy::holding_back,
    purposed::Purposed,
    server::{VERSIONS, Version, free_port},
    stores::{BEGIN, namespace},
};

const MANY: u64 = 1_000_000;

fn daily(name: &str, amount: u64) -> Rule {
    Rule::fixed_window(name, Quota::per_day(amount)).key(key::given())
}

fn store(cluster: &Cluster) -> sluicegate::RedisStore {
    let patience = Duration::from_secs(30);
    cluster.builder().no_scripts().bare().deadline(patience).connect_timeout(patience).build().expect("sound")
}

/// By a clock that stands, or the window might end.
fn limiter(cluster: &Cluster, rules: impl IntoIterator<Item = Rule>) -> Limiter {
    let builder = Limiter::builder(store(cluster)).namespace(namespace()).clock(Clock::manual(ManualClock::new(BEGIN)));
    rules.into_iter().fold(builder, LimiterBuilder::rule).build().expect("sound")
}

async fn used(limiter: &Limiter, rule: &str, key: &str, of: u64) -> u64 {
    let decision = limiter.peek([(rule, key)]).await;
    assert!(decision.failure().is_none(), "{:?}", decision.failure());
    of - decision.standing(rule).expect("it applies").remaining()
}

async fn until_used(limiter: &Limiter, rule: &str, key: &str, of: u64, wanted: u64) {
    let since = Instant::now();
    loop {
        let used = used(limiter, rule, key, of).await;
        if used == wanted {
            return;
        }
        assert!(since.elapsed() < Duration::from_secs(10), "{used} of {rule} are used, not {wanted}");
    }
}

#[tokio::test]
async fn decisions_over_one_slot_and_several_are_all_or_nothing() {
    for version in VERSIONS {
        let cluster = Cluster::start(version, PLAIN);
        let keys = [0, 1].map(|place| cluster.key_at(place, &[]));
        let limiter = limiter(&cluster, [daily("many", MANY), daily("three", 3)]);
        // In one slot, and in two: there what was granted is given back.
        for (key, other) in [(&keys[0], &keys[0]), (&keys[0], &keys[1])] {
            let call = || Call::new().key("many", &**key).key("three", &**other);
            for round in 1..=6 {
                let decision = limiter.acquire(call()).await;
                assert!(decision.failure().is_none(), "{version:?}: {:?}", decision.failure());
                assert_eq!(decision.is_allowed(), round <= 3, "{version:?}: {decision:?}");
            }
            until_used(&limiter, "many", key, MANY, 3).await;
            assert_eq!(used(&limiter, "three", other, 3).await, 3, "{version:?}");
            limiter.reset(call()).await.expect("forgotten");
            assert_eq!(used(&limiter, "many", key, MANY).await + used(&limiter, "three", other, 3).await, 0);
        }
        let report = limiter.check().await;
        assert!(report.is_ok(), "{version:?}: {report}");
    }
}

/// Takes and gives back once for each id, also where the slot has moved in between, and the record with it.
#[tokio::test]
async fn what_is_done_once_is_done_once_wherever_the_slot_is() {
    for version in VERSIONS {
        let cluster = Cluster::start(version, PLAIN);
        let key = cluster.key_at(0, &[]);
        let purposed = Purposed::new(store(&cluster));
        let builder = Limiter::builder(purposed.clone()).namespace(namespace());
        let builder = builder.clock(Clock::manual(ManualClock::new(BEGIN)));
        let limiter = builder.rule(daily("r", 10).cost(7)).build().expect("sound");
        for (at, purpose, left) in [
            (0, Purpose::Take(Id::random()), 3),
            (1, Purpose::Take(Id::random()), 0),
            (2, Purpose::Give(Id::random()), 7),
            (0, Purpose::Give(Id::random()), 10),
        ] {
            purposed.set(Some(purpose));
            let once = async || {
                let decision = limiter.acquire([("r", &*key)]).await;
                let remaining = decision.standing("r").map(|standing| standing.remaining());
                assert_eq!(remaining, Some(left), "{version:?} {purpose:?}: {decision:?}");
            };
            once().await;
            cluster.migrate(cluster.slot(&key), at, (at + 1) % 3, async || {}).await;
            once().await;
        }
    }
}

/// A hot slot on its way, key by key, while all ask: nobody is turned away, and every charge counts once. What is refused is taken
/// back while its count moves, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hot_slot_moves_and_what_is_refused_is_taken_back_where_it_went() {
    for version in [Version::Redis7, Version::Valkey9] {
        let cluster = Cluster::start(version, PLAIN);
        let key = cluster.key_at(2, &[]);
        // Two rules over one key: their counts are torn apart while the slot moves. One runs out on the way.
        let limiter = limiter(&cluster, [daily("a", 200), daily("b", MANY)]);
        let admitted = move_while_asked(&cluster, &limiter, &key).await;
        // Those that race for the last may all be refused, but none too many is admitted.
        assert!((1..=200).contains(&admitted), "{version:?}: {admitted}");
        until_used(&limiter, "a", &key, 200, admitted).await;
        until_used(&limiter, "b", &key, MANY, admitted).await;
    }
}

/// A call is refused, and before it hears of that its count has moved: away altogether, or with the slot still on its way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_taken_back_follows_a_count_that_has_moved_since_the_charge() {
    for (version, code) in [(Version::Redis7, "MOVED"), (Version::Valkey9, "ASK")] {
        let ports = [(); 3].map(|()| free_port());
        let released = Arc::new(Semaphore::new(1));
        let (address, _) = holding_back(ports[0], Arc::clone(&released)).await;
        let announced = [address.port(), ports[1], ports[2]];
        let cluster = Cluster::start(version, Shape { ports: &ports, announced: &announced, ..PLAIN });
        let (key, charges) = (cluster.key_at(0, &[]), || calls_of(&cluster.nodes[0], "incrby"));
        let limiter = limiter(&cluster, [daily("r", 5).cost(3)]);
        assert!(limiter.acquire([("r", &*key)]).await.is_allowed());
        let (held, before) = (released.acquire().await.expect("open"), charges());
        let refused = tokio::spawn({
            let (limiter, key) = (limiter.clone(), key.clone());
            async move { limiter.acquire([("r", &*key)]).await }
        });
        until("the second is charged", || charges() > before);
        let (held, refused) = (Mutex::new(Some(held)), tokio::sync::Mutex::new(Some(refused)));
        let finish = async || {
            let Some(refused) = refused.lock().await.take() else { return };
            drop(held.lock().expect("no panic").take());
            let decision = refused.await.expect("no panic");
            assert!(decision.is_refused() && decision.failure().is_none(), "{version:?}: {decision:?}");
        };
        let is_gone = || cluster.nodes[0].ask::<u64>(&cmd("DBSIZE")) == 0;
        let on_its_way = async || {
            if code == "ASK" && is_gone() {
                finish().await;
            }
        };
        cluster.migrate(cluster.slot(&key), 0, 1, on_its_way).await;
        finish().await;
        assert_eq!(used(&limiter, "r", &key, 5).await, 3, "{version:?}");
        let errors: String = cluster.nodes[0].ask(cmd("INFO").arg("errorstats"));
        assert!(errors.contains(&format!("errorstat_{code}:")), "{version:?}: {errors}");
    }
}
