//! A commit whose runtime ends in the middle of it: a later runtime makes it, once.

use std::time::Duration;

use sluicegate::{Limiter, MemoryStore, Resilient, StoreEvent, store::Purpose};
use tokio::{
    runtime::{Builder, Runtime},
    time::advance,
};

use super::{DOWN, ask, fail, rule, settled};
use crate::support::{
    events::Events,
    flaky::{Flaky, Mood},
};

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime")
}

/// Admits four without the store, and has a runtime end while they are committed to a store in this mood.
fn interrupted(mood: Mood) -> (Flaky, Limiter, Events) {
    let (store, events) = (Flaky::default(), Events::default());
    let around = Resilient::new(store.clone()).open_after(1_000, Duration::from_secs(10));
    let builder = Limiter::builder(around).namespace("interrupted").observer(events.clone());
    let limiter = builder.rule(rule("r", 1_000)).build().expect("sound");
    store.set(DOWN);
    runtime().block_on(async {
        fail(&limiter, 4).await;
        store.set(mood);
        store.asked();
        // The answer of a part that is well has the other told.
        assert!(limiter.acquire([("r", "1k")]).await.failure().is_none());
        while takes(&store) == 0 {
            tokio::task::yield_now().await;
        }
    });
    assert_eq!(events.take(), [], "it is under way");
    (store, limiter, events)
}

/// How many commits were asked for since the last look.
fn takes(store: &Flaky) -> usize {
    store.asked().iter().filter(|(_, purpose)| matches!(purpose, Purpose::Take(_))).count()
}

/// A round of commits, after what rests has rested.
async fn round(limiter: &Limiter) {
    advance(Duration::from_secs(1)).await;
    assert!(limiter.acquire([("r", "1k")]).await.failure().is_none());
    settled().await;
}

async fn counted(inside: MemoryStore) -> u64 {
    let bare = Limiter::builder(inside).namespace("interrupted").rule(rule("r", 1_000)).build().expect("sound");
    1_000 - bare.peek([("r", "k")]).await.standing("r").expect("it applies").remaining()
}

#[test]
fn a_commit_that_its_runtime_took_with_it_is_made_by_the_next_once() {
    for (mood, charged) in [(Mood::Hangs, 0), (Mood::ChargesAndHangs, 4)] {
        let (store, limiter, events) = interrupted(mood);
        runtime().block_on(async {
            assert_eq!(counted(store.inside()).await, charged, "{mood:?}");
            store.set(Mood::Well);
            round(&limiter).await;
            assert_eq!(takes(&store), 1, "{mood:?}");
            assert_eq!(events.take(), [StoreEvent::Committed { counts: 1, units: 4 }], "{mood:?}");
            for _ in 0..3 {
                round(&limiter).await;
            }
            assert_eq!((takes(&store), events.take()), (0, vec![]), "{mood:?}");
            assert_eq!(counted(store.inside()).await, 4, "{mood:?}");
            assert!(ask(&limiter).await.failure().is_none());
            assert_eq!(counted(store.inside()).await, 5, "{mood:?}");
        });
    }
}

/// The first time may have charged. That a second time surely did not must not make it a new commit, under another id.
#[test]
fn a_second_try_that_charges_nothing_says_nothing_of_the_first() {
    let (store, limiter, events) = interrupted(Mood::ChargesAndHangs);
    runtime().block_on(async {
        store.set(DOWN);
        for _ in 0..3 {
            round(&limiter).await;
            assert_eq!(takes(&store), 1);
        }
        store.set(Mood::Well);
        round(&limiter).await;
        assert_eq!(events.take(), [StoreEvent::Committed { counts: 1, units: 4 }]);
        assert_eq!(counted(store.inside()).await, 4);
    });
}
