//! Token bucket: holds at most `burst` units, refills `amount` a `window`, evenly.
//!
//! - `remaining`: whole units in the bucket; none while there is a debt.
//! - `retry_after`: until the bucket holds the cost. `never` when the cost is above the burst.
//! - `reset_after`: until the bucket is full; zero when it is.
//!
//! The level is kept in parts, so the refill never drifts and a full bucket has no fraction. When the quota changes the
//! level goes on from where it stands, refilled at the old rate until then, and is cut to the new burst: raising a burst gives
//! nothing at once, lowering it takes the excess.
//!
//! A cost that turns out higher than was charged is owed: the level falls below empty, and later requests wait until the debt
//! has been refilled. The most that can be owed is what comes in in a year.

use super::{EXACT, Left, Moment, Parts, Rate, Steps, Wait};

/// The level at the time of the last charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State {
    /// When the level was so, in microseconds.
    pub(crate) last: u64,
    /// Parts in the bucket; below zero they are owed.
    pub(crate) level: i64,
    /// The rate when this was written.
    pub(crate) rate: Rate,
}

impl State {
    pub(super) fn full(parts: &Parts) -> State {
        State { last: 0, level: parts.full(), rate: parts.rate() }
    }
}

impl Parts {
    /// The capacity as a level. It is below 2^53.
    fn full(&self) -> i64 {
        self.capacity as i64
    }

    /// The lowest level: a year's worth is owed, or as much as is exact.
    fn lowest(&self) -> i64 {
        let year = (YEAR / self.tick).saturating_mul(self.per_tick);
        -(year.min(EXACT - 1 - self.per_tick - self.capacity) as i64)
    }

    fn room(&self, state: &State) -> u64 {
        // A level is at most the capacity.
        self.full().saturating_sub(state.level).unsigned_abs()
    }

    /// Charges what may not be there.
    pub(super) fn owe(&self, state: &mut State, cost: u64) {
        let cost = i64::try_from(cost.saturating_mul(self.per_unit)).unwrap_or(i64::MAX);
        state.level = state.level.saturating_sub(cost).max(self.lowest());
    }
}

/// The longest window there is, in microseconds.
const YEAR: u64 = 366 * 86_400 * 1_000_000;

impl Steps<State> for Parts {
    #[inline]
    fn advance(&self, state: &mut State, at: Moment) -> bool {
        let (time, repaired) = at.meet(state.last);
        let tick = self.tick_of(time);
        if state.rate != self.rate() {
            let level = state.level as f64 + state.rate.added(state.last, time);
            let level = (level / state.rate.per_unit.max(1) as f64 * self.per_unit as f64).floor() as i64;
            let level = level.clamp(self.lowest(), self.full());
            *state = State { last: tick * self.tick, level, rate: self.rate() };
            return true;
        }
        let gain = tick.saturating_sub(self.tick_of(state.last)).saturating_mul(self.per_tick);
        state.level = state.level.saturating_add_unsigned(gain).min(self.full());
        state.last = tick * self.tick;
        repaired
    }

    #[inline]
    fn wait(&self, state: &State, at: Moment, need: u64) -> Wait {
        let Some(charge) = self.charge_of(need) else { return Wait::Never };
        match (charge as i64).saturating_sub(state.level) {
            ..=0 => Wait::None,
            lack => {
                let ticks = self.ticks_for(lack.unsigned_abs());
                Wait::Micros(self.micros_until(at.now, self.tick_of(state.last), ticks))
            }
        }
    }

    #[inline]
    fn charge(&self, state: &mut State, _: Moment, cost: u64) {
        state.level = state.level.saturating_sub_unsigned(cost * self.per_unit);
    }

    fn give(&self, state: &mut State, _: Moment, cost: u64, receipt: u64) -> bool {
        let given = self.still_counts(cost, receipt, self.tick_of(state.last)).min(self.room(state));
        state.level = state.level.saturating_add_unsigned(given);
        given > 0
    }

    #[inline]
    fn left(&self, state: &State, at: Moment) -> Left {
        let reset_after = match self.room(state) {
            0 => 0,
            room => self.micros_until(at.now, self.tick_of(state.last), self.ticks_for(room)),
        };
        Left { remaining: u64::try_from(state.level).unwrap_or(0) / self.per_unit, reset_after }
    }
}
