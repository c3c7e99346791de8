//! Whose a request is, for those who ask why.

use http::request::Parts;

use super::Live;
use crate::{
    key::{Found, Key},
    limiter::Limiter,
};

/// Whose a request is taken for, whatever stands in it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Taken {
    pub(crate) tier: Option<String>,
    pub(crate) customer: Option<Key>,
}

/// Whose a request is.
#[derive(Debug)]
pub(crate) struct Whose {
    /// The place of its tier, before its customer's override.
    pub(crate) tier: Option<usize>,
    pub(crate) customer: Option<Key>,
    /// Whether the customer's override holds.
    pub(crate) overridden: bool,
    pub(crate) limiter: Limiter,
}

impl Live {
    /// Goes the way of [`of_request`](Live::of_request), and notes what it sees.
    fn whose(&self, head: &Parts, taken: &Taken) -> Whose {
        let snapshot = self.current.load();
        let tier = match &taken.tier {
            Some(name) => snapshot.tier_named(Some(name)),
            None => snapshot.tier_of(head),
        };
        let found = || match snapshot.customer_by()?.find_now(head)? {
            Found::Key(key) => Some(key),
            _ => None,
        };
        let customer = taken.customer.clone().or_else(found);
        let own = customer.as_ref().filter(|_| self.overrides.are_any(&snapshot));
        let own = own.and_then(|key| self.overrides.find(self, &snapshot, tier, key));
        let overridden = own.is_some();
        let limiter = own.unwrap_or_else(|| snapshot.of_tier(tier).clone());
        Whose { tier, customer, overridden, limiter }
    }
}

impl Limiter {
    /// Whose a request is; nobody's where the limiter has no policy.
    pub(crate) fn whose(&self, head: &Parts, taken: &Taken) -> Whose {
        let nobody = || Whose { tier: None, customer: None, overridden: false, limiter: self.clone() };
        self.0.live.as_ref().map_or_else(nobody, |live| live.whose(head, taken))
    }
}
