//! Leases of concurrency rules, while the store may be away.
//!
//! What is at work was admitted by the store or here, and may outlast an outage that begins or ends meanwhile. A renewal tells
//! whoever can be reached: the store holds the lease where it answers, this process where it does not.

use std::sync::Arc;

use smallvec::SmallVec;

use super::{Shared, local::Local};
use crate::{
    error::StoreError,
    limit::OnFailure,
    store::{Answer, Ask, Line, Purpose, Store},
};

impl Shared {
    pub(super) async fn keep_leases(self: &Arc<Shared>, ask: &Ask<'_>) -> Result<Answer, StoreError> {
        if ask.purpose == Purpose::Release {
            self.local.release(ask);
            return self.decide(ask).await;
        }
        let outcome = self.decide(ask).await;
        match &outcome {
            Ok(_) => self.local.release(ask),
            Err(_) => {
                let counted = |line: &&Line<'_>| line.on_failure == OnFailure::Local;
                let lines: SmallVec<[Line<'_>; 4]> = ask.lines.iter().filter(counted).copied().collect();
                self.local.judge(&lines, Purpose::Renew, ask.time);
            }
        }
        outcome
    }
}

impl Local {
    pub(super) fn release(&self, ask: &Ask<'_>) {
        let ask = Ask { purpose: Purpose::Release, ..*ask };
        // It always answers at once.
        let _ = self.store.acquire_now(&ask, &mut Answer::default());
    }
}
