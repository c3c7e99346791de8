//! What was admitted while the store was not asked, until the store knows of it.

use std::{
    collections::HashMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

use crate::store::{Id, Line, OwnedLine, RECORD_TTL};

/// Counts beyond these are not committed; that is told.
const MOST: usize = 16_384;

/// A commit whose reply was lost is repeated under its id for this long: half the time that stores remember ids.
const REPEAT_FOR: Duration = Duration::from_secs(RECORD_TTL.as_secs() / 2);

/// A count: the number of its scope, and its key.
pub(super) type Name = (u32, Box<[u8]>);

type Entries = HashMap<Name, Entry, foldhash::fast::RandomState>;

/// How long nothing is committed after not all went well: a part of the store may be away for long.
const REST: Duration = Duration::from_millis(250);
/// How much longer for each that was denied. Until somebody mends that it is in vain, and a store must not be flooded with it.
const REST_FOR_DENIED: Duration = Duration::from_millis(4);

#[derive(Debug, Default)]
pub(super) struct Journal {
    entries: Mutex<Entries>,
    /// Whether there is anything to commit: one word to look at on the path of requests.
    any: AtomicBool,
    /// Whether it is being committed.
    busy: AtomicBool,
    /// Not before this again: the last time not all went well.
    not_before: Mutex<Option<Instant>>,
}

/// One count.
#[derive(Debug)]
struct Entry {
    line: OwnedLine,
    /// Units that no commit has been sent of.
    units: u64,
    /// A commit that was sent and not heard of.
    sent: Option<Commit>,
}

/// Units to be charged once.
#[derive(Clone, Debug)]
pub(super) struct Commit {
    pub(super) id: Id,
    pub(super) line: OwnedLine,
    since: Instant,
    /// Whether it was handed out before: it may have been carried out then.
    repeated: bool,
}

/// How a commit went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Went {
    Done,
    /// Nothing was charged.
    Undone,
    /// Nor will it be, until somebody mends that.
    Denied,
    /// Nobody knows: it is sent again under the same id.
    Unknown,
}

