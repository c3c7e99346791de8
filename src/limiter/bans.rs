//! Bans: a line of their own in the decision of their rule, and strikes that are settled after it.

use std::{sync::Arc, time::Duration};

use http::{StatusCode, response};
use smallvec::SmallVec;

use super::{Call, Limiter, Pick, miscounted};
use crate::{
    algorithm::ban,
    decision::{Applied, Banned, Decision},
    error::{StoreError, StoreErrorKind},
    key::IntoKey,
    limit::{Ban, Limit, micros},
    store::{Answer, Ask, Change, Id, Line, OwnedLine, Purpose, Scope, Verdict, Wait},
};

/// The ban of a rule, with everything about it worked out.
#[derive(Clone)]
pub(super) struct CheckedBan {
    pub(super) ban: Ban,
    pub(super) limit: Limit,
    pub(super) scope: Scope,
}

impl CheckedBan {
    pub(super) fn status(&self) -> StatusCode {
        self.ban.status
    }

    pub(super) fn counts_refusals(&self) -> bool {
        self.ban.responses.is_none()
    }

    /// Whether this is one of the responses that count.
    pub(super) fn is_bad(&self, head: &response::Parts) -> bool {
        self.ban.responses.as_ref().is_some_and(|closure| closure(head))
    }
}

impl Limiter {
    fn ban_of(&self, pick: &Pick) -> Option<&CheckedBan> {
        self.0.rules.get(pick.rule)?.ban()
    }

    /// The line of the pick's ban: judged, and never charged.
    fn ban_line<'a>(&'a self, pick: &'a Pick) -> Option<Line<'a>> {
        let rule = self.0.rules.get(pick.rule)?;
        let ban = rule.ban()?;
        let line = Line::new(&ban.scope, pick.key.as_bytes(), &ban.limit, 0);
        Some(Line { on_failure: rule.on_failure(), shadow: pick.shadow, ..line })
    }

    /// Adds the lines of bans, after those of the rules.
    pub(super) fn add_bans<'a, 'p: 'a>(
        &'a self,
        picks: impl Iterator<Item = &'p Pick>,
        lines: &mut SmallVec<[Line<'a>; 4]>,
    ) {
        if self.0.rules.any_bans() {
            lines.extend(picks.filter_map(|pick| self.ban_line(pick)));
        }
    }

