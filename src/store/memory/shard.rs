use hashbrown::HashTable;
use smallvec::SmallVec;

use super::OVERFLOW;
use crate::{
    algorithm::{Moment, State},
    store::{Line, Verdict, Wait},
};

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
    table: HashTable<u32>,
    entries: Vec<Entry>,
    /// Where the search for idle entries goes on.
    hand: usize,
    most: usize,
}

struct Entry {
    /// Of the scope and the key: two scopes that agree in all 64 bits for one key are not to be expected.
    hash: u64,
    key: SmallVec<[u8; 16]>,
    /// From then on the state says no more than a fresh one.
    idle_at: u64,
    state: State,
}

/// Entries looked at for each new key: more than one, so that the search is faster than the growth.
const LOOKS: usize = 4;

impl Shard {
    pub(super) fn new(most: usize) -> Shard {
        Shard { table: HashTable::new(), entries: Vec::new(), hand: 0, most }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    #[inline]
    fn find(&mut self, hash: u64, key: &[u8]) -> Option<&mut Entry> {
        let entries = &self.entries;
        let same =
            |index: &u32| entries.get(*index as usize).is_some_and(|entry| entry.hash == hash && *entry.key == *key);
        let index = *self.table.find(hash, same)?;
        self.entries.get_mut(index as usize)
    }

    /// How long the line must wait. Brings the state up to now; spends nothing.
    #[inline]
    pub(super) fn judge(
        &mut self,
        hash: u64,
        line: &Line<'_>,
        key: &[u8],
        at: Moment,
        spend: bool,
    ) -> Result<Judged, Full> {
        let params = line.limit.params();
        if let Some(entry) = self.find(hash, key) {
            // A peek leaves the state as it was in any case, a refusal unless it was repaired.
            let before = if spend { entry.state.saved() } else { Some(entry.state.clone()) };
            let repaired = params.advance(&mut entry.state, at);
            let wait = params.wait(&entry.state, at, line.cost);
            return Ok(Judged { wait, before: before.filter(|_| !repaired || !spend) });
        }
        self.make_room(at.now);
        if self.entries.len() >= self.most && key != OVERFLOW {
            return Err(Full);
        }
        let mut state = params.fresh();
        params.advance(&mut state, at);
        Ok(Judged { wait: params.wait(&state, at, line.cost), before: None })
    }

    /// Charges the line if `spend`, and answers how it stands. What is not spent leaves the state as it was.
    #[inline]
    pub(super) fn finish(
        &mut self,
        hash: u64,
        line: &Line<'_>,
        key: &[u8],
        at: Moment,
        judged: Judged,
        spend: bool,
    ) -> Verdict {
        let params = line.limit.params();
        let spend = spend && line.cost > 0;
        if let Some(entry) = self.find(hash, key) {
            if spend {
                params.charge(&mut entry.state, at, line.cost);
            }
            let left = params.left(&entry.state, at);
            if spend {
                entry.idle_at = at.now + params.idle_after(&entry.state, at, left);
            } else if let Some(before) = judged.before {
                entry.state = before;
            }
            return Verdict { wait: judged.wait, remaining: left.remaining, reset_after: left.reset_after };
        }
        let mut state = params.fresh();
        params.advance(&mut state, at);
        if spend {
            params.charge(&mut state, at, line.cost);
        }
        let left = params.left(&state, at);
        if spend {
            let idle_at = at.now + params.idle_after(&state, at, left);
            self.insert(Entry { hash, key: SmallVec::from_slice(key), idle_at, state });
        }
        Verdict { wait: judged.wait, remaining: left.remaining, reset_after: left.reset_after }
    }

    fn insert(&mut self, entry: Entry) {
        if self.entries.len() == self.entries.capacity() {
            // Doubling would waste half of a large store.
            self.entries.reserve_exact(self.entries.len() / 8 + 8);
        }
        let index = self.entries.len() as u32;
        let entries = &self.entries;
        let rehash = |index: &u32| entries.get(*index as usize).map_or(0, |entry| entry.hash);
        self.table.insert_unique(entry.hash, index, rehash);
        self.entries.push(entry);
    }

    pub(super) fn forget(&mut self, hash: u64, key: &[u8]) {
        let entries = &self.entries;
        let same =
            |index: &u32| entries.get(*index as usize).is_some_and(|entry| entry.hash == hash && *entry.key == *key);
        if let Some(index) = self.table.find(hash, same).copied() {
            self.remove(index as usize);
        }
    }

    /// Removes idle entries among the next few, so that a store of passing keys stays as large as the keys that matter.
    fn make_room(&mut self, now: u64) {
        let looks = if self.entries.len() >= self.most { LOOKS * 16 } else { LOOKS };
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
        let Some(gone) = self.entries.get(index) else { return };
        if let Ok(found) = self.table.find_entry(gone.hash, |candidate| *candidate as usize == index) {
            found.remove();
        }
        self.entries.swap_remove(index);
        let last = self.entries.len();
        if let Some(moved) = self.entries.get(index)
            && let Ok(mut found) = self.table.find_entry(moved.hash, |candidate| *candidate as usize == last)
        {
            *found.get_mut() = index as u32;
        }
    }
}
