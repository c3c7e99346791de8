use std::{collections::HashSet, iter, sync::Arc};

use super::{
    Inner, Limiter,
    bans::CheckedBan,
    bodies::Unread,
    doors::Doors,
    failures::Failures,
    leases::Leases,
    listing::Listing,
    new_keys::NewKeys,
    rules::{CheckedRule, Rules, SharedBy},
    settler::Settler,
    shadow::Shadow,
    shared::Shared,
};
use crate::{
    clock::Clock,
    error::BuildError,
    limit::{Limit, OnFailure, RollOut, Rule},
    lists::Lists,
    observer::{Observer, Observers},
    store::{Scope, Store, TenantCount},
};

/// More in one decision is a mistake, and would make a very long script.
const MOST_RULES: usize = 64;

/// Gathers what a [`Limiter`] is made of; [`build`](LimiterBuilder::build) says what is wrong with it.
#[must_use]
pub struct LimiterBuilder {
    store: Box<dyn Store>,
    namespace: String,
    same_slot: bool,
    rules: Vec<Rule>,
    on_failure: OnFailure,
    clock: Clock,
    observer: Option<Arc<dyn Observer>>,
    shadow: bool,
    lists: Option<Lists>,
}

impl LimiterBuilder {
    pub(super) fn new(store: Box<dyn Store>) -> LimiterBuilder {
        LimiterBuilder {
            store,
            namespace: program(),
            same_slot: false,
            rules: Vec::new(),
            on_failure: OnFailure::default(),
            clock: Clock::store(),
            observer: None,
            shadow: false,
            lists: None,
        }
    }

    /// Adds a rule. Every rule that has a key for a request must admit it.
    pub fn rule(mut self, rule: Rule) -> LimiterBuilder {
        self.rules.push(rule);
        self
    }

    /// Keeps this application's counts apart from others' on the same store. Applications that name the same namespace
    /// share the counts of rules of the same name. The name of the running program unless said otherwise, so that different
    /// programs do not meet by accident; name one where the program's name says little.
    pub fn namespace(mut self, namespace: impl Into<String>) -> LimiterBuilder {
        self.namespace = namespace.into();
        self
    }

    /// Puts all counts of this limiter into one slot of a Cluster, with the namespace as hash tag. Then every decision is one
    /// call of one script there, all or nothing at one moment, whatever the keys. The price: one node carries the whole
    /// limiter, however many there are.
    ///
    /// Without it, rules whose keys are equal share a slot anyway; rules with other keys are judged by other nodes at the same
    /// time, and what one grants is given back when another refuses. See the page on [Clusters](crate::guide::cluster).
    ///
    /// The names of counts change with it, from `namespace:v1:{key}:rule` to `{namespace}:v1:{key}:rule`, so a limiter that
    /// gets or loses it begins afresh; and so does a Redis user's permission, from `~namespace:*` to `~{namespace}:*`.
    pub fn same_slot(mut self) -> LimiterBuilder {
        self.same_slot = true;
        self
    }

    /// What happens when the store gives no answer in time, under rules that do not say it
    /// [themselves](Rule::on_failure): [`OnFailure::Local`] unless said otherwise.
    pub fn on_failure(mut self, on_failure: OnFailure) -> LimiterBuilder {
        self.on_failure = on_failure;
        self
    }

    /// Whose time counts.
    pub fn clock(mut self, clock: Clock) -> LimiterBuilder {
        self.clock = clock;
        self
    }

    /// Who is told of every decision and of the store's events.
    pub fn observer(mut self, observer: impl Observer) -> LimiterBuilder {
        self.observer = Some(Arc::new(observer));
        self
    }

    /// Begins with all rules as shadows: see [`Limiter::set_shadow`], which ends that.
    pub fn shadow(mut self, shadow: bool) -> LimiterBuilder {
        self.shadow = shadow;
        self
    }

    /// Who is always let through, and who never is. The lists are kept by their handle: what is changed there later holds here.
    pub fn lists(mut self, lists: &Lists) -> LimiterBuilder {
        self.lists = Some(lists.clone());
        self
    }

