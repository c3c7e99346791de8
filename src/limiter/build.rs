use std::sync::Arc;

use super::{
    Core, Limiter,
    bodies::Unread,
    doors::Doors,
    failures::Failures,
    ground::{Ground, MOST_RULES, accept},
    live::Wanted,
    rules::{CheckedRule, Family, Rules, Terms},
    settler::Settler,
    shadow::Shadow,
    shared::Shared,
};
use crate::{
    clock::Clock,
    error::BuildError,
    limit::{OnFailure, Rule},
    lists::Lists,
    observer::{Observer, Observers},
    store::Store,
};

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
    pub(super) wanted: Wanted,
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
            wanted: Wanted::default(),
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
        let ground = Ground::new(self.namespace, self.same_slot, self.on_failure, self.clock.clone())?;
        let least = usize::from(!self.wanted.is_given());
        if !(least..=MOST_RULES).contains(&self.rules.len()) {
            let text = format!("{} rules; give {least} to {MOST_RULES}", self.rules.len());
            return Err(BuildError::new("rules", text));
        }
        let observers = Observers::default();
        if let Some(observer) = &self.observer {
            self.store.observe(observer);
            observers.add(observer);
        }
        let core = Arc::new(Core {
            family: Family::new(),
            store: self.store,
            namespace: ground.namespace(),
            clock: self.clock,
            observer: self.observer,
            failures: Failures::default(),
            warned_of_layering_twice: false.into(),
            unread: Unread::default(),
            observers,
            settler: Settler::new(),
            shadow: Shadow::new(self.shadow),
            doors: Doors::default(),
        });
        self.rules.iter().try_for_each(Rule::check_ban_has_limit)?;
        if self.wanted.is_given() {
            let live = self.wanted.make(&core, ground, self.rules, self.lists)?;
            return Ok(Limiter::living(core, live));
        }
        let rules = ground.check(self.rules, None)?;
        if let Some(lists) = &self.lists {
            lists.check(|name| rules.iter().any(|rule| rule.name() == name))?;
        }
        let counts: usize = rules.iter().map(CheckedRule::counts).sum();
        if counts > MOST_RULES {
            let text = format!("{counts} rules, bans and fair shares in one decision; give at most {MOST_RULES}");
            return Err(BuildError::new("rules", text));
        }
        accept(&*core.store, rules.iter())?;
        let rules = Rules::new(core.family, rules.into_iter().map(Arc::new).collect(), Terms::default());
        Ok(Limiter::of(core, Shared::new(rules), self.lists))
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
