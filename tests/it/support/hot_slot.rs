//! A slot that moves from primary to primary while everybody asks for a key in it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use redis::cmd;
use sluicegate::{Call, Limiter};

use super::cluster::Cluster;

/// Moves the slot of `key`, which the last of three primaries has, four times, key by key. Meanwhile four callers ask for it under the
/// rules `a` and `b`: none fails. Answers how many were admitted.
pub async fn move_while_asked(cluster: &Cluster, limiter: &Limiter, key: &str) -> u64 {
    let (done, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let callers: Vec<_> = (0..4)
        .map(|_| {
            let (limiter, key, done, asked) = (limiter.clone(), key.to_owned(), done.clone(), asked.clone());
            tokio::spawn(async move {
                let mut admitted = 0;
                while !done.load(Ordering::Relaxed) {
                    let decision = limiter.acquire(Call::new().key("a", &*key).key("b", &*key)).await;
                    assert!(decision.failure().is_none(), "{:?}", decision.failure());
                    admitted += u64::from(decision.is_allowed());
                    asked.fetch_add(1, Ordering::Relaxed);
                }
                admitted
            })
        })
        .collect();
    let mut at = 2;
    for to in [0, 1, 2, 0] {
        let some_more = async || {
            let (enough, since) = (asked.load(Ordering::Relaxed) + 20, Instant::now());
            while asked.load(Ordering::Relaxed) < enough {
                assert!(since.elapsed() < Duration::from_secs(20), "nobody is answered");
                tokio::task::yield_now().await;
            }
        };
        cluster.migrate(cluster.slot(key), at, to, some_more).await;
        at = to;
    }
    done.store(true, Ordering::Relaxed);
    let mut admitted = 0;
    for caller in callers {
        admitted += caller.await.expect("no failure");
    }
    let errors = cluster.nodes.iter().map(|node| node.ask::<String>(cmd("INFO").arg("errorstats")));
    let errors = errors.collect::<Vec<_>>().join("\n");
    let seen = ["ASK", "TRYAGAIN", "MOVED"].map(|code| errors.contains(&format!("errorstat_{code}:")));
    assert_eq!(seen, [true; 3], "{errors}");
    admitted
}
