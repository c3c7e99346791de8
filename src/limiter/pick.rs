use http::{StatusCode, request::Parts};
use smallvec::SmallVec;

use super::{Limiter, rules::CheckedRule};
use crate::key::{Found, Key};

/// A rule that applies to a request, with its key and cost.
#[derive(Clone, Debug)]
pub(crate) struct Pick {
    pub(crate) rule: u16,
    pub(crate) key: Key,
    pub(crate) cost: u64,
    /// Whether the rule is only watched, for this key.
    pub(crate) shadow: bool,
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
            if let Some(status) = add(self, &mut picks, rule, head, rule.key().find_now(head)?) {
                return Some(Picked::Refuse(status));
            }
        }
        Some(Picked::Rules(picks))
    }

    pub(crate) async fn pick_later(&self, head: &Parts) -> Picked {
        let mut picks = Picks::new();
        for rule in self.rules().iter().filter(|rule| rule.applies(head)) {
            let found = rule.key().find(head).await;
            if let Some(status) = add(self, &mut picks, rule, head, found) {
                return Picked::Refuse(status);
            }
        }
        Picked::Rules(picks)
    }
}

fn add(limiter: &Limiter, picks: &mut Picks, rule: &CheckedRule, head: &Parts, found: Found) -> Option<StatusCode> {
    match found {
        // Nothing is counted, so there is nothing to ask.
        Found::Key(_) if rule.limit().is_unlimited() => {}
        Found::Key(key) => {
            let shadow = limiter.is_shadow() || !rule.roll_out().enforces(key.as_bytes());
            picks.push(Pick { rule: rule.index(), key, cost: rule.cost(head), shadow });
        }
        Found::Absent => {}
        Found::Refuse(_) if limiter.is_shadow() || !rule.roll_out().is_whole() => limiter.0.shadow.log(rule.name()),
        Found::Refuse(status) => return Some(status),
    }
    None
}
