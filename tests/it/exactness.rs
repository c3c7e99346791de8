//! Limits that give back while they are spent, by many at once: what is admitted is the capacity and what came back, no more and
//! no less.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use sluicegate::{Limiter, Quota, Rule, key};

use crate::support::{
    load::soak,
    server::{VERSIONS, Version},
    stores::{Backend, namespace, patient},
};

/// The server's time in seconds.
async fn server_time(version: Version) -> f64 {
    let mut connection = version.shared().connection().await;
    let (seconds, micros): (f64, f64) = redis::cmd("TIME").query_async(&mut connection).await.expect("a time");
    seconds + micros / 1e6
}

/// When each admitted decision was asked for and answered.
async fn saturate(limiter: &Limiter, length: Duration) -> Vec<(Instant, Instant)> {
    let admitted = Arc::new(Mutex::new(Vec::new()));
    let begin = Instant::now();
    let callers: Vec<_> = (0..8)
        .map(|_| {
            let (limiter, admitted) = (limiter.clone(), Arc::clone(&admitted));
            tokio::spawn(async move {
                while begin.elapsed() < length {
                    let sent = Instant::now();
                    let decision = limiter.acquire([("r", "one")]).await;
                    assert!(decision.failure().is_none(), "{:?}", decision.failure());
                    if decision.is_allowed() {
                        admitted.lock().expect("no panic").push((sent, Instant::now()));
                    }
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.expect("no panic");
    }
    std::mem::take(&mut *admitted.lock().expect("no panic"))
}

fn length() -> Duration {
    Duration::from_secs(if soak() { 20 } else { 1 })
}

/// Buckets: the capacity and one for each interval that passed.
#[tokio::test]
async fn buckets_give_back_at_their_rate() {
    let (capacity, rate) = (50, 400);
    let rules = [
        Rule::token_bucket("r", Quota::per_second(rate).burst(capacity)),
        Rule::gcra("r", Quota::per_second(rate).burst(capacity)),
        Rule::leaky_bucket("r", Quota::per_second(rate).burst(capacity)),
    ];
    for version in VERSIONS {
        for rule in rules.clone() {
            let shown = format!("{version:?} {rule:?}");
            let limiter = Limiter::builder(patient(&version.shared().url())).namespace(namespace());
            let limiter = limiter.rule(rule.key(key::given())).build().expect("sound");
            let began = server_time(version).await;
            let mut admitted = saturate(&limiter, length() / 4).await.len() as u64;
            let between = server_time(version).await;
            // Whatever callers and server did meanwhile, what has come back until now is there to be had.
            while limiter.acquire([("r", "one")]).await.is_allowed() {
                admitted += 1;
            }
            let most = capacity as f64 + rate as f64 * (server_time(version).await - began) + 1.0;
            assert!(admitted as f64 <= most, "{admitted} of at most {most}: {shown}");
            // It was full when it began, and was never full again.
            let least = capacity as f64 + rate as f64 * (between - began - 0.2) - 1.0;
            assert!(admitted as f64 >= least, "{admitted} of at least {least}: {shown}");
        }
    }
}

/// Sliding log: no window holds more than the limit, wherever it begins. A decision fell somewhere between ask and answer; so
/// the nth from the beginning fell no earlier than the nth ask, and no later than the nth answer.
#[tokio::test]
async fn no_window_of_a_log_holds_more_than_the_limit() {
    let (limit, window) = (40, Duration::from_millis(150));
    for version in VERSIONS {
        let limiter = Backend::redis(version).builder();
        let rule = Rule::sliding_log("r", Quota::per(limit as u64, window)).key(key::given());
        let limiter = limiter.rule(rule).build().expect("sound");
        let admitted = saturate(&limiter, length()).await;
        let (mut asks, mut answers): (Vec<_>, Vec<_>) = admitted.into_iter().unzip();
        asks.sort_unstable();
        answers.sort_unstable();
        assert!(asks.len() >= limit * 3, "{} were admitted", asks.len());
        for (ask, answer) in asks.iter().zip(&answers[limit..]) {
            let apart = *answer - *ask;
            assert!(apart >= window, "{version:?}: {} within {apart:?}", limit + 1);
        }
    }
}

/// Sliding counter: the amount at once, and from the second window on the amount a window, evenly; never more than twice the
/// amount in any window, wherever it begins.
#[tokio::test]
async fn a_counter_admits_what_its_estimate_says() {
    // It ends in the middle of a window, where one that forgot the previous window would be ahead.
    let (limit, window) = (200u32, Duration::from_millis(400));
    let rate = f64::from(limit) / window.as_secs_f64();
    for version in VERSIONS {
        let rule = Rule::sliding_counter("r", Quota::per(limit.into(), window)).key(key::given());
        let limiter = Limiter::builder(patient(&version.shared().url())).namespace(namespace());
        let limiter = limiter.rule(rule).build().expect("sound");
        let began = server_time(version).await;
        let mut admitted = saturate(&limiter, length()).await;
        let between = server_time(version).await;
        // Whatever callers and server did meanwhile, what has faded until now is there to be had.
        loop {
            let sent = Instant::now();
            if !limiter.acquire([("r", "one")]).await.is_allowed() {
                break;
            }
            admitted.push((sent, Instant::now()));
        }
        let count = admitted.len() as f64;
        let most = rate * (server_time(version).await - began).max(window.as_secs_f64()) + 1.0;
        assert!(count <= most, "{version:?}: {count} of at most {most}");
        let least = rate * (between - began - 0.2) - 1.0;
        assert!(count >= least, "{version:?}: {count} of at least {least}");
        let (mut asks, mut answers): (Vec<_>, Vec<_>) = admitted.into_iter().unzip();
        asks.sort_unstable();
        answers.sort_unstable();
        for (ask, answer) in asks.iter().zip(answers.iter().skip(2 * limit as usize)) {
            assert!(*answer - *ask >= window, "{version:?}: more than twice the amount within {:?}", *answer - *ask);
        }
    }
}
