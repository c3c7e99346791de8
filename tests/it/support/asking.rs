//! A limiter with one rule over a store, what it tells, and how to ask it.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use sluicegate::{Decision, Limiter, Observer, Quota, RedisStore, Rule, StoreError, StoreEvent, key};

use super::stores::namespace;

/// Remembers what happened to the store.
#[derive(Clone, Default)]
pub struct Events(Arc<Mutex<Vec<StoreEvent>>>);

impl Observer for Events {
    fn store(&self, event: &StoreEvent) {
        self.0.lock().expect("no panic").push(event.clone());
    }
}

impl Events {
    pub fn count(&self, wanted: fn(&StoreEvent) -> bool) -> usize {
        self.0.lock().expect("no panic").iter().filter(|event| wanted(event)).count()
    }

    pub fn connected(&self) -> usize {
        self.count(|event| *event == StoreEvent::Connected)
    }

    pub fn connect_failed(&self) -> usize {
        self.count(|event| matches!(event, StoreEvent::ConnectFailed(_)))
    }

    pub fn disconnected(&self) -> usize {
        self.count(|event| matches!(event, StoreEvent::Disconnected(_)))
    }

    /// Waits until it is so.
    pub async fn until(&self, so: impl Fn(&Events) -> bool) {
        let since = Instant::now();
        while !so(self) {
            assert!(since.elapsed() < Duration::from_secs(20), "{:?}", self.0.lock().expect("no panic"));
            tokio::task::yield_now().await;
        }
    }
}

pub fn rule() -> Rule {
    Rule::fixed_window("r", Quota::per_hour(1_000_000)).from_first_request().key(key::given())
}

pub fn limiter(store: RedisStore) -> (Limiter, Events) {
    let events = Events::default();
    let builder = Limiter::builder(store).namespace(namespace()).observer(events.clone());
    (builder.rule(rule()).build().expect("sound"), events)
}

pub async fn ask(limiter: &Limiter) -> Decision {
    limiter.acquire([("r", "k")]).await
}

/// What the store said when it failed.
pub async fn failure(limiter: &Limiter) -> StoreError {
    ask(limiter).await.failure().cloned().expect("a failure")
}

pub async fn used(limiter: &Limiter) -> u64 {
    let decision = limiter.peek([("r", "k")]).await;
    assert!(decision.failure().is_none(), "{:?}", decision.failure());
    1_000_000 - decision.standing("r").expect("it applies").remaining()
}

/// Asks until an answer comes and says how long that took: the store makes its connection in the meantime.
pub async fn until_answered(limiter: &Limiter) -> Duration {
    let since = Instant::now();
    loop {
        let decision = ask(limiter).await;
        if decision.failure().is_none() {
            return since.elapsed();
        }
        assert!(since.elapsed() < Duration::from_secs(20), "{:?}", decision.failure());
        // Two hundred requests a second, and the processor to those whom they wait for.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
