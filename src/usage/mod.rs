//! How much is left, without spending any of it.
//!
//! [`Limiter::usage`](crate::Limiter::usage) and its kin look it up for an application. `usage::router` (with the feature `axum`)
//! answers callers who ask for themselves; nothing mounts it unless you do:
//!
//! ```
//! # #[cfg(feature = "axum")]
//! # fn app(limiter: sluicegate::Limiter) -> axum::Router {
//! use axum::{Router, routing::get};
//! use sluicegate::{RateLimitLayer, usage};
//!
//! Router::new()
//!     .route("/", get(|| async { "hello" }))
//!     .layer(RateLimitLayer::new(limiter.clone()))
//!     .nest("/usage", usage::router(limiter))      // outside the layer: asking costs nothing
//! # }
//! ```
//!
//! See the page on [quotas](crate::guide::quotas#how-much-is-left).

mod json;
#[cfg(feature = "axum")]
mod router;

use std::time::Duration;

#[cfg(feature = "axum")]
pub use router::router;

use crate::{
    decision::{Decision, Standing},
    limit::Limit,
};

/// How every rule stands for a caller. It names rules, never keys.
#[derive(Clone, Debug)]
pub struct Usage {
    /// Of the rules that have a limit.
    looked: Decision,
    /// The others.
    unlimited: Box<[u16]>,
}

impl Usage {
    pub(crate) fn new(looked: Decision, unlimited: Box<[u16]>) -> Usage {
        Usage { looked, unlimited }
    }

    /// Every rule that has a key for the caller, in the order of the rules.
    pub fn rules(&self) -> impl Iterator<Item = RuleUsage<'_>> {
        let limited = self.looked.standings().map(|standing| {
            let banned = self.looked.banned_by().iter().find(|banned| banned.rule == standing.index());
            RuleUsage::limited(standing, banned.map(|banned| Duration::from_micros(banned.micros)))
        });
        let unlimited = self.unlimited.iter().filter_map(|index| {
            let rule = self.looked.rules().get(*index)?;
            Some(RuleUsage { index: *index, name: rule.name(), limit: rule.limit(), standing: None, banned_for: None })
        });
        let mut all: Vec<RuleUsage<'_>> = limited.chain(unlimited).collect();
        all.sort_unstable_by_key(|rule| rule.index);
        all.into_iter()
    }

    /// The rule of this name, if it has a key for the caller.
    pub fn rule(&self, name: &str) -> Option<RuleUsage<'_>> {
        self.rules().find(|rule| rule.name == name)
    }

    /// Whether a rule would refuse a request of the usual cost now.
    pub fn is_refused(&self) -> bool {
        self.looked.is_refused()
    }

    /// How long all rules together would have such a request wait. `None`: not at all, or for ever.
    pub fn retry_after(&self) -> Option<Duration> {
        self.looked.retry_after()
    }

    /// What `usage::router` answers, for a handler of one's own; see the page on [quotas](crate::guide::quotas#how-much-is-left).
    pub fn to_json(&self) -> String {
        json::text(self)
    }
}

/// How one rule stands for a caller.
#[derive(Clone, Copy, Debug)]
pub struct RuleUsage<'a> {
    index: u16,
    name: &'a str,
    limit: &'a Limit,
    /// There is none without a limit.
    standing: Option<Standing<'a>>,
    banned_for: Option<Duration>,
}

impl<'a> RuleUsage<'a> {
    fn limited(standing: Standing<'a>, banned_for: Option<Duration>) -> RuleUsage<'a> {
        let (index, name, limit) = (standing.index(), standing.rule(), standing.limit());
        RuleUsage { index, name, limit, standing: Some(standing), banned_for }
    }

    /// The rule's name.
    pub fn rule(&self) -> &'a str {
        self.name
    }

    /// The rule's limit.
    pub fn limit(&self) -> &'a Limit {
        self.limit
    }

    /// Whether there is no limit: [`Quota::unlimited`](crate::Quota::unlimited).
    pub fn is_unlimited(&self) -> bool {
        self.standing.is_none()
    }

    /// The units that the caller could use of an untouched limit, as [`Standing::capacity`] has it.
    pub fn capacity(&self) -> u64 {
        self.standing.map_or(self.limit.quota().capacity(), |standing| standing.capacity())
    }

    /// The units that are spent, of the [capacity](RuleUsage::capacity); under a concurrency rule, the places that are taken.
    /// What a bucket owes beyond that is not in it. `None` without a limit, where nothing is counted.
    pub fn used(&self) -> Option<u64> {
        Some(self.capacity().saturating_sub(self.remaining()?))
    }

    /// The units, or places, that are left. `None` without a limit.
    pub fn remaining(&self) -> Option<u64> {
        self.standing.map(|standing| standing.remaining())
    }

    /// Until the limit is as good as untouched, as [`Standing::reset_after`] has it. Zero without a limit.
    pub fn reset_after(&self) -> Duration {
        self.standing.map_or(Duration::ZERO, |standing| standing.reset_after())
    }

    /// Whether the rule would refuse a request now that costs what its requests usually do: its
    /// [`cost`](crate::Rule::cost), or one unit where a closure works it out.
    pub fn is_refused(&self) -> bool {
        self.banned_for.is_some() || self.standing.is_some_and(|standing| standing.is_refused())
    }

    /// How long it would have such a request wait. `None`: not at all, or for ever.
    pub fn retry_after(&self) -> Option<Duration> {
        let standing = self.standing.filter(Standing::is_refused);
        if standing.is_some_and(|standing| standing.can_never_fit()) {
            return None;
        }
        standing.and_then(|standing| standing.retry_after()).max(self.banned_for)
    }

    /// How long the caller is [banned](crate::Ban) under this rule from now, if it is.
    pub fn banned_for(&self) -> Option<Duration> {
        self.banned_for
    }
}
