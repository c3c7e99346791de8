use std::sync::Arc;

use http::{StatusCode, request::Parts};
use smallvec::SmallVec;

use super::{Call, Limiter, Pick, Picks, miscounted, rules::CheckedRule};
use crate::{
    decision::{Applied, Decision},
    error::StoreError,
    key::{Found, IntoKey, Key, ReadBody},
    store::{Answer, Ask, Purpose},
    usage::Usage,
};

/// How many rules are looked at together: with a ban and a share each, as many counts as one decision may have.
const TOGETHER: usize = super::MOST_RULES / 3;

/// What becomes of a caller's own question.
#[derive(Debug)]
#[cfg_attr(not(feature = "axum"), allow(dead_code))]
pub(crate) enum Asked {
    Usage(Usage),
    /// A key closure refused the request.
    Refuse(StatusCode),
    Failed,
}

impl Limiter {
    /// How every rule stands for this key, without spending: one look at the store for each 21 rules.
    ///
    /// ```
    /// use sluicegate::{key, Limiter, MemoryStore, Quota, Rule};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::builder(MemoryStore::new())
    ///     .rule(Rule::fixed_window("a-day", Quota::per_day(1_000)).key(key::given()))
    ///     .rule(Rule::concurrency("at-a-time", 5).key(key::given()))
    ///     .build()?;
    /// let decision = limiter.acquire([("a-day", "alice"), ("at-a-time", "alice")]).await;
    /// assert!(decision.is_allowed());
    ///
    /// let usage = limiter.usage("alice").await?;
    /// assert_eq!(usage.rule("a-day").and_then(|rule| rule.remaining()), Some(999));
    /// assert_eq!(usage.rule("at-a-time").and_then(|rule| rule.used()), Some(1));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The key is the one that rules count by: [`KeyBy::find_now`](crate::key::KeyBy::find_now) shows it, and secrets are given
    /// as [`Key::secret`](crate::key::Key::secret). Rules that count by another key show that nobody has used this one; where
    /// keys differ by rule, [`usage_of`](Limiter::usage_of) takes them by name, and
    /// [`usage_of_request`](Limiter::usage_of_request) finds them. Observers are not told: nothing was decided.
    ///
    /// # Errors
    ///
    /// When the store gives no answer. What this process counts meanwhile is not the truth, and is not told.
    pub async fn usage(&self, key: impl IntoKey) -> Result<Usage, StoreError> {
        let (mut picks, mut held) = (Picks::new(), None);
        let now = self.now(&mut held);
        if let Found::Key(key) = key.into_key() {
            picks.extend(now.rules().iter().map(|rule| now.usual(rule, key.clone())));
        }
        now.look(picks).await
    }

