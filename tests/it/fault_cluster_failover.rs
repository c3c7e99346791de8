//! A primary of a Cluster that is killed, or hangs: its replica takes its place, its slots are counted again, and the other primaries
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
    load::{Load, Phase, RATE, Sample, alone, figure, part, warm},
    sentinel::{query, until},
    server::Version,
    stall::Account,
};

/// How long it may take until the slots of a dead primary are counted again: two seconds until the others take it for dead, an
/// election, and until the store hears of it. It does not wait for the breaker of the dead one, which is open for 30 s.
const RECOVERY: Duration = Duration::from_secs(6);
/// The primary that fails.
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

/// How the primary fails, and what asks it.
struct Fault {
    signal: &'static str,
    connections: usize,
    deadline: Duration,
    /// Decisions a second.
    rate: u32,
}

async fn begin(fault: &Fault) -> (MutexGuard<'static, ()>, Cluster, Load) {
    let alone = alone().await;
    let cluster = Cluster::start(Version::Redis7, Shape { replicas: 1, ..PLAIN });
    assert!((0..100).all(|id| slot(&id.to_string()) == cluster.slot(id.to_string())), "slots are as servers have them");
    let store =
        cluster.builder().bare().connections(fault.connections).deadline(fault.deadline).build().expect("sound");
    let (checker, limiter) = Checker::begin(Limiter::builder(Resilient::new(store)).on_failure(OnFailure::Allow));
    warm(&limiter).await;
    let accounts: Vec<Account> = cluster.nodes[..3].iter().map(|node| Account::of(node.pid)).collect();
    let server_stalled = move |id: u64| accounts[shard(id)].stalled();
    let load = Load { server_stalled: Arc::new(server_stalled), rate: fault.rate, ..Load::new(checker, limiter) };
    load.run(Duration::from_millis(500)).await;
    (alone, cluster, load)
}

/// Answers when the slots of the one that fails were counted again.
async fn fail(cluster: &Cluster, load: &Load, fault: &Fault) -> Instant {
    let before = load.run(part(Duration::from_secs(3))).await;
    assert_eq!(before.failed(), 0, "{:?}", before.failures());

    let failing = Instant::now();
    cluster.nodes[VICTIM].signal(fault.signal);
    let mut replica = cluster.nodes[VICTIM + 3].connection().await;
    let promotion = async {
        until(async || query::<String>(&mut replica, "INFO replication").await.contains("role:master")).await;
        failing.elapsed()
    };
    let (during, promoted) = tokio::join!(load.run(part(RECOVERY)), promotion);
    let is_victims = |sample: &&Sample| shard(sample.id) == VICTIM;
    let victims: Vec<Sample> = during.samples.iter().filter(is_victims).copied().collect();
    let failed = victims.iter().rposition(|sample| sample.failure.is_some()).expect("it was down");
    let again = victims.get(failed + 1).unwrap_or_else(|| panic!("not counted again; promoted after {promoted:?}"));
    let recovery = again.sent + again.took - failing;
    assert!(recovery <= RECOVERY, "{recovery:?}; promoted after {promoted:?}");
    figure("a replica was promoted after", promoted);
    figure("Cluster failover under load", recovery);
    let after = load.run(part(Duration::from_millis(500))).await;
    assert_eq!(after.failed(), 0, "{:?}", after.failures());

    let (before, during) = (others(&before), others(&during));
    assert_eq!(during.failed(), 0, "{:?}", during.failures());
    let [then, now] = [&before, &during].map(|phase| phase.percentile(99));
    figure("99 of 100 of the others before", then);
    figure("and meanwhile", now);
    assert!(now <= then * 2, "99 of 100 within {now:?}, and within {then:?} before");
    again.sent
}

fn fails(fault: &Fault) {
    let runtime = one_thread();
    let (_alone, cluster, load) = runtime.block_on(begin(fault));
    let again = leaves(&runtime, ROOM, fail(&cluster, &load, fault));
    // What it had not told its replica is gone. All others are charged as they were told.
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

/// The deadline is generous, so that a busy machine is not taken for a fault.
#[test]
fn a_primary_is_killed() {
    fails(&Fault { signal: "KILL", connections: 1, deadline: Duration::from_secs(1), rate: RATE });
}

/// Nothing says that it is gone: its connections stay, and new ones are taken and never answered. As many wait for it as ask within a
/// deadline; with more, what is measured is how busy the one thread of a debug build is.
#[test]
fn a_primary_hangs() {
    fails(&Fault { signal: "STOP", connections: 2, deadline: Duration::from_millis(250), rate: RATE / 2 });
}
