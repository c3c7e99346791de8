//! Counts in this process, for as long as the store gives no answer.

use std::{fmt, sync::Arc};

use smallvec::SmallVec;

use crate::{
    limit::Limit,
    store::{Answer, Ask, Line, MemoryStore, Purpose, Report, Store, Time, Verdict, Wait},
};

/// This process's share of every quota.
pub(super) struct Local {
    pub(super) store: MemoryStore,
    pub(super) instances: Instances,
    pub(super) share: f64,
}

/// How many processes share the quotas.
#[derive(Clone)]
pub(super) enum Instances {
    /// Nobody has said, so it may be one or many.
    Untold,
    Fixed(u32),
    By(Arc<dyn Fn() -> u32 + Send + Sync>),
}

impl Instances {
    pub(super) fn now(&self) -> u32 {
        match self {
            Instances::Untold => 1,
            Instances::Fixed(instances) => *instances,
            Instances::By(closure) => closure(),
        }
    }
}

/// How long a cost is told to wait that this process's share can never hold, in microseconds. The store may be back then.
const TOO_MUCH: u64 = 1_000_000;

impl Local {
    /// Judges the lines under this process's share of their limits, and charges all if all fit and the purpose is to spend.
    pub(super) fn judge(&self, lines: &[Line<'_>], purpose: Purpose, time: Time) -> SmallVec<[Verdict; 4]> {
        let limits: SmallVec<[Limit; 4]> = lines.iter().map(|line| self.share_of(line.limit)).collect();
        let lines: SmallVec<[Line<'_>; 4]> =
            lines.iter().zip(&limits).map(|(line, limit)| Line { limit, ..*line }).collect();
        let mut answer = Answer::default();
        // It always answers at once.
        let _ = self.store.acquire_now(&Ask { lines: &lines, purpose, time }, &mut answer);
        let verdicts = answer.verdicts().iter().copied();
        verdicts.map(|verdict| if verdict.wait == Wait::Never { too_much(verdict) } else { verdict }).collect()
    }

    /// How much of the line's local count is spent now.
    pub(super) fn spent(&self, line: &Line<'_>, time: Time) -> u64 {
        let capacity = self.share_of(line.limit).quota().capacity();
        let verdicts = self.judge(&[Line { cost: 0, ..*line }], Purpose::Peek, time);
        verdicts.first().map_or(0, |verdict| capacity.saturating_sub(verdict.remaining))
    }

    /// Says what rules that count here admit while the store is away.
    pub(super) fn tell(&self, report: &mut Report) {
        let (share, instances) = (self.share, self.instances.now().max(1));
        let each = share / f64::from(instances);
        match self.instances {
            Instances::Untold => report.warn(format!(
                "while the store is away this process admits {share} of each quota by itself, and so does every other: a fleet of 8 \
                 admits {:.1} times the quota; say how many there are with Resilient::instances(..)",
                share * 8.0
            )),
            _ => report.note(format!(
                "while the store is away this process admits {each:.3} of each quota by itself, as one of {instances}"
            )),
        }
    }

    pub(super) fn share_of(&self, limit: &Limit) -> Limit {
        limit.scaled(self.share / f64::from(self.instances.now().max(1)))
    }
}

/// The whole quota would hold it.
fn too_much(verdict: Verdict) -> Verdict {
    Verdict { wait: Wait::Micros(TOO_MUCH), ..verdict }
}

impl fmt::Debug for Local {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Local").field("instances", &self.instances.now()).field("share", &self.share).finish()
    }
}
