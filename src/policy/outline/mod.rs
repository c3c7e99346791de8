//! A policy at a glance.

mod rule;
mod table;

use std::fmt;

use serde::Serialize;

pub use rule::OutlinedRule;
pub(super) use rule::word;
pub(super) use table::{several, some_paths};

use super::{
    Names, Policy, PolicyError,
    document::{Entries, ListsText},
};

/// The rules of a policy as they are for each tier: see [`Policy::outline`]. Its text is a table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outline {
    pub(super) tiers: Vec<String>,
    pub(super) default_tier: Option<String>,
    pub(super) tier_by: Option<String>,
    pub(super) customer_by: Option<String>,
    pub(super) overrides: usize,
    pub(super) allowed: usize,
    pub(super) denied: usize,
    pub(super) rules: Vec<OutlinedRule>,
}

impl Outline {
    /// The rules, in the policy's order.
    pub fn rules(&self) -> impl Iterator<Item = &OutlinedRule> {
        self.rules.iter()
    }

    /// The names of the tiers.
    pub fn tiers(&self) -> impl Iterator<Item = &str> {
        self.tiers.iter().map(String::as_str)
    }

    /// The tier of requests without one, and with one that is unknown.
    pub fn default_tier(&self) -> Option<&str> {
        self.default_tier.as_deref()
    }

    /// Where the tier of a request is found: `header:x-plan`.
    pub fn tier_by(&self) -> Option<&str> {
        self.tier_by.as_deref()
    }

    /// Where the customer of a request is found: `header:x-customer`.
    pub fn customer_by(&self) -> Option<&str> {
        self.customer_by.as_deref()
    }

    /// How many customers have an override in the policy.
    pub fn overrides(&self) -> usize {
        self.overrides
    }

    /// How many entries the list of those has who are let through.
    pub fn allowed(&self) -> usize {
        self.allowed
    }

    /// How many entries the list of those has who are refused.
    pub fn denied(&self) -> usize {
        self.denied
    }
}

impl fmt::Display for Outline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        table::write(self, f)
    }
}

impl Policy {
    /// Its rules with everything worked out, to look at: the quota of each for every tier, what it is for, and what is special about it.
    ///
    /// ```
    /// use sluicegate::policy::{Names, Policy};
    ///
    /// let policy = Policy::from_toml(r#"
    ///     [tier]
    ///     by = "header:x-plan"
    ///     default = "free"
    ///
    ///     [[rules]]
    ///     name = "per-ip"
    ///     algorithm = "token_bucket"
    ///     quota = "100/min"
    ///     burst = 20
    ///     key = "ip"
    ///
    ///     [tiers.free]
    ///     [tiers.pro]
    ///     per-ip = "1000/min"
    /// "#)?;
    /// let outline = policy.outline(&Names::new())?;
    /// let rule = outline.rules().next().expect("a rule");
    /// assert_eq!(rule.quota(None), Some("100/min, burst 20"));
    /// assert_eq!(rule.quota(Some("pro")), Some("1000/min"));
    /// # Ok::<(), sluicegate::policy::PolicyError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`check`](Policy::check).
    pub fn outline(&self, names: &Names) -> Result<Outline, PolicyError> {
        let (plan, document) = (self.plan(names)?, &self.document);
        let count = |entries: fn(&ListsText) -> &Entries| {
            let entries = document.lists.as_ref().map(entries);
            entries
                .map_or(0, |list| list.nets.len() + list.keys.len() + list.rules.values().map(Vec::len).sum::<usize>())
        };
        let rules = document.rules.iter().zip(&plan.rules).enumerate();
        Ok(Outline {
            tiers: plan.tiers.iter().map(|tier| tier.name.to_string()).collect(),
            default_tier: document.tier.as_ref().and_then(|tier| tier.default.clone()),
            tier_by: document.tier.as_ref().map(|tier| tier.by.clone()),
            customer_by: document.customer.as_ref().map(|customer| customer.by.clone()),
            overrides: document.overrides.len(),
            allowed: count(|lists| &lists.allow),
            denied: count(|lists| &lists.deny),
            rules: rules.map(|(place, (text, planned))| OutlinedRule::new(place, text, planned, &plan)).collect(),
        })
    }
}