    /// The decision where rules have bans.
    pub(super) fn decided_with_bans<'p>(
        &self,
        picks: impl ExactSizeIterator<Item = &'p Pick> + Clone,
        answer: &Answer,
        purpose: Purpose,
    ) -> Decision {
        let bans = picks.clone().filter(|pick| self.ban_of(pick).is_some()).count();
        let (Some(own), Some(of_bans)) = (answer.verdicts.get(..picks.len()), answer.verdicts.get(picks.len()..))
        else {
            return self.failed(miscounted(), picks);
        };
        if of_bans.len() != bans {
            return self.failed(miscounted(), picks);
        }
        let banned = self.banned(picks.clone(), of_bans.iter().copied().map(Some));
        if purpose == Purpose::Spend {
            // A shadow refuses nobody: were these strikes, all would be banned when it is enforced.
            let refused = |(pick, verdict): &(&Pick, &Verdict)| !verdict.wait.fits() && !pick.shadow;
            for (pick, _) in picks.clone().zip(own).filter(refused) {
                // Whoever is banned already is refused for that.
                let counts = self.ban_of(pick).is_some_and(CheckedBan::counts_refusals);
                if counts && !banned.iter().any(|banned| banned.rule == pick.rule) {
                    self.strike_one(pick);
                }
            }
        }
        let applied = picks.zip(own).map(|(pick, verdict)| Applied::new(pick, verdict));
        self.told(Decision::new(Arc::clone(self.0.rules.handle()), applied).banned(banned))
    }

    /// Of the verdicts over bans, in the order of the picks that have one, those that refuse. A ban is a shadow where its rule is.
    pub(super) fn banned<'p>(
        &self,
        picks: impl Iterator<Item = &'p Pick>,
        verdicts: impl Iterator<Item = Option<Verdict>>,
    ) -> Vec<Banned> {
        let picks = picks.filter(|pick| self.ban_of(pick).is_some());
        let enforced = picks.zip(verdicts).filter(|(pick, _)| !pick.shadow);
        let refused = enforced.filter_map(|(pick, verdict)| match verdict?.wait {
            Wait::Micros(micros) => Some(Banned { rule: pick.rule, micros }),
            Wait::None | Wait::Turn(_) | Wait::Never => None,
        });
        refused.collect()
    }

    /// Counts one more against the pick's key, off the path of requests.
    pub(super) fn strike_one(&self, pick: &Pick) {
        if let Some(line) = self.ban_line(pick) {
            self.settle(OwnedLine::of(&Line { cost: 1, ..line }), Change::Owe);
        }
    }

    /// Counts a strike against each key of the call whose rule has a [ban](crate::Rule::ban), whatever that counts itself: for misuse that
    /// shows in no response. Nobody waits for it.
    ///
    /// # Errors
    ///
    /// When no rule has a name of the call, or one stands in it twice.
    pub fn strike<'a>(&self, call: impl Into<Call<'a>>) -> Result<(), StoreError> {
        let (mut call, mut held) = (call.into(), None);
        let now = self.now(&mut held);
        now.resolve(&mut call)?;
        call.picks().for_each(|pick| now.strike_one(pick));
        Ok(())
    }

    /// Bans a key of a rule by hand, for so long from now; one that is banned for longer stays so. It does not make later bans longer.
    /// The rule must have a [ban](crate::Rule::ban), whatever that is after.
    ///
    /// # Errors
    ///
    /// When the store gives no answer, no rule of this name has a ban, or the time is not from 1 ms to 366 days.
    pub async fn ban(&self, rule: &str, key: impl IntoKey, time: Duration) -> Result<(), StoreError> {
        let millis = micros(time) / 1_000;
        if !(1..=ban::LONGEST).contains(&millis) {
            let text = format!("a ban of {time:?} is out of range; give 1 ms to 366 days");
            return Err(StoreError::new(StoreErrorKind::Permanent, text));
        }
        let mut held = None;
        let now = self.now(&mut held);
        let call = now.call_of_ban(rule, key)?;
        for line in call.picks().filter_map(|pick| now.ban_line(pick)) {
            let lines = [Line { cost: 1, receipt: millis, ..line }];
            let purpose = Purpose::Owe(Id::random());
            self.0.store.acquire(&Ask { lines: &lines, purpose, time: self.0.clock.time() }).await?;
        }
        Ok(())
    }

    /// Lifts the ban of a key, and forgets its strikes and earlier bans. What the rule has counted stays;
    /// [`reset`](Limiter::reset) forgets both.
    ///
    /// # Errors
    ///
    /// When the store gives no answer, or no rule of this name has a ban.
    pub async fn lift_ban(&self, rule: &str, key: impl IntoKey) -> Result<(), StoreError> {
        let mut held = None;
        let now = self.now(&mut held);
        let call = now.call_of_ban(rule, key)?;
        let lines: SmallVec<[Line<'_>; 4]> = call.picks().filter_map(|pick| now.ban_line(pick)).collect();
        if lines.is_empty() {
            return Ok(());
        }
        self.0.store.reset(&lines).await
    }

    fn call_of_ban<'a>(&self, rule: &'a str, key: impl IntoKey) -> Result<Call<'a>, StoreError> {
        let mut call = Call::new().key(rule, key);
        self.resolve(&mut call)?;
        if self.0.rules.named(rule).is_none_or(|known| known.ban().is_none()) {
            let text = format!("the rule {rule:?} has no ban; give it one with Rule::ban(..)");
            return Err(StoreError::new(StoreErrorKind::Permanent, text));
        }
        Ok(call)
    }

    /// Charges the call's costs to the keys it names, though nothing was asked: for what turns out to be misuse. What a token bucket
    /// lacks it owes, others are charged what they have left. Nobody waits for it: like [settlements](crate::Charge::settle) it goes to
    /// the store in batches, soon, and once. Concurrency rules have nothing to charge.
    ///
    /// ```
    /// use sluicegate::{Call, Limiter, MemoryStore, Quota, Rule, key};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::builder(MemoryStore::new())
    ///     .rule(Rule::token_bucket("per-user", Quota::per_second(1).burst(10)).key(key::given()))
    ///     .build()?;
    /// limiter.penalize(Call::new().key("per-user", "mallory").cost(60))?;
    /// let decision = limiter.acquire([("per-user", "mallory")]).await;
    /// assert!(decision.retry_after().is_some_and(|wait| wait.as_secs() >= 50));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// When no rule has a name of the call, or one stands in it twice.
    pub fn penalize<'a>(&self, call: impl Into<Call<'a>>) -> Result<(), StoreError> {
        let (mut call, mut held) = (call.into(), None);
        let now = self.now(&mut held);
        now.resolve(&mut call)?;
        call.picks().for_each(|pick| now.penalize_one(pick, pick.cost));
        Ok(())
    }

    /// Charges so much more under one rule.
    pub(super) fn penalize_one(&self, pick: &Pick, units: u64) {
        let units = units.min(super::charge::MOST_UNITS);
        if let Some(line) = self.line(pick)
            && line.limit.lease().is_none()
            && units > 0
        {
            self.settle(OwnedLine::of(&Line { cost: units, ..line }), Change::Owe);
        }
    }
}
