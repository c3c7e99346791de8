//! Policies that change under load: every response is by exactly one of them.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use sluicegate::{Limiter, MemoryStore, policy::Policy};

use super::{app, ask, policy};
use crate::support::{
    app::field,
    server::Version,
    stores::{namespace, patient},
};

/// Three rules of one generation, whose quotas and names all tell which.
fn generation(number: u64) -> Policy {
    let rules = (1..=3u64).map(|rule| {
        format!(
            "[[rules]]\nname = \"g{number}-{rule}\"\nalgorithm = \"fixed_window\"\nquota = \"{}/{rule}h\"\nkey = \"header:x-user\"\n",
            1_000_000 + number * 10 + rule
        )
    });
    policy(&format!("headers = [\"ietf\"]\n{}", rules.collect::<String>()))
}

/// What a response under a generation says.
fn told(number: u64) -> String {
    let quota = |rule: u64| 1_000_000 + number * 10 + rule;
    let rules = (1..=3u64).map(|rule| format!("\"g{number}-{rule}\";q={};w={}", quota(rule), rule * 3_600));
    rules.collect::<Vec<_>>().join(", ")
}

/// Asks at ten thousand a second, or as fast as the machine can, while two policies take turns every 50 ms, thirty times.
async fn flip(limiter: Limiter) {
    let policies = [generation(1), generation(2)];
    let over = Arc::new(AtomicBool::new(false));
    let flips = Arc::new(AtomicU64::new(0));
    let flipping = tokio::spawn({
        let (limiter, over, flips) = (limiter.clone(), Arc::clone(&over), Arc::clone(&flips));
        async move {
            let mut ticks = tokio::time::interval(Duration::from_millis(50));
            while !over.load(Ordering::Relaxed) {
                ticks.tick().await;
                let number = flips.fetch_add(1, Ordering::Relaxed);
                let policy = policies[(number % 2) as usize].clone();
                let limiter = limiter.clone();
                tokio::task::spawn_blocking(move || limiter.set_policy(policy))
                    .await
                    .expect("no panic")
                    .expect("sound");
            }
        }
    });
    let asking = (0..4u64).map(|task| {
        let (app, flips) = (app(&limiter), Arc::clone(&flips));
        tokio::spawn(async move {
            let mut seen: HashMap<String, u64> = HashMap::new();
            let mut ticks = tokio::time::interval(Duration::from_millis(2));
            while flips.load(Ordering::Relaxed) < 30 {
                ticks.tick().await;
                // Five every two milliseconds of four tasks are ten thousand a second.
                for _ in 0..5 {
                    let response = ask(&app, "/", &[("x-user", &task.to_string())]).await;
                    assert_eq!(response.status(), 200);
                    let policies = field(&response, "ratelimit-policy").expect("a policy").to_owned();
                    let standings = field(&response, "ratelimit").expect("standings");
                    let own = policies.split('"').nth(1).and_then(|name| name.split('-').next()).expect("a name");
                    assert_eq!(standings.matches(&format!("\"{own}-")).count(), 3, "{policies} and {standings}");
                    *seen.entry(policies).or_default() += 1;
                }
            }
            seen
        })
    });
    let asking: Vec<_> = asking.collect();
    let mut seen: HashMap<String, u64> = HashMap::new();
    for task in asking {
        task.await.expect("no panic").into_iter().for_each(|(told, count)| *seen.entry(told).or_default() += count);
    }
    over.store(true, Ordering::Relaxed);
    flipping.await.expect("no panic");
    let all: u64 = seen.values().sum();
    let whole: u64 = [1, 2].iter().filter_map(|number| seen.get(&told(*number))).sum();
    assert_eq!(whole, all, "some saw neither policy whole: {:?}", seen.keys().collect::<Vec<_>>());
    assert_eq!(seen.len(), 2, "both policies were seen");
    // Nothing was lost: what was admitted is what was counted.
    let mut counted = 0;
    for number in [1, 2] {
        limiter.set_policy(generation(number)).expect("sound");
        for task in 0..4u64 {
            let usage = limiter.usage(task.to_string()).await.expect("an answer");
            counted += usage.rule(&format!("g{number}-1")).and_then(|rule| rule.used()).expect("it is limited");
        }
    }
    assert_eq!(counted, all);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_response_is_by_one_policy_in_memory() {
    flip(Limiter::builder(MemoryStore::new()).policy(generation(1)).build().expect("sound")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_response_is_by_one_policy_on_redis() {
    let server = Version::Redis7.shared();
    let store = patient(&server.url());
    flip(Limiter::builder(store).namespace(namespace()).policy(generation(1)).build().expect("sound")).await;
}
