//! Decisions made without the store are charged when it is back: all of them, each once, also when the answers to that are lost.

use std::time::{Duration, Instant};

use sluicegate::{Limiter, Resilient};

use crate::support::{
    fault_proxy::Counts,
    faulted::{Faulted, OPEN, PATIENT},
};

/// How many of a thousand answers are cut off while the store is told.
async fn told(cut: u64) {
    let limiter = |store| Limiter::builder(Resilient::new(store).open_for(OPEN));
    let faulted = Faulted::with(&[], |store| store.bare().deadline(PATIENT), limiter).await;
    faulted.proxy.set(|faults| faults.refuse = true);
    faulted.proxy.reset();
    let during = faulted.load.run(Duration::from_millis(500)).await;
    assert_eq!(during.failed(), during.samples.len());
    assert!(during.samples.iter().all(|sample| sample.allowed), "each key has its quota here");
    faulted.proxy.heal();
    faulted.proxy.set(|faults| faults.cut = cut);
    faulted.load.recovery(Instant::now(), Duration::from_secs(20)).await;
    // The stream goes on, and with it what a lost answer has stopped.
    let since = Instant::now();
    let missed = loop {
        faulted.load.run(Duration::from_millis(200)).await;
        let (missed, owed) = faulted.load.checker.committed(&mut [faulted.direct.clone()]).await;
        if owed == 0 {
            break missed;
        }
        if since.elapsed() > OPEN {
            faulted.proxy.heal();
        }
        assert!(since.elapsed() < Duration::from_secs(20), "{owed} are not charged, {missed} had been admitted");
    };
    assert!(missed > 100, "{missed} were admitted without the store");
    assert!(cut == 0 || Counts::of(&faulted.proxy.counts.cut) > 0, "answers were lost meanwhile");
    faulted.proxy.heal();
    faulted.leaves_only_notes().await;
}

#[tokio::test]
async fn everything_is_told_once() {
    told(0).await;
}

#[tokio::test]
async fn everything_is_told_once_when_answers_are_lost() {
    told(50).await;
}
