//! Callers that go away in the middle.

use std::{sync::Arc, time::Duration};

use tokio::task::JoinSet;

use sluicegate::Limiter;

use crate::support::{
    dice::Dice,
    fault_proxy::Counts,
    faulted::{Faulted, PATIENT},
    load::soak,
};

/// Every other request is aborted, at a point that chance finds: before it is sent, on its way, while its answer is read.
#[tokio::test]
async fn half_of_all_requests_are_aborted() {
    let requests = if soak() { 1_000_000 } else { 100_000 };
    let mut faulted = Faulted::with(&[], |store| store.bare().deadline(PATIENT), Limiter::builder).await;
    let connections = Counts::of(&faulted.proxy.counts.connections);
    let mut dice = Dice::new(3);
    let (mut aborted, mut ended) = (0, 0);
    for _ in 0..requests / 100 {
        let mut asked = JoinSet::new();
        let mut handles = Vec::new();
        for _ in 0..100 {
            let (limiter, checker) = (faulted.load.limiter.clone(), Arc::clone(&faulted.load.checker));
            handles.push(asked.spawn(async move { checker.decide(&limiter).await.is_allowed() }));
        }
        // Each moment of a call is as likely as any other.
        for handle in handles.iter().step_by(2) {
            if dice.below(10) == 0 {
                tokio::task::yield_now().await;
            }
            if dice.below(50) == 0 {
                tokio::time::sleep(Duration::from_micros(dice.below(1_000))).await;
            }
            handle.abort();
        }
        while let Some(end) = asked.join_next().await {
            match end {
                Ok(_) => ended += 1,
                Err(error) => {
                    assert!(error.is_cancelled(), "{error}");
                    aborted += 1;
                }
            }
        }
    }
    assert!(aborted >= requests / 4, "{aborted} were aborted, {ended} were not");
    let sum = faulted.is_over().await;
    assert!(sum.dropped > 0 && sum.failed == 0, "{sum:?}");
    assert_eq!(Counts::of(&faulted.proxy.counts.connections), connections, "nobody's going cost a connection");
}
