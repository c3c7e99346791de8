//! A primary that becomes a replica and answers as if nothing had happened.

use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use sluicegate::StoreErrorKind;

use crate::support::{
    checker::Record,
    faulted::{DEADLINE, Faulted, GRAIN},
    load::{figure, part},
    server::{Server, Version},
};

async fn replicate(connection: &mut MultiplexedConnection, host: &str, port: &str) {
    let _: () = redis::cmd("REPLICAOF").arg(host).arg(port).query_async(connection).await.expect("done");
}

/// Promoted again, it is used within a second. Its data goes with the change, so charges are compared from there on.
#[tokio::test]
async fn demoted_and_promoted() {
    let other = Server::start(Version::Redis7);
    let faulted = Faulted::bare().await;
    let mut direct = faulted.direct.clone();
    // Its link to the other is down at first, and then it is a replica of nothing: both are a demotion.
    replicate(&mut direct, "127.0.0.1", &other.port.to_string()).await;
    let during = faulted.load.run(part(Duration::from_secs(1))).await;
    during.is_within(DEADLINE + GRAIN);
    assert_eq!(during.failed(), during.samples.len(), "a replica takes no charge");
    assert!(during.failures().contains_key(&StoreErrorKind::Refused), "{:?}", during.failures());
    replicate(&mut direct, "NO", "ONE").await;
    let promoted = Instant::now();
    let recovery = faulted.load.recovery(promoted, Duration::from_secs(10)).await;
    assert!(recovery <= Duration::from_secs(1), "{recovery:?}");
    figure("recovery", recovery);
    faulted.load.run(part(Duration::from_millis(500))).await;
    faulted.leaves_nothing().await;
    let later = |_, record: &Record| record.sent >= promoted;
    let sum = faulted.load.checker.check_among(&mut [direct], later, |_, _| true).await;
    assert!(sum.admitted > 0, "{sum:?}");
}
