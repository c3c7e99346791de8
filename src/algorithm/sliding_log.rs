//! Sliding log: the time and cost of everything admitted, exact at every instant.
//!
//! - `remaining`: the amount less what was admitted in the last `window`.
//! - `retry_after`: until enough entries have left the window. `never` when the cost is above the amount.
//! - `reset_after`: until the oldest entry leaves the window, which is when quota next comes back; zero when it is empty.
//!
//! An entry exactly `window` old has left. Each entry carries the running total up to it, so a cost of any size is one
//! entry, and what has expired or must expire is found by halving. When the quota changes the entries stay.

use std::collections::VecDeque;

use super::{Left, Moment, Steps, Wait};

/// Running totals are kept in 24 bits on Redis, so a log counts at most half of that.
pub(crate) const LARGEST_LIMIT: u64 = (1 << 23) - 1;

/// How many entries are written anew at most to take out an older one.
const NEAR: usize = 64;

/// What a sliding log is built from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Params {
    pub(crate) limit: u64,
    pub(crate) window: u64,
}

/// Everything admitted in the last window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// Oldest first. The first has left the window: its total is what the others are counted from.
    entries: VecDeque<Entry>,
    /// How many have left the window at `time`, and are removed with the next charge.
    expired: usize,
    /// When this was last brought up to date: the clock, or a little ahead of it.
    time: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    at: u64,
    /// The running total with this entry.
    total: u64,
}

impl State {
    fn total(&self) -> u64 {
        self.entries.back().map_or(0, |entry| entry.total)
    }

    /// The running total before the first entry of the window.
    fn base(&self) -> u64 {
        self.expired.checked_sub(1).and_then(|last| self.entries.get(last)).map_or(0, |entry| entry.total)
    }

    /// Whether its newest entry lies in the future.
    pub(super) fn is_ahead_of(&self, at: Moment) -> bool {
        self.entries.back().is_some_and(|newest| newest.at > at.now)
    }

    /// Removes what has left the window, but the last: the others are counted from it.
    fn remove_expired(&mut self) {
        self.entries.drain(..self.expired.saturating_sub(1));
        self.expired = self.expired.min(1);
        // Its time no longer counts; the earliest there is keeps the entries in order, whatever the clock does.
        if let Some(first) = self.entries.front_mut() {
            first.at = 0;
        }
    }

    fn used(&self) -> u64 {
        self.total() - self.base()
    }
}

impl Params {
    pub(super) fn idle_after(&self, state: &State, at: Moment) -> u64 {
        state.entries.back().map_or(0, |newest| (newest.at + self.window).saturating_sub(at.now))
    }
}

impl Steps<Box<State>> for Params {
    /// Changes nothing but notes, unless it repairs: a refused request must leave no trace.
    fn advance(&self, state: &mut Box<State>, at: Moment) -> bool {
        let newest = state.entries.back().map_or(0, |entry| entry.at);
        let (time, repaired) = at.meet(newest);
        // The entry before the window counts as gone whatever its time.
        let gone = state.entries.len().min(1);
        if repaired {
            // Entries from the future become one entry of now, so that nothing is forgotten or waits longer than a window.
            let total = state.total();
            let kept = state.entries.partition_point(|entry| entry.at <= at.now);
            state.entries.truncate(kept.max(gone));
            state.entries.push_back(Entry { at: time, total });
        }
        state.expired = state.entries.partition_point(|entry| entry.at + self.window <= time).max(gone);
        state.time = time;
        if repaired {
            state.remove_expired();
        }
        repaired
    }

    fn wait(&self, state: &Box<State>, at: Moment, need: u64) -> Wait {
        if need > self.limit {
            return Wait::Never;
        }
        let excess = (state.used() + need).saturating_sub(self.limit);
        if excess == 0 {
            return Wait::None;
        }
        let base = state.base();
        let freeing = state.entries.partition_point(|entry| entry.total < base + excess);
        let freed_at = state.entries.get(freeing).map_or(state.time, |entry| entry.at);
        Wait::Micros((freed_at + self.window).saturating_sub(at.now))
    }

    fn charge(&self, state: &mut Box<State>, _: Moment, cost: u64) {
        let at = state.time;
        if state.entries.is_empty() {
            state.entries.push_back(Entry { at: 0, total: 0 });
            state.expired = 1;
        }
        let total = state.total() + cost;
        state.remove_expired();
        state.entries.push_back(Entry { at, total });
    }

    /// From the entry of that moment on. Where many have come since, from the oldest instead: that leaves as much, though it is
    /// remembered for longer, and saves writing all of them anew.
    fn give(&self, state: &mut Box<State>, _: Moment, cost: u64, receipt: u64) -> bool {
        if receipt.saturating_add(self.window) <= state.time {
            return false;
        }
        let first = state.entries.partition_point(|entry| entry.at < receipt).max(state.expired);
        let before = first.checked_sub(1).and_then(|last| state.entries.get(last)).map_or(0, |entry| entry.total);
        let given = cost.min(state.total() - before);
        if given == 0 {
            return false;
        }
        if state.entries.len() - first <= NEAR {
            state
                .entries
                .range_mut(first..)
                .for_each(|entry| entry.total = entry.total.saturating_sub(given).max(before));
            let gone = state.entries.partition_point(|entry| entry.total <= before).max(first);
            state.entries.drain(first..gone);
            state.remove_expired();
        } else {
            state.remove_expired();
            let base = state.base() + given;
            let gone = state.entries.partition_point(|entry| entry.total <= base);
            state.entries.drain(1..gone);
            if let Some(entry) = state.entries.front_mut() {
                entry.total = base;
            }
        }
        if state.used() == 0 {
            **state = State::default();
        }
        true
    }

    fn left(&self, state: &Box<State>, at: Moment) -> Left {
        let oldest =
            state.entries.get(state.expired).map_or(0, |entry| (entry.at + self.window).saturating_sub(at.now));
        Left { remaining: self.limit.saturating_sub(state.used()), reset_after: oldest }
    }
}