    /// The same for keys by the names of rules. Rules that the call does not name are left out; a cost that it names is what
    /// [`is_refused`](crate::usage::RuleUsage::is_refused) is about.
    ///
    /// # Errors
    ///
    /// When the store gives no answer, no rule has a name of the call, or one stands there twice.
    pub async fn usage_of<'a>(&self, call: impl Into<Call<'a>>) -> Result<Usage, StoreError> {
        let (mut call, mut held) = (call.into(), None);
        let now = self.now(&mut held);
        now.find_rules(&mut call)?;
        now.look(call.picks().filter(|pick| !pick.key.is_absent()).cloned().collect()).await
    }

    /// The same for whoever sent a request of this head: every rule finds its own key there. Rules that find none are left out.
    /// [`Rule::when`](crate::Rule::when) is not asked, since the question is not about this request.
    ///
    /// # Errors
    ///
    /// When the store gives no answer.
    pub async fn usage_of_request(&self, head: &Parts) -> Result<Usage, StoreError> {
        let now = self.of_request(head).into_owned();
        let (picks, _) = now.usual_picks(head, |_| true).await;
        now.look(picks).await
    }

    /// What whoever sent a request of this head may know.
    #[cfg_attr(not(feature = "axum"), allow(dead_code))]
    pub(crate) async fn usage_of_caller(&self, head: &Parts) -> Asked {
        let now = self.of_request(head).into_owned();
        let (mut picks, refused) = now.usual_picks(head, CheckedRule::is_told_to_callers).await;
        if let Some(status) = refused {
            return Asked::Refuse(status);
        }
        // Headers do not speak of them either.
        picks.retain(|pick| !pick.shadow);
        match now.look(picks).await {
            Ok(usage) => Asked::Usage(usage),
            Err(error) => {
                self.0.failures.log(&error);
                Asked::Failed
            }
        }
    }

    /// The keys of these rules in a head, and the first status that a closure refuses with.
    async fn usual_picks(&self, head: &Parts, wanted: fn(&CheckedRule) -> bool) -> (Picks, Option<StatusCode>) {
        let (mut picks, mut refused) = (Picks::new(), None);
        // Who looks into bodies that nobody has read would find somebody else.
        let found = |rule: &CheckedRule| !rule.finds_in_body() || ReadBody::of(head).is_some();
        for rule in self.rules().iter().filter(|rule| wanted(rule) && found(rule)) {
            let tenant = match rule.shared() {
                Some(shared) => Some(shared.key.find(head).await),
                None => None,
            };
            let found = self.enforced(rule, rule.key().find(head).await);
            match (found, tenant.map(|tenant| self.enforced(rule, tenant))) {
                (Found::Refuse(status), _) | (Found::Key(_), Some(Found::Refuse(status))) => {
                    refused = refused.or(Some(status));
                }
                (Found::Key(key), tenant) => {
                    let tenant = tenant.and_then(|tenant| rule.tenant(&key, tenant.key()));
                    picks.push(Pick { critical: rule.is_critical(head), tenant, ..self.usual(rule, key) });
                }
                (Found::Absent, _) => {}
            }
        }
        (picks, refused)
    }

    /// Asks the store, unless there is nothing to ask.
    async fn look(&self, picks: Picks) -> Result<Usage, StoreError> {
        let is_unlimited = |pick: &Pick| self.rules().get(pick.rule).is_some_and(|rule| rule.limit().is_unlimited());
        let (unlimited, asked): (Picks, Picks) = picks.into_iter().partition(is_unlimited);
        let (mut applied, mut banned) = (SmallVec::<[Applied; 4]>::new(), Vec::new());
        for asked in asked.chunks(TOGETHER) {
            let answer = self.look_at(asked).await?;
            // Those of bans come after those of the rules.
            let bans = answer.verdicts.iter().skip(asked.len()).copied().map(Some);
            banned.extend(self.banned(asked.iter(), bans));
            applied.extend(asked.iter().zip(&answer.verdicts).map(|(pick, verdict)| Applied::new(pick, verdict)));
        }
        let handle = Arc::clone(self.0.rules.handle());
        let unlimited = unlimited.iter().map(|pick| pick.rule).collect();
        Ok(Usage::new(Decision::new(handle, applied.into_iter()).banned(banned), unlimited))
    }

    async fn look_at(&self, asked: &[Pick]) -> Result<Answer, StoreError> {
        let (lines, mut answer) = (self.lines(asked.iter()), Answer::default());
        let ask = Ask { lines: &lines, purpose: Purpose::Peek, time: self.0.clock.time() };
        match self.0.store.acquire_now(&ask, &mut answer) {
            Some(done) => done?,
            None => answer = self.0.store.acquire(&ask).await?,
        }
        if answer.verdicts.len() == lines.len() { Ok(answer) } else { Err(miscounted()) }
    }

    /// An ordinary request of the usual cost.
    pub(super) fn usual(&self, rule: &CheckedRule, key: Key) -> Pick {
        let shadow = self.is_shadow() || !rule.roll_out().enforces(key.as_bytes());
        Pick { rule: rule.index(), key, cost: rule.usual_cost(), shadow, critical: false, tenant: None }
    }
}
