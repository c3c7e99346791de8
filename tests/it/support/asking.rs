//! A limiter with one rule over a store, what it tells, and how to ask it.

use std::time::{Duration, Instant};

use sluicegate::{Decision, Limiter, Quota, RedisStore, Rule, StoreError, key};

use super::{events::Events, stores::namespace};

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
        // A connection is tried when somebody asks, so there is no event to wait for: two hundred requests a second, and the
        // processor to those whom they wait for.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
