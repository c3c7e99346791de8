//! Sliding counter: two counts stand for a log. What was used in the previous window fades out evenly while the current
//! window passes: `current + previous * (what is left of the window) / window` must stay within the amount.
//!
//! Exact for even traffic; for uneven traffic the true use of a moving window is off by at most the previous window's
//! unevenness, and never above twice the amount. The weight is not rounded away, so `amount` 1 admits one request every
//! two windows: prefer GCRA or a sliding log for so small a quota.
//!
//! - `remaining`: what fits now, rounded down.
//! - `retry_after`: exact from the weighted formula, also across the edge of the window. `never` above the amount.
//! - `reset_after`: until the window ends, where the previous one has faded out; zero when nothing is remembered.
//!
//! The first window begins with the first request, later ones follow on. When the amount changes the counts are cut to
//! it; when the length changes or the clock steps back, what is in use now fades out over one window from now.

use super::{EXACT, Left, Moment, Steps, Wait, parts::TICKS};

/// What a sliding counter is built from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Params {
    pub(crate) limit: u64,
    /// Microseconds in a tick.
    pub(crate) tick: u64,
    /// Ticks in a window.
    pub(crate) window: u64,
}

/// Two neighbouring windows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// When the current window began, in microseconds.
    pub(crate) start: u64,
    /// Its length in microseconds.
    pub(crate) window: u64,
    pub(crate) current: u64,
    pub(crate) previous: u64,
}

impl Params {
    /// The finest tick in which `limit` times the window is exact, if there is one.
    pub(crate) fn new(limit: u64, window: u64) -> Option<Params> {
        TICKS.into_iter().filter(|tick| window.is_multiple_of(*tick)).find_map(|tick| {
            let window = window / tick;
            (limit.checked_mul(window)? < EXACT).then_some(Params { limit, tick, window })
        })
    }

    pub(super) fn window_micros(&self) -> u64 {
        self.window * self.tick
    }

    /// Ticks since the window began. Time never stands before the start of an advanced state by more than the tolerance.
    fn elapsed(&self, state: &State, at: Moment) -> u64 {
        (at.now / self.tick).saturating_sub(state.start / self.tick)
    }

    /// The weight of the previous window, in units times ticks.
    fn fading(&self, state: &State, at: Moment) -> u64 {
        state.previous * (self.window - self.elapsed(state, at))
    }

    fn until(&self, state: &State, at: Moment, ticks: u64) -> u64 {
        ((state.start / self.tick + ticks) * self.tick).saturating_sub(at.now)
    }
}

impl Steps<State> for Params {
    fn advance(&self, state: &mut State, at: Moment) -> bool {
        let (time, mut repaired) = at.meet(state.start);
        let begin = time / self.tick * self.tick;
        let used = if repaired {
            Some(state.current + state.previous)
        } else if state.window != self.window_micros() && state.window != 0 {
            Some(in_use(state, time))
        } else {
            None
        };
        if let Some(previous) = used {
            *state = State { start: begin, window: 0, current: 0, previous };
            repaired = true;
        }
        state.window = self.window_micros();
        state.start -= state.start % self.tick;
        let passed = (time / self.tick).saturating_sub(state.start / self.tick);
        if passed >= 2 * self.window {
            (state.current, state.previous) = (0, 0);
        } else if passed >= self.window {
            (state.current, state.previous) = (0, state.current);
            state.start += state.window;
        }
        if state.current == 0 && state.previous == 0 {
            state.start = begin;
            return false;
        }
        state.current = state.current.min(self.limit);
        state.previous = state.previous.min(self.limit);
        repaired
    }

    fn wait(&self, state: &State, at: Moment, need: u64) -> Wait {
        if need > self.limit {
            return Wait::Never;
        }
        let spoken_for = state.current + need;
        let room = self.limit.saturating_sub(spoken_for);
        if spoken_for <= self.limit && self.fading(state, at) <= room * self.window {
            return Wait::None;
        }
        let ticks = if spoken_for < self.limit {
            // Until the previous window has faded enough; it is not zero, or the need had fitted.
            self.window - room * self.window / state.previous
        } else if spoken_for == self.limit {
            self.window
        } else {
            // Not in this window: until the current one, as the next one's previous, has faded enough.
            2 * self.window - (self.limit - need) * self.window / state.current
        };
        Wait::Micros(self.until(state, at, ticks))
    }

    fn charge(&self, state: &mut State, _: Moment, cost: u64) {
        state.current += cost;
    }

    /// Only in the window that was charged, which may be the previous one by now.
    fn give(&self, state: &mut State, _: Moment, cost: u64, receipt: u64) -> bool {
        let count = if receipt == state.start + state.window {
            &mut state.current
        } else if receipt == state.start {
            &mut state.previous
        } else {
            return false;
        };
        let given = cost.min(*count);
        *count -= given;
        given > 0
    }

    fn left(&self, state: &State, at: Moment) -> Left {
        let used = state.current + self.fading(state, at).div_ceil(self.window);
        let reset_after = match (state.current, state.previous) {
            (0, 0) => 0,
            _ => self.until(state, at, self.window),
        };
        Left { remaining: self.limit.saturating_sub(used), reset_after }
    }
}

/// What a state of another window length has in use, in the same floating-point order as the Lua.
fn in_use(state: &State, time: u64) -> u64 {
    let passed = time.saturating_sub(state.start);
    let (current, previous, left) = if passed >= 2 * state.window {
        (0, 0, 0)
    } else if passed >= state.window {
        (0, state.current, 2 * state.window - passed)
    } else {
        (state.current, state.previous, state.window - passed)
    };
    current + (previous as f64 * (left as f64 / state.window as f64)).ceil() as u64
}
