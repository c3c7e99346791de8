//! State as an entry keeps it: in 32 bytes, tag and all, so that an entry is one cache line.

use crate::algorithm::{
    Left, Moment, Params, Rate, State, Wait, ban, concurrency, fixed_window, gcra, leaky_bucket, sliding_counter,
    sliding_log, token_bucket,
};

/// Any [`State`].
pub(super) enum Packed {
    Whole {
        dry_at: u64,
        pace: u64,
    },
    Fraction {
        dry_at: u64,
        beyond: u64,
        rate: PackedRate,
    },
    TokenBucket {
        last: u64,
        level: i64,
        rate: PackedRate,
    },
    LeakyBucket {
        last: u64,
        water: u64,
        rate: PackedRate,
    },
    FixedWindow {
        start: u64,
        window: u64,
        count: u64,
    },
    SlidingCounter {
        start: u64,
        current: u64,
        previous: u64,
        window: Seven,
    },
    /// None while it is taken out.
    SlidingLog(Option<Box<sliding_log::State>>),
    Concurrency(Option<Box<concurrency::State>>),
    Ban {
        until: u64,
        start: u64,
        length: u64,
        strikes: u32,
        level: u8,
    },
}

const _: () = assert!(size_of::<Packed>() == 32);

impl Packed {
    /// The whole decision in place, where there is a short way.
    #[inline]
    pub(super) fn spend_at_once(&mut self, params: &Params, at: &Moment, cost: u64, need: u64) -> Option<(Wait, Left)> {
        let (Params::Gcra(parts), &mut Packed::Whole { dry_at, pace }) = (params, &mut *self) else { return None };
        if cost == 0 {
            return None;
        }
        let mut state = gcra::State::Whole { dry_at, pace };
        let answer = parts.spend(&mut state, *at, cost, need);
        *self = match state {
            gcra::State::Whole { dry_at, pace } => Packed::Whole { dry_at, pace },
            // Written under another quota.
            state => State::Gcra(state).into(),
        };
        Some(answer)
    }

    /// Takes the state out, to be put back: copying a log would be dear.
    #[inline]
    pub(super) fn take(&mut self) -> State {
        match self {
            &mut Packed::Whole { dry_at, pace } => State::Gcra(gcra::State::Whole { dry_at, pace }),
            &mut Packed::Fraction { dry_at, beyond, rate } => {
                State::Gcra(gcra::State::Fraction { dry_at, beyond, rate: rate.into() })
            }
            &mut Packed::TokenBucket { last, level, rate } => {
                State::TokenBucket(token_bucket::State { last, level, rate: rate.into() })
            }
            &mut Packed::LeakyBucket { last, water, rate } => {
                State::LeakyBucket(leaky_bucket::State { last, water, rate: rate.into() })
            }
            &mut Packed::FixedWindow { start, window, count } => {
                State::FixedWindow(fixed_window::State { start, window, count })
            }
            &mut Packed::SlidingCounter { start, current, previous, window } => {
                State::SlidingCounter(sliding_counter::State { start, window: window.get(), current, previous })
            }
            Packed::SlidingLog(log) => State::SlidingLog(log.take().unwrap_or_default()),
            Packed::Concurrency(leases) => State::Concurrency(leases.take().unwrap_or_default()),
            &mut Packed::Ban { until, start, length, strikes, level } => {
                State::Ban(ban::State { until, start, length, strikes, level })
            }
        }
    }
}

impl From<State> for Packed {
    #[inline]
    fn from(state: State) -> Packed {
        match state {
            State::Gcra(gcra::State::Whole { dry_at, pace }) => Packed::Whole { dry_at, pace },
            State::Gcra(gcra::State::Fraction { dry_at, beyond, rate }) => {
                Packed::Fraction { dry_at, beyond, rate: rate.into() }
            }
            State::TokenBucket(token_bucket::State { last, level, rate }) => {
                Packed::TokenBucket { last, level, rate: rate.into() }
            }
            State::LeakyBucket(leaky_bucket::State { last, water, rate }) => {
                Packed::LeakyBucket { last, water, rate: rate.into() }
            }
            State::FixedWindow(fixed_window::State { start, window, count }) => {
                Packed::FixedWindow { start, window, count }
            }
            State::SlidingCounter(sliding_counter::State { start, window, current, previous }) => {
                Packed::SlidingCounter { start, current, previous, window: Seven::new(window) }
            }
            State::SlidingLog(log) => Packed::SlidingLog(Some(log)),
            State::Concurrency(leases) => Packed::Concurrency(Some(leases)),
            State::Ban(ban::State { until, start, length, strikes, level }) => {
                Packed::Ban { until, start, length, strikes, level }
            }
        }
    }
}

/// A number below 2^56. Whatever is exact in Lua is below 2^53, and so is a window.
#[derive(Clone, Copy)]
pub(super) struct Seven([u8; 7]);

impl Seven {
    #[inline]
    fn new(number: u64) -> Seven {
        let [a, b, c, d, e, f, g, _] = number.to_le_bytes();
        Seven([a, b, c, d, e, f, g])
    }

    #[inline]
    fn get(self) -> u64 {
        let [a, b, c, d, e, f, g] = self.0;
        u64::from_le_bytes([a, b, c, d, e, f, g, 0])
    }
}

/// A [`Rate`].
#[derive(Clone, Copy)]
pub(super) struct PackedRate {
    per_tick: Seven,
    per_unit: Seven,
    /// As a power of ten, and one more, since there is a rate of nothing.
    tick: u8,
}

impl From<Rate> for PackedRate {
    #[inline]
    fn from(rate: Rate) -> PackedRate {
        let tick = rate.tick.checked_ilog10().map_or(0, |power| power as u8 + 1);
        PackedRate { per_tick: Seven::new(rate.per_tick), per_unit: Seven::new(rate.per_unit), tick }
    }
}

impl From<PackedRate> for Rate {
    #[inline]
    fn from(packed: PackedRate) -> Rate {
        let tick = match packed.tick {
            0 => 0,
            power => 10u64.pow(u32::from(power) - 1),
        };
        Rate { tick, per_tick: packed.per_tick.get(), per_unit: packed.per_unit.get() }
    }
}
