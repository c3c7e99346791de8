use std::{sync::Weak, time::Duration};

use tokio::time::{Instant, sleep};

use super::{
    super::{Inner, Limiter, permit::Lease},
    BATCH,
};
use crate::{
    observer::StoreEvent,
    store::{Purpose, Wait},
};

/// The task that renews what is held. However it ends, also with its runtime, another may begin.
pub(super) struct Renewing {
    limiter: Weak<Inner>,
    ended: bool,
}

impl Renewing {
    pub(super) fn new(limiter: Weak<Inner>) -> Renewing {
        Renewing { limiter, ended: false }
    }

    /// Looks every `pause`, a sixth of the shortest lease, for those of which a third has passed: there are three more chances
    /// before one expires.
    pub(super) async fn run(mut self, pause: Duration) {
        loop {
            sleep(pause).await;
            // Not held while it sleeps: a limiter that nobody needs any more goes.
            let Some(limiter) = self.limiter.upgrade().map(Limiter) else { return };
            let Some(due) = limiter.due() else {
                self.ended = true;
                return;
            };
            for batch in due.chunks(BATCH) {
                limiter.renew(batch).await;
            }
        }
    }
}

impl Drop for Renewing {
    fn drop(&mut self) {
        if let Some(limiter) = self.limiter.upgrade()
            && !self.ended
        {
            let mut held = limiter.leases.held();
            held.renewing = false;
            held.by_id.values_mut().for_each(|kept| kept.busy = false);
        }
    }
}

impl Limiter {
    /// The leases that are to be renewed now. `None`: none is held, and nobody needs to look.
    fn due(&self) -> Option<Vec<Lease>> {
        let mut held = self.0.leases.held();
        if held.by_id.is_empty() {
            held.renewing = false;
            return None;
        }
        let now = Instant::now();
        let due = held.by_id.values_mut().filter(|kept| now.duration_since(kept.renewed) >= kept.lasts / 3);
        Some(
            due.map(|kept| {
                kept.busy = true;
                kept.lease.clone()
            })
            .collect(),
        )
    }

    async fn renew(&self, leases: &[Lease]) {
        let began = Instant::now();
        let outcome = self.change(Purpose::Renew, leases).await;
        let waits: Vec<Option<Wait>> = match &outcome {
            Ok(answer) => answer.verdicts().iter().map(|verdict| Some(verdict.wait)).collect(),
            // Those are tried again the next time. Whether the store fails is told elsewhere.
            Err(_) => vec![None; leases.len()],
        };
        let (mut lost, mut ended) = (0, Vec::new());
        let mut held = self.0.leases.held();
        for (lease, wait) in leases.iter().zip(waits) {
            let Some(kept) = held.by_id.get_mut(&lease.id) else { continue };
            kept.busy = false;
            match wait {
                Some(Wait::None) => (kept.renewed, kept.lost) = (began, false),
                Some(_) => lost += u64::from(!std::mem::replace(&mut kept.lost, true)),
                None => {}
            }
            if kept.ended {
                held.by_id.remove(&lease.id);
                ended.push(lease.clone());
            }
        }
        drop(held);
        if lost > 0 {
            tracing::warn!(lost, "requests at work have lost their places under a concurrency rule, and go on");
            self.tell_observer(&StoreEvent::LeasesLost { leases: lost });
        }
        if let Ok(runtime) = tokio::runtime::Handle::try_current()
            && !ended.is_empty()
        {
            self.release(ended.into(), &runtime);
        }
    }
}
