//! When a connection to a server may be tried: at once, then after 0.5 to 0.9 s, then every 0.88 to 0.93 s.

use std::{
    hash::{BuildHasher, RandomState},
    time::Duration,
};

use tokio::time::Instant;

/// The least time before the second attempt.
const FIRST: Duration = Duration::from_millis(500);
/// The least time between attempts while a server is not to be had. It leaves time for the attempt itself: a server that is back is
/// found within a second, also where the attempt before came just too early.
const EVERY: Duration = Duration::from_millis(880);
/// A connection that stood for so long had lasted.
const LASTING: Duration = Duration::from_secs(1);

/// The attempts of one process to reach one server, of all its connections together. Times are handed in.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Since when the last attempt has stood, where nothing has broken since.
    sound: Option<Instant>,
    /// Attempts since it broke.
    attempts: u32,
    next: Option<Instant>,
    /// Whether a connection that did not last was replaced at once already.
    spent: bool,
}

impl Pace {
    /// Whether an attempt may begin now; if so, it has. A sound server may be asked for any number of connections at once.
    pub(super) fn begin(&mut self, now: Instant, jitter: Duration) -> bool {
        if self.sound.is_some() {
            return true;
        }
        if self.next.is_some_and(|next| now < next) {
            return false;
        }
        self.wait(now, jitter);
        true
    }

    /// Whether the server was there when it was last asked.
    pub(super) fn is_sound(&self) -> bool {
        self.sound.is_some()
    }

    /// An attempt succeeded.
    pub(super) fn made(&mut self, now: Instant) {
        self.sound.get_or_insert(now);
    }

    /// An attempt failed.
    pub(super) fn failed(&mut self, now: Instant, jitter: Duration) {
        if self.sound.is_some() {
            self.lost(now);
            self.wait(now, jitter);
        }
    }

    /// A connection was lost; it may be replaced at once if it had lasted. Of those that do not last only the first may: a
    /// server that takes connections and closes them is not asked more often than one that takes none.
    pub(super) fn lost(&mut self, now: Instant) {
        let Some(since) = self.sound.take() else { return };
        if now.duration_since(since) >= LASTING {
            *self = Pace::default();
        } else if !self.spent {
            *self = Pace { spent: true, ..Pace::default() };
        }
    }

    /// Whether a connection could be replaced at once, were it lost now.
    pub(super) fn is_ready(&self, now: Instant) -> bool {
        self.sound.is_some_and(|since| !self.spent || now.duration_since(since) >= LASTING)
            || self.next.is_none_or(|next| now >= next)
    }

    fn wait(&mut self, now: Instant, jitter: Duration) {
        self.attempts = self.attempts.saturating_add(1);
        // Put off at random, the second attempt most: many processes that lose one server together do not come back to it together.
        self.next = Some(now + if self.attempts == 1 { FIRST + jitter } else { EVERY + jitter / 8 });
    }
}

/// Up to 0.4 s, drawn anew each time.
pub(super) fn jitter() -> Duration {
    // The standard library gives each state keys of its own.
    let random = RandomState::new().hash_one(0u8) >> 32;
    Duration::from_nanos((random * 400_000_000) >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Asks every millisecond for five seconds and says at which ones an attempt began; each ends as told.
    fn attempts(pace: &mut Pace, begin: Instant, mut end: impl FnMut(&mut Pace, Instant)) -> Vec<u32> {
        let mut began = Vec::new();
        for ms in 0..5_000 {
            let now = begin + MS * ms;
            if pace.begin(now, MS * 136) {
                began.push(ms);
                end(pace, now);
            }
        }
        began
    }

    #[test]
    fn a_server_that_is_not_there_is_tried_about_once_a_second_after_a_first_wait_drawn_at_random() {
        let mut pace = Pace::default();
        let began = attempts(&mut pace, Instant::now(), |pace, now| pace.failed(now, MS * 136));
        assert_eq!(began, [0, 636, 1_533, 2_430, 3_327, 4_224]);
    }

    #[test]
    fn a_server_that_closes_what_it_accepts_is_asked_no_more_often() {
        let (mut pace, begin) = (Pace::default(), Instant::now());
        let began = attempts(&mut pace, begin, |pace, now| {
            pace.made(now);
            assert_eq!(pace.is_ready(now), now == begin);
            pace.lost(now);
        });
        assert_eq!(began, [0, 1, 637, 1_534, 2_431, 3_328, 4_225]);
    }

    #[test]
    fn a_connection_that_lasted_is_replaced_at_once() {
        let mut pace = Pace::default();
        let begin = Instant::now();
        assert!(pace.begin(begin, MS));
        pace.made(begin);
        assert!(pace.begin(begin + MS, MS), "the other connections of a sound server");
        pace.lost(begin + LASTING);
        assert!(pace.begin(begin + LASTING, MS * 400));
        pace.failed(begin + LASTING, MS * 400);
        assert!(!pace.begin(begin + LASTING + MS * 899, MS));
        assert!(pace.begin(begin + LASTING + MS * 900, MS));
    }

    #[test]
    fn the_first_wait_is_shorter_than_those_after_it() {
        let drawn: Vec<_> = (0..1_000).map(|_| jitter()).collect();
        assert!(drawn.iter().all(|jitter| *jitter < MS * 400));
        assert!(drawn.iter().any(|jitter| *jitter < MS * 100) && drawn.iter().any(|jitter| *jitter > MS * 300));
    }
}
