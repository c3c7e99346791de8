use std::{
    collections::HashMap,
    fmt, slice,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use http::request::Parts;

use super::{
    bans::CheckedBan,
    ground::MOST_RULES,
    live::{Paths, Places},
    new_keys::NewKeys,
};

use crate::{
    headers::{Headers, Policies, Policy, Told},
    key::{Key, KeyBy},
    limit::{Cost, Limit, OnFailure, Reserve, RollOut, Settle, When},
    store::{Scope, Tenant, TenantCount},
};

/// The checked rules of a limiter.
pub(crate) struct Rules {
    family: Family,
    rules: Arc<[Arc<CheckedRule>]>,
    /// What stands in the place of some of these, by their indices: a customer's few, however many rules there are.
    replaced: Box<[Arc<CheckedRule>]>,
    /// Where there are many.
    by_name: Option<Arc<Names>>,
    policies: Policies,
    /// What else a policy says of them.
    terms: Terms,
    any_waits: bool,
    any_settles: bool,
    any_bans: bool,
    any_new_keys: bool,
    any_queues: bool,
    any_reads_bodies: bool,
    shortest_lease: Option<Duration>,
}

/// Tells limiters apart. A limiter whose rules change stays the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Family(u64);

impl Family {
    pub(super) fn new() -> Family {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Family(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// What a policy says of rules beyond each of them.
#[derive(Clone, Default)]
pub(super) struct Terms {
    /// For which paths and methods they are; for all if it is not said.
    pub(super) paths: Option<Arc<Paths>>,
    /// The quota fields of responses; the layer's own if it is not said.
    pub(super) headers: Option<Headers>,
}

/// The indices of rules.
type Names = HashMap<Arc<str>, u16, foldhash::fast::RandomState>;

/// How many rules are looked through one by one.
const FEW: usize = 16;

/// A rule with everything about it worked out.
#[derive(Clone)]
pub(crate) struct CheckedRule {
    pub(super) index: u16,
    pub(super) name: Arc<str>,
    pub(super) limit: Limit,
    pub(super) scope: Scope,
    pub(super) key: KeyBy,
    pub(super) cost: Cost,
    pub(super) when: When,
    pub(super) on_failure: OnFailure,
    pub(super) settle: Settle,
    /// Boxed, since few rules have one.
    pub(super) ban: Option<Box<CheckedBan>>,
    pub(super) roll_out: RollOut,
    pub(super) reserve: Option<Reserve>,
    pub(super) protects_service: bool,
    pub(super) shared: Option<SharedBy>,
    pub(super) new_keys: Option<Arc<NewKeys>>,
    pub(super) told: Told,
}

/// Who shares a rule's limit.
#[derive(Clone)]
pub(super) struct SharedBy {
    pub(super) key: KeyBy,
    pub(super) count: Arc<TenantCount>,
}

impl CheckedRule {
    pub(crate) fn index(&self) -> u16 {
        self.index
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn limit(&self) -> &Limit {
        &self.limit
    }

    pub(crate) fn scope(&self) -> &Scope {
        &self.scope
    }

    pub(super) fn on_failure(&self) -> OnFailure {
        self.on_failure
    }

    pub(super) fn applies(&self, head: &Parts) -> bool {
        self.when.holds(head)
    }

    pub(super) fn key(&self) -> &KeyBy {
        &self.key
    }

    pub(super) fn cost(&self, head: &Parts) -> u64 {
        self.cost.of(head)
    }

    /// Whether its cost is worked out for each request.
    pub(super) fn has_own_cost(&self) -> bool {
        matches!(self.cost, Cost::By(_) | Cost::ByBody(_))
    }

    #[inline]
    pub(super) fn roll_out(&self) -> RollOut {
        self.roll_out
    }

    /// Whether the request may use what the rule reserves.
    pub(super) fn is_critical(&self, head: &Parts) -> bool {
        self.reserve.as_ref().is_some_and(|reserve| (reserve.is_critical)(head))
    }

    pub(super) fn new_keys(&self) -> Option<&NewKeys> {
        self.new_keys.as_deref()
    }

    pub(super) fn shared(&self) -> Option<&SharedBy> {
        self.shared.as_ref()
    }

    /// Who of those that share the limit it is, where it is shared.
    pub(super) fn tenant(&self, key: &Key, tenant: Option<&Key>) -> Option<Box<Tenant>> {
        Some(Box::new(Tenant::new(key, tenant, &self.shared.as_ref()?.count)))
    }

    /// Whether it is no quota of its caller's.
    pub(crate) fn protects_service(&self) -> bool {
        self.protects_service
    }

    pub(super) fn settle(&self) -> &Settle {
        &self.settle
    }

    pub(super) fn ban(&self) -> Option<&CheckedBan> {
        self.ban.as_deref()
    }

    /// What those get who are banned.
    pub(crate) fn ban_status(&self) -> Option<http::StatusCode> {
        self.ban().map(CheckedBan::status)
    }

    /// Whether looking for its key, or its tenant, must wait.
    fn waits(&self) -> bool {
        self.key.waits() || self.shared.as_ref().is_some_and(|shared| shared.key.waits())
    }

    /// Whether responses tell of it: not where there is no limit, or it is no quota of the caller's.
    #[inline]
    fn is_told(&self) -> bool {
        !self.limit.is_unlimited() && !self.protects_service
    }

    /// What responses tell of it, to a request that may use all of it, or not what is reserved.
    #[inline]
    fn told(&self, all: bool) -> Option<&Policy> {
        self.is_told().then(|| self.told.policy(&self.name, &self.limit, all))
    }

    /// Whether its requests need something that outlives their decision.
    fn needs_charge(&self) -> bool {
        let by_response = self.ban.as_ref().is_some_and(|ban| !ban.counts_refusals());
        self.has_own_cost() || self.settle.is_needed() || self.settle.is_offered() || by_response
    }

    /// Whether callers who ask how much they have left are told of this rule.
    pub(super) fn is_told_to_callers(&self) -> bool {
        !self.protects_service
    }

    /// The cost of a call that is no request.
    pub(super) fn usual_cost(&self) -> u64 {
        match self.cost {
            Cost::Fixed(units) => units,
            Cost::By(_) | Cost::ByBody(_) => 1,
        }
    }
}

impl Rules {
    pub(super) fn new(family: Family, rules: Vec<Arc<CheckedRule>>, terms: Terms) -> Rules {
        let names = || rules.iter().map(|rule| (Arc::clone(&rule.name), rule.index));
        let by_name = (rules.len() > FEW).then(|| Arc::new(names().collect()));
        Rules::of(family, rules.into(), by_name, terms)
    }

    fn of(family: Family, rules: Arc<[Arc<CheckedRule>]>, by_name: Option<Arc<Names>>, terms: Terms) -> Rules {
        let told = rules.iter().filter(|rule| rule.is_told()).count();
        let policies = Policies::new(told, rules.iter().filter_map(|rule| rule.told(false)));
        let any = |is: fn(&CheckedRule) -> bool| rules.iter().any(|rule| is(rule));
        Rules {
            family,
            by_name,
            policies,
            terms,
            any_waits: any(CheckedRule::waits),
            any_settles: any(CheckedRule::needs_charge),
            any_bans: any(|rule| rule.ban.is_some()),
            any_new_keys: any(|rule| rule.new_keys.is_some()),
            any_queues: any(|rule| rule.limit.queue().is_some()),
            any_reads_bodies: any(CheckedRule::reads_bodies),
            shortest_lease: rules.iter().filter_map(|rule| rule.limit.lease()).min(),
            rules,
            replaced: Box::default(),
        }
    }

    /// The same with some replaced, of which each has the index of the one it replaces.
    #[cfg_attr(not(feature = "policy"), allow(dead_code))]
    pub(super) fn with(&self, replaced: Vec<CheckedRule>) -> Rules {
        let mut rules: Vec<Arc<CheckedRule>> = self.rules.to_vec();
        for rule in replaced {
            if let Some(place) = rules.get_mut(usize::from(rule.index)) {
                *place = Arc::new(rule);
            }
        }
        Rules::of(self.family, rules.into(), self.by_name.clone(), self.terms.clone())
    }

    /// The same for one of many customers: it shares the rules that are not replaced, so that it takes no more room and time than its own few.
    /// Other quotas, costs and roll-outs are all that it has; so what is known of any of these rules holds for its own.
    #[cfg_attr(not(feature = "policy"), allow(dead_code))]
    pub(super) fn of_customer(&self, replaced: Vec<CheckedRule>) -> Rules {
        if self.terms.paths.is_none() || !self.replaced.is_empty() {
            return self.with(replaced);
        }
        let replaced: Box<[Arc<CheckedRule>]> = replaced.into_iter().map(Arc::new).collect();
        let before = replaced.iter().filter(|rule| self.is_told(rule.index)).count();
        let told = self.policies.len() - before + replaced.iter().filter(|rule| rule.is_told()).count();
        let mut own = Rules {
            family: self.family,
            rules: Arc::clone(&self.rules),
            replaced,
            by_name: self.by_name.clone(),
            policies: self.policies.clone(),
            terms: self.terms.clone(),
            ..*self
        };
        own.policies = Policies::new(told, own.iter().filter_map(|rule| rule.told(false)));
        own
    }

    /// The rule that stands in the place of this one.
    #[inline]
    fn newest<'a>(&'a self, rule: &'a Arc<CheckedRule>) -> &'a CheckedRule {
        match self.replaced.is_empty() {
            true => rule,
            false => self.replaced.iter().find(|own| own.index == rule.index).unwrap_or(rule),
        }
    }

    /// The rules that may apply to a request, by its path and method.
    pub(super) fn candidates(&self, head: &Parts) -> Candidates<'_> {
        match &self.terms.paths {
            None => Candidates::All(self.rules.iter()),
            Some(paths) => Candidates::Some(self, paths.find(&head.method, head.uri.path()).into_iter()),
        }
    }

    /// Whether more rules are for a request than one decision takes. That none has so many is checked where a policy is loaded, but for paths
    /// with dots, which are two paths.
    pub(super) fn are_too_many(&self, head: &Parts) -> bool {
        let Some(paths) = &self.terms.paths else { return false };
        paths.are_two(head.uri.path())
            && self.candidates(head).map(CheckedRule::most_counts).sum::<usize>() > MOST_RULES
    }

    pub(crate) fn headers(&self) -> Option<&Headers> {
        self.terms.headers.as_ref()
    }

    /// Whether both are rules of one limiter.
    pub(crate) fn is_kin(&self, other: &Rules) -> bool {
        self.family == other.family
    }

    /// How many rules a request may well have, so that there is room for them.
    pub(super) fn usual_picks(&self) -> usize {
        if self.terms.paths.is_some() { 1 } else { self.rules.len() }
    }

    #[inline]
    pub(crate) fn get(&self, index: u16) -> Option<&CheckedRule> {
        self.rules.get(usize::from(index)).map(|rule| self.newest(rule))
    }

    #[inline]
    pub(super) fn named(&self, name: &str) -> Option<&CheckedRule> {
        if let Some(by_name) = &self.by_name {
            return self.get(*by_name.get(name)?);
        }
        // By iterators, which are compiled in place: names are short, and calling for the comparison takes longer than it.
        self.iter().find(|rule| rule.name.len() == name.len() && rule.name.bytes().eq(name.bytes()))
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.named(name).is_some()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &CheckedRule> + Clone {
        self.rules.iter().map(|rule| self.newest(rule))
    }

    /// Whether a request may cost something else than it was charged.
    #[inline]
    pub(super) fn any_settles(&self) -> bool {
        self.any_settles
    }

    #[inline]
    pub(super) fn any_bans(&self) -> bool {
        self.any_bans
    }

    #[inline]
    pub(super) fn any_new_keys(&self) -> bool {
        self.any_new_keys
    }

    /// Whether a request may have to wait for its turn.
    #[inline]
    pub(super) fn any_queues(&self) -> bool {
        self.any_queues
    }

    /// Whether a rule looks into bodies.
    #[inline]
    pub(super) fn any_reads_bodies(&self) -> bool {
        self.any_reads_bodies
    }

    pub(super) fn any_waits(&self) -> bool {
        self.any_waits
    }

    /// Of the concurrency rules, if there are any.
    #[inline]
    pub(super) fn shortest_lease(&self) -> Option<Duration> {
        self.shortest_lease
    }

    /// What responses tell of all rules together.
    pub(crate) fn policies(&self) -> &Policies {
        &self.policies
    }

    /// Whether responses tell of the rule of this index.
    #[inline]
    pub(crate) fn is_told(&self, rule: u16) -> bool {
        self.get(rule).is_some_and(CheckedRule::is_told)
    }

    /// What they tell of it, to a request that may use all of it, or not what is reserved.
    #[inline]
    pub(crate) fn told(&self, rule: u16, all: bool) -> Option<&Policy> {
        self.get(rule)?.told(all)
    }
}

/// Rules that may apply to a request.
pub(super) enum Candidates<'a> {
    All(slice::Iter<'a, Arc<CheckedRule>>),
    Some(&'a Rules, <Places as IntoIterator>::IntoIter),
}

impl<'a> Iterator for Candidates<'a> {
    type Item = &'a CheckedRule;

    #[inline]
    fn next(&mut self) -> Option<&'a CheckedRule> {
        match self {
            Candidates::All(rules) => rules.next().map(|rule| &**rule),
            Candidates::Some(rules, places) => places.find_map(|place| rules.get(place)),
        }
    }
}

/// `per-user, per-ip`.
impl fmt::Display for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, rule) in self.rules.iter().take(FEW).enumerate() {
            write!(f, "{}{}", if place == 0 { "" } else { ", " }, rule.name)?;
        }
        match self.rules.len().saturating_sub(FEW) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter().map(|rule| (&rule.name, rule.limit.quota()))).finish()
    }
}
