use std::{
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    task::Poll,
    time::Duration,
};

use tokio::{
    runtime::Handle,
    task::AbortHandle,
    time::{sleep, timeout},
};

use super::{ChangedOverrides, PolicySource, SourceError};
use crate::{
    limiter::Limiter,
    policy::{Policy, PolicyError},
};

/// How long a source has to load a policy.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long after a source has panicked it is asked again.
const AGAIN: Duration = Duration::from_secs(1);

/// Keeps a limiter at the policy of a source, until it is dropped: see [`Limiter::follow`].
#[derive(Debug)]
#[must_use = "a limiter follows its source until this is dropped"]
pub struct Following(Option<AbortHandle>);

impl Drop for Following {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}

/// What a source of somebody's comes to. One that panics is no reason to follow it no more.
async fn caught<T>(asked: impl Future<Output = T>) -> Result<T, SourceError> {
    let mut asked = pin!(asked);
    let panicked = || SourceError::new("the source of the policy panicked");
    poll_fn(|context| {
        let polled = catch_unwind(AssertUnwindSafe(|| asked.as_mut().poll(context)));
        polled.map_or_else(|_| Poll::Ready(Err(panicked())), |poll| poll.map(Ok))
    })
    .await
}

impl Limiter {
    /// Keeps this limiter at the policy of a source from now on: a task loads it when it has changed, and puts it in place.
    ///
    /// One that cannot be loaded or used changes nothing: the last good one stays. It is told once, in the log and to an
    /// [`Observer`](crate::Observer), and [`policy_status`](Limiter::policy_status) shows it for as long as it is so.
    ///
    /// A source that panics is asked again a second later, and one that gives no policy within 30 s when it says again that it has changed.
    ///
    /// It needs a tokio runtime, and does nothing outside of one but say so.
    pub fn follow(&self, source: impl PolicySource) -> Following {
        let Ok(runtime) = Handle::try_current() else {
            tracing::error!("Limiter::follow was called outside a tokio runtime: the policy stays as it is");
            return Following(None);
        };
        let limiter = self.clone();
        let task = runtime.spawn(async move {
            let mut wrong = None;
            loop {
                if let Err(error) = caught(async { source.changed().await }).await {
                    wrong = limiter.take(Err(error), wrong).await;
                    sleep(AGAIN).await;
                }
                limiter.doubt(source.changed_overrides());
                let loading = timeout(PATIENCE, caught(async { source.load().await })).await;
                let late = || SourceError::new(format!("the source gives no policy within {PATIENCE:?}"));
                let loaded = loading.unwrap_or_else(|_| Err(late())).and_then(|loaded| loaded);
                wrong = limiter.take(loaded, wrong).await;
            }
        });
        Following(Some(task.abort_handle()))
    }

    /// Has overrides looked up again that may have changed.
    fn doubt(&self, changed: ChangedOverrides) {
        match changed {
            ChangedOverrides::None => {}
            ChangedOverrides::Of(customers) => {
                customers.iter().for_each(|customer| self.doubt_override(customer.as_bytes()));
            }
            ChangedOverrides::All => self.overrides_changed(),
        }
    }

    /// Puts in place what was loaded. Answers what is wrong with it; if it is what was wrong before, nothing is said again.
    async fn take(&self, loaded: Result<Policy, SourceError>, before: Option<String>) -> Option<String> {
        let wrong = match loaded {
            Err(error) => Some(error.to_string()),
            Ok(policy) => self.put(policy).await.err().map(|error| error.to_string()),
        };
        if let Some(error) = wrong.as_ref().filter(|wrong| before.as_ref() != Some(*wrong)) {
            tracing::error!(%error, "a policy cannot be used; the last good one stays");
            self.note_refused_policy(Some(error.clone()));
        }
        wrong
    }

    /// Many rules take a while: not on a thread that serves requests.
    async fn put(&self, policy: Policy) -> Result<(), PolicyError> {
        let limiter = self.clone();
        let change = move || {
            if limiter.policy_status().is_some_and(|status| *status.policy() == policy) {
                limiter.note_refused_policy(None);
                return Ok(());
            }
            limiter.set_policy(policy)
        };
        match tokio::task::spawn_blocking(change).await {
            Ok(done) => done,
            Err(error) => Err(PolicyError::unusable(error.to_string())),
        }
    }
}
