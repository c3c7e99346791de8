//! Ban: whoever earns so many strikes in a window is refused for a time, each time for longer.
//!
//! - `remaining`: the strikes that are left before a ban; none while there is one.
//! - `retry_after`: until the ban ends. It refuses whatever the cost, and is never charged: a line of it has no cost.
//! - `reset_after`: until every strike and every ban is forgotten.
//!
//! Strikes are [owed](super::Params::owe). The window begins with the first, and those of a window that has ended do not count. The
//! last one that it takes begins a ban; while that lasts there are no more strikes.
//!
//! The first ban lasts `first`. Each is longer than the one before by the factor, up to `longest`, and one less counts for each
//! `forget` that has passed since the last one ended.
//!
//! A ban that lies further ahead than it was long is from a clock that has gone back: it is moved to where one that began now
//! would end, so that it blocks nobody for longer than it was meant to.

use super::{Left, Moment, Steps, Wait};

/// No ban is longer, in milliseconds.
pub(crate) const LONGEST: u64 = 366 * 86_400_000;
/// No ban is this many times as long as the one before, or lengths would not be exact in Lua.
pub(crate) const LARGEST_FACTOR: u64 = 100;
/// What factors are counted in.
pub(crate) const THOUSAND: u64 = 1_000;
pub(crate) const MOST_STRIKES: u64 = 1_000_000;
/// Lengths are exact in Lua.
const _: () = assert!(LONGEST * LARGEST_FACTOR * THOUSAND < super::EXACT);

/// More bans than this do not count.
const HIGHEST_LEVEL: u8 = 64;

/// What a ban is built from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Params {
    /// So many strikes are a ban.
    pub(crate) strikes: u64,
    /// How long strikes count from the first, in microseconds.
    pub(crate) window: u64,
    /// The length of the first ban, in milliseconds like the others.
    pub(crate) first: u64,
    /// In thousandths.
    pub(crate) factor: u64,
    pub(crate) longest: u64,
    /// After how long one ban is forgotten, in microseconds.
    pub(crate) forget: u64,
}

/// Strikes, and what is left of bans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// When the last ban ends or ended; afterwards, up to when bans were forgotten.
    pub(crate) until: u64,
    /// When the first strike of the window was.
    pub(crate) start: u64,
    /// How long the ban is that is in force, in milliseconds; zero: there is none.
    pub(crate) length: u64,
    pub(crate) strikes: u32,
    /// How many bans count.
    pub(crate) level: u8,
}

impl State {
    fn begin(&mut self, now: u64, length: u64) {
        (self.until, self.length, self.strikes) = (now + length * 1_000, length, 0);
    }
}

impl Params {
    /// Adds strikes, or bans for `by_hand` milliseconds where that is not zero. Answers zero if that changed nothing.
    pub(super) fn strike(&self, state: &mut State, at: Moment, count: u64, by_hand: u64) -> u64 {
        if count == 0 {
            return 0;
        }
        if by_hand > 0 {
            let length = by_hand.min(LONGEST);
            if state.length > 0 && state.until >= at.now + length * 1_000 {
                return 0;
            }
            state.begin(at.now, length);
            return count;
        }
        if state.length > 0 {
            return 0;
        }
        if state.strikes == 0 {
            state.start = at.now;
        }
        let strikes = count.saturating_add(state.strikes.into());
        if strikes < self.strikes {
            // Below a million.
            state.strikes = strikes as u32;
            return count;
        }
        let length = self.length(state.level);
        if length < self.longest && state.level < HIGHEST_LEVEL {
            state.level += 1;
        }
        state.begin(at.now, length);
        count
    }

    /// How long a ban is after so many others.
    pub(crate) fn length(&self, level: u8) -> u64 {
        let mut length = self.first;
        for _ in 0..level {
            if length >= self.longest {
                break;
            }
            length = length * self.factor / THOUSAND;
        }
        length.min(self.longest)
    }

    /// Forgets one ban for each time that has passed.
    fn forget(&self, state: &mut State, now: u64) {
        let gone = now.saturating_sub(state.until) / self.forget;
        if gone >= state.level.into() {
            state.level = 0;
        } else {
            // Less than the level.
            state.level -= gone as u8;
            state.until += gone * self.forget;
        }
    }
}

impl Steps<State> for Params {
    fn advance(&self, state: &mut State, at: Moment) -> bool {
        let mut repaired = false;
        if state.length > 0 && state.until > at.now {
            let latest = at.now + state.length * 1_000;
            if state.until > latest + at.tolerance {
                (state.until, repaired) = (latest, true);
            }
        } else {
            state.length = 0;
            if state.level > 0 && state.until > at.now + at.tolerance {
                (state.until, repaired) = (at.now, true);
            }
            self.forget(state, at.now);
        }
        if state.strikes > 0 {
            if state.start > at.now + at.tolerance {
                (state.start, repaired) = (at.now, true);
            }
            if state.start + self.window <= at.now {
                state.strikes = 0;
            }
        }
        repaired
    }

    fn wait(&self, state: &State, at: Moment, _: u64) -> Wait {
        if state.length > 0 { Wait::Micros(state.until - at.now) } else { Wait::None }
    }

    /// Strikes are owed.
    fn charge(&self, _: &mut State, _: Moment, _: u64) {}

    /// A strike is not taken back.
    fn give(&self, _: &mut State, _: Moment, _: u64, _: u64) -> bool {
        false
    }

    fn left(&self, state: &State, at: Moment) -> Left {
        let remaining = if state.length > 0 { 0 } else { self.strikes.saturating_sub(state.strikes.into()) };
        let window = if state.strikes > 0 { state.start + self.window } else { 0 };
        let counts = state.length > 0 || state.level > 0;
        let forgotten = if counts { state.until + u64::from(state.level) * self.forget } else { 0 };
        Left { remaining, reset_after: window.max(forgotten).saturating_sub(at.now) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_ban_is_longer_than_the_one_before_up_to_the_longest() {
        let params =
            Params { strikes: 1, window: 1, first: 1_001, factor: 1_500, longest: 5_000, forget: 1_000_000_000_000 };
        let lengths: Vec<u64> = (0..7).map(|level| params.length(level)).collect();
        assert_eq!(lengths, [1_001, 1_501, 2_251, 3_376, 5_000, 5_000, 5_000]);
        // The longest does not count once more, so that it is forgotten as fast.
        let (mut state, mut now) = (State::default(), 7);
        for level in [1, 2, 3, 4, 4, 4] {
            let at = Moment { now, tolerance: 0, peers: 0 };
            params.advance(&mut state, at);
            assert_eq!(params.strike(&mut state, at, 1, 0), 1);
            assert_eq!(state.level, level);
            now = state.until;
        }
    }
}
