//! Fair shares: what a tenant must leave of a limit that it shares with others.
//!
//! Whoever has had more in a window must leave more free. When a limit is short of what is asked for, its level settles where those
//! who have had least are served, and those who have had more wait: nobody gets more while somebody who has had less is refused. When
//! it is not short, nobody notices.
//!
//! Up to half of a share a tenant leaves as many units as it has had, so that of many tenants each is told from the others; beyond
//! that it leaves more and more slowly, up to one share where it has had the whole limit. So one tenant alone can use everything but
//! that, and the next one that comes finds something.
//!
//! A tenant's use is counted in fixed windows, so that what it must leave stays the same until the window ends, and is nothing from
//! then on. That is what makes the wait exact.

use super::Wait;

/// What is shared, in units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fair {
    /// The capacity of the limit.
    pub(crate) whole: u64,
    /// What is left for others one by one.
    pub(crate) half: u64,
    /// What is left besides where the whole limit was used.
    pub(crate) rest: u64,
}

/// So that products of two numbers of units are exact in Lua.
pub(crate) const LARGEST: u64 = (1 << 26) - 1;

impl Fair {
    /// `share` is at least one unit and less than the whole, which is at most [`LARGEST`].
    pub(crate) fn new(whole: u64, share: u64) -> Fair {
        let half = share.div_ceil(2);
        Fair { whole, half, rest: share.saturating_sub(half) }
    }

    /// What must be left besides `need`, which includes it never: with that it still fits an untouched limit.
    pub(crate) fn kept(&self, used: u64, need: u64) -> u64 {
        let used = used.min(self.whole);
        let kept = match used.checked_sub(self.half) {
            None | Some(0) => used,
            Some(more) => self.half + more * self.rest / (self.whole - self.half).max(1),
        };
        kept.min(self.whole.saturating_sub(need))
    }
}

/// How long to wait where it takes `alone` without any use by the tenant, `now` with it, and the use is forgotten after `ends`.
pub(crate) fn wait(alone: Wait, now: Wait, ends: u64) -> Wait {
    match (alone, now) {
        (Wait::Never, _) | (_, Wait::Never) => alone,
        (_, Wait::None) => Wait::None,
        (_, Wait::Micros(now)) if now <= ends => Wait::Micros(now),
        (Wait::Micros(alone), _) if alone > ends => Wait::Micros(alone),
        _ => Wait::Micros(ends),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_had_more_leaves_more_and_one_share_at_most() {
        let fair = Fair::new(100, 20);
        let kept: Vec<u64> = (0..=120).map(|used| fair.kept(used, 1)).collect();
        assert!(kept.is_sorted());
        assert_eq!((kept[0], kept[1], kept[10], kept[19], kept[55], kept[99], kept[100]), (0, 1, 10, 11, 15, 19, 20));
        assert_eq!(kept[120], 20);
        assert_eq!(Fair::new(5, 1).kept(3, 1), 1);
    }

    #[test]
    fn what_fits_an_untouched_limit_can_always_fit() {
        let fair = Fair::new(100, 20);
        assert_eq!((fair.kept(100, 85), fair.kept(100, 100), fair.kept(100, 101)), (15, 0, 0));
    }

    #[test]
    fn the_wait_ends_with_the_use_or_before() {
        let micros = Wait::Micros;
        assert_eq!(wait(Wait::None, Wait::None, 9), Wait::None);
        assert_eq!(wait(Wait::None, micros(5), 9), micros(5));
        assert_eq!(wait(Wait::None, micros(12), 9), micros(9));
        assert_eq!(wait(micros(10), micros(12), 9), micros(10));
        assert_eq!(wait(micros(3), micros(12), 9), micros(9));
        assert_eq!(wait(Wait::Never, micros(12), 9), Wait::Never);
    }
}
