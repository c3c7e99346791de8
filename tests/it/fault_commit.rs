//! Decisions made without the store are charged when it is back: all of them, each once, also when the answers to that are lost.

use std::time::{Duration, Instant};

use sluicegate::{Limiter, Resilient, store::RedisStoreBuilder};

use crate::support::{
    fault_proxy::{Counts, Way},
    faulted::{Faulted, OPEN},
};

/// How many of a thousand answers are cut off while the store is told.
async fn told(cut: u64) {
    let limiter = |store| Limiter::builder(Resilient::new(store).open_for(OPEN).open_after(5, OPEN * 10));
    let faulted = Faulted::with(&[], RedisStoreBuilder::bare, limiter).await;
    faulted.proxy.set(|faults| (faults.to_server, faults.to_client) = (Way::Lost, Way::Lost));
    let during = faulted.load.run(Duration::from_millis(500)).await;
    assert!(during.samples.iter().all(|sample| sample.allowed), "each key has its quota here");
    faulted.proxy.heal();
    faulted.proxy.set(|faults| faults.cut = cut);
    faulted.load.recovery(Instant::now(), Duration::from_secs(20)).await;
    // The stream goes on, so whatever a lost answer stopped goes on as well.
    let lost = Counts::of(&faulted.proxy.counts.cut);
    faulted.load.run(Duration::from_millis(500)).await;
    faulted.proxy.heal();
    faulted.load.run(OPEN * 2).await;
    assert!(cut == 0 || Counts::of(&faulted.proxy.counts.cut) > lost, "answers were lost meanwhile");
    let missed = faulted.load.checker.check_committed(&mut [faulted.direct.clone()]).await;
    assert!(missed > 100, "{missed} were admitted without the store");
}

#[tokio::test]
async fn everything_is_told_once() {
    told(0).await;
}

#[tokio::test]
async fn everything_is_told_once_when_answers_are_lost() {
    told(50).await;
}
