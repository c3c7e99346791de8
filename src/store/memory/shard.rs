use std::{
    hash::{BuildHasher, Hasher as _},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use super::{OVERFLOW, packed::Packed, table::Table, text::Text};
use crate::{
    algorithm::{Left, Moment, Params, State},
    store::{Answer, Line, Verdict, Wait},
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

/// A change that is made without judging.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// It was made before.
    Nothing,
    Take,
    Owe,
    Give,
}

/// No room for a new key, and none to be made.
pub(super) struct Full;

/// A share of the keys.
pub(super) struct Shard {
    table: Table<Entry>,
    hasher: Hasher,
    /// Where the search for idle entries goes on.
    hand: usize,
    room: Arc<Room>,
}

/// One cache line, since with many keys every line touched is a miss.
#[repr(align(64))]
struct Entry {
    key: Text,
    label: Label,
    state: Packed,
}

const _: () = assert!(size_of::<Option<Entry>>() == 64);

/// The number of a scope, and the time from which on the state says no more than a fresh one, in one word.
#[derive(Clone, Copy)]
struct Label(u64);

/// Bits of the time, in steps of 2^14 microseconds, about 16 ms: enough for five hundred years. The other 24 are the scope's.
const TIME_BITS: u32 = 40;
const TIME: u64 = (1 << TIME_BITS) - 1;

#[inline]
fn steps(micros: u64) -> u64 {
    (micros >> 14).min(TIME)
}

impl Label {
    #[inline]
    fn new(scope: u32, idle_at: u64) -> Label {
        Label(u64::from(scope) << TIME_BITS | steps(idle_at))
    }

    #[inline]
    fn scope(self) -> u32 {
        (self.0 >> TIME_BITS) as u32
    }

    #[inline]
    fn set_idle_at(&mut self, idle_at: u64) {
        self.0 = self.0 & !TIME | steps(idle_at);
    }

    /// Sets it if that is later.
    fn extend_to(&mut self, idle_at: u64) {
        self.0 = self.0 & !TIME | (self.0 & TIME).max(steps(idle_at));
    }

    /// Strictly: within its last step it may still matter.
    fn is_idle(self, now: u64) -> bool {
        self.0 & TIME < steps(now)
    }
}

impl Judged {
    fn verdict(self, line: &Line<'_>, at: Moment, left: Left) -> Verdict {
        verdict(self.wait, line, at, left)
    }
}

impl Entry {
    /// `judge` and `finish` in one, for the one line of an ask.
    ///
    /// The moment is lent and the verdict written where it is read: what is copied in other pieces than it was written in stalls
    /// the processor, and each of the two copies took a tenth of the decision.
    #[inline]
    fn decide(&mut self, line: &Line<'_>, at: &Moment, spend: bool, answer: &mut Answer) {
        let params = line.limit.params();
        if spend && let Some((wait, left)) = self.state.spend_at_once(params, at, line.cost, line.need()) {
            let idle_at = at.now + left.reset_after;
            self.label.set_idle_at(idle_at);
            let Left { remaining, reset_after } = left;
            return answer.push(Verdict { wait, remaining, reset_after, receipt: idle_at, tenant_receipt: 0 });
        }
        answer.push(self.decide_in_steps(line, *at, spend));
    }

    /// Apart, so that the short way stays short.
    #[inline(never)]
    fn decide_in_steps(&mut self, line: &Line<'_>, at: Moment, spend: bool) -> Verdict {
        let params = line.limit.params();
        let mut state = self.state.take();
        let before = state.saved(at, spend);
        let repaired = params.advance(&mut state, at);
        let wait = params.wait(&state, at, line.need());
        let charge = spend && wait.fits() && line.cost > 0;
        if charge {
            params.charge(&mut state, at, line.cost, line.receipt);
        }
        let left = params.left(&state, at);
        self.keep(line, at, left, state, before.filter(|_| !(charge || repaired && spend)));
        verdict(wait, line, at, left)
    }

    #[inline]
    fn judge(&mut self, line: &Line<'_>, at: Moment, spend: bool) -> Judged {
        let params = line.limit.params();
        let mut state = self.state.take();
        // A peek leaves the state as it was in any case, a refusal unless it was repaired.
        let before = state.saved(at, spend);
        let repaired = params.advance(&mut state, at);
        let wait = params.wait(&state, at, line.need());
        self.state = state.into();
        Judged { wait, before: before.filter(|_| !repaired || !spend) }
    }

    #[inline]
    fn finish(&mut self, line: &Line<'_>, at: Moment, mut judged: Judged, charge: bool) -> Verdict {
        let params = line.limit.params();
        let mut state = self.state.take();
        let charge = charge && line.cost > 0;
        if charge {
            params.charge(&mut state, at, line.cost, line.receipt);
        }
        let left = params.left(&state, at);
        self.keep(line, at, left, state, judged.before.take().filter(|_| !charge));
        judged.verdict(line, at, left)
    }

    /// Makes a change without judging.
    fn settle(&mut self, line: &Line<'_>, at: Moment, change: Change) -> Verdict {
        let params = line.limit.params();
        let mut state = self.state.take();
        let before = state.saved(at, change != Change::Nothing);
        let repaired = params.advance(&mut state, at);
        let changed = match change {
            Change::Nothing => false,
            Change::Take => params.take(&mut state, at, line.cost, line.receipt) > 0 || repaired,
            Change::Owe => params.owe(&mut state, at, line.cost, line.receipt) > 0 || repaired,
            // After a repair there is no telling what its charge has become, unless it is a lease, which has a name.
            Change::Give => {
                let known = !repaired || matches!(params, Params::Concurrency(_));
                known && params.give(&mut state, at, line.cost, line.receipt) || repaired
            }
        };
        let left = params.left(&state, at);
        self.keep(line, at, left, state, before.filter(|_| !changed));
        verdict(Wait::None, line, at, left)
    }

    fn release(&mut self, line: &Line<'_>, at: Moment) -> bool {
        let params = line.limit.params();
        let mut state = self.state.take();
        let released = params.release(&mut state, line.receipt);
        if released {
            let left = params.left(&state, at);
            self.keep(line, at, left, state, None);
        } else {
            self.state = state.into();
        }
        released
    }

    fn renew(&mut self, line: &Line<'_>, at: Moment) -> Option<Verdict> {
        let params = line.limit.params();
        let mut state = self.state.take();
        let wait = params.renew(&mut state, at, line.receipt, line.need());
        let left = params.left(&state, at);
        self.keep(line, at, left, state, None);
        wait.map(|wait| verdict(wait, line, at, left))
    }

    /// Goes back to the state `before`, or keeps the new one.
    #[inline]
    fn keep(&mut self, line: &Line<'_>, at: Moment, left: Left, state: State, before: Option<State>) {
        let idle_at = at.now + line.limit.params().idle_after(&state, at, left);
        match before {
            Some(before) => {
                self.state = before.into();
                // Under another quota it may matter for longer than was thought.
                self.label.extend_to(idle_at);
            }
            None => {
                self.state = state.into();
                self.label.set_idle_at(idle_at);
            }
        }
    }
}

/// Places looked at for each new key: more than one entry's worth, so that the search is faster than the growth.
const LOOKS: usize = 6;

impl Shard {
    pub(super) fn new(room: Arc<Room>, hasher: Hasher) -> Shard {
        Shard { table: Table::new(), hasher, hand: 0, room }
    }

    #[inline]
    fn find(&mut self, hash: u64, scope: u32, key: &[u8]) -> Option<(usize, &mut Entry)> {
        self.table.find(hash, |entry| entry.label.scope() == scope && entry.key.is(key))
    }

    /// Judges and finishes one line that is all there is to the ask.
    #[inline]
    pub(super) fn decide(
        &mut self,
        hash: u64,
        line: &Line<'_>,
        at: &Moment,
        spend: bool,
        answer: &mut Answer,
    ) -> Result<(), Full> {
        match self.find(hash, line.scope.number(), line.key) {
            Some((_, entry)) => entry.decide(line, at, spend, answer),
            None => answer.push(self.decide_new(line, *at, spend)?),
        }
        Ok(())
    }

    #[inline(never)]
    fn decide_new(&mut self, line: &Line<'_>, at: Moment, spend: bool) -> Result<Verdict, Full> {
        let judged = self.judge_new(line, line.key, at)?;
        let charge = spend && judged.wait.fits();
        Ok(self.finish_new(line, line.key, at, judged, charge))
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
        match self.find(hash, line.scope.number(), key) {
            Some((_, entry)) => Ok(entry.judge(line, at, spend)),
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
        match self.find(hash, line.scope.number(), key) {
            Some((_, entry)) => entry.finish(line, at, judged, charge),
            None => self.finish_new(line, key, at, judged, charge),
        }
    }

    /// What is left for a line that has been judged, and how long it waits for a need of its own.
    pub(super) fn look(&mut self, hash: u64, line: &Line<'_>, key: &[u8], at: Moment, need: u64) -> (Wait, Left) {
        let params = line.limit.params();
        let Some((_, entry)) = self.find(hash, line.scope.number(), key) else {
            let state = fresh(params, at);
            return (params.wait(&state, at, need), params.left(&state, at));
        };
        let state = entry.state.take();
        let looked = (params.wait(&state, at, need), params.left(&state, at));
        entry.state = state.into();
        looked
    }

    fn judge_new(&mut self, line: &Line<'_>, key: &[u8], at: Moment) -> Result<Judged, Full> {
        self.make_room(at.now);
        // Newcomers share a count, but nobody is banned for what others did.
        if self.room.is_full() && key != OVERFLOW && !line.limit.is_ban() {
            return Err(Full);
        }
        let params = line.limit.params();
        Ok(Judged { wait: params.wait(&fresh(params, at), at, line.need()), before: None })
    }

    fn finish_new(&mut self, line: &Line<'_>, key: &[u8], at: Moment, judged: Judged, charge: bool) -> Verdict {
        let params = line.limit.params();
        let mut state = fresh(params, at);
        if charge {
            params.charge(&mut state, at, line.cost, line.receipt);
        }
        let left = params.left(&state, at);
        if charge && line.cost > 0 {
            self.insert(line, key, at, left, state);
        }
        judged.verdict(line, at, left)
    }

    fn insert(&mut self, line: &Line<'_>, key: &[u8], at: Moment, left: Left, state: State) {
        let idle_at = at.now + line.limit.params().idle_after(&state, at, left);
        let label = Label::new(line.scope.number(), idle_at);
        let entry = Entry { key: Text::new(key), label, state: state.into() };
        self.table.insert(entry, hash_by(&self.hasher));
        self.room.keys.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether the key is known, or can be.
    pub(super) fn has_room_for(&mut self, hash: u64, line: &Line<'_>, key: &[u8], at: Moment) -> Result<(), Full> {
        match self.find(hash, line.scope.number(), key) {
            Some(_) => Ok(()),
            None => {
                self.make_room(at.now);
                // A ban by hand is an operator's word, and there are few.
                let by_hand = line.limit.is_ban() && line.receipt > 0;
                if self.room.is_full() && key != OVERFLOW && !by_hand { Err(Full) } else { Ok(()) }
            }
        }
    }

    /// Makes a change without judging. A key that is not known has nothing to be given back.
    pub(super) fn settle(&mut self, hash: u64, line: &Line<'_>, key: &[u8], at: Moment, change: Change) -> Verdict {
        if let Some((_, entry)) = self.find(hash, line.scope.number(), key) {
            return entry.settle(line, at, change);
        }
        let params = line.limit.params();
        let mut state = fresh(params, at);
        let changed = match change {
            Change::Nothing | Change::Give => false,
            Change::Take => params.take(&mut state, at, line.cost, line.receipt) > 0,
            Change::Owe => params.owe(&mut state, at, line.cost, line.receipt) > 0,
        };
        let left = params.left(&state, at);
        if changed {
            self.insert(line, key, at, left, state);
        }
        verdict(Wait::None, line, at, left)
    }

    /// Ends the lease that the line names. `false` if the key does not have it.
    pub(super) fn release(&mut self, hash: u64, line: &Line<'_>, key: &[u8], at: Moment) -> bool {
        self.find(hash, line.scope.number(), key).is_some_and(|(_, entry)| entry.release(line, at))
    }

    /// Extends the lease that the line names, or grants it anew. `None` if the key is not known, and there is no room for it.
    pub(super) fn renew(&mut self, hash: u64, line: &Line<'_>, key: &[u8], at: Moment) -> Option<Verdict> {
        match self.find(hash, line.scope.number(), key) {
            Some((_, entry)) => entry.renew(line, at),
            None => {
                let judged = self.judge_new(line, key, at).ok()?;
                let line = Line { cost: 1, ..*line };
                Some(self.finish_new(&line, key, at, judged, true))
            }
        }
    }

    /// Whether the line, which is for a ban, is refused.
    pub(super) fn bans(&mut self, hash: u64, line: &Line<'_>, key: &[u8], at: Moment) -> bool {
        let line = Line { cost: 0, ..*line };
        let found = self.find(hash, line.scope.number(), key);
        found.is_some_and(|(_, entry)| !entry.decide_in_steps(&line, at, false).wait.fits())
    }

    pub(super) fn forget(&mut self, hash: u64, scope: u32, key: &[u8]) {
        if let Some((place, _)) = self.find(hash, scope, key) {
            self.remove(place);
        }
    }

    /// Removes idle entries among the next few, so that a store of passing keys stays as large as the keys that matter.
    pub(super) fn make_room(&mut self, now: u64) {
        let looks = if self.room.is_full() { LOOKS * 16 } else { LOOKS };
        for _ in 0..looks.min(self.table.places()) {
            if self.hand >= self.table.places() {
                self.hand = 0;
            }
            match self.table.at(self.hand) {
                // Another may move into its place.
                Some(entry) if entry.label.is_idle(now) => self.remove(self.hand),
                _ => self.hand += 1,
            }
        }
    }

    fn remove(&mut self, place: usize) {
        self.table.remove(place, hash_by(&self.hasher));
        self.room.keys.fetch_sub(1, Ordering::Relaxed);
    }
}

fn verdict(wait: Wait, line: &Line<'_>, at: Moment, left: Left) -> Verdict {
    let Left { remaining, reset_after } = left;
    let receipt = line.limit.params().receipt(at.now, reset_after, line.receipt);
    Verdict { wait, remaining, reset_after, receipt, tenant_receipt: 0 }
}

/// Hashes keys so that nobody outside can make them collide.
pub(super) type Hasher = foldhash::fast::RandomState;

#[inline]
pub(super) fn hash(hasher: &Hasher, scope: u32, key: &[u8]) -> u64 {
    let mut hasher = hasher.build_hasher();
    hasher.write_u32(scope);
    hasher.write(key);
    hasher.finish()
}

fn hash_by(hasher: &Hasher) -> impl Fn(&Entry) -> u64 {
    move |entry| hash(hasher, entry.label.scope(), entry.key.as_bytes())
}

/// The state of a key that is new at this moment.
fn fresh(params: &Params, at: Moment) -> State {
    let mut state = params.fresh();
    params.advance(&mut state, at);
    state
}
