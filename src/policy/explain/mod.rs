//! What a policy makes of a request, and why.

mod explanation;
mod rule;
mod show;
mod why;

use std::fmt;

use http::request::Parts;

pub use explanation::{ExplainedCustomer, ExplainedTier, Explanation, KnownBy, Origin, Outcome};
pub use rule::{Applies, ExplainedRule};

use super::{Names, Override, Plan, Policy, PolicyError, Replacement};
use crate::{
    MemoryStore,
    limiter::{End, Limiter, Taken, Whose},
    lists::Listed,
    service::is_preflight,
};

impl Policy {
    /// Which rules apply to a request, with which keys and quotas, and why others do not. Nothing is counted.
    ///
    /// ```
    /// use sluicegate::policy::{Applies, Names, Origin, Policy};
    ///
    /// let policy = Policy::from_toml(r#"
    ///     [tier]
    ///     by = "header:x-plan"
    ///
    ///     [[rules]]
    ///     name = "per-user"
    ///     algorithm = "gcra"
    ///     quota = "5/s"
    ///     key = "header:x-user"
    ///
    ///     [[rules]]
    ///     name = "logins"
    ///     algorithm = "sliding_log"
    ///     quota = "5/min"
    ///     key = "header:x-user"
    ///     paths = ["/login"]
    ///
    ///     [tiers.pro]
    ///     per-user = "50/s"
    /// "#)?;
    /// let request = http::Request::get("/v1/charges").header("x-plan", "pro").header("x-user", "alice");
    /// let explanation = policy.explain(&Names::new(), &request.body(()).expect("a request").into_parts().0)?;
    /// let rule = explanation.rule("per-user").expect("a rule");
    /// assert_eq!((rule.key(), rule.quota(), rule.quota_from()), (Some("alice"), "50/s", Origin::Tier));
    /// assert_eq!(explanation.rule("logins").map(|rule| rule.applies()), Some(Applies::OtherPath));
    /// # Ok::<(), sluicegate::policy::PolicyError>(())
    /// ```
    ///
    /// It is what a [`Limiter`] built of the policy goes by: the same rules, looked for in the same way. What only the limiter knows
    /// is not in it: rules and overrides of its own, its global shadow switch, and who is banned.
    ///
    /// # Errors
    ///
    /// Those of building a limiter of it.
    pub fn explain(&self, names: &Names, head: &Parts) -> Result<Explanation, PolicyError> {
        Ok(self.explainer(names)?.explain(head))
    }

    /// Explains several requests, or takes them for those of a tier or a customer.
    ///
    /// ```
    /// use sluicegate::policy::{KnownBy, Names, Policy};
    ///
    /// # let policy = Policy::from_toml("[tier]\nby = \"claim:plan\"\n[[rules]]\nname = \"a\"\nalgorithm = \"gcra\"\nquota = \"5/s\"\nkey = \"ip\"\n[tiers.pro]\na = \"6/s\"\n")?;
    /// let (head, ()) = http::Request::new(()).into_parts();
    /// let explanation = policy.explainer(&Names::new())?.tier("pro").explain(&head);
    /// assert_eq!(explanation.tier().map(|tier| tier.known_by()), Some(KnownBy::Asker));
    /// # Ok::<(), sluicegate::policy::PolicyError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of building a limiter of it.
    pub fn explainer(&self, names: &Names) -> Result<Explainer, PolicyError> {
        let plan = self.plan(names)?;
        let limiter = limiter(self, names, None)?;
        Ok(Explainer { policy: self.clone(), names: names.clone(), plan, limiter, taken: Taken::default() })
    }
}

/// Of the policy alone.
fn limiter(policy: &Policy, names: &Names, namespace: Option<&str>) -> Result<Limiter, PolicyError> {
    let mut builder = Limiter::builder(MemoryStore::new()).policy(policy.clone()).names(names.clone());
    if let Some(namespace) = namespace {
        builder = builder.namespace(namespace);
    }
    Ok(builder.build()?)
}

/// Explains requests: see [`Policy::explainer`].
#[must_use]
pub struct Explainer {
    policy: Policy,
    names: Names,
    plan: Plan,
    limiter: Limiter,
    taken: Taken,
}

impl Explainer {
    /// Takes requests for those of this tier, whatever stands in them. One that the policy does not have is its default, as everywhere.
    pub fn tier(mut self, name: impl Into<String>) -> Explainer {
        self.taken.tier = Some(name.into());
        self
    }

    /// Takes requests for those of this customer, named as an override would name it. Where customers are known by a secret, both
    /// the secret and its digest will do.
    pub fn customer(mut self, name: &str) -> Explainer {
        self.taken.customer = Some(self.policy.customer_key(&self.names, name));
        self
    }

