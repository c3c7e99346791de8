//! Whole-number rates: a quota as parts per unit and parts per tick.

use super::{EXACT, gcra::pace_of};

/// Ticks tried in turn, in microseconds: the first that keeps every product exact is the rule's.
pub(crate) const TICKS: [u64; 4] = [1, 10, 100, 1_000];

/// A rate and a capacity in whole numbers; see the [module docs](super).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parts {
    /// Microseconds in a tick.
    pub(crate) tick: u64,
    /// Parts that each tick adds.
    pub(crate) per_tick: u64,
    /// Parts that make one unit of quota.
    pub(crate) per_unit: u64,
    /// The capacity, in parts.
    pub(crate) capacity: u64,
    /// Microseconds a unit, as [`super::gcra`] writes it down.
    pub(crate) pace: u64,
}

impl Parts {
    /// The finest exact form of `amount` per `window` microseconds with room for `burst` units, if there is one.
    pub(crate) fn new(amount: u64, window: u64, burst: u64) -> Option<Parts> {
        TICKS.into_iter().filter(|tick| window.is_multiple_of(*tick)).find_map(|tick| {
            let ticks = window / tick;
            let divisor = gcd(amount, ticks);
            let (per_tick, per_unit) = (amount / divisor, ticks / divisor);
            let capacity = burst.checked_mul(per_unit)?;
            // Rounding up a division by `per_tick` adds up to that much to a number of at most the capacity.
            let pace = pace_of(per_unit * tick);
            // Times to come are added to now, which is below 2^52 for another century.
            if capacity.div_ceil(per_tick).checked_mul(tick)? >= EXACT / 2 {
                return None;
            }
            (capacity.checked_add(per_tick)? < EXACT).then_some(Parts { tick, per_tick, per_unit, capacity, pace })
        })
    }

    /// The tick that holds `micros`.
    #[inline]
    pub(super) fn tick_of(&self, micros: u64) -> u64 {
        // Nearly every rule ticks in microseconds, and a division is the dearest thing on this path.
        if self.tick == 1 { micros } else { micros / self.tick }
    }

    /// A cost in parts; `None` when it is above the capacity and can never fit.
    #[inline]
    pub(super) fn charge_of(&self, cost: u64) -> Option<u64> {
        cost.checked_mul(self.per_unit).filter(|charge| *charge <= self.capacity)
    }

    /// Ticks until `parts` have been added.
    #[inline]
    pub(super) fn ticks_for(&self, parts: u64) -> u64 {
        if self.per_tick == 1 { parts } else { parts.div_ceil(self.per_tick) }
    }

    /// Microseconds from `now` until `ticks` ticks after the tick `from` have begun.
    #[inline]
    pub(super) fn micros_until(&self, now: u64, from: u64, ticks: u64) -> u64 {
        ((from + ticks) * self.tick).saturating_sub(now)
    }

    /// The parts of a cost that still count at `tick`, where a charge left `receipt` as the time at which all is forgotten. What
    /// is forgotten meanwhile may have been this charge, so that much is not given back.
    pub(super) fn still_counts(&self, cost: u64, receipt: u64, tick: u64) -> u64 {
        let kept = self.tick_of(receipt).saturating_sub(tick).saturating_mul(self.per_tick);
        cost.saturating_mul(self.per_unit).min(kept)
    }

    pub(super) fn rate(&self) -> Rate {
        Rate { tick: self.tick, per_tick: self.per_tick, per_unit: self.per_unit }
    }

    /// Parts under a quota whose unit had `per_unit` parts, in parts of this one; rounded as asked.
    ///
    /// The one place that divides in floating point, in the same order as the Lua: whole units come out whole, and a
    /// fraction is off by at most a part.
    pub(super) fn rescale(&self, parts: f64, per_unit: u64, round: fn(f64) -> f64) -> u64 {
        round(parts / per_unit.max(1) as f64 * self.per_unit as f64) as u64
    }
}

/// The rate that a state was written under. When it changes, what has passed is reckoned at the old one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rate {
    pub(crate) tick: u64,
    pub(crate) per_tick: u64,
    pub(crate) per_unit: u64,
}

impl Rate {
    /// The parts that this rate has added between two times in microseconds; in floating point, as the Lua has it.
    pub(super) fn added(&self, from: u64, to: u64) -> f64 {
        let tick = self.tick.max(1);
        (to / tick).saturating_sub(from / tick) as f64 * self.per_tick as f64
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a.max(1) } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 86_400_000_000;

    #[test]
    fn nearly_every_quota_ticks_in_microseconds() {
        for (amount, window, burst) in [
            (10_000, 1_000_000, 10_000),
            (5_000_000, 1_000_000, 5_000_000),
            (100, 60_000_000, 1_000_000),
            (1, 30 * DAY, 1),
        ] {
            assert_eq!(Parts::new(amount, window, burst).map(|parts| parts.tick), Some(1), "{amount} per {window}");
        }
    }

    #[test]
    fn the_extremes_take_a_coarser_tick_or_none() {
        assert_eq!(Parts::new(999_983, DAY, 1_000_000).map(|parts| parts.tick), Some(10));
        assert_eq!(Parts::new(999_999_937, 366 * DAY, 100_000).map(|parts| parts.tick), Some(1_000));
        assert_eq!(Parts::new(999_999_937, 366 * DAY, 999_999_937), None);
        // A window that a coarser tick does not divide keeps the finest or none.
        assert_eq!(Parts::new(999_983, DAY + 1, 1_000_000), None);
    }
}
