//! Whether a part of the store is asked at all.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::random;

/// When a breaker opens, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    /// So many failures in a row,
    pub(super) failures: u32,
    /// within this time,
    pub(super) within: Duration,
    /// keep the store from being asked for this long.
    pub(super) open_for: Duration,
    /// How long one failure may take.
    pub(super) deadline: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            failures: 5,
            within: Duration::from_secs(10),
            open_for: Duration::from_secs(30),
            deadline: Duration::ZERO,
        }
    }
}

impl Settings {
    /// A store that hangs fails once in each deadline, however many ask: there is time for all of these, and as long between them.
    fn within(&self) -> Duration {
        self.within.max(self.deadline.saturating_mul(self.failures.saturating_mul(2)))
    }
}

/// A circuit breaker. What it is told and asked of is the past: it never waits.
#[derive(Debug, Default)]
pub(super) struct Breaker(Mutex<State>);

#[derive(Debug)]
enum State {
    /// Asked. The times of the failures since the last success, the latest ones.
    Closed(VecDeque<Instant>, Failed),
    /// Not asked before this.
    Open(Instant, Failed),
    /// One is asking whether it is well again.
    Probing(Failed),
}

impl Default for State {
    fn default() -> State {
        State::Closed(VecDeque::new(), Failed::LookUps)
    }
}

/// What has failed. A server that takes no writes may well answer look-ups, and so may a replica: that they are answered says
/// nothing of charges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failed {
    /// Nothing but look-ups.
    LookUps,
    Charges,
}

impl Failed {
    fn and(self, asked: Asked) -> Failed {
        if asked == Asked::LookUp { self } else { Failed::Charges }
    }

    /// Whether an answer to this says that it is well.
    fn is_mended_by(self, asked: Asked) -> bool {
        self == Failed::LookUps || asked == Asked::Change
    }
}

/// What the store was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    LookUp,
    Change,
}

/// Whether an ask may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pass {
    /// It may.
    Free,
    /// It may, alone: it finds out whether the store is well again, and must be followed by a word of how it went.
    Probe,
    /// It may not, for at least this long.
    Blocked(Duration),
}

/// What a word about the store has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    None,
    /// From no failure to the first.
    Uneasy,
    Opened,
    /// From an open breaker back to normal.
    Closed,
    /// From a few failures back to none.
    Calm,
}

impl Breaker {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether to ask now. With `Probe`, nobody else is let through before the caller has told how it went.
    pub(super) fn pass(&self, now: Instant) -> Pass {
        let mut state = self.lock();
        match *state {
            State::Closed(..) => Pass::Free,
            State::Open(until, _) if now < until => Pass::Blocked(until - now),
            State::Open(_, failed) => {
                *state = State::Probing(failed);
                Pass::Probe
            }
            State::Probing(_) => Pass::Blocked(Duration::ZERO),
        }
    }

    /// The store answered. Where that says nothing, a probe has not found out either.
    pub(super) fn succeeded(&self, pass: Pass, asked: Asked, now: Instant) -> Change {
        let mut state = self.lock();
        match &*state {
            State::Closed(failures, _) if failures.is_empty() => Change::None,
            State::Closed(_, failed) if failed.is_mended_by(asked) => {
                *state = State::default();
                Change::Calm
            }
            State::Probing(failed) if pass == Pass::Probe => {
                if failed.is_mended_by(asked) {
                    *state = State::default();
                    return Change::Closed;
                }
                *state = State::Open(now, *failed);
                Change::None
            }
            // The late answer to a question from before it opened.
            State::Closed(..) | State::Open(..) | State::Probing(_) => Change::None,
        }
    }

    /// The store gave no answer to an ask that began at this moment. What began before the last failure was on its way then: a
    /// connection that is lost takes all calls with it, and that is one failure.
    pub(super) fn failed(&self, pass: Pass, asked: Asked, began: Instant, now: Instant, settings: &Settings) -> Change {
        let mut state = self.lock();
        match &mut *state {
            State::Closed(failures, failed) if failures.back().is_some_and(|last| began < *last) => {
                *failed = failed.and(asked);
                Change::None
            }
            State::Closed(failures, failed) => {
                *failed = failed.and(asked);
                let first = failures.is_empty();
                let most = usize::try_from(settings.failures).unwrap_or(usize::MAX).max(1);
                failures.push_back(now);
                while failures.len() > most {
                    failures.pop_front();
                }
                let since = failures.front().map(|oldest| now.saturating_duration_since(*oldest));
                if failures.len() == most && since.is_some_and(|since| since <= settings.within()) {
                    *state = State::Open(now + jittered(settings.open_for), *failed);
                    return Change::Opened;
                }
                if first { Change::Uneasy } else { Change::None }
            }
            State::Probing(failed) if pass == Pass::Probe => {
                *state = State::Open(now + jittered(settings.open_for), failed.and(asked));
                Change::None
            }
            State::Open(..) | State::Probing(_) => Change::None,
        }
    }

