use std::sync::Arc;

use super::{Limiter, LimiterBuilder, live::Live};
use crate::{
    key::{Found, IntoKey},
    policy::{Names, OverrideSource, Policy, PolicyError, PolicyStatus},
};

impl Limiter {
    /// Puts this policy in the place of the one before it, for every layer and clone of this limiter: requests that come from now on see
    /// it whole, those that are under way go on with the one they have.
    ///
    /// What was counted stays. A rule that keeps its name keeps its counts, cut to its new quota; see the page on
    /// [tiers and overrides](crate::guide::tiers).
    ///
    /// ```
    /// use sluicegate::{Limiter, MemoryStore, policy::Policy};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let text = |quota: &str| format!(r#"rules = [{{ name = "per-ip", algorithm = "gcra", quota = "{quota}", key = "ip" }}]"#);
    /// let limiter = Limiter::builder(MemoryStore::new()).policy(Policy::from_toml(&text("10/s"))?).build()?;
    ///
    /// limiter.set_policy(Policy::from_toml(&text("20/s"))?)?;
    /// assert_eq!(limiter.policy_status().map(|status| status.version()), Some(2));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// When the policy cannot be used here, or the limiter was [built](crate::LimiterBuilder::policy) without one. Then the policy before
    /// it stays.
    pub fn set_policy(&self, policy: Policy) -> Result<(), PolicyError> {
        let Some(live) = &self.0.live else {
            let text = "this limiter has no policy; say LimiterBuilder::policy(..) when it is built";
            return Err(PolicyError::unusable(text));
        };
        live.change(policy)
    }

    /// Notes what is wrong with the newest policy of a source, or that nothing is.
    pub(crate) fn note_refused_policy(&self, wrong: Option<String>) {
        if let Some(live) = &self.0.live {
            live.note_refused(wrong);
        }
    }

    /// Which policy holds, since how many changes, and what was wrong with the last one that could not be used. `None` where the limiter
    /// was built without one.
    pub fn policy_status(&self) -> Option<PolicyStatus> {
        self.0.live.as_ref().map(Live::status)
    }

    /// This limiter as it is for a tier: for jobs and sockets, whose tier no request tells. An unknown tier is the policy's default.
    ///
    /// ```
    /// # use sluicegate::Limiter;
    /// # async fn send(limiter: Limiter) {
    /// let decision = limiter.for_tier("pro").acquire([("emails", "alice")]).await;
    /// # }
    /// ```
    ///
    /// It does not change with the policy afterwards: ask for it anew for each job.
    #[must_use]
    pub fn for_tier(&self, tier: &str) -> Limiter {
        self.0.live.as_ref().map_or_else(|| self.clone(), |live| live.named(tier))
    }

    /// This limiter as it is for a customer of a tier: with the customer's override, if there is one. It is looked up if it is not known,
    /// which may take a while; where that fails, the tier holds.
    ///
    /// It does not change with the policy afterwards: ask for it anew for each job.
    pub async fn for_customer(&self, customer: impl IntoKey, tier: Option<&str>) -> Limiter {
        match (&self.0.live, customer.into_key()) {
            (None, _) => self.clone(),
            (Some(live), Found::Key(key)) => live.of_customer(&key, tier).await,
            (Some(live), _) => tier.map_or_else(|| live.usual(), |tier| live.named(tier)),
        }
    }

    /// Says that a customer's override has changed where it is looked up: it is looked up again with the next request, which still sees
    /// the one before it.
    pub fn override_changed(&self, customer: impl IntoKey) {
        if let (Some(live), Found::Key(key)) = (&self.0.live, customer.into_key()) {
            live.overrides().doubt(key.as_bytes());
        }
    }

    /// The same for a customer whose key is written as in the store.
    pub(crate) fn doubt_override(&self, customer: &[u8]) {
        if let Some(live) = &self.0.live {
            live.overrides().doubt(customer);
        }
    }

    /// Says that overrides have changed where they are looked up, and nobody knows which.
    pub fn overrides_changed(&self) {
        if let Some(live) = &self.0.live {
            live.overrides().doubt_all();
        }
    }
}

impl LimiterBuilder {
    /// Limits as data: the rules of a policy, beside those given here, which stay when the policy [changes](Limiter::set_policy).
    ///
    /// ```
    /// use sluicegate::{Limiter, MemoryStore, policy::Policy};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let policy = Policy::from_toml(r#"
    ///     [[rules]]
    ///     name = "per-ip"
    ///     algorithm = "token_bucket"
    ///     quota = "100/min"
    ///     burst = 20
    ///     key = "ip"
    /// "#)?;
    /// let limiter = Limiter::builder(MemoryStore::new()).policy(policy).build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn policy(mut self, policy: Policy) -> LimiterBuilder {
        self.wanted.policy = Some(policy);
        self
    }

    /// What the names in a policy mean that are not its own: keys, tiers, costs and conditions by closure.
    pub fn names(mut self, names: Names) -> LimiterBuilder {
        self.wanted.names = names;
        self
    }

    /// Where overrides of customers are looked up, beside those of the policy, which they beat.
    pub fn overrides(mut self, source: impl OverrideSource) -> LimiterBuilder {
        self.wanted.lookup = Some(Arc::new(source));
        self
    }
}
