//! A store in memory that fails when it is told to.

use std::{
    collections::HashMap,
    future::pending,
    sync::{Arc, Mutex, Weak},
    task::{Context, Poll, Waker},
};

use sluicegate::{
    MemoryStore, Observer, StoreError, StoreErrorKind, StoreEvent,
    store::{Answer, Ask, Line, Partial, Purpose, Store, StoreFuture, Time, Verdict},
};

/// What happens to an ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    Well,
    /// Fails; nothing is charged.
    Fails(StoreErrorKind),
    /// Charges, and fails all the same.
    LosesTheReply,
    /// Never answers.
    Hangs,
    /// Charges, and never answers.
    ChargesAndHangs,
}

/// Lines whose key begins with a digit are kept in the part of that number, others in part 0. Each part has a mood.
#[derive(Clone, Debug, Default)]
pub struct Flaky(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    store: MemoryStore,
    moods: Mutex<HashMap<usize, Mood>>,
    asked: Mutex<Vec<(usize, Purpose)>>,
    times: Mutex<Vec<(Purpose, Time)>>,
    observers: Observers,
}

impl Flaky {
    pub fn set(&self, mood: Mood) {
        self.set_part(0, mood);
    }

    pub fn set_part(&self, part: usize, mood: Mood) {
        self.0.moods.lock().expect("no panic").insert(part, mood);
    }

    /// What is inside, and never fails.
    pub fn inside(&self) -> MemoryStore {
        self.0.store.clone()
    }

    /// The parts that were asked since the last call, one for each line.
    pub fn asked(&self) -> Vec<(usize, Purpose)> {
        std::mem::take(&mut self.0.asked.lock().expect("no panic"))
    }

    /// When each ask since the last call was made, by its own word.
    pub fn times(&self) -> Vec<(Purpose, Time)> {
        std::mem::take(&mut self.0.times.lock().expect("no panic"))
    }

    /// How many asks to spend there were since the last call.
    pub fn spends(&self) -> usize {
        self.asked().iter().filter(|(_, purpose)| *purpose == Purpose::Spend).count()
    }

    /// Tells those who watch the store.
    pub fn tell(&self, event: &StoreEvent) {
        for observer in self.0.observers.0.lock().expect("no panic").iter().filter_map(Weak::upgrade) {
            observer.store(event);
        }
    }

    fn mood(&self, part: usize) -> Mood {
        self.0.moods.lock().expect("no panic").get(&part).copied().unwrap_or(Mood::Well)
    }
}

#[derive(Default)]
struct Observers(Mutex<Vec<Weak<dyn Observer>>>);

impl std::fmt::Debug for Observers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Observers")
    }
}

impl Store for Flaky {
    fn observe(&self, observer: &Arc<dyn Observer>) {
        self.0.observers.0.lock().expect("no panic").push(Arc::downgrade(observer));
    }

    fn acquire<'a>(&'a self, ask: &'a Ask<'a>) -> StoreFuture<'a, Answer> {
        Box::pin(async move {
            self.0.times.lock().expect("no panic").push((ask.purpose, ask.time));
            let moods: Vec<Mood> = ask
                .lines
                .iter()
                .map(|line| {
                    let part = self.part(line);
                    self.0.asked.lock().expect("no panic").push((part, ask.purpose));
                    self.mood(part)
                })
                .collect();
            if moods.contains(&Mood::Hangs) {
                return pending().await;
            }
            let reached = |mood: &Mood| matches!(mood, Mood::Well | Mood::LosesTheReply | Mood::ChargesAndHangs);
            let lines: Vec<Line<'_>> =
                ask.lines.iter().zip(&moods).filter(|(_, mood)| reached(mood)).map(|(line, _)| *line).collect();
            let answer = match lines.is_empty() {
                true => Answer::default(),
                false => self.0.store.acquire(&Ask { lines: &lines, ..*ask }).await?,
            };
            if moods.contains(&Mood::ChargesAndHangs) {
                return pending().await;
            }
            let error = |mood: &Mood| match mood {
                Mood::Well => None,
                Mood::Fails(kind) => Some(StoreError::new(*kind, "told to fail").uncharged()),
                _ => Some(StoreError::new(StoreErrorKind::Unavailable, "the reply was lost")),
            };
            let errors: Vec<Option<StoreError>> = moods.iter().map(error).collect();
            let Some(first) = errors.iter().flatten().next().cloned() else { return Ok(answer) };
            let mut judged = answer.verdicts().iter();
            let verdict = |mood: &Mood| -> Option<Verdict> {
                let judged = if reached(mood) { judged.next() } else { None };
                judged.filter(|_| *mood == Mood::Well).copied()
            };
            let verdicts: Vec<Option<Verdict>> = moods.iter().map(verdict).collect();
            let partial = Partial::new(verdicts).failing(errors);
            Err(first.with(partial.charged(ask.purpose == Purpose::Spend && answer.fits())))
        })
    }

    fn reset<'a>(&'a self, lines: &'a [Line<'a>]) -> StoreFuture<'a, ()> {
        if lines.iter().any(|line| self.mood(self.part(line)) == Mood::Hangs) {
            return Box::pin(pending());
        }
        self.0.store.reset(lines)
    }

    fn part(&self, line: &Line<'_>) -> usize {
        line.key.first().filter(|byte| byte.is_ascii_digit()).map_or(0, |byte| usize::from(byte - b'0'))
    }
}

/// The same where it is asked, without waiting; what hangs is left to be waited for.
#[derive(Clone, Debug)]
pub struct AtOnce(pub Flaky);

impl Store for AtOnce {
    fn acquire_now(&self, ask: &Ask<'_>, answer: &mut Answer) -> Option<Result<(), StoreError>> {
        let mut context = Context::from_waker(Waker::noop());
        match self.0.acquire(ask).as_mut().poll(&mut context) {
            Poll::Ready(decided) => Some(decided.map(|decided| *answer = decided)),
            Poll::Pending => None,
        }
    }

    fn acquire<'a>(&'a self, ask: &'a Ask<'a>) -> StoreFuture<'a, Answer> {
        self.0.acquire(ask)
    }

    fn reset<'a>(&'a self, lines: &'a [Line<'a>]) -> StoreFuture<'a, ()> {
        self.0.reset(lines)
    }

    fn observe(&self, observer: &Arc<dyn Observer>) {
        self.0.observe(observer);
    }

    fn part(&self, line: &Line<'_>) -> usize {
        self.0.part(line)
    }
}
