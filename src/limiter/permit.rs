use std::{fmt, mem, sync::Arc};

use smallvec::SmallVec;
use tokio::runtime::Handle;

use super::{Limiter, Pick};
use crate::{
    decision::Decision,
    error::StoreError,
    random,
    store::{Answer, Ask, Line, Purpose},
};

/// The places that a request holds under [concurrency](crate::Rule::concurrency) rules. They are free again when the
/// [`Decision`], its clones and all permits of it are dropped.
///
/// The layer holds one until the response's body has ended. Keep one for what goes on after that, like a WebSocket:
///
/// ```
/// use sluicegate::Decision;
///
/// async fn upgrade(decision: Decision) {
///     let permit = decision.permit();
///     tokio::spawn(async move {
///         let _permit = permit;
///         // The place is taken for as long as this goes on.
///     });
/// }
/// ```
#[derive(Clone)]
pub struct Permit(#[allow(dead_code)] Arc<Claim>);

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Permit")
    }
}

/// A place under one rule.
#[derive(Clone)]
pub(super) struct Lease {
    pub(super) pick: Pick,
    pub(super) id: u64,
}

/// The leases that a decision asks for. It is made before the store is asked: whatever becomes of the asking, and of the
/// request, they are released when this is dropped.
pub(super) struct Claim {
    limiter: Limiter,
    leases: SmallVec<[Lease; 1]>,
    runtime: Option<Handle>,
    /// Whether the store's answer is known. Where it is not, the ask may still be on its way.
    answered: bool,
}

impl Claim {
    /// There is nothing to release.
    fn void(mut self) {
        self.leases.clear();
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if !self.leases.is_empty() {
            let leases = mem::take(&mut self.leases);
            self.limiter.end(leases, self.runtime.take(), self.answered);
        }
    }
}

impl Limiter {
    /// Whether an ask for this purpose may take places that must be given back.
    #[inline]
    pub(super) fn takes_leases(&self, purpose: Purpose) -> bool {
        self.0.rules.shortest_lease().is_some() && purpose == Purpose::Spend
    }

    /// The lines of an ask, with names for the leases that it would take.
    fn claim<'a, 'p: 'a>(&'a self, picks: impl Iterator<Item = &'p Pick> + Clone) -> (SmallVec<[Line<'a>; 4]>, Claim) {
        let runtime = Handle::try_current().ok();
        let mut claim = Claim { limiter: self.clone(), leases: SmallVec::new(), runtime, answered: false };
        let mut lines = SmallVec::new();
        for pick in picks.clone() {
            let Some(mut line) = self.line(pick) else { continue };
            if line.limit.lease().is_some() && line.cost > 0 {
                // Zero is the receipt of nothing.
                line.receipt = random::bits().max(1);
                claim.leases.push(Lease { pick: pick.clone(), id: line.receipt });
            }
            lines.push(line);
        }
        self.add_bans(picks, &mut lines);
        (lines, claim)
    }

    pub(super) fn lease_now<'p>(&self, picks: impl ExactSizeIterator<Item = &'p Pick> + Clone) -> Option<Decision> {
        let (lines, claim) = self.claim(picks.clone());
        let ask = Ask { lines: &lines, purpose: Purpose::Spend, time: self.0.clock.time() };
        let mut answer = Answer::default();
        match self.0.store.acquire_now(&ask, &mut answer) {
            Some(done) => Some(self.leased(picks, done.map(|()| answer), claim)),
            None => {
                claim.void();
                None
            }
        }
    }

    pub(super) async fn lease<'p>(&self, picks: impl ExactSizeIterator<Item = &'p Pick> + Clone) -> Decision {
        let (lines, claim) = self.claim(picks.clone());
        let ask = Ask { lines: &lines, purpose: Purpose::Spend, time: self.0.clock.time() };
        let outcome = self.0.store.acquire(&ask).await;
        self.leased(picks, outcome, claim)
    }

    fn leased<'p>(
        &self,
        picks: impl ExactSizeIterator<Item = &'p Pick> + Clone,
        outcome: Result<Answer, StoreError>,
        mut claim: Claim,
    ) -> Decision {
        claim.answered = outcome.is_ok();
        let may_hold = outcome.as_ref().err().is_some_and(StoreError::may_have_charged);
        // An observer that keeps the decision does not keep the place.
        let decision = match outcome {
            Ok(answer) => self.decided(picks, answer, Purpose::Spend),
            Err(error) => self.failed(error, picks),
        };
        if decision.is_refused() {
            if !may_hold {
                claim.void();
            }
            return decision;
        }
        // Under a shadow rule there may have been no place.
        let held =
            |lease: &Lease| !decision.applied().iter().any(|it| it.rule() == lease.pick.rule && it.would_refuse());
        self.keep(claim.leases.iter().filter(|lease| held(lease)), claim.runtime.as_ref());
        if !may_hold {
            claim.leases.retain(|lease| held(lease));
        }
        if claim.leases.is_empty() { decision } else { decision.holding(Permit(Arc::new(claim))) }
    }
}
