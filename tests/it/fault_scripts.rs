//! A server that loses its scripts over and over.

use std::{sync::Arc, time::Duration};

use sluicegate::Limiter;

use crate::support::{
    faulted::{Faulted, PATIENT},
    load::{Load, Phase, part},
};

/// A few callers, each with one decision at a time.
async fn callers(load: &Load, length: Duration) -> Phase {
    let callers: Vec<_> = (0..4)
        .map(|_| {
            let (limiter, checker) = (load.limiter.clone(), Arc::clone(&load.checker));
            tokio::spawn(async move {
                let (since, mut samples) = (std::time::Instant::now(), Vec::new());
                while since.elapsed() < length {
                    samples.push(Load::one(limiter.clone(), Arc::clone(&checker)).await);
                }
                samples
            })
        })
        .collect();
    let mut samples = Vec::new();
    for caller in callers {
        samples.extend(caller.await.expect("no panic"));
    }
    Phase { samples, crowd: 4, sleeps: Vec::new() }
}

#[tokio::test]
async fn flushed_every_ten_milliseconds() {
    let mut faulted = Faulted::with(&[], |store| store.bare().deadline(PATIENT), Limiter::builder).await;
    let before = callers(&faulted.load, part(Duration::from_millis(500))).await;
    let mut connection = faulted.server.connection().await;
    let flushing = tokio::spawn(async move {
        let mut ticks = tokio::time::interval(Duration::from_millis(10));
        loop {
            ticks.tick().await;
            let _: () = redis::cmd("SCRIPT").arg("FLUSH").query_async(&mut connection).await.expect("flushed");
        }
    });
    let during = callers(&faulted.load, part(Duration::from_secs(2))).await;
    flushing.abort();
    assert_eq!(during.failed(), 0, "{:?}", during.failures());
    // A flush costs those that it hits one more round trip.
    let bound = before.percentile(50) * 3 + Duration::from_millis(1);
    assert!(during.percentile(50) <= bound, "{:?} is more than {bound:?}", during.percentile(50));
    let _ = flushing.await;
    faulted.is_over().await;
}
