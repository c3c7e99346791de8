use http::{StatusCode, request::Parts};
use smallvec::SmallVec;

use super::{Limiter, rules::CheckedRule};
use crate::{
    key::{Found, Key},
    store::Tenant,
};

/// A rule that applies to a request, with its key and cost.
#[derive(Clone, Debug)]
pub(crate) struct Pick {
    pub(crate) rule: u16,
    pub(crate) key: Key,
    pub(crate) cost: u64,
    /// Whether the rule is only watched, for this key.
    pub(crate) shadow: bool,
    /// Whether it may use what the rule reserves.
    pub(crate) critical: bool,
    /// Who it is among those that share the rule's limit. Boxed, since few rules are shared.
    pub(crate) tenant: Option<Box<Tenant>>,
}

pub(crate) type Picks = SmallVec<[Pick; 1]>;

/// What looking for the keys of a request came to.
#[derive(Debug)]
pub(crate) enum Picked {
    Rules(Picks),
    /// A key closure refused the request.
    Refuse(StatusCode),
}

impl Limiter {
    /// The rules that apply to a request; `None` when a key closure must wait.
    pub(crate) fn pick_now(&self, head: &Parts) -> Option<Picked> {
        let rules = self.rules();
        if rules.any_waits() {
            return None;
        }
        let mut picks = Picks::with_capacity(rules.len());
        for rule in rules.iter().filter(|rule| rule.applies(head)) {
            let found = rule.key().find_now(head)?;
            let tenant = match rule.shared() {
                Some(shared) => Some(shared.key.find_now(head)?),
                None => None,
            };
            if let Some(status) = self.add(&mut picks, rule, head, found, tenant) {
                return Some(Picked::Refuse(status));
            }
        }
        Some(Picked::Rules(picks))
    }

    pub(crate) async fn pick_later(&self, head: &Parts) -> Picked {
        let mut picks = Picks::new();
        for rule in self.rules().iter().filter(|rule| rule.applies(head)) {
            let found = rule.key().find(head).await;
            let tenant = match rule.shared() {
                Some(shared) => Some(shared.key.find(head).await),
                None => None,
            };
            if let Some(status) = self.add(&mut picks, rule, head, found, tenant) {
                return Picked::Refuse(status);
            }
        }
        Picked::Rules(picks)
    }

    fn add(
        &self,
        picks: &mut Picks,
        rule: &CheckedRule,
        head: &Parts,
        found: Found,
        tenant: Option<Found>,
    ) -> Option<StatusCode> {
        match (found, tenant) {
            (Found::Refuse(status), _) | (Found::Key(_), Some(Found::Refuse(status))) => {
                if !self.is_shadow() && rule.roll_out().is_whole() {
                    return Some(status);
                }
                self.0.shadow.log(rule.name());
            }
            // Nothing is counted, so there is nothing to ask.
            (Found::Key(_), _) if rule.limit().is_unlimited() => {}
            (Found::Key(key), tenant) => picks.push(Pick {
                rule: rule.index(),
                cost: rule.cost(head),
                shadow: self.is_shadow() || !rule.roll_out().enforces(key.as_bytes()),
                critical: rule.is_critical(head),
                tenant: tenant.and_then(|tenant| rule.tenant(&key, tenant.key())),
                key,
            }),
            (Found::Absent, _) => {}
        }
        None
    }
}
