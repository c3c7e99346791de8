//! The one handle an application shares: rules, a store, and the decision over them. Knows nothing of responses.

mod build;
mod call;
mod failures;
mod pick;
mod rules;

use std::{fmt, sync::Arc};

use smallvec::SmallVec;

pub use build::LimiterBuilder;
pub use call::Call;
use failures::Failures;
pub(crate) use pick::{Pick, Picked, Picks};
pub(crate) use rules::Rules;

use crate::{
    clock::Clock,
    decision::{Decided, Decision},
    error::{StoreError, StoreErrorKind},
    observer::Observer,
    store::{Answer, Ask, Line, Purpose, Store},
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

struct Inner {
    rules: Arc<Rules>,
    store: Box<dyn Store>,
    clock: Clock,
    observer: Option<Arc<dyn Observer>>,
    failures: Failures,
}

impl Limiter {
    /// Begins a limiter over `store`.
    pub fn builder(store: impl Store) -> LimiterBuilder {
        LimiterBuilder::new(Box::new(store))
    }

    /// Judges the call under every rule it names a key for, and charges all of them if all admit it.
    ///
    /// Rules it names no key for do not apply. A name that no rule has, or one that stands twice, gives a decision with a
    /// [`failure`](Decision::failure).
    pub async fn acquire<'a>(&self, call: impl Into<Call<'a>>) -> Decision {
        self.ask(call.into(), Purpose::Spend).await
    }

    /// What [`acquire`](Limiter::acquire) would decide, without spending: how every rule stands.
    pub async fn peek<'a>(&self, call: impl Into<Call<'a>>) -> Decision {
        self.ask(call.into(), Purpose::Peek).await
    }

    /// Forgets what was counted for the keys of the call.
    ///
    /// # Errors
    ///
    /// When the store gives no answer, or no rule has a name of the call.
    pub async fn reset<'a>(&self, call: impl Into<Call<'a>>) -> Result<(), StoreError> {
        let picks = self.pick(call.into())?;
        if picks.is_empty() {
            return Ok(());
        }
        let lines = self.lines(&picks);
        self.0.store.reset(&lines).await
    }

    pub(crate) fn rules(&self) -> &Arc<Rules> {
        &self.0.rules
    }

    fn pick(&self, call: Call<'_>) -> Result<Picks, StoreError> {
        let mut picks = Picks::new();
        for entry in call.0 {
            let Some(rule) = self.0.rules.named(entry.rule) else {
                let text = format!("no rule is named {:?}; the limiter has {}", entry.rule, self.0.rules);
                return Err(StoreError::new(StoreErrorKind::Permanent, text));
            };
            if picks.iter().any(|pick| pick.rule == rule.index()) {
                let text = format!("the call names the rule {:?} twice; ask once for each key", entry.rule);
                return Err(StoreError::new(StoreErrorKind::Permanent, text));
            }
            if let Some(key) = entry.key {
                picks.push(Pick { rule: rule.index(), key, cost: entry.cost.unwrap_or_else(|| rule.usual_cost()) });
            }
        }
        Ok(picks)
    }

    async fn ask(&self, call: Call<'_>, purpose: Purpose) -> Decision {
        match self.pick(call) {
            Ok(picks) => match self.decide_now(&picks, purpose) {
                Some(decision) => decision,
                None => self.decide(&picks, purpose).await,
            },
            Err(error) => self.conclude(&[], Err(error)),
        }
    }

    /// The decision, unless the store must wait for it.
    #[inline]
    pub(crate) fn decide_now(&self, picks: &[Pick], purpose: Purpose) -> Option<Decision> {
        if picks.is_empty() {
            return Some(self.conclude(picks, Ok(Answer { verdicts: SmallVec::new() })));
        }
        let lines = self.lines(picks);
        let ask = Ask { lines: &lines, purpose, time: self.0.clock.time() };
        let answer = self.0.store.acquire_now(&ask)?;
        Some(self.conclude(picks, answer))
    }

    pub(crate) async fn decide(&self, picks: &[Pick], purpose: Purpose) -> Decision {
        let lines = self.lines(picks);
        let ask = Ask { lines: &lines, purpose, time: self.0.clock.time() };
        let answer = self.0.store.acquire(&ask).await;
        self.conclude(picks, answer)
    }

    #[inline]
    fn lines<'a>(&'a self, picks: &'a [Pick]) -> SmallVec<[Line<'a>; 2]> {
        let line = |pick: &'a Pick| {
            let rule = self.0.rules.get(pick.rule)?;
            Some(Line { scope: rule.scope(), key: pick.key.as_bytes(), limit: rule.limit(), cost: pick.cost })
        };
        picks.iter().filter_map(line).collect()
    }

    #[inline]
    fn conclude(&self, picks: &[Pick], answer: Result<Answer, StoreError>) -> Decision {
        let rules = Arc::clone(&self.0.rules);
        let decision = match answer {
            Ok(answer) => {
                let decided = |(pick, verdict): (&Pick, _)| Decided { rule: pick.rule, cost: pick.cost, verdict };
                Decision::new(rules, picks.iter().zip(answer.verdicts).map(decided).collect())
            }
            Err(error) => {
                self.0.failures.log(&error);
                Decision::failed(rules, error)
            }
        };
        if let Some(observer) = &self.0.observer {
            observer.decided(&decision);
        }
        decision
    }
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter").field("rules", &self.0.rules).field("store", &self.0.store).finish()
    }
}
