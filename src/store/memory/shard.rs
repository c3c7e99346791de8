use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use smallvec::SmallVec;

use super::{OVERFLOW, table::Table};
use crate::{
    algorithm::{Left, Moment, Params, State},
    store::{Line, Verdict, Wait},
};

/// How many keys there are in all shards, and how many there may be.
#[derive(Debug)]
pub(super) struct Room {
    keys: AtomicUsize,
    most: usize,
}

impl Room {
    pub(super) fn new(most: usize) -> Room {
        Room { keys: AtomicUsize::new(0), most }
    }

    pub(super) fn keys(&self) -> usize {
        self.keys.load(Ordering::Relaxed)
    }

    fn is_full(&self) -> bool {
        self.keys() >= self.most
    }
}

/// What judging a line came to.
pub(super) struct Judged {
    pub(super) wait: Wait,
    /// The state to go back to if nothing is spent.
    before: Option<State>,
}

/// No room for a new key, and none to be made.
pub(super) struct Full;

/// A share of the keys. Entries lie in one vector that the table points into, so that an idle one is found by going round.
pub(super) struct Shard {
    table: Table,
    entries: Vec<Entry>,
    /// Where the search for idle entries goes on.
    hand: usize,
    room: Arc<Room>,
}

struct Entry {
    /// Of the scope and the key: two scopes that agree in all 64 bits for one key are not to be expected.
    hash: u64,
    key: SmallVec<[u8; 16]>,
    /// From then on the state says no more than a fresh one.
    idle_at: u64,
    state: State,
}

impl Judged {
    fn verdict(self, left: Left) -> Verdict {
        Verdict { wait: self.wait, remaining: left.remaining, reset_after: left.reset_after }
    }
}

impl Entry {
    /// `judge` and `finish` in one, for the one line of an ask.
    #[inline]
    fn decide(&mut self, line: &Line<'_>, at: Moment, spend: bool) -> Verdict {
        let params = line.limit.params();
        if spend && let Some((wait, left)) = params.spend_at_once(&mut self.state, at, line.cost) {
            self.keep(line, at, left, None);
            return Verdict { wait, remaining: left.remaining, reset_after: left.reset_after };
        }
        let before = self.state.saved(at, spend);
        let repaired = params.advance(&mut self.state, at);
        let wait = params.wait(&self.state, at, line.cost);
        let charge = spend && wait == Wait::None && line.cost > 0;
        if charge {
            params.charge(&mut self.state, at, line.cost);
        }
        let left = params.left(&self.state, at);
        self.keep(line, at, left, before.filter(|_| !(charge || repaired && spend)));
        Verdict { wait, remaining: left.remaining, reset_after: left.reset_after }
    }

    #[inline]
    fn judge(&mut self, line: &Line<'_>, at: Moment, spend: bool) -> Judged {
        let params = line.limit.params();
        // A peek leaves the state as it was in any case, a refusal unless it was repaired.
        let before = self.state.saved(at, spend);
        let repaired = params.advance(&mut self.state, at);
        let wait = params.wait(&self.state, at, line.cost);
        Judged { wait, before: before.filter(|_| !repaired || !spend) }
    }

    #[inline]
    fn finish(&mut self, line: &Line<'_>, at: Moment, mut judged: Judged, charge: bool) -> Verdict {
        let params = line.limit.params();
        let charge = charge && line.cost > 0;
        if charge {
            params.charge(&mut self.state, at, line.cost);
        }
        let left = params.left(&self.state, at);
        self.keep(line, at, left, judged.before.take().filter(|_| !charge));
        judged.verdict(left)
    }

    /// Goes back to the state `before`, or keeps the one there is.
    #[inline]
    fn keep(&mut self, line: &Line<'_>, at: Moment, left: Left, before: Option<State>) {
        let idle_at = at.now + line.limit.params().idle_after(&self.state, at, left);
        match before {
            Some(before) => {
                self.state = before;
                // Under another quota it may matter for longer than was thought.
                self.idle_at = self.idle_at.max(idle_at);
            }
            None => self.idle_at = idle_at,
        }
    }
}

/// Entries looked at for each new key: more than one, so that the search is faster than the growth.
const LOOKS: usize = 4;

impl Shard {
    pub(super) fn new(room: Arc<Room>) -> Shard {
        Shard { table: Table::default(), entries: Vec::new(), hand: 0, room }
    }

    #[inline]
    fn index_of(&self, hash: u64, key: &[u8]) -> Option<usize> {
        let same = |entry: &Entry| entry.hash == hash && *entry.key == *key;
        self.table.find(hash, |index| self.entries.get(index).is_some_and(same))
    }

