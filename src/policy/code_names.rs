use std::collections::BTreeSet;

use super::{
    Policy,
    document::{CostText, Texts},
    text::{condition, is_built_in},
};

/// The names in a policy that code must register: see [`Policy::code_names`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CodeNames {
    keys: BTreeSet<String>,
    tiers: BTreeSet<String>,
    costs: BTreeSet<String>,
    conditions: BTreeSet<String>,
}

impl CodeNames {
    /// For [`Names::key`](super::Names::key).
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.keys.iter().map(String::as_str)
    }

    /// For [`Names::tier`](super::Names::tier).
    pub fn tiers(&self) -> impl Iterator<Item = &str> {
        self.tiers.iter().map(String::as_str)
    }

    /// For [`Names::cost`](super::Names::cost).
    pub fn costs(&self) -> impl Iterator<Item = &str> {
        self.costs.iter().map(String::as_str)
    }

    /// For [`Names::condition`](super::Names::condition).
    pub fn conditions(&self) -> impl Iterator<Item = &str> {
        self.conditions.iter().map(String::as_str)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self == &CodeNames::default()
    }

    fn add_key(&mut self, texts: &[String]) {
        let parts = texts.iter().flat_map(|text| text.split('|')).map(str::trim);
        self.keys.extend(parts.filter(|part| !is_built_in(part)).map(str::to_owned));
    }
}

impl Policy {
    /// The names in it that mean nothing by themselves, so that code must register them, or they are misspelled.
    ///
    /// ```
    /// use sluicegate::policy::Policy;
    ///
    /// let policy = Policy::from_toml(r#"
    ///     rules = [{ name = "per-user", algorithm = "gcra", quota = "5/s", key = "user|ip", cost = "weight" }]
    /// "#)?;
    /// let names = policy.code_names();
    /// assert_eq!(names.keys().collect::<Vec<_>>(), ["user"]);
    /// assert_eq!(names.costs().collect::<Vec<_>>(), ["weight"]);
    /// # Ok::<(), sluicegate::policy::PolicyError>(())
    /// ```
    pub fn code_names(&self) -> CodeNames {
        let (document, mut names) = (&self.document, CodeNames::default());
        if let Some(customer) = &document.customer {
            names.add_key(std::slice::from_ref(&customer.by));
        }
        if let Some(tier) = document.tier.as_ref().filter(|tier| !tier.by.contains(':')) {
            names.tiers.insert(tier.by.clone());
        }
        for rule in &document.rules {
            names.add_key(rule.key.as_slice());
            names.add_key(rule.fair_share.as_ref().map_or(&[], |fair| Texts::as_slice(&fair.tenant)));
            if let Some(CostText::Name(name)) = &rule.cost {
                names.costs.insert(name.clone());
            }
            if let Some(reserve) = rule.reserve.as_ref().filter(|reserve| condition(&reserve.whom).is_none()) {
                names.conditions.insert(reserve.whom.clone());
            }
        }
        names
    }
}
