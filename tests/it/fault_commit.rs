//! Decisions made without the store are charged when it is back: all of them, each once, also when the answers to that are lost.

use std::time::{Duration, Instant};

use sluicegate::{Limiter, Resilient};

use crate::support::{
    fault_proxy::Counts,
    faulted::{Faulted, OPEN, PATIENT},
    leak::{Room, leaves, one_thread},
};

/// What each decision without the store may make the tables grow by that hold the local counts until their windows are over. They double.
const LOCAL_COUNT: u64 = 512;
/// So many decisions are made without the store at most, in both outages.
const MOST: u64 = 20_000;
/// In the first outage the tables are made, in later ones they are there.
const PIECES: [i64; 2] = [256, 16];

/// The store is away for half a second, and is told afterwards, while so many of a thousand answers are cut off. Answers how many were
/// admitted without it since the beginning.
async fn outage(faulted: &Faulted, cut: u64) -> u64 {
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
    faulted.proxy.heal();
    missed
}

fn told(cut: u64) {
    let runtime = one_thread();
    let limiter = |store| Limiter::builder(Resilient::new(store).open_for(OPEN));
    let faulted = runtime.block_on(Faulted::with(&[], |store| store.bare().deadline(PATIENT), limiter));
    let mut missed = 0;
    for pieces in PIECES {
        // As many as there can be: the stream is not faster.
        let room = Room { pieces, bytes: (MOST * LOCAL_COUNT) as i64 };
        let now = leaves(&runtime, room, outage(&faulted, cut));
        assert!(now - missed > 100, "{} were admitted without the store", now - missed);
        assert!(now <= MOST, "{now} were admitted without the store");
        missed = now;
    }
    assert!(cut == 0 || Counts::of(&faulted.proxy.counts.cut) > 0, "answers were lost meanwhile");
}

#[test]
fn everything_is_told_once() {
    told(0);
}

#[test]
fn everything_is_told_once_when_answers_are_lost() {
    told(50);
}
