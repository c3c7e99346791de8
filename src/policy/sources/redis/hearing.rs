//! Waits for the next look at a server, or for word of a change.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::time::{Instant, sleep_until, timeout_at};

use super::jitter;
use crate::{
    error::StoreError,
    store::{Listening, PolicyKeys},
};

/// However often it is called, the server is not looked at more often.
const REST: Duration = Duration::from_millis(20);
/// The time between attempts to subscribe, which doubles up to the second.
const AGAIN: Duration = Duration::from_millis(500);
const AGAIN_AT_MOST: Duration = Duration::from_secs(30);
/// The same after a no.
const AFTER_NO: Duration = Duration::from_secs(60);

/// How far hearing of changes is.
pub(super) enum Hearing {
    /// Not before this moment; then it is waited so long.
    Not {
        again: Instant,
        pause: Duration,
    },
    Trying {
        attempt: Attempt,
        pause: Duration,
    },
    Well(Listening),
    /// There is no way to.
    Never,
}

type Attempt = Pin<Box<dyn Future<Output = Result<Option<Listening>, StoreError>> + Send>>;

impl Default for Hearing {
    fn default() -> Hearing {
        Hearing::Not { again: Instant::now(), pause: AGAIN }
    }
}

impl Hearing {
    /// Waits until something is heard, and no longer than `until`.
    pub(super) async fn wait(&mut self, keys: &Arc<PolicyKeys>, told: &AtomicBool, until: Instant) {
        let rested = Instant::now() + REST;
        while Instant::now() < until {
            match self {
                Hearing::Never => sleep_until(until).await,
                Hearing::Not { again, pause } => {
                    if Instant::now() >= *again {
                        *self = Hearing::Trying { attempt: Box::pin(Arc::clone(keys).listen()), pause: *pause };
                    } else {
                        sleep_until(until.min(*again)).await;
                    }
                }
                Hearing::Trying { attempt, pause } => {
                    let Ok(tried) = timeout_at(until, attempt).await else { return };
                    match tried {
                        Ok(Some(listening)) => {
                            *self = Hearing::Well(listening);
                            // What was changed before nobody heard.
                            return;
                        }
                        Ok(None) => *self = Hearing::Never,
                        Err(error) => {
                            let refused = !error.is_transient();
                            if refused && !told.swap(true, Ordering::Relaxed) {
                                tracing::warn!(%error, "changes of the policy in Redis are not heard of at once, but looked for");
                            }
                            *self = Hearing::after(*pause, refused);
                        }
                    }
                }
                Hearing::Well(listening) => {
                    let Ok(heard) = timeout_at(until, listening.news()).await else { return };
                    if heard {
                        return sleep_until(rested).await;
                    }
                    *self = Hearing::after(AGAIN, false);
                }
            }
        }
    }

    fn after(pause: Duration, refused: bool) -> Hearing {
        let wait = if refused { AFTER_NO } else { pause };
        Hearing::Not { again: Instant::now() + wait + jitter(), pause: AGAIN_AT_MOST.min(pause * 2) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How long after an attempt that failed the next one is, and the one after that.
    fn waits(pause: Duration, refused: bool) -> (Duration, Duration) {
        match Hearing::after(pause, refused) {
            Hearing::Not { again, pause } => (again - Instant::now(), pause),
            _ => panic!("it hears"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn attempts_are_ever_fewer_and_few_after_a_no() {
        let jitter = Duration::from_millis(100);
        let mut pause = AGAIN;
        for seconds in [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0] {
            let least = Duration::from_secs_f64(seconds);
            let (wait, next) = waits(pause, false);
            assert!((least..least + jitter).contains(&wait), "{wait:?} of {least:?}");
            pause = next;
        }
        assert!((AFTER_NO..AFTER_NO + jitter).contains(&waits(AGAIN, true).0));
    }
}