    #[inline]
    fn find(&mut self, hash: u64, key: &[u8]) -> Option<&mut Entry> {
        let index = self.index_of(hash, key)?;
        self.entries.get_mut(index)
    }

    /// Judges and finishes one line that is all there is to the ask.
    #[inline]
    pub(super) fn decide(&mut self, hash: u64, line: &Line<'_>, at: Moment, spend: bool) -> Result<Verdict, Full> {
        if let Some(entry) = self.find(hash, line.key) {
            return Ok(entry.decide(line, at, spend));
        }
        let judged = self.judge_new(line, line.key, at)?;
        let charge = spend && judged.wait == Wait::None;
        Ok(self.finish_new(hash, line, line.key, at, judged, charge))
    }

    /// How long the line must wait. Brings the state up to now; spends nothing.
    pub(super) fn judge(
        &mut self,
        hash: u64,
        line: &Line<'_>,
        key: &[u8],
        at: Moment,
        spend: bool,
    ) -> Result<Judged, Full> {
        match self.find(hash, key) {
            Some(entry) => Ok(entry.judge(line, at, spend)),
            None => self.judge_new(line, key, at),
        }
    }

    /// Charges the line if `charge`, and answers how it stands. What is not charged leaves the state as it was.
    pub(super) fn finish(
        &mut self,
        hash: u64,
        line: &Line<'_>,
        key: &[u8],
        at: Moment,
        judged: Judged,
        charge: bool,
    ) -> Verdict {
        match self.find(hash, key) {
            Some(entry) => entry.finish(line, at, judged, charge),
            None => self.finish_new(hash, line, key, at, judged, charge),
        }
    }

    fn judge_new(&mut self, line: &Line<'_>, key: &[u8], at: Moment) -> Result<Judged, Full> {
        self.make_room(at.now);
        if self.room.is_full() && key != OVERFLOW {
            return Err(Full);
        }
        let params = line.limit.params();
        Ok(Judged { wait: params.wait(&fresh(params, at), at, line.cost), before: None })
    }

    fn finish_new(
        &mut self,
        hash: u64,
        line: &Line<'_>,
        key: &[u8],
        at: Moment,
        judged: Judged,
        charge: bool,
    ) -> Verdict {
        let params = line.limit.params();
        let mut state = fresh(params, at);
        if charge {
            params.charge(&mut state, at, line.cost);
        }
        let left = params.left(&state, at);
        if charge && line.cost > 0 {
            let idle_at = at.now + params.idle_after(&state, at, left);
            self.insert(Entry { hash, key: SmallVec::from_slice(key), idle_at, state });
        }
        judged.verdict(left)
    }

    fn insert(&mut self, entry: Entry) {
        if self.entries.len() == self.entries.capacity() {
            // Doubling would waste half of a large store.
            self.entries.reserve_exact(self.entries.len() / 8 + 8);
        }
        let entries = &self.entries;
        self.table.insert(entry.hash, entries.len(), |index| hash_of(entries, index));
        self.entries.push(entry);
        self.room.keys.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn forget(&mut self, hash: u64, key: &[u8]) {
        if let Some(index) = self.index_of(hash, key) {
            self.remove(index);
        }
    }

    /// Removes idle entries among the next few, so that a store of passing keys stays as large as the keys that matter.
    fn make_room(&mut self, now: u64) {
        let looks = if self.room.is_full() { LOOKS * 16 } else { LOOKS };
        for _ in 0..looks {
            match self.entries.get(self.hand) {
                None if self.entries.is_empty() => return,
                None => self.hand = 0,
                Some(entry) if entry.idle_at <= now => self.remove(self.hand),
                Some(_) => self.hand += 1,
            }
        }
    }

    /// Takes an entry out; the last one moves into its place.
    fn remove(&mut self, index: usize) {
        let entries = &self.entries;
        if index >= entries.len() {
            return;
        }
        self.table.remove(hash_of(entries, index), index, |index| hash_of(entries, index));
        self.entries.swap_remove(index);
        self.room.keys.fetch_sub(1, Ordering::Relaxed);
        if let Some(moved) = self.entries.get(index) {
            self.table.moved(moved.hash, self.entries.len(), index);
        }
    }
}

/// The state of a key that is new at this moment.
fn fresh(params: &Params, at: Moment) -> State {
    let mut state = params.fresh();
    params.advance(&mut state, at);
    state
}

fn hash_of(entries: &[Entry], index: usize) -> u64 {
    entries.get(index).map_or(0, |entry| entry.hash)
}
