//! Fixed window: at most `amount` in each window.
//!
//! Windows are aligned to the Unix epoch plus an offset, are the calendar's months, or begin with the first request that finds
//! none running.
//!
//! - `remaining`: what is left of this window.
//! - `retry_after`: until the window ends. `never` when the cost is above the amount.
//! - `reset_after`: until the window ends; zero when nothing was used in it.
//!
//! When the amount changes the count stays. When the length (or the offset) changes while a window runs, its count is
//! carried into the window of the new length, cut to the new amount.

use super::{Left, Moment, Steps, Wait, month::month_of};

/// What a fixed window is built from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Params {
    pub(crate) limit: u64,
    /// The length of windows; of months, the longest.
    pub(crate) window: u64,
    /// Where windows begin.
    pub(crate) start: Start,
}

/// Where windows begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// At multiples of the window since the epoch, plus this many microseconds.
    Aligned(u64),
    /// With the months of a clock that is so many microseconds ahead of UTC.
    Month(i64),
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
            *state = self.window_of(at.now);
            return false;
        }
        let (time, mut repaired) = at.meet(state.start);
        if repaired {
            state.start = time;
        }
        if state.start + state.window <= time {
            *state = self.window_of(time);
            return false;
        }
        let mut running = self.window_of(time);
        // A longer window goes on from where it began; a shorter one that would be over begins now.
        if self.start == Start::FirstRequest && state.start + self.window > time {
            running.start = state.start;
        }
        if (running.start, running.window) != (state.start, state.window) {
            *state = State { count: state.count.min(self.limit), ..running };
            repaired = true;
        }
        repaired
    }

    #[inline]
    fn wait(&self, state: &State, at: Moment, need: u64) -> Wait {
        if need > self.limit {
            Wait::Never
        } else if state.count + need <= self.limit {
            Wait::None
        } else {
            Wait::Micros(state.start + state.window - at.now)
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
        let reset_after = if state.count == 0 { 0 } else { state.start + state.window - at.now };
        Left { remaining: self.limit.saturating_sub(state.count), reset_after }
    }
}

impl Params {
    /// The window that holds `time`, or begins with it, with nothing used.
    #[inline]
    pub(crate) fn window_of(&self, time: u64) -> State {
        let start = match self.start {
            // `offset` is below the window, so adding one window keeps the difference positive near the epoch.
            Start::Aligned(offset) => {
                (time + self.window - (time + self.window - offset) % self.window).saturating_sub(self.window)
            }
            Start::FirstRequest => time,
            Start::Month(utc_offset) => {
                let (start, end) = month_of(time, utc_offset);
                return State { start, window: end - start, count: 0 };
            }
        };
        State { start, window: self.window, count: 0 }
    }
}
