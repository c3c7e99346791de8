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
            if let Some(status) = add(&mut picks, rule, head, found, tenant) {
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
            if let Some(status) = add(&mut picks, rule, head, found, tenant) {
                return Picked::Refuse(status);
            }
        }
        Picked::Rules(picks)
    }
}

fn add(picks: &mut Picks, rule: &CheckedRule, head: &Parts, found: Found, tenant: Option<Found>) -> Option<StatusCode> {
    match (found, tenant) {
        (Found::Refuse(status), _) | (Found::Key(_), Some(Found::Refuse(status))) => return Some(status),
        // Nothing is counted, so there is nothing to ask.
        (Found::Key(_), _) if rule.limit().is_unlimited() => {}
        (Found::Key(key), tenant) => {
            let tenant = tenant.and_then(|tenant| rule.tenant(&key, tenant.key()));
            picks.push(Pick {
                rule: rule.index(),
                key,
                cost: rule.cost(head),
                critical: rule.is_critical(head),
                tenant,
            });
        }
        (Found::Absent, _) => {}
    }
    None
}
