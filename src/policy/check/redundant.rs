use std::collections::HashMap;

use foldhash::fast::RandomState;
use smallvec::SmallVec;

use super::{Checker, Code, Index, Key, MOST_RULES, Wrong, who};
use crate::{
    Quota,
    policy::{
        document::{AlgorithmName, CostText, OnFailureName, RuleText},
        plan::{Planned, Replacement, Tier},
    },
};

/// What two rules agree in that count the same requests in the same way.
#[derive(PartialEq, Eq, Hash)]
struct Alike<'a> {
    algorithm: AlgorithmName,
    key: &'a [String],
    paths: Option<&'a [String]>,
    methods: Option<&'a [String]>,
    cost: Option<&'a CostText>,
    offset: Option<&'a str>,
    from_first_request: bool,
    on_failure: Option<OnFailureName>,
    protects_service: bool,
}

impl<'a> Alike<'a> {
    fn of(text: &'a RuleText) -> Alike<'a> {
        Alike {
            algorithm: text.algorithm,
            key: text.key.as_slice(),
            paths: text.paths.as_deref(),
            methods: text.methods.as_deref(),
            cost: text.cost.as_ref(),
            offset: text.offset.as_deref(),
            from_first_request: text.from_first_request,
            on_failure: text.on_failure,
            protects_service: text.protects_service,
        }
    }
}

/// What a tier leaves of a rule.
struct Effect {
    quota: Quota,
    roll_out: f64,
    cost: Option<u64>,
}

impl Effect {
    fn of(planned: &Planned, replacement: Option<&Replacement>) -> Effect {
        Effect {
            quota: replacement.and_then(|one| one.quota).unwrap_or(planned.rule.quota),
            roll_out: replacement.and_then(|one| one.roll_out).unwrap_or(planned.rule.roll_out),
            cost: replacement.and_then(|one| one.cost),
        }
    }

    /// Whether whatever this admits is admitted by the other too.
    fn covers(&self, other: &Effect) -> bool {
        let (own, others) = (self.quota, other.quota);
        if self.roll_out < 100.0 || self.cost != other.cost || own.is_unlimited() {
            return others.is_unlimited();
        }
        let offset = |quota: Quota| quota.given_utc_offset().unwrap_or(0);
        others.is_unlimited()
            || own.period() == others.period()
                && offset(own) == offset(others)
                && own.amount() <= others.amount()
                && own.capacity() <= others.capacity()
    }
}

/// Whether a rule does more than refuse what is too much, so that it has a use of its own.
fn has_other_uses(text: &RuleText) -> bool {
    text.shadow
        || text.reserve.is_some()
        || text.fair_share.is_some()
        || text.ban.is_some()
        || text.queue.is_some()
        || text.max_new_keys.is_some()
        || text.count_responses.is_some()
}

/// Whether a rule is always as strict as its quota says.
fn is_plain(text: &RuleText) -> bool {
    !text.shadow && text.queue.is_none() && text.max_new_keys.is_none() && text.count_responses.is_none()
}

fn is_given(key: &str) -> bool {
    key.trim() == "given"
}

impl Checker<'_> {
    /// Tells of rules that never refuse, because another always refuses first.
    pub(super) fn redundant(&mut self, rules: &[Option<Planned>], tiers: &[Tier]) {
        let document = self.document;
        // An override, also one that is kept elsewhere, may give a customer more of the one that refuses first.
        if document.customer.is_some() {
            return;
        }
        let mut groups: HashMap<Alike<'_>, SmallVec<[usize; 2]>, RandomState> =
            HashMap::with_capacity_and_hasher(rules.len(), RandomState::default());
        // Keys that calls are given are of requests that name their rules, and no two rules need be of the same.
        let is_of_requests = |text: &RuleText| !text.key.as_slice().iter().any(|key| key.split('|').any(is_given));
        for (place, text) in document.rules.iter().enumerate().filter(|(_, text)| is_of_requests(text)) {
            groups.entry(Alike::of(text)).or_default().push(place);
        }
        groups.retain(|_, places| places.len() > 1);
        if groups.is_empty() {
            return;
        }
        let by_tier: Vec<HashMap<usize, &Replacement>> =
            tiers.iter().map(|tier| tier.replaced.iter().map(|one| (one.rule, one)).collect()).collect();
        let covers = |one: usize, other: usize| {
            let (Some(Some(first)), Some(Some(second))) = (rules.get(one), rules.get(other)) else { return false };
            let own = first.quota_by_tier_only && second.quota_by_tier_only
                || Effect::of(first, None).covers(&Effect::of(second, None));
            let in_tier = |tier: &HashMap<usize, &Replacement>| {
                Effect::of(first, tier.get(&one).copied()).covers(&Effect::of(second, tier.get(&other).copied()))
            };
            own && by_tier.iter().all(in_tier)
        };
        let mut found = Vec::new();
        for places in groups.values() {
            // More cannot be for one request anyway.
            let candidates = || places.iter().copied().take(MOST_RULES);
            let strict: Vec<usize> =
                candidates().filter(|place| document.rules.get(*place).is_some_and(is_plain)).collect();
            for other in candidates().filter(|place| !document.rules.get(*place).is_some_and(has_other_uses)) {
                // Of two that are equal, the later is one too many.
                let first =
                    |one: &&usize| **one != other && covers(**one, other) && (**one < other || !covers(other, **one));
                if let Some(one) = strict.iter().find(first) {
                    found.push((other, *one));
                }
            }
        }
        for (other, one) in found {
            let (Some(text), Some(strict)) = (document.rules.get(other), document.rules.get(one)) else { continue };
            let message =
                format!("never refuses: {} counts the same requests and is as strict or stricter", who(&strict.name));
            let help = "drop one of the two, lower this quota, or give it another window, key or path";
            let path = [Key("rules"), Index(other), Key("name")];
            self.told.tell(Code::Redundant, &who(&text.name), Wrong::new(message, help), &path);
        }
    }
}
