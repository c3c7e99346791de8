//! A server that loses its scripts over and over.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use sluicegate::Limiter;

use crate::support::{
    faulted::{Faulted, PATIENT},
    load::{Load, Phase, part},
};

/// A few callers, each with one decision at a time.
async fn callers(load: &Load, length: Duration) -> Phase {
    let callers: Vec<_> = (0..4)
        .map(|_| {
            let load = load.clone();
            tokio::spawn(async move {
                let (since, mut samples) = (std::time::Instant::now(), Vec::new());
                while since.elapsed() < length {
                    samples.push(load.clone().one().await);
                }
                samples
            })
        })
        .collect();
    let mut samples = Vec::new();
    for caller in callers {
        samples.extend(caller.await.expect("no panic"));
    }
    Phase::of(samples, 4).await
}

/// The server loses something every ten milliseconds, and no decision fails of it: it costs those that it hits so many round
/// trips at most.
pub async fn lost_over_and_over(
    faulted: &mut Faulted,
    trips: u32,
    lose: impl AsyncFn(u64, &mut MultiplexedConnection),
) {
    let before = callers(&faulted.load, part(Duration::from_millis(500))).await;
    let mut connection = faulted.server.connection().await;
    let losing = async {
        let mut ticks = tokio::time::interval(Duration::from_millis(10));
        for round in 0.. {
            ticks.tick().await;
            lose(round, &mut connection).await;
        }
    };
    let during = tokio::select! {
        () = losing => unreachable!("it does not end"),
        during = callers(&faulted.load, part(Duration::from_secs(2))) => during,
    };
    assert_eq!(during.failed(), 0, "{:?}", during.failures());
    let bound = before.percentile(50) * trips + Duration::from_millis(1);
    assert!(during.percentile(50) <= bound, "{:?} is more than {bound:?}", during.percentile(50));
}

#[tokio::test]
async fn flushed_every_ten_milliseconds() {
    let mut faulted = Faulted::with(&[], |store| store.bare().deadline(PATIENT), Limiter::builder).await;
    // By digest, by text, and one to spare.
    lost_over_and_over(&mut faulted, 3, async |_, connection| {
        redis::cmd("SCRIPT").arg("FLUSH").query_async(connection).await.expect("flushed")
    })
    .await;
    faulted.is_over().await;
}
