//! A primary that is killed while Sentinels watch it: its replica is promoted, found and counted on, under a stream of decisions.

use std::time::{Duration, Instant};

use sluicegate::{Limiter, OnFailure, RedisStore, Resilient};
use tokio::sync::MutexGuard;

use crate::support::{
    checker::Checker,
    faulted::OPEN,
    leak::{Room, leaves, one_thread},
    load::{Load, alone, part, warm},
    sentinel::{NAME, SentinelSet},
    server::Version,
};

/// Generous, so that a busy machine is not taken for a fault.
const DEADLINE: Duration = Duration::from_secs(1);
/// Sentinels notice after a second; the breaker is open for one at a time.
const RECOVERY: Duration = Duration::from_secs(5);

/// What may come and go: buffers of connections, tables that grow.
const ROOM: Room = Room { pieces: 64, bytes: 128 << 10 };

async fn begin() -> (MutexGuard<'static, ()>, SentinelSet, Load) {
    let alone = alone().await;
    let set = SentinelSet::start(Version::Valkey9).await;
    let store = RedisStore::builder(set.urls()).sentinel(NAME).deadline(DEADLINE).bare().build().expect("sound");
    let resilient = Resilient::new(store).open_for(OPEN);
    let (checker, limiter) = Checker::begin(Limiter::builder(resilient).on_failure(OnFailure::Allow));
    warm(&limiter).await;
    let load = Load::new(checker, limiter);
    load.run(Duration::from_millis(200)).await;
    (alone, set, load)
}

/// Answers when it was counted again.
async fn kill(set: &SentinelSet, load: &Load) -> Instant {
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
            return again.sent;
        }
        assert!(since.elapsed() < Duration::from_secs(5), "it is not as before: {:?}", after.failures());
    }
}

#[test]
fn a_primary_is_killed() {
    let runtime = one_thread();
    let (_alone, set, load) = runtime.block_on(begin());
    let again = leaves(&runtime, ROOM, kill(&set, &load));
    // What the dead one had not told its replica is gone; all that was asked of the new one is charged as it was told.
    let sum = runtime.block_on(async {
        let mut servers = [set.replica.connection().await];
        load.checker.check_among(&mut servers, |_, record| record.sent >= again, |_, _| true).await
    });
    assert!(sum.admitted > 0 && sum.failed == 0, "{sum:?}");
}
