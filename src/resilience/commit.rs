//! Work that goes on when its request has long been answered: giving back, and telling the store what was admitted without it.

use std::{sync::Arc, time::Duration};

use tokio::{runtime::Handle, task::JoinSet, time::sleep};

use super::{
    Shared, fallback,
    journal::{Commit, Went},
};
use crate::{
    error::StoreError,
    observer::StoreEvent,
    random,
    store::{Ask, Id, Line, OwnedLine, Purpose, Time},
};

/// How many commits are under way at once.
const AT_ONCE: usize = 16;
/// How often giving back is tried.
const TRIES: u32 = 5;

/// The right to commit; whoever holds it alone does.
struct Turn(Arc<Shared>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.journal.rest();
    }
}

impl Shared {
    /// Tells the store of everything it has missed. The store has just answered.
    pub(super) fn commit_missed(self: &Arc<Shared>, time: Time) {
        // Outside a runtime it is left to the next answer.
        let Ok(runtime) = Handle::try_current() else { return };
        if self.journal.begin() {
            let turn = Turn(Arc::clone(self));
            runtime.spawn(async move { turn.0.commit_all(time).await });
        }
    }

    async fn commit_all(self: &Arc<Shared>, time: Time) {
        let mut tasks = JoinSet::new();
        let (mut counts, mut units) = (0, 0);
        for name in self.journal.names() {
            if tasks.len() >= AT_ONCE
                && let Some(Ok((went, more))) = tasks.join_next().await
            {
                (counts, units) = (counts + u64::from(went == Went::Done), units + more);
                if went != Went::Done {
                    // It has gone again; the next answer begins anew.
                    break;
                }
            }
            let (commit, lost) = self.journal.commit(&name, |line| self.local.spent(line, time));
            self.not_committed(lost);
            let Some(commit) = commit else { continue };
            let shared = Arc::clone(self);
            tasks.spawn(async move {
                let went = shared.commit_one(&commit, time).await;
                shared.journal.went(&name, went);
                (went, if went == Went::Done { commit.line.cost } else { 0 })
            });
        }
        while let Some(done) = tasks.join_next().await {
            if let Ok((Went::Done, more)) = done {
                (counts, units) = (counts + 1, units + more);
            }
        }
        if counts > 0 {
            self.observers.tell(&StoreEvent::Committed { counts, units });
        }
    }

    async fn commit_one(&self, commit: &Commit, time: Time) -> Went {
        let lines = [commit.line.line()];
        let ask = Ask { lines: &lines, purpose: Purpose::Take(commit.id), time };
        match self.ask_past_breakers(&ask).await {
            Ok(_) => Went::Done,
            Err(error) if error.may_have_charged() => Went::Unknown,
            Err(_) => Went::Undone,
        }
    }

    /// Gives back what the store has charged, off the request's path.
    pub(super) fn give_back(self: &Arc<Shared>, lines: &[Line<'_>], time: Time) {
        let lines: Vec<OwnedLine> = lines.iter().map(OwnedLine::of).collect();
        let Ok(runtime) = Handle::try_current() else { return self.not_given_back(fallback::open()) };
        let shared = Arc::clone(self);
        runtime.spawn(async move {
            let lines: Vec<Line<'_>> = lines.iter().map(OwnedLine::line).collect();
            let ask = Ask { lines: &lines, purpose: Purpose::Give(Id::random()), time };
            for tried in 0.. {
                let Err(error) = shared.ask_past_breakers(&ask).await else { return };
                if tried == TRIES {
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