impl Journal {
    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        !self.any.load(Ordering::Relaxed)
    }

    /// Notes what was admitted. Answers the units there was no room for.
    pub(super) fn add(&self, lines: &[Line<'_>]) -> u64 {
        let mut entries = self.lock();
        let mut lost = 0;
        // What is committed is told by counts and not by their tenants.
        for line in lines.iter().filter(|line| line.cost > 0).map(|line| Line { tenant: None, ..*line }) {
            let name = (line.scope.number(), line.key.into());
            if let Some(entry) = entries.get_mut(&name) {
                entry.units = entry.units.saturating_add(line.cost);
                entry.line = OwnedLine::of(&line);
            } else if entries.len() < MOST {
                entries.insert(name, Entry { line: OwnedLine::of(&line), units: line.cost, sent: None });
            } else {
                lost += line.cost;
            }
        }
        self.any.store(!entries.is_empty(), Ordering::Relaxed);
        lost
    }

    /// Forgets a count that was reset.
    pub(super) fn forget(&self, line: &Line<'_>) {
        let mut entries = self.lock();
        entries.remove(&(line.scope.number(), line.key.into()));
        self.any.store(!entries.is_empty(), Ordering::Relaxed);
    }

    /// Whether the caller is the one to commit now. It says when it is [done](Journal::rest).
    pub(super) fn begin(&self) -> bool {
        let rests = self.not_before().is_some_and(|moment| Instant::now() < moment);
        !self.is_empty() && !rests && !self.busy.swap(true, Ordering::Acquire)
    }

    /// `well`: everything was committed; if not, so many were denied.
    pub(super) fn rest(&self, well: bool, denied: u32) {
        *self.not_before() = (!well).then(|| Instant::now() + REST + REST_FOR_DENIED * denied);
        self.busy.store(false, Ordering::Release);
    }

    fn not_before(&self) -> MutexGuard<'_, Option<Instant>> {
        self.not_before.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The names of all counts.
    pub(super) fn names(&self) -> Vec<Name> {
        self.lock().keys().cloned().collect()
    }

    /// The commit of one count. `spent`: how much of a line's local count still matters, which is the most that is committed;
    /// the rest has come back in the meantime. Also answers the units of a commit that was repeated for too long.
    pub(super) fn commit(&self, name: &Name, spent: impl Fn(&Line<'_>) -> u64) -> (Option<Commit>, u64) {
        let mut entries = self.lock();
        let Some(entry) = entries.get_mut(name) else { return (None, 0) };
        let mut lost = 0;
        if let Some(sent) = &entry.sent {
            if sent.since.elapsed() < REPEAT_FOR {
                return (Some(Commit { repeated: true, ..sent.clone() }), 0);
            }
            lost = sent.line.cost;
            entry.sent = None;
        }
        let mut line = entry.line.clone();
        line.cost = entry.units.min(spent(&line.line()));
        entry.units = 0;
        if line.cost > 0 {
            entry.sent = Some(Commit { id: Id::random(), line, since: Instant::now(), repeated: false });
        }
        let commit = entry.sent.clone();
        if commit.is_none() {
            entries.remove(name);
            self.any.store(!entries.is_empty(), Ordering::Relaxed);
        }
        (commit, lost)
    }

    /// Notes how the commit of a count went.
    pub(super) fn went(&self, name: &Name, commit: &Commit, went: Went) {
        let mut entries = self.lock();
        let Some(entry) = entries.get_mut(name) else { return };
        match went {
            Went::Done => entry.sent = None,
            // It stays as it is, to be sent again. If this time nothing was charged, an earlier time may have been another matter.
            Went::Unknown => {}
            Went::Undone | Went::Denied if commit.repeated => {}
            Went::Undone | Went::Denied => {
                let units = entry.sent.take().map_or(0, |sent| sent.line.cost);
                entry.units = entry.units.saturating_add(units);
            }
        }
        if entry.sent.is_none() && entry.units == 0 {
            entries.remove(name);
            self.any.store(!entries.is_empty(), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Quota, Rule, key, limit::Limit, store::Scope};

    fn limit(amount: u64) -> Limit {
        Rule::gcra("r", Quota::per_second(amount)).key(key::given()).check().expect("sound")
    }

    /// While there is something in it, requests take the longer way.
    #[test]
    fn it_is_empty_whenever_nothing_is_left_to_commit() {
        let (journal, scope, limit) = (Journal::default(), Scope::new("n", "r"), limit(10));
        let line = |cost| Line::new(&scope, b"k", &limit, cost);
        assert_eq!(journal.add(&[line(0)]), 0);
        assert!(journal.is_empty() && journal.names().is_empty(), "nothing was admitted");
        // All of it has come back in the meantime.
        journal.add(&[line(3)]);
        let [name] = &journal.names()[..] else { panic!("one count") };
        assert!(!journal.is_empty());
        assert!(journal.commit(name, |_| 0).0.is_none() && journal.is_empty());
        // It is committed.
        journal.add(&[line(3)]);
        let commit = journal.commit(name, |_| 9).0.expect("a commit");
        assert!(commit.line.cost == 3 && !journal.is_empty());
        journal.went(name, &commit, Went::Done);
        assert!(journal.is_empty() && journal.names().is_empty());
        // More came while it was.
        journal.add(&[line(3)]);
        let commit = journal.commit(name, |_| 9).0.expect("a commit");
        journal.add(&[line(2)]);
        journal.went(name, &commit, Went::Done);
        assert!(!journal.is_empty());
        assert_eq!(journal.commit(name, |_| 9).0.map(|commit| commit.line.cost), Some(2));
    }

    #[test]
    fn a_commit_is_under_the_last_limit_that_admitted() {
        let (journal, scope) = (Journal::default(), Scope::new("n", "r"));
        for amount in [10, 20] {
            journal.add(&[Line::new(&scope, b"k", &limit(amount), 1)]);
        }
        let commit = journal.commit(&journal.names()[0], |_| 9).0.expect("a commit");
        assert_eq!((commit.line.cost, *commit.line.line().limit), (2, limit(20)));
    }
}
