//! A primary of a Cluster that is killed: its replica takes its place, its slots are counted again, and the other primaries
//! serve theirs meanwhile as if nothing had happened.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use sluicegate::{Limiter, OnFailure, Resilient};
use tokio::sync::MutexGuard;

use crate::support::{
    checker::{Checker, Record},
    cluster::{Cluster, PLAIN, SLOTS, Shape, slot},
    leak::{Room, leaves, one_thread},
    load::{Load, Phase, Sample, alone, part, warm},
    sentinel::{query, until},
    server::Version,
    stall::Account,
};

/// Generous, so that a busy machine is not taken for a fault.
const DEADLINE: Duration = Duration::from_secs(1);
/// How long it may take until the slots of a dead primary are counted again: two seconds until the others take it for dead, an
/// election, and until the store hears of it. It does not wait for the breaker of the dead one, which is open for 30 s.
const RECOVERY: Duration = Duration::from_secs(6);
/// The primary that is killed.
const VICTIM: usize = 1;

/// The place of the primary that keeps the key of this decision.
fn shard(id: u64) -> usize {
    usize::from(slot(&id.to_string())) / usize::from(SLOTS).div_ceil(3)
}

/// The decisions over slots of the others.
fn others(phase: &Phase) -> Phase {
    let samples = phase.samples.iter().filter(|sample| shard(sample.id) != VICTIM).copied().collect();
    Phase { samples, crowd: phase.crowd }
}

/// What may come and go: buffers of connections, tables that grow.
const ROOM: Room = Room { pieces: 64, bytes: 128 << 10 };

async fn begin() -> (MutexGuard<'static, ()>, Cluster, Load) {
    let alone = alone().await;
    let cluster = Cluster::start(Version::Redis7, Shape { replicas: 1, ..PLAIN });
    assert!((0..100).all(|id| slot(&id.to_string()) == cluster.slot(id.to_string())), "slots are as servers have them");
    let store = cluster.builder().bare().deadline(DEADLINE).build().expect("sound");
    let (checker, limiter) = Checker::begin(Limiter::builder(Resilient::new(store)).on_failure(OnFailure::Allow));
    warm(&limiter).await;
    let accounts: Vec<Account> = cluster.nodes[..3].iter().map(|node| Account::of(node.pid)).collect();
    let server_stalled = move |id: u64| accounts[shard(id)].stalled();
    let load = Load { server_stalled: Arc::new(server_stalled), ..Load::new(checker, limiter) };
    load.run(Duration::from_millis(500)).await;
    (alone, cluster, load)
}

/// Answers when the slots of the dead one were counted again.
async fn kill(cluster: &Cluster, load: &Load) -> Instant {
    let before = load.run(part(Duration::from_secs(3))).await;
    assert_eq!(before.failed(), 0, "{:?}", before.failures());

    let killed = Instant::now();
    cluster.nodes[VICTIM].signal("KILL");
    let mut replica = cluster.nodes[VICTIM + 3].connection().await;
    let promotion = async {
        until(async || query::<String>(&mut replica, "INFO replication").await.contains("role:master")).await;
        killed.elapsed()
    };
    let (during, promoted) = tokio::join!(load.run(part(RECOVERY)), promotion);
    let is_victims = |sample: &&Sample| shard(sample.id) == VICTIM;
    let victims: Vec<Sample> = during.samples.iter().filter(is_victims).copied().collect();
    let failed = victims.iter().rposition(|sample| sample.failure.is_some()).expect("it was down");
    let again = victims.get(failed + 1).unwrap_or_else(|| panic!("not counted again; promoted after {promoted:?}"));
    let recovery = again.sent + again.took - killed;
    assert!(recovery <= RECOVERY, "{recovery:?}; promoted after {promoted:?}");
    let after = load.run(part(Duration::from_millis(500))).await;
    assert_eq!(after.failed(), 0, "{:?}", after.failures());

    let (before, during) = (others(&before), others(&during));
    assert_eq!(during.failed(), 0, "{:?}", during.failures());
    let [then, now] = [&before, &during].map(|phase| phase.percentile(99));
    assert!(now <= then * 2, "99 of 100 within {now:?}, and within {then:?} before");
    again.sent
}

#[test]
fn a_primary_is_killed() {
    let runtime = one_thread();
    let (_alone, cluster, load) = runtime.block_on(begin());
    let again = leaves(&runtime, ROOM, kill(&cluster, &load));
    // What the dead one had not told its replica is gone. All others are charged as they were told.
    let sum = runtime.block_on(async {
        let mut servers = Vec::new();
        for node in [0, 2, cluster.nodes.len() - 2] {
            servers.push(cluster.nodes[node].connection().await);
        }
        let some = |id, record: &Record| shard(id) != VICTIM || record.sent >= again;
        load.checker.check_among(&mut servers, some, |_, _| true).await
    });
    assert!(sum.admitted > 0 && sum.failed == 0, "{sum:?}");
}
