//! Waiting for one's turn, under rules with a queue. Nothing is asked and no connection is held meanwhile.

use std::{pin::pin, sync::Arc, time::Duration};

use smallvec::SmallVec;
use tokio::time::{sleep, timeout};

use super::{Call, Limiter, Pick};
use crate::{
    decision::Decision,
    store::{Change, OwnedLine, Purpose},
};

/// Asking more often would be faster than timers are.
const SHORTEST: Duration = Duration::from_millis(1);

/// A place in line. Whoever leaves it before the turn has come gives the slot back.
pub(crate) struct Turn {
    limiter: Limiter,
    delay: Duration,
    slots: SmallVec<[OwnedLine; 1]>,
}

impl Turn {
    pub(crate) async fn come(mut self) {
        sleep(self.delay).await;
        self.slots.clear();
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        for line in self.slots.drain(..) {
            self.limiter.settle(line, Change::Give);
        }
    }
}

impl Limiter {
    /// The place in line that a decision over these rules has got, if it must wait.
    #[inline]
    pub(crate) fn turn<'p>(&self, decision: &Decision, picks: impl Iterator<Item = &'p Pick>) -> Option<Turn> {
        if !self.rules().any_queues() {
            return None;
        }
        self.turn_in_line(decision, picks)
    }

    fn turn_in_line<'p>(&self, decision: &Decision, picks: impl Iterator<Item = &'p Pick>) -> Option<Turn> {
        let delay = decision.delay()?;
        let slot = |pick: &Pick| {
            let applied = decision.applied().iter().find(|applied| applied.rule() == pick.rule)?;
            // A shadow that is full has given no slot.
            if applied.would_refuse() {
                return None;
            }
            let line = self.line(pick).filter(|line| line.cost > 0 && line.limit.queue().is_some())?;
            Some(OwnedLine::of(&line.charged(&applied.verdict())))
        };
        // What was counted elsewhere is not here to be given back.
        let slots = match decision.failure() {
            None => picks.filter_map(slot).collect(),
            Some(_) => SmallVec::new(),
        };
        Some(Turn { limiter: self.clone(), delay, slots })
    }

    /// Like [`acquire`](Limiter::acquire), but waits until the call may run: for its turn in [queues](crate::Rule::queue), and
    /// where a rule refuses it for as long as that says, and then asks again. For workers, which have nothing better to do:
    ///
    /// ```
    /// use sluicegate::{key, Limiter, MemoryStore, Quota, Rule};
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), sluicegate::BuildError> {
    /// let limiter = Limiter::builder(MemoryStore::new())
    ///     .rule(Rule::leaky_bucket("webhooks", Quota::per_second(100)).queue(Duration::from_secs(5), 20).key(key::given()))
    ///     .build()?;
    /// for delivery in 0..3 {
    ///     let decision = limiter.acquire_when_ready([("webhooks", "shop.example")]).await;
    ///     assert!(decision.is_allowed());     // 10 ms after the one before
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The decision is refused where no waiting helps: the cost [can never fit](Decision::can_never_fit), a [list](crate::Lists) denies it,
    /// or the store gave no answer and a rule [refuses](crate::OnFailure::Refuse) then. Each refusal on the way is one that a
    /// [ban](crate::Ban) counts: give workers rules without one. Put a timeout around it for a longest wait; dropped before the turn has come,
    /// it gives its slot back as the [guide](crate::guide::algorithms#queueing) says.
    ///
    /// Those who wait in a queue run in order, whichever process they are in. Those whom a rule has refused wait outside: in one process one of
    /// them asks again, and the others stand behind it in the order they came; between processes, whoever asks first is first. Where a policy
    /// changes, they ask at once.
    pub async fn acquire_when_ready<'a>(&self, call: impl Into<Call<'a>>) -> Decision {
        let mut call = call.into();
        let doors = &self.0.doors;
        let kind = doors.kind_of(Arc::as_ptr(&self.0), &mut call);
        let mut place = doors.stand_behind(kind);
        loop {
            if let Some(place) = &mut place {
                place.be_first().await;
            }
            // From before it asks: a change may come while it does.
            let mut changed = pin!(doors.changed());
            changed.as_mut().enable();
            // What it leaves out, other rules may ask about when it comes again.
            let (mut call, mut held) = (call.clone(), None);
            let now = self.now(&mut held);
            let decision = now.ask_resolved(&mut call, Purpose::Spend).await;
            if let Some(turn) = now.turn(&decision, call.picks()) {
                drop(place);
                turn.come().await;
                return decision.after_turn();
            }
            let retry_after = decision.retry_after().filter(|_| !decision.is_refused_unjudged());
            let Some(wait) = retry_after else { return decision };
            drop(decision);
            // Where others came to the door meanwhile, what this one was told is of no use.
            if !place.get_or_insert_with(|| doors.stand(kind)).be_first().await {
                let _ = timeout(wait.max(SHORTEST), changed).await;
            }
        }
    }
}
