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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::{Limiter, Observer, OnFailure, Quota, Resilient, Rule, StoreError, StoreErrorKind, StoreEvent, key};

    #[derive(Debug)]
    struct Away;

    impl Store for Away {
        fn acquire_now(&self, _: &Ask<'_>, _: &mut Answer) -> Option<Result<(), StoreError>> {
            Some(Err(StoreError::new(StoreErrorKind::Refused, "away")))
        }

        fn acquire<'a>(&'a self, _: &'a Ask<'a>) -> crate::store::StoreFuture<'a, Answer> {
            Box::pin(std::future::ready(Err(StoreError::new(StoreErrorKind::Refused, "away"))))
        }

        fn reset<'a>(&'a self, _: &'a [Line<'a>]) -> crate::store::StoreFuture<'a, ()> {
            Box::pin(std::future::ready(Ok(())))
        }
    }

    #[derive(Clone, Default)]
    struct Overflows(Arc<AtomicU64>);

    impl Observer for Overflows {
        fn store(&self, event: &StoreEvent) {
            self.0.fetch_add((*event == StoreEvent::Overflowed).into(), Ordering::Relaxed);
        }
    }

    /// Keys without end while the store is away: newcomers share a count here as anywhere, and that is told.
    #[tokio::test]
    async fn local_counts_are_bounded_and_whoever_watches_is_told() {
        let around = Resilient::new(Away).set(|shared| shared.local.store = MemoryStore::new().max_keys(64));
        let told = Overflows::default();
        let rule = Rule::gcra("r", Quota::per_day(1_000)).key(key::given()).on_failure(OnFailure::Local);
        let limiter = Limiter::builder(around).observer(told.clone()).rule(rule).build().expect("sound");
        let mut admitted = 0;
        for number in 0..5_000u32 {
            admitted += u32::from(limiter.acquire([("r", number)]).await.is_allowed());
        }
        assert!(told.0.load(Ordering::Relaxed) > 0, "nobody was told");
        assert!((800..1_000).contains(&admitted), "{admitted}: the overflow count is one for all");
    }
}
