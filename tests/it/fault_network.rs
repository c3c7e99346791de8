//! A way to the server that goes bad, and heals: decisions keep their deadline meanwhile, come back at once afterwards, and are
//! charged no more than once.

use std::time::{Duration, Instant};

use sluicegate::Limiter;

use crate::support::{
    fault_proxy::{Counts, Faults, Way},
    faulted::{DEADLINE, Faulted, GRAIN, PATIENT},
    load::{RATE, figure, part},
};

/// Nothing gets through for a while.
async fn cut_off(fault: impl Fn(&mut Faults)) {
    let mut faulted = Faulted::bare().await;
    faulted.proxy.set(fault);
    let during = faulted.load.run(part(Duration::from_secs(1))).await;
    during.is_within(DEADLINE + GRAIN);
    assert_eq!(during.failed(), during.samples.len(), "nothing gets through");
    // So many come in a deadline, and twice as many when the machine is busy.
    assert!(during.crowd <= (RATE as usize * 15 / 1_000) * 2, "{} waited at a time", during.crowd);
    let healed = Instant::now();
    faulted.proxy.heal();
    let recovery = faulted.load.recovery(healed, Duration::from_secs(10)).await;
    assert!(recovery <= Duration::from_secs(2), "{recovery:?}");
    figure("recovery", recovery);
    faulted.is_over().await;
}

#[tokio::test]
async fn a_black_hole_towards_the_server() {
    cut_off(|faults| faults.to_server = Way::Held).await;
}

#[tokio::test]
async fn a_black_hole_towards_the_client() {
    cut_off(|faults| faults.to_client = Way::Held).await;
}

/// Nobody knows the connection any more, and nobody says so.
#[tokio::test]
async fn a_half_open_connection() {
    cut_off(|faults| (faults.to_server, faults.to_client) = (Way::Lost, Way::Lost)).await;
}

/// Nobody reads at the other end.
#[tokio::test]
async fn a_peer_that_stops_reading() {
    cut_off(|faults| (faults.to_server, faults.to_client) = (Way::Stopped, Way::Stopped)).await;
}

/// An answer of some 30 bytes takes longer than the deadline.
#[tokio::test]
async fn bytes_that_trickle() {
    cut_off(|faults| faults.slow = Duration::from_millis(2)).await;
}

#[tokio::test]
async fn a_way_longer_than_the_deadline() {
    cut_off(|faults| faults.latency = DEADLINE).await;
}

/// Many times as slow, and uneven: no decision is lost, and none waits for another's reply.
#[tokio::test]
async fn a_slow_and_uneven_way() {
    let mut faulted = Faulted::with(&[], |store| store.bare().nodelay(true).deadline(PATIENT), Limiter::builder).await;
    faulted.proxy.set(|faults| (faults.latency, faults.jitter) = (Duration::from_millis(2), Duration::from_millis(1)));
    let during = faulted.load.run(part(Duration::from_secs(1))).await;
    assert_eq!(during.failed(), 0, "{:?}", during.failures());
    // Twice the way, and the grain of two timers.
    let (least, most) = (Duration::from_millis(4), faulted.before.percentile(50) * 2 + Duration::from_millis(9));
    assert!((least..=most).contains(&during.percentile(50)), "{:?}", during.percentile(50));
    faulted.proxy.heal();
    faulted.is_over().await;
}

/// A reset costs the decisions that were under way, and one new connection: at once the first time, within the second where it
/// happens again and again.
#[tokio::test]
async fn connections_that_are_reset() {
    let mut faulted = Faulted::bare().await;
    let connections = Counts::of(&faulted.proxy.counts.connections);
    let (resets, began) = (3, Instant::now());
    for _ in 0..resets {
        let (during, ()) = tokio::join!(faulted.load.run(Duration::from_millis(50)), async { faulted.proxy.reset() });
        during.is_within(DEADLINE + GRAIN);
        let recovery = faulted.load.recovery(Instant::now(), Duration::from_secs(10)).await;
        assert!(recovery <= Duration::from_millis(1_500), "{recovery:?}");
        figure("recovery", recovery);
    }
    let made = Counts::of(&faulted.proxy.counts.connections) - connections;
    // A busy machine may make calls time out, which replaces a connection, once a second at most.
    let more = began.elapsed().as_secs() + 1;
    assert!(made <= resets + more, "{made} connections for {resets} resets");
    faulted.is_over().await;
}
