//! Sources of one's own that fail as nobody should: they are followed all the same.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use sluicegate::{
    Limiter, MemoryStore,
    policy::{Loading, Policy, PolicySource, SourceError},
};

use super::{Follower, policy};

/// Says every second that it has changed, and answers by the number of the load.
struct Odd {
    loads: Arc<AtomicUsize>,
}

impl PolicySource for Odd {
    fn load(&self) -> Loading<'_, Result<Policy, SourceError>> {
        let number = self.loads.fetch_add(1, Ordering::Relaxed);
        assert!(number != 1, "before there is a future");
        Box::pin(async move {
            assert!(number != 2, "in its midst");
            if number == 3 {
                std::future::pending::<()>().await;
            }
            Ok(policy(if number == 0 { "10/hour" } else { "20/hour" }))
        })
    }

    fn changed(&self) -> Loading<'_, ()> {
        assert!(self.loads.load(Ordering::Relaxed) != 2, "there too");
        Box::pin(tokio::time::sleep(Duration::from_secs(1)))
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_panics_or_hangs_is_asked_again() {
    let loads = Arc::default();
    let follower = Follower::begin(Limiter::builder(MemoryStore::new()), Odd { loads: Arc::clone(&loads) }).await;
    follower.refuses("panicked", Duration::from_secs(2)).await;
    assert!(follower.holds(&policy("10/hour")));
    follower.refuses("no policy within 30s", Duration::from_secs(40)).await;
    assert!(follower.holds(&policy("10/hour")));
    follower.reaches(&policy("20/hour"), Duration::from_secs(5)).await;
    assert!(loads.load(Ordering::Relaxed) >= 5);
}