    /// The namespace of the limiter, which decides together with the key whether a rule that is rolled out to a share of keys is
    /// enforced for one. The name of the running program unless said otherwise, as in [`LimiterBuilder`](crate::LimiterBuilder::namespace).
    ///
    /// # Errors
    ///
    /// When it is no namespace.
    pub fn namespace(mut self, namespace: &str) -> Result<Explainer, PolicyError> {
        self.limiter = limiter(&self.policy, &self.names, Some(namespace))?;
        Ok(self)
    }

    /// What the policy makes of a request.
    pub fn explain(&self, head: &Parts) -> Explanation {
        let whose = self.limiter.whose(head, &self.taken);
        let trace = whose.limiter.trace(head);
        let own = self.own(&whose);
        let end = &trace.end;
        let said = Said { tier: self.tier_of(head, &whose, own.as_ref()), own };
        let names = |place: &usize| self.plan.rules.get(*place).map(|planned| planned.rule.name.to_string());
        let name = |place: &Option<usize>| place.as_ref().and_then(names);
        let rules: Vec<ExplainedRule> = trace
            .rules
            .iter()
            .enumerate()
            .filter_map(|(place, traced)| self.rule(place, traced, end, head, &whose, &said))
            .collect();
        let outcome = match end {
            End::Listed(Listed::Allowed, place) => Outcome::Allowed { rule: name(place) },
            End::Listed(Listed::Denied, place) => Outcome::Denied { rule: name(place) },
            End::Refused(status, place) => {
                Outcome::Refused { status: status.as_u16(), rule: names(place).unwrap_or_default() }
            }
            End::Rules if rules.iter().any(|rule| matches!(rule.applies, Applies::Yes | Applies::Unknown)) => {
                Outcome::Limited
            }
            End::Rules => Outcome::Unlimited,
        };
        Explanation {
            method: head.method.to_string(),
            path: head.uri.path().into(),
            outcome,
            is_preflight: is_preflight(head),
            customer: self.customer_of(&whose),
            tier: said.tier,
            rules,
        }
    }

    /// The override that holds, as it is written.
    fn own(&self, whose: &Whose) -> Option<Own> {
        let key = whose.customer.as_ref().filter(|_| whose.overridden)?;
        let own: &Override = self.plan.overrides.get(key.as_bytes())?;
        let place = |name: &str| self.plan.rules.iter().enumerate().find(|(_, planned)| *planned.rule.name == *name);
        let named = |name: &str| self.plan.tiers.iter().position(|tier| *tier.name == *name);
        let tier = own.tier_name().and_then(named).or(whose.tier).and_then(|tier| self.plan.tiers.get(tier));
        let replaced = own.replacements(place, tier.map_or(&[], |tier| &tier.replaced)).ok()?;
        Some(Own { tier: own.tier_name().map(str::to_owned), replaced })
    }

    fn tier_of(&self, head: &Parts, whose: &Whose, own: Option<&Own>) -> Option<ExplainedTier> {
        let text = self.policy.document.tier.as_ref()?;
        let found = match (&self.taken.tier, &self.plan.tier_by) {
            (Some(name), _) => Some(name.clone()),
            (None, Some(by)) => by.with(head, |name| name.map(str::to_owned)),
            (None, None) => None,
        };
        let name = whose.tier.and_then(|place| self.plan.tiers.get(place)).map(|tier| tier.name.to_string());
        let (name, known_by) = match own.and_then(|own| own.tier.clone()) {
            Some(name) => (Some(name), KnownBy::Override),
            None if found.is_some() && found == name => {
                (name, if self.taken.tier.is_some() { KnownBy::Asker } else { KnownBy::Request })
            }
            None => (name, KnownBy::Default),
        };
        Some(ExplainedTier { name, known_by, by: Some(text.by.clone()), found })
    }

    fn customer_of(&self, whose: &Whose) -> Option<ExplainedCustomer> {
        let by = self.policy.document.customer.as_ref().map(|customer| customer.by.clone());
        if by.is_none() && whose.customer.is_none() {
            return None;
        }
        let key = whose.customer.as_ref();
        let known_by = if self.taken.customer.is_some() { KnownBy::Asker } else { KnownBy::Request };
        let has_override = key.is_some_and(|key| self.plan.overrides.contains_key(key.as_bytes()));
        Some(ExplainedCustomer { key: key.map(why::text), known_by, by, has_override })
    }
}

/// What an override says.
struct Own {
    tier: Option<String>,
    replaced: Vec<Replacement>,
}

/// Who says what of a request's rules.
struct Said {
    tier: Option<ExplainedTier>,
    own: Option<Own>,
}

impl fmt::Debug for Explainer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Explainer")
            .field("policy", &self.policy)
            .field("tier", &self.taken.tier)
            .finish_non_exhaustive()
    }
}
