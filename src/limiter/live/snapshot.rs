use std::{collections::HashMap, fmt, sync::Arc};

use arc_swap::Guard;
use http::request::Parts;

use crate::{
    key::KeyBy,
    limit::OnFailure,
    limiter::Limiter,
    policy::{Override, Planned, Policy, Replacement, Tier, TierBy},
};

/// One policy, ready for requests.
pub(super) struct Snapshot {
    pub(super) policy: Arc<Policy>,
    pub(super) version: u64,
    /// Of the rules as they are without a tier.
    pub(super) base: Limiter,
    pub(super) tiers: Box<[(Tier, Limiter)]>,
    pub(super) tier_by: Option<TierBy>,
    pub(super) usual_tier: Option<usize>,
    pub(super) customer_by: Option<KeyBy>,
    /// By the customer's key.
    pub(super) overrides: HashMap<Box<[u8]>, Override>,
    /// What the rules were made from, to make others of them.
    pub(super) planned: Box<[Planned]>,
    pub(super) on_failure: Option<OnFailure>,
}

impl Snapshot {
    pub(super) fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    pub(super) fn version(&self) -> u64 {
        self.version
    }

    pub(super) fn customer_by(&self) -> Option<&KeyBy> {
        self.customer_by.as_ref()
    }

    pub(super) fn usual_tier(&self) -> Option<usize> {
        self.usual_tier
    }

    /// The tier of a request.
    pub(super) fn tier_of(&self, head: &Parts) -> Option<usize> {
        match &self.tier_by {
            Some(tier_by) => tier_by.with(head, |name| self.tier_named(name)),
            None => self.usual_tier,
        }
    }

    /// The tier of this name; the usual one if there is none.
    pub(super) fn tier_named(&self, name: Option<&str>) -> Option<usize> {
        let named = name.and_then(|name| self.tiers.iter().position(|(tier, _)| *tier.name == *name));
        named.or(self.usual_tier)
    }

    pub(super) fn has_tier(&self, name: &str) -> bool {
        self.tiers.iter().any(|(tier, _)| *tier.name == *name)
    }

    /// What a tier puts in the place of what rules have.
    pub(super) fn replaced_by(&self, tier: Option<usize>) -> &[Replacement] {
        tier.and_then(|tier| self.tiers.get(tier)).map_or(&[], |(tier, _)| &tier.replaced)
    }

    pub(super) fn of_tier(&self, tier: Option<usize>) -> &Limiter {
        tier.and_then(|tier| self.tiers.get(tier)).map_or(&self.base, |(_, limiter)| limiter)
    }
}

/// The limiter of a tier, held without counting its holders.
pub(crate) struct Held {
    snapshot: Guard<Arc<Snapshot>>,
    tier: Option<usize>,
}

impl Held {
    pub(super) fn new(snapshot: Guard<Arc<Snapshot>>, tier: Option<usize>) -> Held {
        Held { snapshot, tier }
    }

    #[inline]
    pub(in crate::limiter) fn limiter(&self) -> &Limiter {
        self.snapshot.of_tier(self.tier)
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.limiter().fmt(f)
    }
}
