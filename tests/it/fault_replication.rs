//! A failover while the replica has not heard everything: what it never heard of may be admitted once more, and nothing else.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU16, Ordering},
    },
    time::{Duration, Instant},
};

use redis::aio::MultiplexedConnection;
use sluicegate::{Limiter, OnFailure, Quota, RedisStore, Resilient, Rule, key};
use tokio::{sync::Semaphore, task::JoinSet};

use crate::support::{
    faulted::{OPEN, PATIENT},
    leak::{Room, leaves, one_thread},
    load::{alone, soak},
    proxy::{holding_back, switching},
    sentinel::{query, until},
    server::{Server, Version, free_port},
    stores::namespace,
};

const CAPACITY: u64 = 50;
/// Of each key a different share is replicated before the link is cut: of the first nothing, of the last everything.
const KEYS: u64 = 11;

fn replicated(key: u64) -> u64 {
    key * CAPACITY / (KEYS - 1)
}

/// How decisions over one key went.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    admitted: u64,
    refused: u64,
    /// Not answered, so not admitted; charged perhaps.
    unknown: u64,
    failed: u64,
}

/// Asks for every key at once, one decision of a key at a time, as long as the tally of that key wants more.
async fn ask(limiter: &Limiter, tallies: &mut [Tally], wants: impl Fn(u64, Tally) -> bool + Copy + Send + 'static) {
    let mut callers = JoinSet::new();
    for (key, tally) in (0..).zip(&*tallies) {
        let (limiter, mut tally) = (limiter.clone(), *tally);
        callers.spawn(async move {
            while wants(key, tally) {
                let decision = limiter.acquire([("r", key)]).await;
                match decision.failure() {
                    None if decision.is_allowed() => tally.admitted += 1,
                    None => tally.refused += 1,
                    Some(error) => {
                        assert!(decision.is_refused(), "the rule refuses what it cannot judge");
                        tally.unknown += u64::from(error.may_have_charged());
                        tally.failed += 1;
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                }
            }
            (key, tally)
        });
    }
    while let Some(done) = callers.join_next().await {
        let (key, tally) = done.expect("no panic");
        tallies[key as usize] = tally;
    }
}

async fn offset(connection: &mut MultiplexedConnection, name: &str) -> Option<u64> {
    let text: String = query(connection, "INFO replication").await;
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')?.parse().ok())
}

/// A primary and a replica that hears it over a link, and the way of a store to whichever is the primary.
struct Pair {
    primary: Server,
    replica: Server,
    link: Arc<Semaphore>,
    first: MultiplexedConnection,
    second: MultiplexedConnection,
    address: SocketAddr,
    target: Arc<AtomicU16>,
}

async fn begin(version: Version) -> Pair {
    let quick = ["--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "3600"];
    let primary = Server::start_on(version, free_port(), &quick);
    let link = Arc::new(Semaphore::new(1));
    let (linked, _) = holding_back(primary.port, Arc::clone(&link)).await;
    let replica = Server::start_on(version, free_port(), &quick);
    let (first, mut second) = (primary.connection().await, replica.connection().await);
    let _: redis::Value = query(&mut second, &format!("REPLICAOF 127.0.0.1 {}", linked.port())).await;
    let (address, target) = switching(primary.port).await;
    Pair { primary, replica, link, first, second, address, target }
}

async fn failover(pair: &mut Pair, version: Version, rule: Rule, resilient: bool) {
    let Pair { primary, replica, link, first, second, address, target } = pair;
    let store = RedisStore::builder(format!("redis://{address}")).bare().deadline(PATIENT).build().expect("sound");
    let builder =
        if resilient { Limiter::builder(Resilient::new(store).open_for(OPEN)) } else { Limiter::builder(store) };
    let rule = rule.key(key::given()).on_failure(OnFailure::Refuse);
    let limiter = builder.namespace(namespace()).rule(rule).build().expect("sound");

    let mut tallies = [Tally::default(); KEYS as usize];
    ask(&limiter, &mut tallies, |key, tally| tally.admitted < replicated(key)).await;
    until(async || {
        let behind = offset(second, "slave_repl_offset").await;
        behind.is_some() && behind == offset(first, "master_repl_offset").await
    })
    .await;
    assert!(tallies.iter().all(|tally| tally.failed == 0 && tally.refused == 0), "{tallies:?}");
    // From here on the replica hears nothing, and the primary goes on.
    link.forget_permits(1);
    ask(&limiter, &mut tallies, |_, tally| tally.refused == 0).await;
    assert!(tallies.iter().all(|tally| tally.admitted == CAPACITY), "{tallies:?}");

    // Nobody stops asking while it dies and the other takes its place.
    let before = tallies;
    let since = Instant::now();
    let failing = async {
        target.store(replica.port, Ordering::SeqCst);
        primary.signal("KILL");
        let _: redis::Value = query(second, "REPLICAOF NO ONE").await;
    };
    let asking = ask(&limiter, &mut tallies, move |key, tally: Tally| {
        let before = before[key as usize];
        // Until the other has refused it: it is certain then that nothing is left.
        let answered = tally.refused > before.refused && tally.failed > 0;
        !answered && since.elapsed() < Duration::from_secs(10)
    });
    tokio::join!(asking, failing);
    for (key, tally) in (0..).zip(&tallies) {
        let unreplicated = CAPACITY - replicated(key);
        let say = || format!("{version:?}, key {key}, {unreplicated} not replicated: {tally:?}");
        assert!(tally.admitted <= CAPACITY + unreplicated, "{}", say());
        assert!(tally.admitted <= 2 * CAPACITY, "{}", say());
        // All that is left is given: the other counts on from what it has heard.
        assert!(tally.admitted + tally.unknown >= CAPACITY + unreplicated, "{}", say());
    }
}

/// Rules that count: nothing comes back while a test runs.
fn rules() -> [Rule; 3] {
    let quota = Quota::per_day(CAPACITY);
    [Rule::fixed_window("r", quota).from_first_request(), Rule::gcra("r", quota), Rule::sliding_log("r", quota)]
}

/// The limiter goes with each failover: what may come and go is that of the test's own connections.
const ROOM: Room = Room { pieces: 16, bytes: 64 << 10 };

#[test]
fn what_the_replica_never_heard_of_is_admitted_once_more_at_most() {
    let runtime = one_thread();
    let _alone = runtime.block_on(alone());
    let fail = |version, rule, resilient| {
        let mut pair = runtime.block_on(begin(version));
        leaves(&runtime, ROOM, failover(&mut pair, version, rule, resilient));
    };
    let rounds = if soak() { 10 } else { 1 };
    for _ in 0..rounds {
        for (rule, version) in rules().into_iter().zip([Version::Redis7, Version::Valkey9, Version::Redis6]) {
            fail(version, rule, false);
        }
        let [rule, ..] = rules();
        fail(Version::Redis7, rule, true);
    }
}
