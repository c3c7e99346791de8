//! Leaky bucket, queueing: the water before a request is its wait. Each gets a slot when the water that was there before it has
//! leaked, so slots are in the order of the decisions and `amount` a `window` of them begin.
//!
//! The line holds what leaks within the longest wait, and no more than so many that wait, besides the one whose turn it is; a
//! cost of `n` takes `n` places. The state is that of the policing bucket.
//!
//! - `remaining`: places left.
//! - `retry_after`: until there are places for the cost. `never` when the line is shorter than that.
//! - `reset_after`: until the line is empty, which for whoever came last is the end of the slot.
//! - [`Wait::Turn`]: until the slot begins. Rounded up to a tick, so never before the water has leaked.
//!
//! `give` takes only the last in line out of it, whose slot's end is the bucket's: those behind another have been told their
//! times, and a newcomer in a gap before them would move everybody's end forward and run beside the one who is last.

use super::{Left, Moment, Parts, Steps, Wait, leaky_bucket::State};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Params {
    /// The capacity is the length of the line, not always of whole units.
    pub(crate) parts: Parts,
    /// In microseconds.
    pub(crate) max_wait: u64,
    pub(crate) max_waiters: u64,
}

impl Params {
    /// A line that `amount` leave in `window` microseconds, if it can be counted exactly.
    pub(crate) fn new(amount: u64, window: u64, max_wait: u64, max_waiters: u64) -> Option<Params> {
        let within = (u128::from(max_wait) * u128::from(amount)).div_ceil(u128::from(window.max(1)));
        let places = max_waiters.min(u64::try_from(within).ok()?).checked_add(1)?;
        let parts = Parts::new(amount, window, places)?;
        // Whoever finds no more than this before it waits no longer than it may, behind no more than there may be.
        let leaks = parts.tick_of(max_wait).saturating_mul(parts.per_tick);
        let before = max_waiters.saturating_mul(parts.per_unit).min(leaks);
        Some(Params { parts: Parts { capacity: parts.per_unit + before, ..parts }, max_wait, max_waiters })
    }

    /// Whole units in line at most, with the one whose turn it is.
    pub(crate) fn places(&self) -> u64 {
        self.parts.capacity / self.parts.per_unit
    }

    /// The tick at which the water has leaked.
    fn end(&self, state: &State) -> u64 {
        self.parts.tick_of(state.last) + self.parts.ticks_for(state.water)
    }
}

impl Steps<State> for Params {
    #[inline]
    fn advance(&self, state: &mut State, at: Moment) -> bool {
        self.parts.advance(state, at)
    }

    fn wait(&self, state: &State, at: Moment, need: u64) -> Wait {
        match self.parts.wait(state, at, need) {
            Wait::None if state.water > 0 => Wait::Turn((self.end(state) * self.parts.tick).saturating_sub(at.now)),
            wait => wait,
        }
    }

    #[inline]
    fn charge(&self, state: &mut State, at: Moment, cost: u64) {
        Steps::<State>::charge(&self.parts, state, at, cost);
    }

    fn give(&self, state: &mut State, at: Moment, cost: u64, receipt: u64) -> bool {
        self.parts.tick_of(receipt) == self.end(state) && self.parts.give(state, at, cost, receipt)
    }

    #[inline]
    fn left(&self, state: &State, at: Moment) -> Left {
        self.parts.left(state, at)
    }
}
