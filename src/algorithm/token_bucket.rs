//! Token bucket: holds at most `burst` units, refills `amount` a `window`, evenly.
//!
//! - `remaining`: whole units in the bucket.
//! - `retry_after`: until the bucket holds the cost. `never` when the cost is above the burst.
//! - `reset_after`: until the bucket is full; zero when it is.
//!
//! The level is kept in parts, so the refill never drifts and a full bucket has no fraction. When the quota changes the
//! level goes on from where it stands, refilled at the old rate until then, and is cut to the new burst: raising a burst gives
//! nothing at once, lowering it takes the excess.

use super::{Left, Moment, Parts, Rate, Steps, Wait};

/// The level at the time of the last charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State {
    /// When the level was so, in microseconds.
    pub(crate) last: u64,
    /// Parts in the bucket.
    pub(crate) level: u64,
    /// The rate when this was written.
    pub(crate) rate: Rate,
}

impl State {
    pub(super) fn full(parts: &Parts) -> State {
        State { last: 0, level: parts.capacity, rate: parts.rate() }
    }
}

impl Steps<State> for Parts {
    #[inline]
    fn advance(&self, state: &mut State, at: Moment) -> bool {
        let (time, repaired) = at.meet(state.last);
        let tick = self.tick_of(time);
        if state.rate != self.rate() {
            let level = state.level as f64 + state.rate.added(state.last, time);
            let level = self.rescale(level, state.rate.per_unit, f64::floor).min(self.capacity);
            *state = State { last: tick * self.tick, level, rate: self.rate() };
            return true;
        }
        let level = state.level.min(self.capacity);
        let gain = tick.saturating_sub(self.tick_of(state.last)).saturating_mul(self.per_tick);
        state.level = level.saturating_add(gain).min(self.capacity);
        state.last = tick * self.tick;
        repaired
    }

    #[inline]
    fn wait(&self, state: &State, at: Moment, cost: u64) -> Wait {
        let Some(charge) = self.charge_of(cost) else { return Wait::Never };
        match charge.checked_sub(state.level) {
            None | Some(0) => Wait::None,
            Some(lack) => Wait::Micros(self.micros_until(at.now, self.tick_of(state.last), self.ticks_for(lack))),
        }
    }

    #[inline]
    fn charge(&self, state: &mut State, _: Moment, cost: u64) {
        state.level = state.level.saturating_sub(cost * self.per_unit);
    }

    fn give(&self, state: &mut State, _: Moment, cost: u64, receipt: u64) -> bool {
        let given = self.still_counts(cost, receipt, self.tick_of(state.last)).min(self.capacity - state.level);
        state.level += given;
        given > 0
    }

    #[inline]
    fn left(&self, state: &State, at: Moment) -> Left {
        let room = self.capacity - state.level;
        let reset_after = match room {
            0 => 0,
            room => self.micros_until(at.now, self.tick_of(state.last), self.ticks_for(room)),
        };
        Left { remaining: state.level / self.per_unit, reset_after }
    }
}
