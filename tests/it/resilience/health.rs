//! How breakers find out that a store is well again: by whom, how often, and by what is asked.

use std::time::Duration;

use sluicegate::{Limiter, StoreErrorKind};
use tokio::time::{Instant, advance};

use super::{DOWN, ask, fail, kind, limiter};
use crate::support::flaky::{Flaky, Mood};

/// A hundred processes lose one store at the same moment: each asks it once in a period, and hardly two at the same time.
#[tokio::test(start_paused = true)]
async fn a_hundred_instances_probe_once_each_in_a_period() {
    let store = Flaky::default();
    let limiters: Vec<Limiter> = (0..100).map(|_| limiter(&store)).collect();
    store.set(DOWN);
    for limiter in &limiters {
        fail(limiter, 5).await;
    }
    store.asked();
    let began = Instant::now();
    let mut probes = Vec::new();
    // Two periods, of 30 to 33 s each.
    while began.elapsed() < Duration::from_secs(66) {
        for limiter in &limiters {
            fail(limiter, 1).await;
        }
        probes.push((began.elapsed(), store.spends()));
        advance(Duration::from_millis(100)).await;
    }
    let within = |from, to| {
        let those = probes.iter().filter(|(at, _)| (Duration::from_secs(from)..Duration::from_secs(to)).contains(at));
        those.map(|(_, probes)| probes).sum::<usize>()
    };
    assert_eq!((within(0, 30), within(34, 60)), (0, 0));
    assert!(within(30, 34) == 100 && within(60, 66) <= 100, "{probes:?}");
    let most = probes.iter().map(|(_, probes)| *probes).max();
    assert!(most < Some(20), "{most:?} came together");
}

/// Where charges failed, an answer to a look-up says little: a server without memory gives it, and so does a replica.
#[tokio::test(start_paused = true)]
async fn a_look_up_is_no_sign_that_charges_can_be_made() {
    let store = Flaky::default();
    let limiter = limiter(&store);
    let look = async || kind(&limiter.peek([("r", "k")]).await);
    for _ in 0..4 {
        store.set(DOWN);
        fail(&limiter, 1).await;
        store.set(Mood::Well);
        assert_eq!(look().await, None);
    }
    store.set(DOWN);
    fail(&limiter, 1).await;
    assert_eq!(kind(&ask(&limiter).await), Some(StoreErrorKind::Open));
    // Nor does it close the breaker; who asks next probes.
    advance(Duration::from_secs(33)).await;
    store.set(Mood::Well);
    assert_eq!(look().await, None);
    store.set(DOWN);
    assert_eq!(kind(&ask(&limiter).await), Some(StoreErrorKind::Unavailable));
    assert_eq!(look().await, Some(StoreErrorKind::Open));
}

/// A process that only looks: answers in between begin the count again, and once the store was away a look-up finds that it is back.
#[tokio::test(start_paused = true)]
async fn where_only_look_ups_failed_their_answers_are_a_sign_of_health() {
    let store = Flaky::default();
    let limiter = limiter(&store);
    let look = async || kind(&limiter.peek([("r", "k")]).await);
    for _ in 0..10 {
        store.set(DOWN);
        assert_eq!(look().await, Some(StoreErrorKind::Unavailable));
        store.set(Mood::Well);
        assert_eq!(look().await, None);
    }
    store.set(DOWN);
    for _ in 0..5 {
        assert_eq!(look().await, Some(StoreErrorKind::Unavailable));
    }
    assert_eq!(look().await, Some(StoreErrorKind::Open));
    store.set(Mood::Well);
    advance(Duration::from_secs(33)).await;
    assert_eq!(look().await, None);
    // The breaker is closed: one failure opens nothing.
    store.set(DOWN);
    assert_eq!(look().await, Some(StoreErrorKind::Unavailable));
    store.set(Mood::Well);
    assert_eq!(look().await, None);
}
