use http::{StatusCode, request::Parts};
use smallvec::SmallVec;

use super::{Limiter, listing::Screen, rules::CheckedRule};
use crate::{
    key::{Found, Key},
    lists::Listed,
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
    /// The request is on a list: no rule is asked.
    Listed(Listed),
    /// A rule looks into the body, which the layer has not read.
    Unread,
}

impl Limiter {
    /// The rules that apply to a request; `None` when a key closure must wait.
    pub(crate) fn pick_now(&self, head: &Parts) -> Option<Picked> {
        let rules = self.rules();
        if rules.any_waits() {
            return None;
        }
        let mut screen = match self.screen(head) {
            Ok(screen) => screen,
            Err(listed) => return Some(Picked::Listed(listed)),
        };
        if rules.are_too_many(head) {
            return Some(Picked::Refuse(StatusCode::BAD_REQUEST));
        }
        if rules.any_reads_bodies() && self.lacks_body(head) {
            return Some(Picked::Unread);
        }
        let mut picks = Picks::with_capacity(rules.usual_picks());
        for rule in rules.candidates(head).filter(|rule| rule.applies(head)) {
            let found = rule.key().find_now(head)?;
            let tenant = match rule.shared() {
                Some(shared) => Some(shared.key.find_now(head)?),
                None => None,
            };
            if let Some(status) = self.add(&mut picks, &mut screen, rule, head, (found, tenant)) {
                return Some(Picked::Refuse(status));
            }
        }
        Some(screen.end().unwrap_or_else(|| self.admit(picks)))
    }

    pub(crate) async fn pick_later(&self, head: &Parts) -> Picked {
        let mut screen = match self.screen(head) {
            Ok(screen) => screen,
            Err(listed) => return Picked::Listed(listed),
        };
        if self.rules().are_too_many(head) {
            return Picked::Refuse(StatusCode::BAD_REQUEST);
        }
        if self.rules().any_reads_bodies() && self.lacks_body(head) {
            return Picked::Unread;
        }
        let mut picks = Picks::new();
        for rule in self.rules().candidates(head).filter(|rule| rule.applies(head)) {
            let found = rule.key().find(head).await;
            let tenant = match rule.shared() {
                Some(shared) => Some(shared.key.find(head).await),
                None => None,
            };
            if let Some(status) = self.add(&mut picks, &mut screen, rule, head, (found, tenant)) {
                return Picked::Refuse(status);
            }
        }
        screen.end().unwrap_or_else(|| self.admit(picks))
    }

    /// Adds a rule with the key, and the tenant where its limit is shared, that were found. A status: the request is refused.
    #[inline]
    pub(super) fn add(
        &self,
        picks: &mut Picks,
        screen: &mut Screen<'_>,
        rule: &CheckedRule,
        head: &Parts,
        (found, tenant): (Found, Option<Found>),
    ) -> Option<StatusCode> {
        let found = screen.look(rule, self.enforced(rule, found));
        let tenant = tenant.map(|tenant| screen.put_off(self.enforced(rule, tenant)));
        match (found, tenant) {
            (Found::Refuse(status), _) | (Found::Key(_), Some(Found::Refuse(status))) => return Some(status),
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

    /// A closure of a rule that is not enforced for everybody refuses nobody.
    #[inline]
    pub(super) fn enforced(&self, rule: &CheckedRule, found: Found) -> Found {
        if !matches!(found, Found::Refuse(_)) || !self.is_shadow() && rule.roll_out().is_whole() {
            return found;
        }
        self.0.shadow.log(rule.name());
        Found::Absent
    }

    /// The rules that apply. Keys that are one too many share one.
    #[inline]
    fn admit(&self, mut picks: Picks) -> Picked {
        if self.rules().any_new_keys() {
            for pick in &mut picks {
                if let Some(new_keys) = self.rules().get(pick.rule).and_then(CheckedRule::new_keys) {
                    new_keys.admit(&mut pick.key);
                }
            }
        }
        Picked::Rules(picks)
    }
}
