//! Where policies come from: files and Redis, and what limiters make of changes, mistakes and outages there.

mod file;
mod file_faults;
mod million;
mod own;
mod redis;
mod redis_faults;
mod redis_overrides;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use sluicegate::{
    Limiter, LimiterBuilder, Observer, PolicyEvent,
    policy::{Following, Policy, PolicySource},
};
use tokio::time::Instant;

/// A policy with this quota.
fn text(quota: &str) -> String {
    format!(
        "[customer]\nby = \"header:x-customer\"\n[tiers.pro]\ncalls = \"100/hour\"\n[tier]\nby = \"header:x-plan\"\n\
         [[rules]]\nname = \"calls\"\nalgorithm = \"fixed_window\"\nquota = \"{quota}\"\nkey = \"header:x-customer|global\"\n"
    )
}

fn policy(quota: &str) -> Policy {
    Policy::from_toml(&text(quota)).unwrap_or_else(|error| panic!("{error}"))
}

/// Notes what it is told of policies.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<PolicyEvent>>>);

impl Observer for Told {
    fn policy(&self, event: &PolicyEvent) {
        self.0.lock().expect("no panic").push(event.clone());
    }
}

impl Told {
    fn all(&self) -> Vec<PolicyEvent> {
        self.0.lock().expect("no panic").clone()
    }

    /// Why policies were refused.
    fn refused(&self) -> Vec<String> {
        let refused = |event| match event {
            PolicyEvent::Refused { error } => Some(error),
            _ => None,
        };
        self.all().into_iter().filter_map(refused).collect()
    }
}

/// A limiter that follows a source.
struct Follower {
    limiter: Limiter,
    told: Told,
    _following: Following,
}

impl Follower {
    async fn begin(builder: LimiterBuilder, source: impl PolicySource) -> Follower {
        let told = Told::default();
        let policy = source.load().await.expect("a policy");
        let limiter = builder.observer(told.clone()).policy(policy).build().expect("sound");
        let following = limiter.follow(source);
        Follower { limiter, told, _following: following }
    }

    fn holds(&self, policy: &Policy) -> bool {
        self.limiter.policy_status().is_some_and(|status| status.policy() == policy)
    }

    fn refused(&self) -> Option<String> {
        self.limiter.policy_status().and_then(|status| status.refused().map(str::to_owned))
    }

    /// Waits until this policy holds and nothing is wrong.
    async fn reaches(&self, policy: &Policy, within: Duration) -> Duration {
        until(within, || self.holds(policy) && self.refused().is_none()).await
    }

    /// Waits until as much is told as there is to tell: a policy holds a moment before.
    async fn tells(&self, events: &[PolicyEvent]) {
        until(Duration::from_secs(1), || self.told.all().len() >= events.len()).await;
        assert_eq!(self.told.all(), events);
    }

    /// Waits until the newest policy is refused for a reason with these words.
    async fn refuses(&self, words: &str, within: Duration) -> Duration {
        until(within, || self.refused().is_some_and(|error| error.contains(words))).await
    }
}

/// Waits until it is so, and says how long that took.
async fn until(within: Duration, so: impl Fn() -> bool) -> Duration {
    let since = Instant::now();
    while !so() {
        assert!(since.elapsed() < within, "it is not so within {within:?}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    since.elapsed()
}
