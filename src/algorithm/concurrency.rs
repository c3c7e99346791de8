//! Concurrency: at most `limit` at work at the same time. Whoever is admitted holds a lease, until it is given back or expires.
//!
//! - `remaining`: the limit less the leases that have not expired.
//! - `retry_after`: until so many leases have expired that there is room, if no holder renews one or gives one back before.
//! - `reset_after`: the time of a lease while any is held; zero when none is. All may be given back long before.
//!
//! A cost is one lease, or none if it is zero: whoever asks for more takes one, and needs room for as many. A lease expires at its time, not after. Those that have expired
//! are removed with the next lease that is granted or renewed, so that a refusal writes nothing.
//!
//! A lease that lies further ahead than a new one would is from a clock that has gone back, or from a longer lease time: it is
//! moved to where a new one would expire, so that what a dead holder left behind blocks nobody for longer than one lease time.

use std::collections::VecDeque;

use super::{Left, Moment, Steps, Wait};

/// Finding one lease among the others takes as long as there are many.
pub(crate) const LARGEST_LIMIT: u64 = 100_000;

/// What a concurrency limit is built from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Params {
    pub(crate) limit: u64,
    /// How long a lease lasts, in microseconds.
    pub(crate) lease: u64,
}

/// The leases that are held, and some that have expired.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// Those that expire first come first.
    leases: VecDeque<Lease>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lease {
    until: u64,
    id: u64,
}

impl State {
    /// How many have expired.
    fn expired(&self, now: u64) -> usize {
        self.leases.partition_point(|lease| lease.until <= now)
    }

    fn used(&self, now: u64) -> u64 {
        (self.leases.len() - self.expired(now)) as u64
    }

    /// Takes out one lease; answers when it would have expired.
    fn remove(&mut self, id: u64) -> Option<u64> {
        let place = self.leases.iter().position(|lease| lease.id == id)?;
        self.leases.remove(place).map(|lease| lease.until)
    }

    fn insert(&mut self, lease: Lease) {
        let place = self.leases.partition_point(|other| other.until <= lease.until);
        self.leases.insert(place, lease);
    }
}

impl Params {
    /// Grants the lease `id`.
    pub(super) fn hold(&self, state: &mut State, at: Moment, id: u64) {
        state.leases.drain(..state.expired(at.now));
        state.remove(id);
        state.insert(Lease { until: at.now + self.lease, id });
    }

    /// Extends the lease `id`. One that has expired or is not known is granted anew if there is the room it needs. How long it
    /// must wait otherwise: its holder has lost it.
    pub(super) fn renew(&self, state: &mut State, at: Moment, id: u64, need: u64) -> Wait {
        let held = state.leases.iter().any(|lease| lease.id == id && lease.until > at.now);
        let wait = if held { Wait::None } else { self.room_after(state, at, need) };
        if wait == Wait::None {
            self.hold(state, at, id);
        }
        wait
    }

    /// Ends the lease `id`.
    pub(super) fn release(state: &mut State, id: u64) -> bool {
        state.remove(id).is_some()
    }

    fn room_after(&self, state: &State, at: Moment, need: u64) -> Wait {
        if need > self.limit {
            return Wait::Never;
        }
        let expired = state.expired(at.now);
        // There are no more leases than the limit has been, nor is there need of more.
        let excess = (state.leases.len() - expired + need as usize).saturating_sub(self.limit as usize);
        match excess.checked_sub(1).and_then(|before| state.leases.get(expired + before)) {
            None => Wait::None,
            Some(lease) => Wait::Micros(lease.until - at.now),
        }
    }

    pub(super) fn idle_after(state: &State, at: Moment) -> u64 {
        state.leases.back().map_or(0, |newest| newest.until.saturating_sub(at.now))
    }
}

impl Steps<Box<State>> for Params {
    /// Changes nothing unless it repairs.
    fn advance(&self, state: &mut Box<State>, at: Moment) -> bool {
        let latest = at.now + self.lease;
        let repaired = state.leases.back().is_some_and(|newest| newest.until > latest + at.tolerance);
        if repaired {
            state.leases.drain(..state.expired(at.now));
            state.leases.iter_mut().for_each(|lease| lease.until = lease.until.min(latest));
        }
        repaired
    }

    fn wait(&self, state: &Box<State>, at: Moment, need: u64) -> Wait {
        self.room_after(state, at, need)
    }

    /// Leases have ids: see [`hold`](Params::hold).
    fn charge(&self, _: &mut Box<State>, _: Moment, _: u64) {}

    fn give(&self, state: &mut Box<State>, _: Moment, cost: u64, receipt: u64) -> bool {
        cost > 0 && Params::release(state, receipt)
    }

    fn left(&self, state: &Box<State>, at: Moment) -> Left {
        let used = state.used(at.now);
        let reset_after = if used > 0 { self.lease } else { 0 };
        Left { remaining: self.limit.saturating_sub(used), reset_after }
    }
}
