use std::time::Duration;

use super::{Quota, compiled::micros};
use crate::algorithm::queue::Params;

/// How long the line of a queue may be: see [`Rule::queue`](super::Rule::queue).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Queue {
    pub(crate) max_wait: Duration,
    pub(crate) max_waiters: u64,
}

const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_secs(86_400);

impl Queue {
    /// The line that this quota leaves, or what is wrong with it by field.
    pub(super) fn params(self, quota: Quota) -> Result<Params, (&'static str, String)> {
        if quota.given_burst().is_some() {
            return Err(("burst", "a queue has no burst, it runs one after the other; drop .burst(..)".into()));
        }
        if !(SHORTEST..=LONGEST).contains(&self.max_wait) || !self.max_wait.subsec_nanos().is_multiple_of(1_000) {
            let text =
                format!("a wait of {:?} is out of range; give whole microseconds from 1 ms to 1 day", self.max_wait);
            return Err(("queue", text));
        }
        if self.max_waiters == 0 {
            return Err(("queue", "0 may wait; give 1 or more, or drop .queue(..) to refuse them all".into()));
        }
        let params = Params::new(quota.amount(), micros(quota.window()), micros(self.max_wait), self.max_waiters)
            .ok_or_else(|| {
                let text = format!(
                    "{quota} cannot be counted exactly; shorten the wait, lower the number of waiters, or round the amount to a \
                     number that shares factors with the window"
                );
                ("queue", text)
            })?;
        // Two slots would end in the same tick, and who is last in line could not be told.
        if params.parts.per_unit < params.parts.per_tick {
            let text = format!("{quota} is more than one every {} microseconds; give less", params.parts.tick);
            return Err(("quota", text));
        }
        Ok(params)
    }
}
