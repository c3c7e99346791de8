//! Work that goes on when its request has long been answered: giving back, and telling the store what was admitted without it.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::{
    runtime::Handle,
    task::JoinSet,
    time::{Instant, sleep},
};

use super::{
    Shared,
    journal::{Commit, Went},
};
use crate::{
    error::{StoreError, StoreErrorKind},
    observer::StoreEvent,
    random,
    store::{Ask, Id, Line, OwnedLine, Purpose, Time},
};

/// How many commits are under way at once.
const AT_ONCE: usize = 16;
/// How often giving back is tried.
const TRIES: u32 = 5;

/// How many requests' charges may be on their way back at a time. More are left to time.
const MOST_RETURNING: usize = 1_024;

/// A charge on its way back.
struct Returning(Arc<Shared>);

impl Returning {
    fn begin(shared: &Arc<Shared>) -> Option<Returning> {
        let returning = Returning(Arc::clone(shared));
        (shared.returning.fetch_add(1, Ordering::Relaxed) < MOST_RETURNING).then_some(returning)
    }
}

impl Drop for Returning {
    fn drop(&mut self) {
        self.0.returning.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The right to commit; whoever holds it alone does.
struct Turn {
    shared: Arc<Shared>,
    well: bool,
    denied: u32,
}

impl Turn {
    fn end(mut self, sum: &Sum) {
        (self.well, self.denied) = (sum.well, sum.denied);
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.shared.journal.rest(self.well, self.denied);
    }
}

/// What came of a round.
#[derive(Default)]
struct Sum {
    counts: u64,
    units: u64,
    /// Whether nothing is left.
    well: bool,
    denied: u32,
}

impl Sum {
    fn add(&mut self, done: Option<(Went, u64)>) {
        match done {
            Some((Went::Done, units)) => (self.counts, self.units) = (self.counts + 1, self.units + units),
            Some((Went::Denied, _)) => (self.well, self.denied) = (false, self.denied.saturating_add(1)),
            _ => self.well = false,
        }
    }
}

impl Shared {
    /// Tells the store of everything it has missed. The store has just answered.
    pub(super) fn commit_missed(self: &Arc<Shared>, time: Time) {
        // Outside a runtime it is left to the next answer.
        let Ok(runtime) = Handle::try_current() else { return };
        if self.journal.begin() {
            let turn = Turn { shared: Arc::clone(self), well: false, denied: 0 };
            runtime.spawn(async move {
                let sum = turn.shared.commit_all(time).await;
                turn.end(&sum);
            });
        }
    }

    async fn commit_all(self: &Arc<Shared>, time: Time) -> Sum {
        let began = Instant::now();
        let mut tasks = JoinSet::new();
        let mut sum = Sum { well: true, ..Sum::default() };
        for name in self.journal.names() {
            if tasks.len() >= AT_ONCE
                && let Some(done) = tasks.join_next().await
            {
                sum.add(done.ok());
            }
            let (commit, lost) = self.journal.commit(&name, |line| self.local.spent(line, time));
            self.not_committed(lost);
            let Some(commit) = commit else { continue };
            let shared = Arc::clone(self);
            tasks.spawn(async move {
                let went = shared.commit_one(&commit, time.later(began.elapsed())).await;
                shared.journal.went(&name, &commit, went);
                (went, commit.line.cost)
            });
        }
        while let Some(done) = tasks.join_next().await {
            sum.add(done.ok());
        }
        if sum.counts > 0 {
            self.observers.tell(&StoreEvent::Committed { counts: sum.counts, units: sum.units });
        }
        sum
    }

    async fn commit_one(&self, commit: &Commit, time: Time) -> Went {
        let lines = [commit.line.line()];
        let ask = Ask { lines: &lines, purpose: Purpose::Take(commit.id), time };
        match self.ask_past_breakers(&ask).await {
            Ok(_) => Went::Done,
            Err(error) if error.may_have_charged() => Went::Unknown,
            Err(error) if !error.is_transient() => Went::Denied,
            Err(_) => Went::Undone,
        }
    }

    /// Gives back what the store has charged, off the request's path.
    pub(super) fn give_back(self: &Arc<Shared>, lines: &[Line<'_>], time: Time) {
        let lines: Vec<OwnedLine> = lines.iter().map(OwnedLine::of).collect();
        let unable = |text: String| self.not_given_back(StoreError::new(StoreErrorKind::Unavailable, text));
        let Ok(runtime) = Handle::try_current() else { return unable("there is no runtime to do it in".into()) };
        let Some(returning) = Returning::begin(self) else {
            return unable(format!("{MOST_RETURNING} others are on their way back"));
        };
        runtime.spawn(async move {
            let (shared, began) = (&returning.0, Instant::now());
            let lines: Vec<Line<'_>> = lines.iter().map(OwnedLine::line).collect();
            let purpose = Purpose::Give(Id::random());
            for tried in 0.. {
                let ask = Ask { lines: &lines, purpose, time: time.later(began.elapsed()) };
                let Err(error) = shared.ask_past_breakers(&ask).await else { return };
                // What needs an operator does not pass in seconds.
                let mut own = (0..lines.len()).filter_map(|place| error.of_line(place));
                if tried == TRIES || own.all(|error| !error.is_transient()) {
                    return shared.not_given_back(error);
                }
                sleep(Duration::from_millis(100 << tried).mul_f64(1.0 + random::share())).await;
            }
        });
    }

    fn not_given_back(&self, error: StoreError) {
        self.observers.tell(&StoreEvent::NotGivenBack(error));
    }

    pub(super) fn not_committed(&self, units: u64) {
        if units > 0 {
            self.observers.tell(&StoreEvent::NotCommitted { units });
        }
    }
}
