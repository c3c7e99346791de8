use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Who is always let through, and who never is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(in crate::policy) struct ListsText {
    /// Who is let through, whatever the rules.
    #[serde(skip_serializing_if = "Entries::is_empty")]
    pub(in crate::policy) allow: Entries,
    /// Who is refused with 403, unless allowed.
    #[serde(skip_serializing_if = "Entries::is_empty")]
    pub(in crate::policy) deny: Entries,
}

/// Who is on a list.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(in crate::policy) struct Entries {
    /// Subnets of clients, and single addresses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(in crate::policy) nets: Vec<String>,
    /// Keys of any rule. Those of secrets are written by the digest that stands in the store: # and 32 digits.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(in crate::policy) keys: Vec<String>,
    /// Keys of one rule, by its name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(in crate::policy) rules: BTreeMap<String, Vec<String>>,
}

impl Entries {
    fn is_empty(&self) -> bool {
        self.nets.is_empty() && self.keys.is_empty() && self.rules.is_empty()
    }
}
