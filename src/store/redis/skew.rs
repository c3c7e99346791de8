//! How far an application's clock is from the server's.
//!
//! Where the application's clock counts, the replies of scripts tell nothing of the server's. So it is asked for now and then, in a task of
//! its own: a request does no more than look whether that is due.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::timeout;

use super::{connections::Live, plain};
use crate::{
    clock::{is_far, wall},
    observer::{Observers, StoreEvent},
};

/// Microseconds between two looks. Clocks drift slowly, and a step lasts.
const EVERY: u64 = 30_000_000;

/// When it was last looked.
#[derive(Debug, Default)]
pub(super) struct Skew {
    looked: AtomicU64,
}

impl Skew {
    /// Whether it is time to look, at this time of the application. One of those who ask at once is told so.
    #[inline]
    pub(super) fn is_due(&self, now: u64) -> bool {
        let looked = self.looked.load(Ordering::Relaxed);
        now.abs_diff(looked) >= EVERY
            && self.looked.compare_exchange(looked, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

/// Looks, and tells if the clocks of two processes may be further apart than the tolerance. Nobody waits for it.
#[cold]
pub(super) fn look(mut live: Live, tolerance: u64, patience: Duration, observers: Arc<Observers>) {
    tokio::spawn(async move {
        if let Ok(Some(ahead)) = timeout(patience, measure(&mut live, 1)).await
            && is_far(ahead, tolerance)
        {
            observers.tell(&StoreEvent::ClockSkewed { ahead, tolerance });
        }
    });
}

/// How many microseconds this machine's clock is ahead of the server's; below zero, behind. By so much at least: what the way there and
/// back may have taken is left out. The fastest of several answers tells most. `None`: the server does not say.
pub(super) async fn measure(live: &mut Live, answers: u32) -> Option<i64> {
    let mut within = None;
    for _ in 0..answers {
        let sent = wall();
        let server = plain::time(Some(&live.send(&redis::cmd("TIME")).await.ok()?)).ok()?;
        let bounds = (difference(sent, server), difference(wall(), server));
        within = Some(within.map_or(bounds, |(least, most): (i64, i64)| (least.max(bounds.0), most.min(bounds.1))));
    }
    within.map(|(least, most)| if least > 0 { least } else { most.min(0) })
}

fn difference(clock: u64, server: u64) -> i64 {
    let signed = |micros| i64::try_from(micros).unwrap_or(i64::MAX);
    signed(clock).saturating_sub(signed(server))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_due_at_once_then_each_half_minute_and_when_the_clock_jumps() {
        let (skew, begin) = (Skew::default(), 1_700_000_000_000_000);
        let due = [0, 0, 1, EVERY - 1, EVERY, EVERY + 1, 2 * EVERY, 0, 1, 9 * EVERY];
        let due = due.map(|later| skew.is_due(begin + later));
        assert_eq!(due, [true, false, false, false, true, false, true, true, false, true]);
    }
}
