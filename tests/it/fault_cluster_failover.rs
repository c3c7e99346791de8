//! A primary of a Cluster that is killed: its replica takes its place, its slots are counted again, and the other primaries
//! serve theirs meanwhile as if nothing had happened.

use std::time::{Duration, Instant};

use crate::support::{
    checker::Checker,
    cluster::{Cluster, PLAIN, Shape, slot},
    faulted::resilient,
    load::{Load, Phase, Sample, alone, part, warm},
    server::Version,
};

/// Generous, so that a busy machine is not taken for a fault.
const DEADLINE: Duration = Duration::from_secs(1);
/// How long it may take until the slots of a dead primary are counted again: two seconds until the others take it for dead, an
/// election, and up to a second in which the breaker is open. Breakers are open for 30 s unless told otherwise.
const RECOVERY: Duration = Duration::from_secs(6);
/// The primary that is killed.
const VICTIM: usize = 1;

fn shard(cluster: &Cluster, id: u64) -> usize {
    cluster.owner(slot(&id.to_string()))
}

/// The decisions over slots of the others.
fn others(cluster: &Cluster, phase: &Phase) -> Phase {
    let samples = phase.samples.iter().filter(|sample| shard(cluster, sample.id) != VICTIM).copied().collect();
    Phase { samples, crowd: phase.crowd, sleeps: phase.sleeps.clone() }
}

#[tokio::test]
async fn a_primary_is_killed() {
    let _alone = alone().await;
    let cluster = Cluster::start(Version::Redis7, Shape { replicas: 1, ..PLAIN });
    assert!((0..100).all(|id| slot(&id.to_string()) == cluster.slot(id.to_string())), "slots are as servers have them");
    let store = cluster.builder().bare().deadline(DEADLINE).build().expect("sound");
    let (checker, limiter) = Checker::begin(resilient(store));
    warm(&limiter).await;
    let load = Load::new(checker, limiter);
    load.run(Duration::from_millis(500)).await;
    let before = load.run(part(Duration::from_secs(3))).await;
    assert_eq!(before.failed(), 0, "{:?}", before.failures());

    let killed = Instant::now();
    cluster.nodes[VICTIM].signal("KILL");
    let during = load.run(RECOVERY).await;
    let is_victims = |sample: &&Sample| shard(&cluster, sample.id) == VICTIM;
    let counted = |sample: &&Sample| sample.failure.is_none();
    let victims: Vec<Sample> = during.samples.iter().filter(is_victims).copied().collect();
    let failed = victims.iter().rfind(|sample| sample.failure.is_some()).expect("it was down").sent;
    let recovery = failed - killed;
    let again = victims.iter().filter(counted).filter(|sample| sample.sent > failed).count();
    assert!(again > 0, "not counted again within {RECOVERY:?}");
    let after = load.run(part(Duration::from_millis(500))).await;
    assert_eq!(after.failed(), 0, "{:?}", after.failures());

    let (before, during) = (others(&cluster, &before), others(&cluster, &during));
    assert_eq!(during.failed(), 0, "{:?}", during.failures());
    let percentiles = |phase: &Phase| [50, 90, 99].map(|share| phase.percentile(share));
    println!(
        "recovery {recovery:?}; before {:?}, during {:?}, {} {}",
        percentiles(&before),
        percentiles(&during),
        before.samples.len(),
        during.samples.len()
    );
    let [then, now] = [&before, &during].map(|phase| phase.percentile(99));
    assert!(now <= then * 2, "99 of 100 within {now:?}, and within {then:?} before");

    // What the dead one had not told its replica is gone. All others are charged as they were told.
    let mut servers = Vec::new();
    for node in [0, 2, cluster.nodes.len() - 2] {
        servers.push(cluster.nodes[node].connection().await);
    }
    let sum = load
        .checker
        .check_among(&mut servers, |id, record| shard(&cluster, id) != VICTIM || record.sent > failed, |_, _| true)
        .await;
    assert!(sum.admitted > 0 && sum.failed == 0, "{sum:?}");
}
