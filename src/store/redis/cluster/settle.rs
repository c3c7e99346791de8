//! Changes off the path of requests, a call for each slot.

use std::sync::Arc;

use tokio::time::Instant;

use super::{
    Cluster,
    call::{Fault, Work},
    join::{Joined, join},
    slot,
};
use crate::{
    error::{StoreError, StoreErrorKind},
    store::{Line, Settlement, Time},
};

impl Cluster {
    /// What came of each, in order.
    pub(in super::super) async fn settle(
        self: &Arc<Cluster>,
        settlements: &[Settlement<'_>],
        time: Time,
        until: Instant,
    ) -> Vec<Result<(), StoreError>> {
        let span = match self.begin(until).await {
            Ok(span) => span,
            Err(error) => return settlements.iter().map(|_| Err(error.clone())).collect(),
        };
        let slots: Vec<u16> = settlements.iter().map(|settlement| slot::of(settlement.line.name())).collect();
        let mut order: Vec<usize> = (0..settlements.len()).collect();
        order.sort_by_key(|place| slots.get(*place));
        let groups: Vec<(u16, Vec<Settlement<'_>>, Vec<Line<'_>>)> = order
            .chunk_by(|one, other| slots.get(*one) == slots.get(*other))
            .map(|places| {
                let some: Vec<_> = places.iter().filter_map(|place| settlements.get(*place)).copied().collect();
                let lines = some.iter().map(|settlement| settlement.line).collect();
                (places.first().and_then(|place| slots.get(*place)).copied().unwrap_or_default(), some, lines)
            })
            .collect();
        let calls = groups.iter().map(|(slot, some, lines)| -> Joined<'_, Result<(), StoreError>> {
            Box::pin(async move {
                match self.call(*slot, &Work::Settle(some, lines, time), span).await {
                    Ok(_) => Ok(()),
                    Err(Fault::Failed(error)) => Err(error),
                    Err(Fault::Torn) => {
                        Err(StoreError::new(StoreErrorKind::Refused, "TRYAGAIN: the slot is on its way"))
                    }
                }
            })
        });
        let results = join(calls).await;
        let mut outcomes: Vec<Result<(), StoreError>> = settlements.iter().map(|_| Ok(())).collect();
        let settled =
            groups.iter().zip(results).flat_map(|((_, some, _), result)| some.iter().map(move |_| result.clone()));
        for (place, result) in order.iter().zip(settled) {
            if let Some(outcome) = outcomes.get_mut(*place) {
                *outcome = result;
            }
        }
        outcomes
    }
}