    /// Forgets what nobody has asked about for long: the part may be no more. A node of a Cluster that another has taken the
    /// place of is never asked again.
    pub(super) fn forget(&self, now: Instant, settings: &Settings) -> Change {
        let mut state = self.lock();
        let change = match &*state {
            State::Closed(failures, _) => match failures.back() {
                Some(last) if now.saturating_duration_since(*last) > settings.within() => Change::Calm,
                _ => Change::None,
            },
            State::Open(until, _) if now.saturating_duration_since(*until) > settings.open_for => Change::Closed,
            State::Open(..) | State::Probing(_) => Change::None,
        };
        if change != Change::None {
            *state = State::default();
        }
        change
    }

    /// Something speaks for asking again: the next ask probes.
    pub(super) fn nudge(&self, now: Instant) {
        let mut state = self.lock();
        if let State::Open(until, _) = &mut *state {
            *until = now.min(*until);
        }
    }

    /// The probe left without having found out: the next ask probes.
    pub(super) fn abandoned(&self, now: Instant) {
        let mut state = self.lock();
        if let State::Probing(failed) = *state {
            *state = State::Open(now, failed);
        }
    }
}

/// Up to a tenth longer: processes whose breakers opened together must not come back together.
fn jittered(time: Duration) -> Duration {
    time + time.mul_f64(0.1 * random::share())
}

