//! What a limiter is made of, from a document.

use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

use http::{HeaderName, Method, request::Parts};

use super::{Claims, Override, names::TierOf, text::Pattern};
use crate::{Headers, Lists, OnFailure, Quota, Rule, key::KeyBy, limit::Cost};

/// A document with every name looked up and every number checked.
#[derive(Debug)]
pub(crate) struct Plan {
    /// In the document's order.
    pub(crate) rules: Vec<Planned>,
    pub(crate) tiers: Vec<Tier>,
    pub(crate) tier_by: Option<TierBy>,
    /// The tier of requests without one, and with one that is unknown.
    pub(crate) default_tier: Option<usize>,
    pub(crate) customer_by: Option<KeyBy>,
    /// By the customer's key, as it stands in the store.
    pub(crate) overrides: HashMap<Box<[u8]>, Override>,
    pub(crate) lists: Option<Lists>,
    pub(crate) headers: Option<Headers>,
    pub(crate) on_failure: Option<OnFailure>,
}

/// A rule, without its paths and methods as a condition.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    pub(crate) rule: Rule,
    /// Whether every tier gives it a quota, and it has none of its own: `rule` is then without a limit.
    pub(crate) quota_by_tier_only: bool,
    /// None: all.
    pub(crate) paths: Vec<Pattern>,
    /// None: all.
    pub(crate) methods: Vec<Method>,
    /// The offset of its calendar quotas, unless they give one.
    pub(crate) utc_offset: Option<i32>,
    /// How long the leases of a concurrency rule are. In `rule` it is the window of the quota.
    pub(crate) lease: Duration,
}

impl Planned {
    /// The quota that it has where these are put in the place of what rules have; `None` if it has none.
    pub(crate) fn quota_with(&self, place: usize, replaced: &[Replacement]) -> Option<Quota> {
        let replaced = replaced.iter().find(|one| one.rule == place).and_then(|one| one.quota);
        replaced.or((!self.quota_by_tier_only).then_some(self.rule.quota))
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Tier {
    pub(crate) name: Arc<str>,
    pub(crate) replaced: Vec<Replacement>,
}

/// What a tier or an override puts in the place of something of a rule. `None` stays as it is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Replacement {
    /// The rule's place in [`Plan::rules`].
    pub(crate) rule: usize,
    pub(crate) quota: Option<Quota>,
    /// In percent; a shadow has 0.
    pub(crate) roll_out: Option<f64>,
    pub(crate) cost: Option<u64>,
}

impl Replacement {
    /// With what another puts in the place of the same rule's, where this one leaves it.
    pub(crate) fn over(self, others: &[Replacement]) -> Replacement {
        let Some(other) = others.iter().find(|other| other.rule == self.rule) else { return self };
        Replacement {
            rule: self.rule,
            quota: self.quota.or(other.quota),
            roll_out: self.roll_out.or(other.roll_out),
            cost: self.cost.or(other.cost),
        }
    }

    /// The rule with this in its place.
    pub(crate) fn apply(&self, rule: &Rule) -> Rule {
        let mut rule = rule.clone();
        if let Some(quota) = self.quota {
            rule.quota = quota;
        }
        if let Some(percent) = self.roll_out {
            rule.roll_out = percent;
        }
        if let Some(units) = self.cost {
            rule.cost = Cost::Fixed(units);
        }
        rule
    }
}

/// Where the name of a request's tier is.
#[derive(Clone)]
pub(crate) enum TierBy {
    Header(HeaderName),
    Claim(Box<str>),
    Code(TierOf),
}

impl TierBy {
    /// Hands on the name. Nothing is allocated, unless by a closure of the application's.
    pub(crate) fn with<R>(&self, head: &Parts, then: impl FnOnce(Option<&str>) -> R) -> R {
        match self {
            TierBy::Header(name) => {
                let mut lines = head.headers.get_all(name).iter();
                let line = lines.next().filter(|_| lines.next().is_none());
                then(line.and_then(|line| std::str::from_utf8(line.as_bytes()).ok()).map(str::trim))
            }
            TierBy::Claim(name) => then(head.extensions.get::<Claims>().and_then(|claims| claims.get(name))),
            TierBy::Code(closure) => then(closure(head).name()),
        }
    }
}

impl fmt::Debug for TierBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TierBy::Header(name) => write!(f, "header:{name}"),
            TierBy::Claim(name) => write!(f, "claim:{name}"),
            TierBy::Code(_) => f.write_str("by closure"),
        }
    }
}
