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
}

pub(crate) type Picks = SmallVec<[Pick; 1]>;

/// What looking for the keys of a request came to.
#[derive(Debug)]
pub(crate) enum Picked {
    Rules(Picks),
    /// A key closure refused the request.
    Refuse(StatusCode),
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
        if rules.any_reads_bodies() && self.lacks_body(head) {
            return Some(Picked::Unread);
        }
        let mut picks = Picks::with_capacity(rules.len());
        for rule in rules.iter().filter(|rule| rule.applies(head)) {
            if let Some(status) = add(&mut picks, rule, head, rule.key().find_now(head)?) {
                return Some(Picked::Refuse(status));
            }
        }
        Some(Picked::Rules(picks))
    }

    pub(crate) async fn pick_later(&self, head: &Parts) -> Picked {
        if self.rules().any_reads_bodies() && self.lacks_body(head) {
            return Picked::Unread;
        }
        let mut picks = Picks::new();
        for rule in self.rules().iter().filter(|rule| rule.applies(head)) {
            let found = rule.key().find(head).await;
            if let Some(status) = add(&mut picks, rule, head, found) {
                return Picked::Refuse(status);
            }
        }
        Picked::Rules(picks)
    }
}

fn add(picks: &mut Picks, rule: &CheckedRule, head: &Parts, found: Found) -> Option<StatusCode> {
    match found {
        // Nothing is counted, so there is nothing to ask.
        Found::Key(_) if rule.limit().is_unlimited() => {}
        Found::Key(key) => picks.push(Pick { rule: rule.index(), key, cost: rule.cost(head) }),
        Found::Absent => {}
        Found::Refuse(status) => return Some(status),
    }
    None
}
