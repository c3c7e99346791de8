//! A server that hangs: no decision waits longer than its deadline, and none that gave up is charged when the server wakes.

use std::time::{Duration, Instant};

use crate::support::{
    checker::Outcome,
    faulted::{DEADLINE, Faulted, GRAIN},
    load::{figure, part},
};

/// What the estimate of the server's clock may be off by.
const SLACK: Duration = Duration::from_millis(5);

/// The stream goes on while the server wakes. Charged without an answer may be only what was asked so shortly before that its
/// deadline had not passed.
async fn woken(mut faulted: Faulted, wake: impl AsyncFnOnce(&mut Faulted)) {
    let hung = Instant::now();
    let during = faulted.load.run(part(Duration::from_secs(1))).await;
    during.is_within(DEADLINE + GRAIN);
    assert_eq!(during.failed(), during.samples.len(), "nobody answers");
    wake(&mut faulted).await;
    let woken = Instant::now();
    let recovery = faulted.load.recovery(woken, Duration::from_secs(10)).await;
    assert!(recovery <= Duration::from_secs(1), "{recovery:?}");
    figure("recovery", recovery);
    let early = woken - DEADLINE - SLACK;
    let is_ghost = |record: &crate::support::checker::Record| {
        matches!(record.outcome, Outcome::Failed { .. }) && (hung..early).contains(&record.sent)
    };
    faulted.load.checker.check_against(&mut [faulted.direct.clone()], |_, record| !is_ghost(record)).await;
    faulted.is_over().await;
}

#[tokio::test]
async fn a_stopped_process() {
    let faulted = Faulted::bare().await;
    faulted.server.signal("STOP");
    woken(faulted, async |faulted| faulted.server.signal("CONT")).await;
}

/// The server takes commands and keeps them until the pause is over.
#[tokio::test]
async fn a_pause_for_writers() {
    let mut faulted = Faulted::bare().await;
    let pause = async |faulted: &mut Faulted, word: &[&str]| {
        let mut client = redis::cmd("CLIENT");
        let _: () = client.arg(word).query_async(&mut faulted.direct).await.expect("done");
    };
    pause(&mut faulted, &["PAUSE", "600000", "WRITE"]).await;
    woken(faulted, async |faulted| pause(faulted, &["UNPAUSE"]).await).await;
}
