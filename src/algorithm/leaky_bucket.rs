//! Leaky bucket, policing: every cost pours water in, `amount` a `window` leak out evenly, and a cost that would overflow
//! the depth (`burst`) is refused.
//!
//! - `remaining`: whole units that fit on top of the water.
//! - `retry_after`: until enough has leaked for the cost. `never` when the cost is above the depth.
//! - `reset_after`: until the bucket is dry; zero when it is.
//!
//! A token bucket seen from the other side: it remembers what was used. When the quota changes the water stays, leaked at the
//! old rate until then, and is cut to the new depth: raising the depth adds exactly the difference.

use super::{Left, Moment, Parts, Rate, Steps, Wait};

/// The water at the time of the last charge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// When the water stood so, in microseconds.
    pub(crate) last: u64,
    /// Parts of water.
    pub(crate) water: u64,
    /// The rate when this was written; nothing of a fresh state.
    pub(crate) rate: Rate,
}

impl Steps<State> for Parts {
    #[inline]
    fn advance(&self, state: &mut State, at: Moment) -> bool {
        let (time, repaired) = at.meet(state.last);
        let tick = self.tick_of(time);
        if state.rate != self.rate() {
            let water = (state.water as f64 - state.rate.added(state.last, time)).max(0.0);
            let water = self.rescale(water, state.rate.per_unit, f64::ceil).min(self.capacity);
            *state = State { last: tick * self.tick, water, rate: self.rate() };
            return water > 0;
        }
        let leak = tick.saturating_sub(self.tick_of(state.last)).saturating_mul(self.per_tick);
        state.water = state.water.min(self.capacity).saturating_sub(leak);
        state.last = tick * self.tick;
        repaired
    }

    #[inline]
    fn wait(&self, state: &State, at: Moment, need: u64) -> Wait {
        let Some(charge) = self.charge_of(need) else { return Wait::Never };
        match state.water.checked_sub(self.capacity - charge) {
            None | Some(0) => Wait::None,
            Some(excess) => Wait::Micros(self.micros_until(at.now, self.tick_of(state.last), self.ticks_for(excess))),
        }
    }

    #[inline]
    fn charge(&self, state: &mut State, _: Moment, cost: u64) {
        state.water += cost * self.per_unit;
    }

    fn give(&self, state: &mut State, _: Moment, cost: u64, receipt: u64) -> bool {
        let given = self.still_counts(cost, receipt, self.tick_of(state.last)).min(state.water);
        state.water -= given;
        given > 0
    }

    #[inline]
    fn left(&self, state: &State, at: Moment) -> Left {
        let reset_after = match state.water {
            0 => 0,
            water => self.micros_until(at.now, self.tick_of(state.last), self.ticks_for(water)),
        };
        Left { remaining: (self.capacity - state.water) / self.per_unit, reset_after }
    }
}
