use std::{collections::HashSet, iter, sync::Arc};

use super::{
    bans::CheckedBan,
    new_keys::NewKeys,
    rules::{CheckedRule, Rules, SharedBy},
};
use crate::{
    clock::Clock,
    error::BuildError,
    headers::Told,
    limit::{Limit, OnFailure, RollOut, Rule},
    store::{Scope, Store, TenantCount},
};

/// More in one decision is a mistake, and would make a very long script.
pub(crate) const MOST_RULES: usize = 64;

/// Where the counts of a limiter are, and what holds for rules that do not say.
pub(super) struct Ground {
    namespace: String,
    same_slot: bool,
    on_failure: OnFailure,
    clock: Clock,
}

impl Ground {
    pub(super) fn new(
        namespace: String,
        same_slot: bool,
        on_failure: OnFailure,
        clock: Clock,
    ) -> Result<Ground, BuildError> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if !(1..=64).contains(&namespace.len()) || !namespace.bytes().all(allowed) {
            let text = format!("{namespace:?} cannot begin a key; use 1 to 64 letters, digits and ._-");
            return Err(BuildError::new("namespace", text));
        }
        Ok(Ground { namespace, same_slot, on_failure, clock })
    }

    /// The namespace as it stands in the names of counts.
    pub(super) fn namespace(&self) -> String {
        if self.same_slot { format!("{{{}}}", self.namespace) } else { self.namespace.clone() }
    }

    /// Works everything out about rules. `on_failure` is for those that do not say; the limiter's if it is not given.
    pub(super) fn check(
        &self,
        rules: impl IntoIterator<Item = Rule>,
        on_failure: Option<OnFailure>,
    ) -> Result<Vec<CheckedRule>, BuildError> {
        let rules = rules.into_iter();
        let mut names = HashSet::with_hasher(foldhash::fast::RandomState::default());
        let mut checked = Vec::with_capacity(rules.size_hint().0);
        for (index, rule) in (0u16..).zip(rules) {
            if !names.insert(Arc::clone(&rule.name)) {
                let text = "stands twice; give each rule a name of its own".into();
                return Err(BuildError::rule(&rule.name, "name", text));
            }
            checked.extend(self.check_one(index, rule, on_failure)?);
        }
        Ok(checked)
    }

    pub(super) fn check_one(
        &self,
        index: u16,
        rule: Rule,
        on_failure: Option<OnFailure>,
    ) -> Result<Option<CheckedRule>, BuildError> {
        let limit = rule.check()?;
        self.clock.suits(&rule.name, &limit)?;
        let scope = self.scope(&rule.name)?;
        let shared = rule.fair_share.zip(limit.for_tenants()).map(|(fair, limit)| SharedBy {
            key: fair.tenant,
            count: Arc::new(TenantCount { scope: scope.for_tenants(), limit }),
        });
        let ban = match rule.ban {
            Some(ban) => Some(Box::new(CheckedBan { limit: ban.check(&rule.name)?, scope: scope.for_ban(), ban })),
            None => None,
        };
        // That there is one was checked.
        let Some(key) = rule.key else { return Ok(None) };
        Ok(Some(CheckedRule {
            index,
            limit,
            scope,
            key,
            cost: rule.cost,
            when: rule.when,
            on_failure: rule.on_failure.or(on_failure).unwrap_or(self.on_failure),
            settle: rule.settle,
            reserve: rule.reserve,
            protects_service: rule.protects_service,
            shared,
            new_keys: rule.max_new_keys.map(|most| Arc::new(NewKeys::new(most))),
            roll_out: RollOut::new(&self.namespace, &rule.name, rule.roll_out),
            ban,
            told: Told::default(),
            name: rule.name,
        }))
    }

    /// The place of a rule in the store.
    fn scope(&self, rule: &str) -> Result<Scope, BuildError> {
        let namespace = &self.namespace;
        if !self.same_slot {
            return Ok(Scope::new(namespace, rule));
        }
        let scope = Scope::in_one_slot(namespace, rule);
        // A name falls into the slot of its first hash tag. Were that another than the namespace, or one with the key in it, the
        // promise of one call would be broken when the keys come, so it is checked now.
        if scope.tag() == Some(namespace) {
            Ok(scope)
        } else {
            let text = format!("the namespace {namespace:?} is no hash tag: counts would fall into several slots");
            Err(BuildError::rule(rule, "same_slot", text))
        }
    }
}

impl CheckedRule {
    /// Goes on with what this process has counted under the rule of the same name.
    #[cfg_attr(not(feature = "policy"), allow(dead_code))]
    pub(super) fn keep_counts(&mut self, before: &Rules) {
        let counted = before.named(&self.name).and_then(|rule| rule.new_keys.as_ref());
        if let (Some(own), Some(counted)) = (&mut self.new_keys, counted)
            && own.most() == counted.most()
        {
            *own = Arc::clone(counted);
        }
    }

    /// How many counts of a decision it may take, for whichever tier it is: without a limit of its own it may have one there.
    pub(super) fn most_counts(&self) -> usize {
        1 + usize::from(self.ban.is_some()) + usize::from(self.shared.is_some())
    }

    /// How many counts of a decision it takes.
    pub(super) fn counts(&self) -> usize {
        if self.limit.is_unlimited() { 0 } else { self.most_counts() }
    }

    /// The limits that a store is asked about.
    fn limits(&self) -> impl Iterator<Item = (&str, &Limit)> {
        let ban = self.ban.as_ref().map(|ban| &ban.limit);
        // Where there is no limit, the store is never asked.
        let limited = !self.limit.is_unlimited();
        iter::once(&self.limit).chain(ban).filter(move |_| limited).map(|limit| (&*self.name, limit))
    }
}

/// Whether the store can count these.
pub(super) fn accept<'a>(store: &dyn Store, rules: impl Iterator<Item = &'a CheckedRule>) -> Result<(), BuildError> {
    let limits: Vec<(&str, &Limit)> = rules.flat_map(CheckedRule::limits).collect();
    store.accept(&limits)
}
