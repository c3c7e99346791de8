//! A breaker for each part of a store, and the way past them.

use std::{
    sync::{
        Mutex, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use smallvec::SmallVec;
use tokio::time::Instant;

use super::breaker::{Asked, Breaker, Change, Pass, Settings};
use crate::{
    error::{StoreError, StoreErrorKind},
    observer::{Observers, StoreEvent},
    store::{Ask, Purpose, Store},
};

/// How often parts are looked for that nobody asks any more.
const SWEEP_EVERY: Duration = Duration::from_secs(1);
/// Parts beyond these share the last breaker.
const MOST: usize = 256;

#[derive(Debug, Default)]
pub(super) struct Breakers {
    pub(super) settings: Settings,
    first: Breaker,
    /// Those of further parts, if there are any.
    more: OnceLock<Box<[Breaker]>>,
    /// How many are not at ease. While it is none nothing else is looked at.
    uneasy: AtomicUsize,
    /// When those that nobody asks any more were last looked for.
    swept: Mutex<Option<Instant>>,
}

impl Breakers {
    /// Around a store whose answers are waited for so long.
    pub(super) fn new(deadline: Duration) -> Breakers {
        Breakers { settings: Settings { deadline, ..Settings::default() }, ..Breakers::default() }
    }

    fn of(&self, part: usize) -> &Breaker {
        let Some(place) = part.checked_sub(1) else { return &self.first };
        let more = self.more.get_or_init(|| (1..MOST).map(|_| Breaker::default()).collect());
        more.get(place).or(more.last()).unwrap_or(&self.first)
    }

    #[inline]
    pub(super) fn at_ease(&self) -> bool {
        self.uneasy.load(Ordering::Relaxed) == 0
    }

    /// The way past the breakers of the parts that an ask needs.
    pub(super) fn gates(&self, ask: &Ask<'_>, store: &dyn Store) -> Gates<'_> {
        let now = Instant::now();
        self.gates_by(ask, store, now, |breaker| breaker.pass(now))
    }

    /// The same for an ask that began at this moment, while nothing was amiss.
    pub(super) fn open_gates(&self, ask: &Ask<'_>, store: &dyn Store, began: Instant) -> Gates<'_> {
        self.gates_by(ask, store, began, |_| Pass::Free)
    }

    fn gates_by(&self, ask: &Ask<'_>, store: &dyn Store, began: Instant, pass: impl Fn(&Breaker) -> Pass) -> Gates<'_> {
        let asked = if ask.purpose == Purpose::Peek { Asked::LookUp } else { Asked::Change };
        let mut gates = Gates { breakers: self, asked, began, parts: SmallVec::new(), lines: SmallVec::new() };
        for line in ask.lines {
            let part = store.part(line);
            let place = match gates.parts.iter().position(|(known, _)| *known == part) {
                Some(place) => place,
                None => {
                    gates.parts.push((part, pass(self.of(part))));
                    gates.parts.len() - 1
                }
            };
            gates.lines.push(place);
        }
        gates
    }

    /// Something speaks for asking again.
    pub(super) fn nudge(&self) {
        let now = Instant::now();
        std::iter::once(&self.first)
            .chain(self.more.get().into_iter().flatten())
            .for_each(|breaker| breaker.nudge(now));
    }

    /// Forgets, once a second at most, what parts have done that are not asked any more.
    pub(super) fn sweep(&self, observers: &Observers) {
        let now = Instant::now();
        // Whoever finds another at it has nothing to do.
        let Ok(mut swept) = self.swept.try_lock() else { return };
        if swept.is_some_and(|last| now.saturating_duration_since(last) < SWEEP_EVERY) {
            return;
        }
        *swept = Some(now);
        for (part, breaker) in std::iter::once(&self.first).chain(self.more.get().into_iter().flatten()).enumerate() {
            self.note(part, breaker.forget(now, &self.settings), None, observers);
        }
    }

    fn note(&self, part: usize, change: Change, error: Option<&StoreError>, observers: &Observers) {
        match change {
            Change::None => {}
            Change::Uneasy => {
                self.uneasy.fetch_add(1, Ordering::Relaxed);
            }
            Change::Calm => {
                self.uneasy.fetch_sub(1, Ordering::Relaxed);
            }
            Change::Closed => {
                self.uneasy.fetch_sub(1, Ordering::Relaxed);
                observers.tell(&StoreEvent::Closed { part });
            }
            Change::Opened => {
                if self.settings.failures <= 1 {
                    self.uneasy.fetch_add(1, Ordering::Relaxed);
                }
                if let Some(error) = error {
                    observers.tell(&StoreEvent::Opened { part, error: error.clone() });
                }
            }
        }
    }
}

/// What an ask was let through by. Dropped without a word, its probes are left to the next.
pub(super) struct Gates<'a> {
    breakers: &'a Breakers,
    asked: Asked,
    began: Instant,
    parts: SmallVec<[(usize, Pass); 4]>,
    /// The place of each line's part in `parts`.
    lines: SmallVec<[usize; 4]>,
}

impl Gates<'_> {
    /// Whether the line at this place of the ask may be asked.
    pub(super) fn let_through(&self, line: usize) -> bool {
        let pass = self.lines.get(line).and_then(|place| self.parts.get(*place));
        !matches!(pass, Some((_, Pass::Blocked(_))))
    }

    /// Tells the breakers how the lines that were let through fared: `error` is that of the line at this place of the ask, and none
    /// if it was answered. Answers whether the store answered any part whole.
    pub(super) fn report<'e>(mut self, error: impl Fn(usize) -> Option<&'e StoreError>, observers: &Observers) -> bool {
        let now = Instant::now();
        let (parts, lines) = (std::mem::take(&mut self.parts), &self.lines);
        let mut any = false;
        for (place, (part, pass)) in parts.into_iter().enumerate() {
            if matches!(pass, Pass::Blocked(_)) {
                continue;
            }
            let breaker = self.breakers.of(part);
            let is_lasting = |error: &StoreError| error.kind() == StoreErrorKind::Permanent;
            let errors = (0..).zip(lines).filter(|(_, of)| **of == place).filter_map(|(line, _)| error(line));
            // One that fails one line and tells another off has failed.
            let error = errors.min_by_key(|error| is_lasting(error));
            any |= error.is_none();
            let change = match error {
                None => breaker.succeeded(pass, self.asked, now),
                // Who is told off has reached the server.
                Some(error) if is_lasting(error) && pass == Pass::Probe => breaker.succeeded(pass, self.asked, now),
                Some(error) if is_lasting(error) => Change::None,
                Some(_) => breaker.failed(pass, self.asked, self.began, now, &self.breakers.settings),
            };
            self.breakers.note(part, change, error, observers);
        }
        any
    }
}

impl Drop for Gates<'_> {
    fn drop(&mut self) {
        for (part, pass) in &self.parts {
            if *pass == Pass::Probe {
                self.breakers.of(*part).abandoned(Instant::now());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Quota, Rule, key,
        store::{Line, MemoryStore, Scope, Time},
    };

    /// One ask that fares so.
    fn fare(breakers: &Breakers, well: bool) {
        let (scope, rule) = (Scope::new("n", "r"), Rule::gcra("r", Quota::per_second(1)).key(key::given()));
        let limit = rule.check().expect("sound");
        let lines = [Line::new(&scope, b"k", &limit, 1)];
        let ask = Ask { lines: &lines, purpose: Purpose::Spend, time: Time::Store };
        let error = StoreError::new(StoreErrorKind::Unavailable, "away");
        let gates = breakers.gates(&ask, &MemoryStore::new());
        gates.report(|_| (!well).then_some(&error), &Observers::default());
    }

    fn opened_by(failures: u32) -> Breakers {
        let settings = Settings {
            failures,
            within: Duration::from_secs(10),
            open_for: Duration::from_secs(30),
            ..Settings::default()
        };
        Breakers { settings, ..Breakers::default() }
    }

    /// Only then are requests spared the look at each breaker.
    #[tokio::test(start_paused = true)]
    async fn they_are_at_ease_while_none_has_failures_and_again_afterwards() {
        for failures in [1, 2, 5] {
            let breakers = opened_by(failures);
            for _ in 0..3 {
                assert!(breakers.at_ease(), "{failures}");
                for _ in 0..failures {
                    fare(&breakers, false);
                    assert!(!breakers.at_ease(), "{failures}");
                }
                tokio::time::advance(Duration::from_secs(33)).await;
                fare(&breakers, true);
            }
            assert!(breakers.at_ease(), "{failures}");
        }
        let calmed = opened_by(5);
        fare(&calmed, false);
        fare(&calmed, true);
        assert!(calmed.at_ease());
        // Nobody asks again, and it is forgotten.
        fare(&calmed, false);
        tokio::time::advance(Duration::from_secs(11)).await;
        calmed.sweep(&Observers::default());
        assert!(calmed.at_ease());
    }

    #[test]
    fn parts_beyond_the_last_share_it_and_not_the_first() {
        let breakers = Breakers::default();
        let is_one = |one: usize, other: usize| std::ptr::eq(breakers.of(one), breakers.of(other));
        assert!(is_one(300, 1_000) && is_one(300, MOST - 1));
        assert!(!is_one(300, 0) && !is_one(300, 254) && !is_one(0, 1));
    }

    /// Threads that ask at once, and answer, fail or leave as chance has it: one probes at a time, and in the end nothing is left of it.
    #[test]
    fn whoever_leaves_and_however_they_race_one_probes_at_a_time() {
        let settings = Settings {
            failures: 2,
            within: Duration::from_secs(60),
            open_for: Duration::from_micros(50),
            ..Settings::default()
        };
        let breakers = Breakers { settings, ..Breakers::default() };
        let (scope, rule) = (Scope::new("n", "r"), Rule::gcra("r", Quota::per_second(1)).key(key::given()));
        let limit = rule.check().expect("sound");
        let lines = [Line::new(&scope, b"k", &limit, 1)];
        let ask = Ask { lines: &lines, purpose: Purpose::Spend, time: Time::Store };
        let error = StoreError::new(StoreErrorKind::Unavailable, "away");
        let (probing, probes) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let once = |mut chance: u64, from: u64| {
            let gates = breakers.gates(&ask, &MemoryStore::new());
            let is_probe = gates.parts.iter().any(|(_, pass)| *pass == Pass::Probe);
            if is_probe {
                assert_eq!(probing.fetch_add(1, Ordering::SeqCst), 0, "two probe at once");
                probes.fetch_add(1, Ordering::SeqCst);
            }
            for _ in 0..chance % 50 {
                std::hint::spin_loop();
            }
            if is_probe {
                probing.fetch_sub(1, Ordering::SeqCst);
            }
            chance = from.max(chance % 10);
            match chance {
                0..5 => drop(gates.report(|_| Some(&error), &Observers::default())),
                5 => drop(gates),
                _ => drop(gates.report(|_| None, &Observers::default())),
            }
        };
        std::thread::scope(|threads| {
            for _ in 0..4 {
                threads.spawn(|| (0..20_000).for_each(|_| once(crate::random::bits(), 0)));
            }
        });
        assert!(probes.load(Ordering::SeqCst) > 10, "{probes:?} probes");
        while !breakers.at_ease() {
            once(crate::random::bits(), 6);
        }
        assert!(matches!(breakers.first.pass(Instant::now()), Pass::Free));
    }
}
