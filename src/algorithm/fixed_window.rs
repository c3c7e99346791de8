//! Fixed window: at most `amount` in each window.
//!
//! Windows are aligned to the Unix epoch plus an offset, or begin with the first request that finds none running.
//!
//! - `remaining`: what is left of this window.
//! - `retry_after`: until the window ends. `never` when the cost is above the amount.
//! - `reset_after`: until the window ends; zero when nothing was used in it.
//!
//! When the amount changes the count stays. When the length (or the offset) changes while a window runs, its count is
//! carried into the window of the new length, cut to the new amount.

use super::{Left, Moment, Steps, Wait};

/// What a fixed window is built from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Params {
    pub(crate) limit: u64,
    pub(crate) window: u64,
    /// Where windows begin.
    pub(crate) start: Start,
}

/// Where windows begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// At multiples of the window since the epoch, plus this many microseconds.
    Aligned(u64),
    /// With the first request that finds no window running.
    FirstRequest,
}

/// One window and what was used in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) start: u64,
    pub(crate) window: u64,
    pub(crate) count: u64,
}

impl Steps<State> for Params {
    #[inline]
    fn advance(&self, state: &mut State, at: Moment) -> bool {
        if state.count == 0 {
            *state = State { start: self.start_of(at.now), window: self.window, count: 0 };
            return false;
        }
        let (time, mut repaired) = at.meet(state.start);
        if repaired {
            state.start = time;
        }
        if state.start + state.window <= time {
            *state = State { start: self.start_of(time), window: self.window, count: 0 };
            return false;
        }
        let start = match self.start {
            Start::Aligned(_) => self.start_of(time),
            // A longer window goes on from where it began; a shorter one that would be over begins now.
            Start::FirstRequest if state.start + self.window > time => state.start,
            Start::FirstRequest => time,
        };
        if (start, self.window) != (state.start, state.window) {
            *state = State { start, window: self.window, count: state.count.min(self.limit) };
            repaired = true;
        }
        repaired
    }

    #[inline]
    fn wait(&self, state: &State, at: Moment, cost: u64) -> Wait {
        if cost > self.limit {
            Wait::Never
        } else if state.count + cost <= self.limit {
            Wait::None
        } else {
            Wait::Micros(state.start + self.window - at.now)
        }
    }

    #[inline]
    fn charge(&self, state: &mut State, _: Moment, cost: u64) {
        state.count += cost;
    }

    /// Only in the window that was charged.
    fn give(&self, state: &mut State, _: Moment, cost: u64, receipt: u64) -> bool {
        let given = if state.start + state.window == receipt { cost.min(state.count) } else { 0 };
        state.count -= given;
        given > 0
    }

    #[inline]
    fn left(&self, state: &State, at: Moment) -> Left {
        let reset_after = if state.count == 0 { 0 } else { state.start + self.window - at.now };
        Left { remaining: self.limit.saturating_sub(state.count), reset_after }
    }
}

impl Params {
    #[inline]
    /// When the window that holds `time` began, or begins with it.
    pub(crate) fn start_of(&self, time: u64) -> u64 {
        match self.start {
            // `offset` is below the window, so adding one window keeps the difference positive near the epoch.
            Start::Aligned(offset) => {
                (time + self.window - (time + self.window - offset) % self.window).saturating_sub(self.window)
            }
            Start::FirstRequest => time,
        }
    }
}
