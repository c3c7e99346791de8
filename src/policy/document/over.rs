use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Change;
use crate::{
    Quota,
    policy::{
        error::{PolicyError, Problems},
        read::{Format, decode},
        source::{Source, Tree},
        text::{write_quota, write_utc_offset},
    },
};

/// What one customer has instead of what others have: another tier, other quotas of single rules. In a document it stands under
/// `[overrides]`; an application may also keep them in a database of its own.
///
/// ```
/// use sluicegate::{Quota, policy::Override};
///
/// let stored = Override::from_json(r#"{ "tier": "pro", "rules": { "per-user": { "quota": "5000/min", "burst": 500 } } }"#)?;
/// assert_eq!(stored, Override::tier("pro").quota("per-user", Quota::per_minute(5_000).burst(500)));
/// # Ok::<(), sluicegate::policy::PolicyError>(())
/// ```
///
/// Whether its rules and its tier are there, and its quotas can be kept, is looked at when it is put to use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[must_use]
pub struct Override {
    /// Replaces the customer's tier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::policy) tier: Option<String>,
    /// By rule: what replaces what the tier says, or the rule itself.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(in crate::policy) rules: BTreeMap<String, Change>,
}

impl Override {
    /// One that changes nothing yet.
    ///
    /// ```
    /// use sluicegate::{Quota, policy::Override};
    ///
    /// Override::new().quota("per-user", Quota::per_minute(5_000));
    /// ```
    pub fn new() -> Override {
        Override::default()
    }

    /// The customer is in this tier, whatever the request says.
    ///
    /// ```
    /// use sluicegate::policy::Override;
    ///
    /// assert_eq!(Override::tier("pro"), Override::from_toml("tier = \"pro\"")?);
    /// # Ok::<(), sluicegate::policy::PolicyError>(())
    /// ```
    pub fn tier(name: impl Into<String>) -> Override {
        Override { tier: Some(name.into()), rules: BTreeMap::new() }
    }

    fn change(mut self, rule: impl Into<String>, change: impl FnOnce(&mut Change)) -> Override {
        change(self.rules.entry(rule.into()).or_default());
        self
    }

    /// Another quota for the rule of this name.
    ///
    /// ```
    /// use sluicegate::{Quota, policy::Override};
    ///
    /// Override::new().quota("per-user", Quota::per_minute(5_000).burst(500)).quota("daily", Quota::unlimited());
    /// ```
    pub fn quota(self, rule: impl Into<String>, quota: Quota) -> Override {
        self.change(rule, |change| {
            change.quota = Some(write_quota(quota));
            change.burst = quota.given_burst();
            change.utc_offset = quota.given_utc_offset().map(write_utc_offset);
        })
    }

    /// So many at the same time, for the concurrency rule of this name.
    ///
    /// ```
    /// use sluicegate::policy::Override;
    ///
    /// Override::new().limit("at-a-time", 50);
    /// ```
    pub fn limit(self, rule: impl Into<String>, limit: u64) -> Override {
        self.change(rule, |change| change.limit = Some(limit))
    }

    /// Another cost of requests, for the rule of this name.
    ///
    /// ```
    /// use sluicegate::policy::Override;
    ///
    /// Override::new().cost("per-user", 2);
    /// ```
    pub fn cost(self, rule: impl Into<String>, units: u64) -> Override {
        self.change(rule, |change| change.cost = Some(units))
    }

    /// The rule of this name only watches this customer, or does not.
    ///
    /// ```
    /// use sluicegate::policy::Override;
    ///
    /// Override::new().shadow("per-user", true);
    /// ```
    pub fn shadow(self, rule: impl Into<String>, shadow: bool) -> Override {
        self.change(rule, |change| change.shadow = Some(shadow))
    }

    /// Reads one that is written in JSON, as in a document.
    ///
    /// # Errors
    ///
    /// When it is no JSON, has other fields, or a quota that cannot be read.
    pub fn from_json(text: &str) -> Result<Override, PolicyError> {
        Override::parse("override", text, Format::Json)
    }

    /// Reads one that is written in TOML, as in a document.
    ///
    /// # Errors
    ///
    /// See [`from_json`](Override::from_json).
    pub fn from_toml(text: &str) -> Result<Override, PolicyError> {
        Override::parse("override", text, Format::Toml)
    }

    /// Reads one from a place that errors name.
    pub(crate) fn parse(name: &str, text: &str, format: Format) -> Result<Override, PolicyError> {
        let source = Source::new(name, text, format);
        let root = source.read()?;
        let mut problems = Problems::default();
        let over: Option<Override> = match decode(&root) {
            Ok(over) => Some(over),
            Err(fault) => {
                problems.add(|| source.fault("", &fault, &root));
                None
            }
        };
        if let Some(over) = &over {
            over.check_texts(&Tree::new(&source, root), &mut problems);
        }
        match over {
            Some(over) if problems.is_empty() => Ok(over),
            _ => Err(PolicyError::of(source.name, problems)),
        }
    }
}
