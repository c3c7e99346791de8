use serde::Serialize;

use super::ExplainedRule;

/// What a policy makes of a request: see [`Policy::explain`](crate::policy::Policy::explain). Its text is for people, and what it
/// serializes to for tools.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[must_use]
pub struct Explanation {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) outcome: Outcome,
    pub(super) is_preflight: bool,
    pub(super) tier: Option<ExplainedTier>,
    pub(super) customer: Option<ExplainedCustomer>,
    pub(super) rules: Vec<ExplainedRule>,
}

impl Explanation {
    /// The request's method.
    pub fn method(&self) -> &str {
        &self.method
    }

    /// The request's path, without its query.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// What it comes to before anything is counted.
    pub fn outcome(&self) -> &Outcome {
        &self.outcome
    }

    /// Whether it is a preflight of CORS. Layers let those pass without asking any rule, unless they are told
    /// [otherwise](crate::RateLimitLayer::skip_preflight).
    pub fn is_preflight(&self) -> bool {
        self.is_preflight
    }

    /// The request's tier; `None` where the policy has none.
    pub fn tier(&self) -> Option<&ExplainedTier> {
        self.tier.as_ref()
    }

    /// The request's customer; `None` where the policy does not say how one is found.
    pub fn customer(&self) -> Option<&ExplainedCustomer> {
        self.customer.as_ref()
    }

    /// Every rule of the policy, in its order, whether it applies or not.
    pub fn rules(&self) -> impl Iterator<Item = &ExplainedRule> + Clone {
        self.rules.iter()
    }

    /// The rule of this name.
    pub fn rule(&self, name: &str) -> Option<&ExplainedRule> {
        self.rules.iter().find(|rule| rule.name() == name)
    }
}

/// What a request comes to before anything is counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "is")]
#[non_exhaustive]
pub enum Outcome {
    /// The rules that apply decide; every one of them must admit it.
    Limited,
    /// No rule applies: it is let through.
    Unlimited,
    /// It is on the list of those who are let through, by its key of this rule, or else by the client's address.
    Allowed {
        /// Whose key it is.
        rule: Option<String>,
    },
    /// It is on the list of those who are refused, by its key of this rule, or else by the client's address.
    Denied {
        /// Whose key it is.
        rule: Option<String>,
    },
    /// It has no key for this rule, whose key is written so that such requests are refused.
    Refused {
        /// The status of the response.
        status: u16,
        /// Whose key it is.
        rule: String,
    },
}

/// Where something comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Origin {
    /// The rule itself.
    Rule,
    /// The tier of the request.
    Tier,
    /// The override of its customer.
    Override,
}

/// How a tier or a customer is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum KnownBy {
    /// It was found in the request, as the policy says.
    Request,
    /// Whoever asked for the explanation said so.
    Asker,
    /// There is none in the request, or one that the policy does not know: the policy's default.
    Default,
    /// The override of the customer names it.
    Override,
}

/// The tier of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExplainedTier {
    pub(super) name: Option<String>,
    pub(super) known_by: KnownBy,
    pub(super) by: Option<String>,
    pub(super) found: Option<String>,
}

impl ExplainedTier {
    /// Its name; `None` where the request is in no tier, and rules are as they are written.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// How it is known.
    pub fn known_by(&self) -> KnownBy {
        self.known_by
    }

    /// Where the policy says that tiers are found: `header:x-plan`.
    pub fn by(&self) -> Option<&str> {
        self.by.as_deref()
    }

    /// What was found there, or said by whoever asks, even if there is no such tier.
    pub fn found(&self) -> Option<&str> {
        self.found.as_deref()
    }
}

/// The customer of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExplainedCustomer {
    pub(super) key: Option<String>,
    pub(super) known_by: KnownBy,
    pub(super) by: Option<String>,
    pub(super) has_override: bool,
}

impl ExplainedCustomer {
    /// Its key as it stands in the store, by which overrides are looked up; a document names it as it is, and secrets by this. `None` where the
    /// request has none.
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// How it is known.
    pub fn known_by(&self) -> KnownBy {
        self.known_by
    }

    /// Where the policy says that customers are found: `header:x-customer`.
    pub fn by(&self) -> Option<&str> {
        self.by.as_deref()
    }

    /// Whether the policy has an override for it.
    pub fn has_override(&self) -> bool {
        self.has_override
    }
}
