//! One fault after another, as chance has it.

use std::time::{Duration, Instant};

use crate::support::{
    dice::Dice,
    fault_proxy::Way,
    faulted::{DEADLINE, Faulted, GRAIN},
    load::{figure, soak},
};

/// Half an hour with a fault every ten seconds in the long form; five seconds with one every 300 ms otherwise.
#[tokio::test]
async fn random_faults() {
    let (length, every) = if soak() { (1_800, 10_000) } else { (5, 300) };
    faults(Faulted::bare().await, Duration::from_secs(length), Duration::from_millis(every), 11).await;
}

/// The same behind a breaker, which opens and closes all the time.
#[tokio::test]
async fn random_faults_behind_a_breaker() {
    let (length, every) = if soak() { (300, 5_000) } else { (5, 500) };
    faults(Faulted::resilient().await, Duration::from_secs(length), Duration::from_millis(every), 12).await;
}

async fn faults(mut faulted: Faulted, length: Duration, every: Duration, seed: u64) {
    let mut dice = Dice::new(seed);
    let since = Instant::now();
    while since.elapsed() < length {
        let (way, server) = ([Way::Held, Way::Lost, Way::Stopped][dice.below(3) as usize], dice.below(2) == 0);
        let mut stopped = false;
        match dice.below(8) {
            0 => faulted.proxy.set(|faults| if server { faults.to_server = way } else { faults.to_client = way }),
            1 => faulted.proxy.set(|faults| faults.latency = Duration::from_millis(3)),
            2 => faulted.proxy.set(|faults| faults.jitter = Duration::from_millis(15)),
            3 => faulted.proxy.set(|faults| faults.slow = Duration::from_millis(1)),
            4 => faulted.proxy.set(|faults| faults.cut = 100),
            5 => faulted.proxy.set(|faults| faults.refuse = true),
            6 => faulted.proxy.reset(),
            _ => {
                faulted.server.signal("STOP");
                stopped = true;
            }
        }
        let during = faulted.load.run(every / 2).await;
        during.is_within(DEADLINE + GRAIN);
        if stopped {
            faulted.server.signal("CONT");
        }
        faulted.proxy.heal();
        faulted.load.run(every / 2).await.is_within(DEADLINE + GRAIN);
    }
    let recovery = faulted.load.recovery(Instant::now(), Duration::from_secs(10)).await;
    assert!(recovery <= Duration::from_secs(2), "{recovery:?}");
    figure("recovery", recovery);
    let sum = faulted.is_over().await;
    assert!(sum.admitted > 0 && sum.failed > 0, "{sum:?}");
}
