//! GCRA, the generic cell rate algorithm: a leaky bucket remembered as the time at which it will be dry.
//!
//! - `remaining`: whole units that fit now.
//! - `retry_after`: until the cost fits. `never` when the cost is above the burst.
//! - `reset_after`: until everything used has been earned back; zero when it has.
//!
//! Where the quota reduces to one unit per whole number of ticks (100 a minute, 10 a second) the state is a single number,
//! the cheapest there is on Redis. It carries the pace it was written at to a sixteenth, so that a changed rate keeps the
//! units that were used, rounded up; a change by less than a sixteenth is not seen, and may give back as much of what was
//! used. Other quotas keep a remainder and their exact pace beside it.
//! Since the state is a time in the future by nature, one that lies further ahead than the burst allows (a clock that
//! stepped back, a burst that was lowered) is cut to the burst when it is first seen. Not what a peer's clock may be ahead by: two
//! who cut what the other writes would free as much each time.

use super::{EXACT, Left, Moment, Parts, Rate, Steps, Wait};

/// When everything used will have been earned back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// One part a tick: the time alone, and the pace to a sixteenth.
    Whole { dry_at: u64, pace: u64 },
    /// Several parts a tick: the time, the parts beyond it, and the exact pace.
    Fraction { dry_at: u64, beyond: u64, rate: Rate },
}

impl Default for State {
    fn default() -> State {
        State::Whole { dry_at: 0, pace: 0 }
    }
}

/// Microseconds a unit, to a sixteenth below: four bits after the leading one, and its place.
pub(crate) fn pace_of(micros_per_unit: u64) -> u64 {
    let place = u64::from(micros_per_unit.max(1).ilog2());
    let sixteenths = (u128::from(micros_per_unit) * 16) >> place;
    place * 16 + (sixteenths as u64 - 16)
}

/// The least microseconds a unit that `pace` stands for; may be a fraction.
fn micros_of(pace: u64) -> f64 {
    (16 + pace % 16) as f64 * 2f64.powi((pace / 16) as i32) / 16.0
}

impl Parts {
    /// The parts in use at `tick`, and whether they were written at another pace.
    #[inline(always)]
    fn used(&self, state: &State, tick: u64, now: u64) -> (u64, bool) {
        match *state {
            State::Whole { dry_at, pace } if pace == self.pace && self.per_tick == 1 => {
                (self.tick_of(dry_at).saturating_sub(tick), false)
            }
            _ => self.used_otherwise(state, now),
        }
    }

    fn used_otherwise(&self, state: &State, now: u64) -> (u64, bool) {
        match *state {
            State::Whole { dry_at, pace } => {
                let micros = dry_at.saturating_sub(now) as f64;
                ((micros / micros_of(pace) * self.per_unit as f64).ceil() as u64, micros > 0.0)
            }
            State::Fraction { dry_at, beyond, rate } => {
                let ticks = (dry_at / rate.tick).checked_sub(now / rate.tick);
                let used = ticks.map_or(0, |ticks| ticks.saturating_mul(rate.per_tick).saturating_add(beyond));
                if rate == self.rate() {
                    (used, false)
                } else {
                    (self.rescale(used as f64, rate.per_unit, f64::ceil), used > 0)
                }
            }
        }
    }

    /// Whether more is in use than may be: beyond the burst, what a peer whose clock is ahead has seen pass.
    #[inline(always)]
    fn is_too_much(&self, used: u64, at: Moment) -> bool {
        used > self.capacity && {
            let ahead = at.peers.div_ceil(self.tick).saturating_mul(self.per_tick);
            // Whatever is added to it stays exact.
            used > self.capacity + ahead.min(EXACT - 1 - self.per_tick - self.capacity)
        }
    }

    fn state_of(&self, tick: u64, used: u64) -> State {
        let dry_at = |ticks: u64| (tick + ticks) * self.tick;
        match self.per_tick {
            1 => State::Whole { dry_at: dry_at(used), pace: self.pace },
            per_tick => State::Fraction { dry_at: dry_at(used / per_tick), beyond: used % per_tick, rate: self.rate() },
        }
    }

    /// Advances, judges, charges if it fits, and answers what is left: the steps would each do the same work again.
    #[inline]
    pub(crate) fn spend(&self, state: &mut State, at: Moment, cost: u64, need: u64) -> (Wait, Left) {
        let tick = self.tick_of(at.now);
        let (used, repaced) = self.used(state, tick, at.now);
        let (mut used, mut changed) = if self.is_too_much(used, at) { (self.capacity, true) } else { (used, repaced) };
        let wait = match self.charge_of(need) {
            None => Wait::Never,
            Some(need) if used <= self.capacity - need => {
                (used, changed) = (used + cost * self.per_unit, true);
                Wait::None
            }
            Some(need) => {
                let excess = used - (self.capacity - need);
                Wait::Micros(self.micros_until(at.now, tick, self.ticks_for(excess)))
            }
        };
        if changed {
            *state = self.state_of(tick, used);
        }
        (wait, self.left_of(at, used))
    }

    #[inline]
    fn left_of(&self, at: Moment, used: u64) -> Left {
        let reset_after = match used {
            0 => 0,
            used => self.micros_until(at.now, self.tick_of(at.now), self.ticks_for(used)),
        };
        Left { remaining: (self.capacity - used.min(self.capacity)) / self.per_unit, reset_after }
    }

    /// The parts in use of a state that has been advanced.
    #[inline]
    fn advanced(&self, state: &State, at: Moment) -> u64 {
        self.used(state, self.tick_of(at.now), at.now).0
    }
}

impl Steps<State> for Parts {
    #[inline]
    fn advance(&self, state: &mut State, at: Moment) -> bool {
        let tick = self.tick_of(at.now);
        let (used, repaced) = self.used(state, tick, at.now);
        if self.is_too_much(used, at) {
            *state = self.state_of(tick, self.capacity);
            return true;
        }
        if repaced {
            *state = self.state_of(tick, used);
        }
        repaced
    }

    #[inline]
    fn wait(&self, state: &State, at: Moment, need: u64) -> Wait {
        let Some(charge) = self.charge_of(need) else { return Wait::Never };
        match self.advanced(state, at).checked_sub(self.capacity - charge) {
            None | Some(0) => Wait::None,
            Some(excess) => Wait::Micros(self.micros_until(at.now, self.tick_of(at.now), self.ticks_for(excess))),
        }
    }

    #[inline]
    fn charge(&self, state: &mut State, at: Moment, cost: u64) {
        let tick = self.tick_of(at.now);
        *state = self.state_of(tick, self.advanced(state, at) + cost * self.per_unit);
    }

    fn give(&self, state: &mut State, at: Moment, cost: u64, receipt: u64) -> bool {
        let (used, tick) = (self.advanced(state, at), self.tick_of(at.now));
        let given = self.still_counts(cost, receipt, tick).min(used);
        if given > 0 {
            *state = self.state_of(tick, used - given);
        }
        given > 0
    }

    #[inline]
    fn left(&self, state: &State, at: Moment) -> Left {
        self.left_of(at, self.advanced(state, at))
    }
}
