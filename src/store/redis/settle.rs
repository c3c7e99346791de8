//! Many changes in one call: costs that became known, off the path of requests.

use redis::Value;
use smallvec::SmallVec;
use tokio::time::Instant;

use super::{
    assemble::kind_of,
    connections::Live,
    engine::Engine,
    job::{Call, Job},
    node::Node,
    wire::{self, Args},
};
use crate::{
    error::{StoreError, StoreErrorKind},
    observer::StoreEvent,
    store::{Ask, Settlement, Time},
};

impl Node {
    /// Makes the changes, all of which are in one slot or on one server.
    pub(super) async fn settle(
        &self,
        settlements: &[Settlement<'_>],
        time: Time,
        since: Instant,
        used: &mut Option<Live>,
    ) -> Result<(), StoreError> {
        if let Engine::Cell | Engine::Plain = self.engine {
            for settlement in settlements {
                let ask = Ask { lines: &[settlement.line], purpose: settlement.purpose(), time };
                self.decide(&ask, since.elapsed(), used).await?;
            }
            return Ok(());
        }
        // Those of one algorithm together, since the script has a loop for each.
        let kind = |settlement: &Settlement<'_>| kind_of(&settlement.line, settlement.purpose());
        let mut sorted: SmallVec<[&Settlement<'_>; 16]> = settlements.iter().collect();
        sorted.sort_by_key(|settlement| kind(settlement));
        let mut kinds: super::scripts::Kinds = sorted.iter().map(|settlement| kind(settlement)).collect();
        kinds.dedup();
        let script = self.scripts.batch(kinds);

        let began = self.clock.local().saturating_sub_unsigned(crate::limit::micros(since.elapsed()));
        let live = self.live(used).await?;
        for _ in 0..2 {
            let groups = sorted.chunk_by(|one, other| kind(one) == kind(other));
            let args = Args::batch(self.common(time, None, began), sorted.len(), groups);
            let reply = self.run(Call { live, script: &script, job: Job::Settle(&sorted), args: &args }).await?;
            live.answered();
            let done = match &reply {
                Value::Array(values) => match &values[..] {
                    [Value::Int(now), Value::Int(_), banned @ ..] => {
                        self.tell_of_bans(&sorted, banned);
                        Some((*now, true))
                    }
                    [Value::Int(now)] => Some((*now, false)),
                    _ => None,
                },
                _ => None,
            };
            let Some((Ok(now), done)) = done.map(|(now, done)| (u64::try_from(now), done)) else {
                let error = wire::garbled();
                live.give_up(error.clone());
                return Err(error);
            };
            if time == Time::Store {
                self.clock.learn(began, now);
            }
            if done {
                return Ok(());
            }
        }
        Err(StoreError::new(StoreErrorKind::Timeout, "the server came to the call after its deadline").uncharged())
    }

    /// Which of the changes began a ban, counted from one.
    fn tell_of_bans(&self, settlements: &[&Settlement<'_>], places: &[Value]) {
        for place in places {
            let Value::Int(place) = place else { continue };
            let place = usize::try_from(*place).ok().and_then(|place| place.checked_sub(1));
            if let Some(settlement) = place.and_then(|place| settlements.get(place)) {
                self.observers.tell(&StoreEvent::Banned { rule: settlement.line.scope.rule().into() });
            }
        }
    }
}
