//! A server that loses its scripts over and over.

use std::time::Duration;

use sluicegate::Limiter;

use crate::support::{
    faulted::{Faulted, PATIENT},
    load::part,
};

#[tokio::test]
async fn flushed_every_ten_milliseconds() {
    let mut faulted = Faulted::with(&[], |store| store.bare().deadline(PATIENT), Limiter::builder).await;
    let mut connection = faulted.server.connection().await;
    let flushing = tokio::spawn(async move {
        let mut ticks = tokio::time::interval(Duration::from_millis(10));
        loop {
            ticks.tick().await;
            let _: () = redis::cmd("SCRIPT").arg("FLUSH").query_async(&mut connection).await.expect("flushed");
        }
    });
    let during = faulted.load.run(part(Duration::from_secs(2))).await;
    flushing.abort();
    assert_eq!(during.failed(), 0, "{:?}", during.failures());
    // A flush costs those that it hits one more round trip.
    let bound = faulted.before.percentile(50) * 3 + Duration::from_micros(500);
    assert!(
        during.percentile(50) <= bound,
        "{:?} {:?} {:?}",
        faulted.before.percentile(50),
        during.percentile(50),
        during.percentile(90)
    );
    let _ = flushing.await;
    faulted.is_over().await;
}