#[cfg(test)]
mod model;

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: Settings = Settings {
        failures: 3,
        within: Duration::from_secs(10),
        open_for: Duration::from_secs(30),
        deadline: Duration::ZERO,
    };

    fn seconds(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    /// A store that hung was never given up where five deadlines were longer than the time that failures count.
    #[test]
    fn opens_however_long_a_failure_takes() {
        for deadline in [0.01, 2.4, 2.6, 12.0, 3_600.0] {
            let settings = Settings { deadline: seconds(deadline), ..Settings::default() };
            let (breaker, began) = (Breaker::default(), Instant::now());
            let changes: Vec<Change> = (0..5u32)
                .map(|number| {
                    let (asked, failed) = (seconds(deadline) * number, seconds(deadline) * (number + 1));
                    // Another looks in just before.
                    assert_eq!(breaker.forget(began + failed, &settings), Change::None);
                    breaker.failed(Pass::Free, Asked::Change, began + asked, began + failed, &settings)
                })
                .collect();
            assert_eq!(changes.last(), Some(&Change::Opened), "{deadline}");
        }
    }

    #[test]
    fn opens_after_so_many_failures_in_a_row_and_lets_one_probe_through() {
        let (breaker, began) = (Breaker::default(), Instant::now());
        let fail = |pass, after| {
            breaker.failed(pass, Asked::Change, began + seconds(after), began + seconds(after), &SETTINGS)
        };
        assert_eq!(fail(Pass::Free, 0.0), Change::Uneasy);
        assert_eq!(fail(Pass::Free, 1.0), Change::None);
        assert_eq!(breaker.succeeded(Pass::Free, Asked::Change, began), Change::Calm);
        assert_eq!(breaker.succeeded(Pass::Free, Asked::Change, began), Change::None);
        assert_eq!(fail(Pass::Free, 2.0), Change::Uneasy);
        assert_eq!(fail(Pass::Free, 3.0), Change::None);
        assert_eq!(breaker.pass(began + seconds(3.5)), Pass::Free);
        assert_eq!(fail(Pass::Free, 4.0), Change::Opened);
        // Answers to what was asked before change nothing.
        assert_eq!(breaker.succeeded(Pass::Free, Asked::Change, began), Change::None);
        assert_eq!(fail(Pass::Free, 5.0), Change::None);

        let Pass::Blocked(left) = breaker.pass(began + seconds(4.0)) else { panic!("it is open") };
        assert!((seconds(30.0)..=seconds(33.0)).contains(&left), "{left:?}");
        assert!(matches!(breaker.pass(began + seconds(33.9)), Pass::Blocked(_)));
        let later = began + seconds(4.0) + left;
        assert_eq!(breaker.pass(later), Pass::Probe);
        assert_eq!(breaker.pass(later), Pass::Blocked(Duration::ZERO));
        // Another's late answer is no word of the probe, nor is its failure.
        assert_eq!(breaker.succeeded(Pass::Free, Asked::Change, began), Change::None);
        assert_eq!(breaker.failed(Pass::Free, Asked::Change, later, later, &SETTINGS), Change::None);
        assert_eq!(breaker.pass(later), Pass::Blocked(Duration::ZERO));
        // The probe fails: open again.
        assert_eq!(breaker.failed(Pass::Probe, Asked::Change, later, later, &SETTINGS), Change::None);
        let Pass::Blocked(left) = breaker.pass(later) else { panic!("it is open again") };
        // The next one is dropped before it knows: another probes at once.
        assert_eq!(breaker.pass(later + left), Pass::Probe);
        breaker.abandoned(later + left);
        assert_eq!(breaker.pass(later + left), Pass::Probe);
        assert_eq!(breaker.succeeded(Pass::Probe, Asked::Change, began), Change::Closed);
        assert_eq!(breaker.pass(later + left), Pass::Free);
    }

    #[test]
    fn failures_that_lie_too_far_apart_do_not_open_it() {
        let (breaker, began) = (Breaker::default(), Instant::now());
        let fail = |after| {
            breaker.failed(Pass::Free, Asked::Change, began + seconds(after), began + seconds(after), &SETTINGS)
        };
        for after in [0.0, 6.0, 12.0, 18.0, 24.0] {
            assert_ne!(fail(after), Change::Opened, "{after}");
        }
        // The last three lie within ten seconds.
        assert_eq!(fail(26.0), Change::Opened);
        let edge = Breaker::default();
        let fail =
            |after| edge.failed(Pass::Free, Asked::Change, began + seconds(after), began + seconds(after), &SETTINGS);
        assert_eq!(
            [0.0, 5.0, 10.0].map(fail),
            [Change::Uneasy, Change::None, Change::Opened],
            "ten seconds to the dot"
        );
    }

    #[test]
    fn what_nobody_asks_about_is_forgotten_when_it_no_longer_matters() {
        let (breaker, began) = (Breaker::default(), Instant::now());
        let fail = |after| {
            breaker.failed(Pass::Free, Asked::Change, began + seconds(after), began + seconds(after), &SETTINGS)
        };
        let forget = |after| breaker.forget(began + seconds(after), &SETTINGS);
        assert_eq!(forget(100.0), Change::None);
        assert_eq!(fail(0.0), Change::Uneasy);
        assert_eq!((forget(10.0), forget(10.1), forget(10.2)), (Change::None, Change::Calm, Change::None));
        assert_eq!([11.0, 12.0, 13.0].map(fail), [Change::Uneasy, Change::None, Change::Opened]);
        // It is open for 30 to 33 s, and as long again is time enough for somebody to probe.
        assert_eq!((forget(73.0), forget(76.1), forget(76.2)), (Change::None, Change::Closed, Change::None));
    }

    #[test]
    fn a_hundred_of_them_do_not_probe_together() {
        let began = Instant::now();
        let blocked = |breaker: &Breaker, now| match breaker.pass(now) {
            Pass::Blocked(left) => left,
            other => panic!("{other:?}"),
        };
        // Neither the first time, nor when the probe has failed.
        let left = |_| {
            let breaker = Breaker::default();
            for _ in 0..3 {
                breaker.failed(Pass::Free, Asked::Change, began, began, &SETTINGS);
            }
            let first = blocked(&breaker, began);
            let probed = began + first;
            assert_eq!(breaker.pass(probed), Pass::Probe);
            breaker.failed(Pass::Probe, Asked::Change, probed, probed, &SETTINGS);
            (first, blocked(&breaker, probed))
        };
        let (first, second): (Vec<_>, Vec<_>) = (0..100).map(left).unzip();
        for mut left in [first, second] {
            left.sort_unstable();
            left.dedup();
            assert!(left.len() > 90, "{} different times", left.len());
        }
    }
}