    /// The limiter.
    ///
    /// # Errors
    ///
    /// When a rule, a quota, a name or the namespace cannot be: the error names the rule, the field and what would be right.
    pub fn build(self) -> Result<Limiter, BuildError> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if !(1..=64).contains(&self.namespace.len()) || !self.namespace.bytes().all(allowed) {
            let text = format!("{:?} cannot begin a key; use 1 to 64 letters, digits and ._-", self.namespace);
            return Err(BuildError::new("namespace", text));
        }
        if !(1..=MOST_RULES).contains(&self.rules.len()) {
            let text = format!("{} rules; give 1 to {MOST_RULES}", self.rules.len());
            return Err(BuildError::new("rules", text));
        }
        let mut names = HashSet::new();
        let mut rules = Vec::new();
        for (index, rule) in (0u16..).zip(self.rules) {
            let limit = rule.check()?;
            self.clock.suits(&rule.name, &limit)?;
            if !names.insert(Arc::clone(&rule.name)) {
                return Err(BuildError::rule(
                    &rule.name,
                    "name",
                    "stands twice; give each rule a name of its own".into(),
                ));
            }
            let scope = scope(&self.namespace, &rule.name, self.same_slot)?;
            let shared = rule.fair_share.zip(limit.for_tenants()).map(|(fair, limit)| SharedBy {
                key: fair.tenant,
                count: Arc::new(TenantCount { scope: scope.for_tenants(), limit }),
            });
            let ban = match rule.ban {
                Some(ban) => Some(CheckedBan { limit: ban.check(&rule.name)?, scope: scope.for_ban(), ban }),
                None => None,
            };
            let Some(key) = rule.key else { continue };
            let roll_out = RollOut::new(&self.namespace, &rule.name, rule.roll_out);
            rules.push(CheckedRule {
                index,
                name: rule.name,
                limit,
                scope,
                key,
                cost: rule.cost,
                when: rule.when,
                on_failure: rule.on_failure.unwrap_or(self.on_failure),
                settle: rule.settle,
                reserve: rule.reserve,
                protects_service: rule.protects_service,
                shared,
                new_keys: rule.max_new_keys.map(NewKeys::new),
                roll_out,
                ban,
            });
        }
        if let Some(lists) = &self.lists {
            lists.check(|rule| names.contains(rule))?;
        }
        let listing = self.lists.map(|lists| Listing::new(lists, rules.iter().map(CheckedRule::key)));
        // Where there is no limit, the store is never asked.
        let limited = rules.iter().filter(|rule| !rule.limit().is_unlimited());
        let limits = limited.flat_map(|rule| {
            let ban = rule.ban().map(|ban| (rule.name(), &ban.limit));
            iter::once((rule.name(), rule.limit())).chain(ban)
        });
        let limits: Vec<(&str, &Limit)> = limits.collect();
        let counts = limits.len() + rules.iter().filter(|rule| rule.shared().is_some()).count();
        if counts > MOST_RULES {
            let text = format!("{counts} rules, bans and fair shares in one decision; give at most {MOST_RULES}");
            return Err(BuildError::new("rules", text));
        }
        self.store.accept(&limits)?;
        let observers = Observers::default();
        if let Some(observer) = &self.observer {
            self.store.observe(observer);
            observers.add(observer);
        }
        Ok(Limiter(Arc::new(Inner {
            rules: Shared::new(Rules::new(rules)),
            store: self.store,
            namespace: if self.same_slot { format!("{{{}}}", self.namespace) } else { self.namespace },
            clock: self.clock,
            observer: self.observer,
            failures: Failures::default(),
            leases: Leases::default(),
            warned_of_layering_twice: false.into(),
            unread: Unread::default(),
            observers,
            settler: Settler::new(),
            shadow: Shadow::new(self.shadow),
            doors: Doors::default(),
            listing,
        })))
    }
}

/// The place of a rule in the store.
fn scope(namespace: &str, rule: &str, same_slot: bool) -> Result<Scope, BuildError> {
    if !same_slot {
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

/// The name of the running program, as far as it can begin a key.
fn program() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let name: String =
        name.chars().filter(|letter| letter.is_ascii_alphanumeric() || "._-".contains(*letter)).take(64).collect();
    if name.is_empty() { "sluicegate".into() } else { name }
}

impl std::fmt::Debug for LimiterBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LimiterBuilder")
            .field("namespace", &self.namespace)
            .field("rules", &self.rules)
            .finish_non_exhaustive()
    }
}
