//! What time it is on the server.

use std::{
    sync::atomic::{AtomicI64, Ordering},
    time::{Duration, Instant},
};

use crate::limit::micros;

const UNKNOWN: i64 = i64::MIN;

/// The server's clock, told from the times in its replies.
///
/// A reply that names the time `server` was made between sending and receiving, so the server is ahead of this process by at
/// least `server - received` and at most `server - sent`. The estimate begins with the least and is kept within the bounds of
/// every reply: it settles on the fastest ones from below, follows drift, and gives way at once when a clock steps. So a call that
/// the server begins later than the deadline by this estimate could not have been answered in time.
#[derive(Debug)]
pub(super) struct ServerClock {
    began: Instant,
    ahead: AtomicI64,
}

impl ServerClock {
    pub(super) fn new() -> ServerClock {
        ServerClock { began: Instant::now(), ahead: AtomicI64::new(UNKNOWN) }
    }

    /// Microseconds on this process's own clock.
    pub(super) fn local(&self) -> i64 {
        i64::try_from(micros(self.began.elapsed())).unwrap_or(i64::MAX)
    }

    /// When the server must have begun a call that may take `left` from now, on its own clock. Before the first reply there
    /// is no telling.
    pub(super) fn not_after(&self, now: i64, left: Duration) -> Option<i64> {
        let ahead = self.ahead.load(Ordering::Relaxed);
        (ahead != UNKNOWN).then(|| now.saturating_add(ahead).saturating_add_unsigned(micros(left)))
    }

    /// Learns from a reply that named the time `server`.
    pub(super) fn learn(&self, sent: i64, server: u64) {
        let Ok(server) = i64::try_from(server) else { return };
        let (least, most) = (server.saturating_sub(self.local()), server.saturating_sub(sent));
        let ahead = self.ahead.load(Ordering::Relaxed);
        let better = if ahead == UNKNOWN { least } else { ahead.clamp(least.min(most), most) };
        if better != ahead {
            self.ahead.store(better, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stays_within_the_bounds_of_every_reply() {
        let clock = ServerClock::new();
        assert_eq!(clock.not_after(0, Duration::ZERO), None);
        let far_ahead = 1_000_000_000;
        clock.learn(clock.local(), far_ahead);
        let first = clock.not_after(0, Duration::ZERO).expect("known now");
        assert!((first - 1_000_000_000).abs() < 100_000, "{first}");
        // The server's clock steps back by half: the next reply moves the estimate all the way.
        clock.learn(clock.local(), far_ahead / 2);
        let second = clock.not_after(0, Duration::ZERO).expect("known still");
        assert!((second - 500_000_000).abs() < 100_000, "{second}");
        // A slow reply says little: the estimate stays.
        clock.learn(clock.local() - 10_000_000, far_ahead / 2);
        assert_eq!(clock.not_after(0, Duration::ZERO), Some(second));
    }
}
