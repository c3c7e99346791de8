use serde::Serialize;

use super::Origin;
use crate::limit::Limit;

/// What becomes of one rule of a policy for a request.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ExplainedRule {
    pub(super) name: String,
    pub(super) applies: Applies,
    /// Why, in words.
    pub(super) why: String,
    pub(super) algorithm: &'static str,
    pub(super) quota: String,
    pub(super) quota_from: Origin,
    #[serde(skip)]
    pub(super) limit: Limit,
    pub(super) key: Option<String>,
    pub(super) key_by: String,
    pub(super) cost: Option<u64>,
    pub(super) cost_from: Origin,
    pub(super) shadow: bool,
    pub(super) roll_out: f64,
    pub(super) roll_out_from: Origin,
    pub(super) reserved: u64,
    pub(super) critical: bool,
    pub(super) protects_service: bool,
}

/// Whether a rule applies to a request, and if not, why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Applies {
    /// It counts the request.
    Yes,
    /// It is for other paths.
    OtherPath,
    /// It is for other methods.
    OtherMethod,
    /// The request has no key for it.
    NoKey,
    /// It has no limit for this tier or customer.
    Unlimited,
    /// The request has no key for it, and is refused for that.
    Refuses,
    /// It would, but the request is on a list or is refused before anything is counted.
    NotAsked,
    /// Its key is found by a closure that must be waited for, or in the body, and so not here.
    Unknown,
}

impl ExplainedRule {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it applies, and if not, why not.
    pub fn applies(&self) -> Applies {
        self.applies
    }

    /// The same in words: `for GET, and this is POST`.
    pub fn why(&self) -> &str {
        &self.why
    }

    /// Its limit for this tier and customer.
    pub fn limit(&self) -> &Limit {
        &self.limit
    }

    /// Its quota for this tier and customer, as text: `100/min, burst 20`.
    pub fn quota(&self) -> &str {
        &self.quota
    }

    /// Who gives it that quota.
    pub fn quota_from(&self) -> Origin {
        self.quota_from
    }

    /// The request's key for it, as it stands in the store: secrets as digests, behind a `#`.
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// How the policy says that the key is found: `bearer|ip`.
    pub fn key_by(&self) -> &str {
        &self.key_by
    }

    /// What the request costs under it; `None` where it does not apply.
    pub fn cost(&self) -> Option<u64> {
        self.cost
    }

    /// Who gives it that cost.
    pub fn cost_from(&self) -> Origin {
        self.cost_from
    }

    /// Whether it only watches this request's key.
    pub fn is_shadow(&self) -> bool {
        self.shadow
    }

    /// The share of keys that it is enforced for, in percent: 0 for a shadow.
    pub fn roll_out(&self) -> f64 {
        self.roll_out
    }

    /// Who says so.
    pub fn roll_out_from(&self) -> Origin {
        self.roll_out_from
    }

    /// The units that it keeps for critical requests.
    pub fn reserved(&self) -> u64 {
        self.reserved
    }

    /// Whether the request may use those.
    pub fn is_critical(&self) -> bool {
        self.critical
    }

    /// Whether it protects the service: its refusals are 503.
    pub fn protects_service(&self) -> bool {
        self.protects_service
    }
}
