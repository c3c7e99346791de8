//! Changes without judging, once for each id.

use std::sync::PoisonError;

use smallvec::SmallVec;

use super::{
    Inner, Locked, Overflowing,
    fair::{answer, with_tenants},
    shard::{Change, Full},
    shard_of,
};
use crate::{
    algorithm::Moment,
    observer::StoreEvent,
    store::{Answer, Ask, Id},
};

impl Inner {
    pub(super) fn settle_all(
        &self,
        ask: &Ask<'_>,
        at: Moment,
        overflowing: Overflowing,
        change: Change,
        id: Id,
    ) -> Result<Answer, Overflowing> {
        // Held throughout, so that whoever finds the record finds the change made. These calls are rare.
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = with_tenants(ask.lines, ask.purpose);
        let Locked { places, order, mut shards } = self.lock_all(&lines, overflowing);
        let place_of = |hash: u64| order.binary_search(&shard_of(hash)).unwrap_or_default();

        let mut full = overflowing;
        for (place, (line, (hash, key))) in (0u32..).zip(lines.iter().zip(&places)) {
            let Some(shard) = shards.get_mut(place_of(*hash)) else { continue };
            if let Err(Full) = shard.has_room_for(*hash, line, key, at) {
                full |= 1 << place;
            }
        }
        if full != overflowing {
            return Err(full);
        }
        // Real time, also where the counts go by another: a record lasts as long on every store.
        let change = if records.add(id, self.clock.now()) { change } else { Change::Nothing };
        let (mut verdicts, mut banned) = (SmallVec::new(), Vec::new());
        for (line, (hash, key)) in lines.iter().zip(&places) {
            let Some(shard) = shards.get_mut(place_of(*hash)) else { continue };
            // Those that newcomers share ban nobody.
            let strikes = line.limit.is_ban() && line.receipt == 0 && *key == line.key;
            let strikes = strikes && !shard.bans(*hash, line, key, at);
            verdicts.push(shard.settle(*hash, line, key, at, change));
            if strikes && shard.bans(*hash, line, key, at) {
                banned.push(line.scope.rule().into());
            }
        }
        drop((shards, records));
        for rule in banned {
            self.observers.tell(&StoreEvent::Banned { rule });
        }
        Ok(answer(verdicts, ask.lines, ask.purpose))
    }
}
