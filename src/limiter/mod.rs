//! The one handle an application shares: rules, a store, and the decision over them. Knows nothing of responses.

mod bans;
mod bodies;
mod build;
mod call;
mod charge;
mod decide;
mod doors;
mod failures;
mod ground;
mod leases;
mod listing;
#[cfg_attr(not(feature = "policy"), path = "no_live.rs")]
mod live;
mod new_keys;
mod now;
mod permit;
mod pick;
#[cfg(feature = "policy")]
mod policy;
mod rules;
mod settler;
mod shadow;
mod shared;
#[cfg(feature = "policy")]
mod trace;
mod turn;
mod usage;

use std::{
    fmt,
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

pub(crate) use bodies::Look;
use bodies::Unread;
pub use build::LimiterBuilder;
pub use call::Call;
use call::Entry;
pub use charge::Charge;
use doors::Doors;
use failures::Failures;
pub(crate) use ground::MOST_RULES;
use leases::Leases;
use listing::Listing;
use live::Live;
#[cfg(feature = "policy")]
pub(crate) use live::{Taken, Whose};
pub(crate) use now::Now;
pub use permit::Permit;
pub(crate) use pick::{Pick, Picked, Picks};
pub(crate) use rules::Rules;
use rules::{CheckedRule, Family, Terms};
use settler::Settler;
use shadow::Shadow;
pub(crate) use shared::Handle;
use shared::Shared;
#[cfg(feature = "policy")]
pub(crate) use trace::{End, Reach, Traced};
pub(crate) use turn::Turn;
#[cfg(feature = "axum")]
pub(crate) use usage::Asked;

use crate::{
    clock::Clock,
    decision::Decision,
    error::{StoreError, StoreErrorKind},
    key::{Found, IntoKey},
    lists::Lists,
    observer::{Observer, Observers},
    store::{Purpose, Report, Store},
};

/// Rules over a store. Cheap to clone; clones are one limiter.
///
/// In a [`RateLimitLayer`](crate::RateLimitLayer) it decides over requests. Jobs, sockets and queue consumers ask it directly,
/// naming a key for each rule that applies:
///
/// ```
/// use sluicegate::{key, Limiter, MemoryStore, Quota, Rule};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), sluicegate::BuildError> {
/// let limiter = Limiter::builder(MemoryStore::new())
///     .rule(Rule::token_bucket("emails", Quota::per_hour(100).burst(2)).key(key::given()))
///     .build()?;
///
/// assert!(limiter.acquire([("emails", "alice")]).await.is_allowed());
/// assert!(limiter.acquire([("emails", "alice")]).await.is_allowed());
/// let decision = limiter.acquire([("emails", "alice")]).await;
/// assert!(decision.is_refused());
/// assert!(decision.retry_after().is_some());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Limiter(Arc<Inner>);

/// Rules, and what they are counted with.
struct Inner {
    rules: Shared,
    listing: Option<Listing>,
    /// Those that these rules have granted.
    leases: Leases,
    core: Arc<Core>,
    /// Where the rules change: then these here are none, and it knows those that are.
    live: Option<Live>,
    /// Whether a call of one rule is one line for the store, with nothing to see to before or after.
    is_plain: bool,
}

impl Inner {
    fn new(core: Arc<Core>, rules: Shared, listing: Option<Listing>, live: Option<Live>) -> Inner {
        let is_plain = live.is_none() && listing.is_none() && !rules.any_bans() && rules.shortest_lease().is_none();
        Inner { rules, listing, leases: Leases::default(), core, live, is_plain }
    }
}

/// What a limiter has whatever its rules.
struct Core {
    family: Family,
    store: Box<dyn Store>,
    /// As it stands in the names of counts.
    namespace: String,
    clock: Clock,
    observer: Option<Arc<dyn Observer>>,
    failures: Failures,
    warned_of_layering_twice: AtomicBool,
    unread: Unread,
    /// Told of what happens to settlements.
    observers: Observers,
    settler: Settler,
    shadow: Shadow,
    /// Where those wait who ask again.
    doors: Doors,
}

impl Deref for Inner {
    type Target = Core;

    #[inline]
    fn deref(&self) -> &Core {
        &self.core
    }
}

impl Limiter {
    fn of(core: Arc<Core>, rules: Shared, lists: Option<Lists>) -> Limiter {
        let listing = lists.map(|lists| Listing::new(lists, rules.iter().map(CheckedRule::key)));
        Limiter(Arc::new(Inner::new(core, rules, listing, None)))
    }

    /// One whose rules change.
    fn living(core: Arc<Core>, live: Live) -> Limiter {
        let rules = Shared::new(Rules::new(core.family, Vec::new(), Terms::default()));
        Limiter(Arc::new(Inner::new(core, rules, None, Some(live))))
    }

    /// The same with other rules.
    #[cfg_attr(not(feature = "policy"), allow(dead_code))]
    fn with(&self, rules: Shared) -> Limiter {
        Limiter(Arc::new(Inner::new(Arc::clone(&self.0.core), rules, self.0.listing.clone(), None)))
    }

    /// Begins a limiter over `store`.
    pub fn builder(store: impl Store) -> LimiterBuilder {
        LimiterBuilder::new(store.boxed())
    }

    /// Judges the call under every rule it names a key for, and charges all of them if all admit it.
    ///
    /// Rules it names no key for do not apply. A name that no rule has, or one that stands twice, gives a decision with a
    /// [`failure`](Decision::failure). A call with a key on a [list](crate::Lists) is admitted or refused by that alone.
    #[inline]
    pub fn acquire<'a>(&self, call: impl Into<Call<'a>>) -> impl Future<Output = Decision> {
        self.ask(call.into(), Purpose::Spend)
    }

    /// What [`acquire`](Limiter::acquire) would decide, without spending: how every rule stands. It writes nothing at all, so
    /// right after a changed quota or a clock that stepped back the wait it names may still move.
    pub fn peek<'a>(&self, call: impl Into<Call<'a>>) -> impl Future<Output = Decision> {
        self.ask(call.into(), Purpose::Peek)
    }

    /// Forgets what was counted for the keys of the call: the rules it names stand as if nobody had used them, whatever was owed
    /// or taken. [`reset_key`](Limiter::reset_key) does it for every rule.
    ///
    /// # Errors
    ///
    /// When the store gives no answer, or no rule has a name of the call.
    pub async fn reset<'a>(&self, call: impl Into<Call<'a>>) -> Result<(), StoreError> {
        let (mut call, mut held) = (call.into(), None);
        let now = self.now(&mut held);
        now.resolve(&mut call)?;
        now.forget(call.picks()).await
    }

    /// Forgets what was counted for this key under every rule; see [`usage`](Limiter::usage) for which key that is.
    ///
    /// # Errors
    ///
    /// When the store gives no answer.
    pub async fn reset_key(&self, key: impl IntoKey) -> Result<(), StoreError> {
        let Found::Key(key) = key.into_key() else { return Ok(()) };
        let mut held = None;
        let now = self.now(&mut held);
        let limited = now.rules().iter().filter(|rule| !rule.limit().is_unlimited());
        let picks: Picks = limited.map(|rule| now.usual(rule, key.clone())).collect();
        now.forget(picks.iter()).await
    }

    async fn forget<'p>(&self, picks: impl Iterator<Item = &'p Pick> + Clone) -> Result<(), StoreError> {
        for lines in self.lines(picks).chunks(MOST_RULES) {
            self.0.store.reset(lines).await?;
        }
        Ok(())
    }

    /// Looks whether the store can decide for this limiter, and what is unsafe about it: of a server its version, role, eviction
    /// policy, script support, and permissions that are missing, with the line that adds them; and what each process admits while
    /// the store is away. With [`Clock::application`] also whether this machine's clock is too far from the server's. For the start of an
    /// application, or an operator; requests do not wait for it.
    ///
    /// It tries what it needs on a key of its own in the limiter's namespace, which is gone afterwards.
    ///
    /// ```
    /// # use sluicegate::Limiter;
    /// # async fn start(limiter: Limiter) {
    /// let report = limiter.check().await;
    /// if !report.is_ok() || report.warnings().next().is_some() {
    ///     eprintln!("{report}");
    /// }
    /// # }
    /// ```
    pub async fn check(&self) -> Report {
        let mut report = self.0.store.check(&self.0.namespace).await;
        self.0.clock.tell(&mut report);
        report
    }

    #[cold]
    pub(crate) fn warn_of_layering_twice(&self) {
        if !self.0.warned_of_layering_twice.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "one Limiter is layered twice around a route; each request is counted once, by the outer layer"
            );
        }
    }

    /// A decision over no rule at all.
    pub(crate) fn undecided(&self) -> Decision {
        let mut held = None;
        Decision::new(Arc::clone(self.now(&mut held).0.rules.handle()), std::iter::empty())
    }

    pub(crate) fn rules(&self) -> &Rules {
        &self.0.rules
    }

    /// Finds the rules that the call names, and leaves out those that there is nothing to ask about.
    #[inline]
    fn resolve(&self, call: &mut Call<'_>) -> Result<(), StoreError> {
        if self.find_rules(call)? {
            call.leave_out();
        }
        Ok(())
    }

    /// Finds the rules that the call names; answers whether some are to be left out.
    #[inline]
    fn find_rules(&self, call: &mut Call<'_>) -> Result<bool, StoreError> {
        let mut any_left_out = false;
        let entries = call.entries_mut();
        for entry in &mut *entries {
            if self.find_rule(entry).is_none() {
                return Err(self.unknown(entry.name));
            }
            any_left_out |= entry.left_out;
        }
        match entries {
            [_] => Ok(any_left_out),
            entries => named_once(entries).map(|()| any_left_out),
        }
    }

    /// Finds the rule of one entry, which then says whether it is to be left out.
    #[inline(always)]
    fn find_rule(&self, entry: &mut Entry<'_>) -> Option<&CheckedRule> {
        let rule = self.0.rules.named(entry.name)?;
        entry.pick.rule = rule.index();
        if let Some(tenant) = &entry.tenant {
            entry.pick.tenant = rule.tenant(&entry.pick.key, Some(tenant));
        }
        if entry.usual_cost {
            entry.pick.cost = rule.usual_cost();
        } else if rule.limit().lease().is_some() {
            entry.pick.cost = entry.pick.cost.min(1);
        }
        entry.pick.shadow = self.is_shadow() || !rule.roll_out().enforces(entry.pick.key.as_bytes());
        entry.left_out = entry.pick.key.is_absent() || rule.limit().is_unlimited();
        Some(rule)
    }

    #[cold]
    fn unknown(&self, rule: &str) -> StoreError {
        let text = format!("no rule is named {rule:?}; the limiter has {}", *self.0.rules);
        StoreError::new(StoreErrorKind::Permanent, text)
    }
}

/// A store that left out a line must not admit it.
#[cold]
fn miscounted() -> StoreError {
    StoreError::new(StoreErrorKind::Garbled, "the store did not answer each line of the ask once")
}

/// Whether no two entries, whose rules have been found, are of one rule.
#[inline(never)]
fn named_once(entries: &[Entry<'_>]) -> Result<(), StoreError> {
    let is_of_one_before = |(place, entry): &(usize, &Entry<'_>)| {
        entries.iter().take(*place).any(|before| before.pick.rule == entry.pick.rule)
    };
    match entries.iter().enumerate().find(is_of_one_before) {
        Some((_, entry)) => Err(twice(entry.name)),
        None => Ok(()),
    }
}

#[cold]
fn twice(rule: &str) -> StoreError {
    let text = format!("the call names the rule {rule:?} twice; ask once for each key");
    StoreError::new(StoreErrorKind::Permanent, text)
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter").field("rules", &self.0.rules).field("store", &self.0.store).finish()
    }
}
