//! Settlements go past the breakers like everything else, and nobody falls back for them: whoever asks tries again.

use tokio::time::timeout;

use super::{Shared, fallback};
use crate::{
    error::StoreError,
    store::{Ask, Line, Settlement, Time},
};

impl Shared {
    pub(super) async fn settle(&self, settlements: &[Settlement<'_>], time: Time) -> Vec<Result<(), StoreError>> {
        let Some(first) = settlements.first() else { return Vec::new() };
        let lines: Vec<Line<'_>> = settlements.iter().map(|settlement| settlement.line).collect();
        let gates = self.gates(&Ask { lines: &lines, purpose: first.purpose(), time });
        let mut outcomes: Vec<Result<(), StoreError>> = (0..settlements.len())
            .map(|place| if gates.let_through(place) { Ok(()) } else { Err(fallback::open()) })
            .collect();
        let through: Vec<Settlement<'_>> =
            settlements.iter().zip(&outcomes).filter(|(_, outcome)| outcome.is_ok()).map(|(one, _)| *one).collect();
        if through.is_empty() {
            return outcomes;
        }
        let settled = match self.store.deadline() {
            // It sees to that itself; a batch may be several calls.
            Some(_) => self.store.settle(&through, time).await,
            None => match timeout(self.deadline(), self.store.settle(&through, time)).await {
                Ok(settled) => settled,
                Err(_) => through.iter().map(|_| Err(self.late())).collect(),
            },
        };
        for (outcome, settled) in outcomes.iter_mut().filter(|outcome| outcome.is_ok()).zip(settled) {
            *outcome = settled;
        }
        gates.report(|place| outcomes.get(place).and_then(|outcome| outcome.as_ref().err()), &self.observers);
        outcomes
    }
}
