//! From the rules that apply to a decision.

use std::sync::Arc;

use smallvec::SmallVec;

use super::{Call, Handle, Limiter, Pick, miscounted, rules::CheckedRule};
use crate::{
    decision::{Applied, Decision},
    error::StoreError,
    limit::OnFailure,
    observer::Observer,
    store::{Answer, Ask, Line, Partial, Purpose},
};

impl Limiter {
    /// Asks about a call. It is decided about where it lies in the future, which is made of a call and not of what becomes one: moving it
    /// about takes as long as the rest of a decision in memory.
    // An `async fn` would move it once more.
    #[allow(clippy::manual_async_fn)]
    #[inline]
    pub(super) fn ask<'a>(&self, mut call: Call<'a>, purpose: Purpose) -> impl Future<Output = Decision> + use<'_, 'a> {
        async move {
            let mut failure = None;
            if let Some(applied) = self.ask_now(&mut call, purpose, &mut failure) {
                return Decision::one(Arc::clone(self.0.rules.handle()), applied);
            }
            match &self.0.live {
                None => self.ask_further(&mut call, purpose, failure).await,
                Some(live) => live.usual().ask_resolved(&mut call, purpose).await,
            }
        }
    }

    /// The same, and afterwards the call says which rules it named, and what it cost. For limiters whose rules do not change.
    pub(super) async fn ask_resolved(&self, call: &mut Call<'_>, purpose: Purpose) -> Decision {
        let mut failure = None;
        if let Some(applied) = self.ask_now(call, purpose, &mut failure) {
            return Decision::one(Arc::clone(self.0.rules.handle()), applied);
        }
        self.ask_further(call, purpose, failure).await
    }

    /// How the one rule of a call stands, where it is one and the store knows at once. A decision is made only of this, or
    /// it would be put aside and copied once more.
    #[inline(always)]
    fn ask_now(&self, call: &mut Call<'_>, purpose: Purpose, failure: &mut Option<StoreError>) -> Option<Applied> {
        if !self.0.is_plain {
            return None;
        }
        let entry = call.only_mut()?;
        let rule = self.find_rule(entry)?;
        if entry.left_out {
            return None;
        }
        self.apply_now(rule, &entry.pick, purpose, failure)
    }

    /// What was not known at once.
    async fn ask_further(&self, call: &mut Call<'_>, purpose: Purpose, failure: Option<StoreError>) -> Decision {
        if let Some(error) = failure {
            return self.failed(error, call.picks());
        }
        if let Some(decision) = self.listed_call(call) {
            return decision;
        }
        if let Err(error) = self.resolve(call) {
            // No rule is to say what happens then: the mistake is in the call.
            *call = Call::new();
            return self.failed(error, call.picks());
        }
        let is_asked = self.0.is_plain && call.only_mut().is_some();
        if !is_asked && let Some(decision) = self.decide_now(call.picks(), purpose) {
            return decision;
        }
        self.decide(call.picks(), purpose).await
    }

    /// The decision, unless the store must wait for it.
    #[inline]
    pub(crate) fn decide_now<'p>(
        &self,
        picks: impl ExactSizeIterator<Item = &'p Pick> + Clone,
        purpose: Purpose,
    ) -> Option<Decision> {
        let mut answer = Answer::default();
        if picks.len() == 0 {
            return Some(self.decided(picks, answer, purpose));
        }
        if self.takes_leases(purpose) {
            return self.lease_now(picks);
        }
        if picks.len() == 1
            && !self.0.rules.any_bans()
            && let Some(pick) = picks.clone().next()
            && let Some(rule) = self.0.rules.get(pick.rule)
        {
            let mut failure = None;
            return match self.apply_now(rule, pick, purpose, &mut failure) {
                Some(applied) => Some(Decision::one(Arc::clone(self.0.rules.handle()), applied)),
                None => failure.map(|error| self.failed(error, picks)),
            };
        }
        let lines = self.lines(picks.clone());
        let ask = Ask { lines: &lines, purpose, time: self.0.clock.time() };
        let done = self.0.store.acquire_now(&ask, &mut answer)?;
        Some(match done {
            Ok(()) => self.decided(picks, answer, purpose),
            Err(error) => self.failed(error, picks),
        })
    }

    /// Nearly every ask has one line, and gathering it would be a good part of the work.
    #[inline(always)]
    fn apply_now(
        &self,
        rule: &CheckedRule,
        pick: &Pick,
        purpose: Purpose,
        failure: &mut Option<StoreError>,
    ) -> Option<Applied> {
        let line = line(rule, pick);
        let mut answer = Answer::default();
        let ask = Ask { lines: &[line], purpose, time: self.0.clock.time() };
        // Looked at where it is: an error is large, and would be moved before anybody knew whether there is one.
        match self.0.store.acquire_now(&ask, &mut answer) {
            Some(Ok(())) => {}
            Some(Err(error)) => {
                *failure = Some(error);
                return None;
            }
            None => return None,
        }
        let [verdict] = answer.verdicts() else {
            *failure = Some(miscounted());
            return None;
        };
        let applied = Applied::new(pick, verdict);
        if applied.would_refuse() {
            self.0.shadow.log_decision(&Decision::one(Arc::clone(self.0.rules.handle()), applied));
        }
        if let Some(observer) = &self.0.observer {
            tell_of_one(observer, self.0.rules.handle(), applied);
        }
        Some(applied)
    }

    pub(crate) async fn decide<'p>(
        &self,
        picks: impl ExactSizeIterator<Item = &'p Pick> + Clone,
        purpose: Purpose,
    ) -> Decision {
        if self.takes_leases(purpose) {
            // Boxed, since it would make the future of every decision larger.
            return Box::pin(self.lease(picks)).await;
        }
        let lines = self.lines(picks.clone());
        let ask = Ask { lines: &lines, purpose, time: self.0.clock.time() };
        match self.0.store.acquire(&ask).await {
            Ok(answer) => self.decided(picks, answer, purpose),
            Err(error) => self.failed(error, picks),
        }
    }

    #[inline]
    pub(super) fn line<'a>(&'a self, pick: &'a Pick) -> Option<Line<'a>> {
        Some(line(self.0.rules.get(pick.rule)?, pick))
    }

    /// Those of the rules, then those of their bans.
    pub(super) fn lines<'a, 'p: 'a>(
        &'a self,
        picks: impl Iterator<Item = &'p Pick> + Clone,
    ) -> SmallVec<[Line<'a>; 4]> {
        let mut lines = picks.clone().filter_map(|pick| self.line(pick)).collect();
        self.add_bans(picks, &mut lines);
        lines
    }

    #[inline]
    pub(super) fn decided<'p>(
        &self,
        picks: impl ExactSizeIterator<Item = &'p Pick> + Clone,
        answer: Answer,
        purpose: Purpose,
    ) -> Decision {
        if self.0.rules.any_bans() {
            return self.decided_with_bans(picks, &answer, purpose);
        }
        if answer.verdicts.len() != picks.len() {
            return self.failed(miscounted(), picks);
        }
        let applied = picks.zip(&answer.verdicts).map(|(pick, verdict)| Applied::new(pick, verdict));
        self.told(Decision::new(Arc::clone(self.0.rules.handle()), applied))
    }

    /// What the store knows all the same decides, or the rules' own word for such a case.
    #[cold]
    pub(super) fn failed<'p>(&self, error: StoreError, picks: impl Iterator<Item = &'p Pick> + Clone) -> Decision {
        self.0.failures.log(&error);
        let mut verdicts = error.partial().map(Partial::verdicts).unwrap_or_default().iter();
        let mut refused = error.partial().is_some_and(Partial::refuses);
        let mut applied = Vec::new();
        for pick in picks.clone() {
            match verdicts.next().copied().flatten() {
                Some(verdict) => applied.push(Applied::new(pick, &verdict)),
                None => {
                    let rule = self.0.rules.get(pick.rule);
                    refused |= !pick.shadow && rule.is_some_and(|rule| rule.on_failure() == OnFailure::Refuse);
                }
            }
        }
        let banned = self.banned(picks, verdicts.copied());
        let handle = Arc::clone(self.0.rules.handle());
        self.told(Decision::failed(handle, error, applied.into(), refused).banned(banned))
    }

    #[inline]
    pub(super) fn told(&self, decision: Decision) -> Decision {
        if decision.would_refuse() {
            self.0.shadow.log_decision(&decision);
        }
        if let Some(observer) = &self.0.observer {
            observer.decided(&decision);
        }
        decision
    }
}

#[inline]
fn line<'a>(rule: &'a CheckedRule, pick: &'a Pick) -> Line<'a> {
    Line {
        on_failure: rule.on_failure(),
        shadow: pick.shadow,
        critical: pick.critical,
        tenant: pick.tenant.as_deref(),
        ..Line::new(rule.scope(), pick.key.as_bytes(), rule.limit(), pick.cost)
    }
}

/// Tells of a copy, so that a decision nobody looks at need not be in memory.
#[inline(never)]
fn tell_of_one(observer: &Arc<dyn Observer>, rules: &Arc<Handle>, applied: Applied) {
    observer.decided(&Decision::one(Arc::clone(rules), applied));
}
