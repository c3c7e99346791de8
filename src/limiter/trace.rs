//! What becomes of every rule for a request, for those who ask why. Nothing is counted.

use http::{Method, StatusCode, request::Parts};

use super::{Limiter, Pick, Picked, Picks, rules::CheckedRule};
use crate::{
    key::{Found, Key},
    limit::Limit,
    lists::Listed,
};

/// A request as the rules see it.
#[derive(Debug)]
pub(crate) struct Trace {
    /// Every rule, in order.
    pub(crate) rules: Vec<Traced>,
    pub(crate) end: End,
}

/// What it all comes to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The rules that apply decide.
    Rules,
    /// The key of this rule refuses the request.
    Refused(StatusCode, usize),
    /// A list knows the key of this rule; without one, the client's address.
    Listed(Listed, Option<usize>),
}

#[derive(Debug)]
pub(crate) struct Traced {
    pub(crate) limit: Limit,
    pub(crate) reach: Reach,
}

/// What becomes of one rule.
#[derive(Debug)]
pub(crate) enum Reach {
    /// It is for other paths or methods.
    Elsewhere,
    /// Nobody asked it: the client's address is on a list.
    Unasked,
    NoKey,
    Unlimited(Key),
    Refuses(StatusCode),
    /// Its key, or its tenant, must be waited for.
    Waits,
    Counts(Pick),
}

impl Limiter {
    /// Goes the way of [`pick_now`](Limiter::pick_now), and notes what it sees.
    pub(crate) fn trace(&self, head: &Parts) -> Trace {
        let rules = self.rules();
        let mut traced: Vec<Traced> =
            rules.iter().map(|rule| Traced { limit: *rule.limit(), reach: Reach::Elsewhere }).collect();
        let candidates = rules.candidates(head).filter(|rule| rule.applies(head));
        let mut screen = match self.screen(head) {
            Ok(screen) => screen,
            Err(listed) => {
                candidates.for_each(|rule| note(&mut traced, rule, Reach::Unasked));
                return Trace { rules: traced, end: End::Listed(listed, None) };
            }
        };
        let (mut picks, mut refused, mut marks) = (Picks::new(), None, Vec::new());
        for rule in candidates {
            let tenant = match rule.shared() {
                Some(shared) => shared.key.find_now(head).map(Some),
                None => Some(None),
            };
            let (Some(found), Some(tenant)) = (rule.key().find_now(head), tenant) else {
                note(&mut traced, rule, Reach::Waits);
                continue;
            };
            let place = usize::from(rule.index());
            if let Some(listed) = found.key().and_then(|key| self.list_of(rule.name(), key)) {
                marks.push((listed, place));
            }
            let (found, tenant) = (self.enforced(rule, found), tenant.map(|tenant| self.enforced(rule, tenant)));
            let (refuses, key, before) = (refusal(&found, tenant.as_ref()), found.key().cloned(), picks.len());
            self.add(&mut picks, &mut screen, rule, head, (found, tenant));
            let reach = match (refuses, picks.get(before), key) {
                (Some(status), ..) => {
                    refused.get_or_insert((status, place));
                    Reach::Refuses(status)
                }
                (None, Some(pick), _) => Reach::Counts(pick.clone()),
                (None, None, Some(key)) => Reach::Unlimited(key),
                (None, None, None) => Reach::NoKey,
            };
            note(&mut traced, rule, reach);
        }
        let by_key = |listed| marks.iter().find(|(mark, _)| *mark == listed).map(|(_, place)| *place);
        let end = match (screen.end(), refused) {
            (Some(Picked::Listed(listed)), _) => End::Listed(listed, by_key(listed)),
            (_, Some((status, place))) => End::Refused(status, place),
            _ => End::Rules,
        };
        Trace { rules: traced, end }
    }

    /// Whether a rule is for requests of this method and path.
    pub(crate) fn is_for(&self, rule: usize, method: &Method, head: &Parts) -> bool {
        let mut head = head.clone();
        head.method = method.clone();
        self.rules().candidates(&head).any(|candidate| usize::from(candidate.index()) == rule)
    }
}

fn note(traced: &mut [Traced], rule: &CheckedRule, reach: Reach) {
    if let Some(traced) = traced.get_mut(usize::from(rule.index())) {
        traced.reach = reach;
    }
}

/// What a key, or a tenant beside a key, refuses with.
fn refusal(found: &Found, tenant: Option<&Found>) -> Option<StatusCode> {
    match (found, tenant) {
        (Found::Refuse(status), _) | (Found::Key(_), Some(Found::Refuse(status))) => Some(*status),
        _ => None,
    }
}
