use std::{fmt, time::Duration};

use http::request::Parts;

use crate::{
    headers::Policies,
    key::KeyBy,
    limit::{Cost, Limit, OnFailure, Settle, When},
    store::Scope,
};

/// The checked rules of a limiter.
pub(crate) struct Rules {
    rules: Box<[CheckedRule]>,
    policies: Policies,
    any_waits: bool,
    any_settles: bool,
    any_reads_bodies: bool,
    shortest_lease: Option<Duration>,
}

/// A rule with everything about it worked out.
pub(crate) struct CheckedRule {
    pub(super) index: u16,
    pub(super) name: std::sync::Arc<str>,
    pub(super) limit: Limit,
    pub(super) scope: Scope,
    pub(super) key: KeyBy,
    pub(super) cost: Cost,
    pub(super) when: When,
    pub(super) on_failure: OnFailure,
    pub(super) settle: Settle,
}

impl CheckedRule {
    pub(crate) fn index(&self) -> u16 {
        self.index
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn limit(&self) -> &Limit {
        &self.limit
    }

    pub(crate) fn scope(&self) -> &Scope {
        &self.scope
    }

    pub(super) fn on_failure(&self) -> OnFailure {
        self.on_failure
    }

    pub(super) fn applies(&self, head: &Parts) -> bool {
        self.when.holds(head)
    }

    pub(super) fn key(&self) -> &KeyBy {
        &self.key
    }

    pub(super) fn cost(&self, head: &Parts) -> u64 {
        self.cost.of(head)
    }

    /// Whether its cost is worked out for each request.
    pub(super) fn has_own_cost(&self) -> bool {
        matches!(self.cost, Cost::By(_) | Cost::ByBody(_))
    }

    pub(super) fn settle(&self) -> &Settle {
        &self.settle
    }

    /// The cost of a call that is no request.
    pub(super) fn usual_cost(&self) -> u64 {
        match self.cost {
            Cost::Fixed(units) => units,
            Cost::By(_) | Cost::ByBody(_) => 1,
        }
    }
}

impl Rules {
    pub(super) fn new(rules: Vec<CheckedRule>) -> Rules {
        let policies = Policies::new(rules.iter().map(|rule| (rule.name(), rule.limit())));
        let any_waits = rules.iter().any(|rule| rule.key.waits());
        let any_settles = rules.iter().any(|rule| rule.has_own_cost() || rule.settle.is_needed());
        let any_reads_bodies = rules.iter().any(CheckedRule::reads_bodies);
        let shortest_lease = rules.iter().filter_map(|rule| rule.limit.lease()).min();
        Rules { rules: rules.into(), policies, any_waits, any_settles, any_reads_bodies, shortest_lease }
    }

    pub(super) fn len(&self) -> usize {
        self.rules.len()
    }

    #[inline]
    pub(crate) fn get(&self, index: u16) -> Option<&CheckedRule> {
        self.rules.get(usize::from(index))
    }

    #[inline]
    pub(super) fn named(&self, name: &str) -> Option<&CheckedRule> {
        // By iterators, which are compiled in place: names are short, and calling for the comparison takes longer than it.
        self.rules.iter().find(|rule| rule.name.len() == name.len() && rule.name.bytes().eq(name.bytes()))
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.named(name).is_some()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &CheckedRule> {
        self.rules.iter()
    }

    /// Whether a request may cost something else than it was charged.
    #[inline]
    pub(super) fn any_settles(&self) -> bool {
        self.any_settles
    }

    /// Whether a rule looks into bodies.
    #[inline]
    pub(super) fn any_reads_bodies(&self) -> bool {
        self.any_reads_bodies
    }

    pub(super) fn any_waits(&self) -> bool {
        self.any_waits
    }

    /// Of the concurrency rules, if there are any.
    #[inline]
    pub(super) fn shortest_lease(&self) -> Option<Duration> {
        self.shortest_lease
    }

    pub(crate) fn policies(&self) -> &Policies {
        &self.policies
    }
}

/// `per-user, per-ip`.
impl fmt::Display for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, rule) in self.rules.iter().enumerate() {
            write!(f, "{}{}", if place == 0 { "" } else { ", " }, rule.name)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.rules.iter().map(|rule| (&rule.name, rule.limit.quota()))).finish()
    }
}
