//! A primary that is killed while Sentinels watch it: its replica is promoted, found and counted on, under a stream of decisions.

use std::time::{Duration, Instant};

use sluicegate::{Limiter, OnFailure, RedisStore, Resilient};

use crate::support::{
    checker::Checker,
    faulted::OPEN,
    leak::held,
    load::{Load, alone, part, warm},
    sentinel::{NAME, SentinelSet},
    server::Version,
};

/// Generous, so that a busy machine is not taken for a fault.
const DEADLINE: Duration = Duration::from_millis(100);
/// Sentinels notice after a second; the breaker is open for one at a time.
const RECOVERY: Duration = Duration::from_secs(5);

#[tokio::test]
async fn a_primary_is_killed() {
    let _alone = alone().await;
    let set = SentinelSet::start(Version::Valkey9).await;
    let store = RedisStore::builder(set.urls()).sentinel(NAME).deadline(DEADLINE).bare().build().expect("sound");
    let resilient = Resilient::new(store).open_for(OPEN);
    let (checker, limiter) = Checker::begin(Limiter::builder(resilient).on_failure(OnFailure::Allow));
    warm(&limiter).await;
    let load = Load::new(checker, limiter);
    load.run(Duration::from_millis(200)).await;
    let held = held();
    let before = load.run(part(Duration::from_secs(1))).await;
    assert_eq!(before.failed(), 0, "{:?}", before.failures());

    let killed = Instant::now();
    set.primary.signal("KILL");
    let during = load.run(part(RECOVERY + OPEN)).await;
    let failed = during.samples.iter().rposition(|sample| sample.failure.is_some()).expect("it was down");
    let again = during.samples.get(failed + 1).expect("counted again");
    let recovery = again.sent + again.took - killed;
    assert!(recovery <= RECOVERY, "{recovery:?}");
    crate::support::load::figure("sentinel failover under load", recovery);

    let since = Instant::now();
    loop {
        let after = load.run(part(Duration::from_millis(250))).await;
        if after.failed() == 0 && after.is_like(&before) {
            break;
        }
        assert!(since.elapsed() < Duration::from_secs(5), "it is not as before: {:?}", after.failures());
    }
    held.but_memory_is_given_back().await;

    // What the dead one had not told its replica is gone; all that was asked of the new one is charged as it was told.
    let mut servers = [set.replica.connection().await];
    let sum = load.checker.check_among(&mut servers, |_, record| record.sent >= again.sent, |_, _| true).await;
    assert!(sum.admitted > 0 && sum.failed == 0, "{sum:?}");
}
