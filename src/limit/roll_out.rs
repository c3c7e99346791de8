//! Which keys a rule is enforced for.

/// Parts of the whole.
const WHOLE: u64 = 1 << 53;

/// A stable share of keys. Each key has a place of its own, by a hash that is the same in every process and every release, and the
/// share is the places below a bound: one that grows only adds keys.
///
/// The place is of the namespace, the rule's name and the escaped key, so that a key that comes first under one rule need not do so
/// under another. Not of the whole name of its count, whose form may change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RollOut {
    /// Places below it are enforced.
    bound: u64,
    /// The hash of what comes before the key.
    begun: u64,
}

impl RollOut {
    /// Of a share in percent, from 0 to 100.
    pub(crate) fn new(namespace: &str, rule: &str, percent: f64) -> RollOut {
        // Neither a name nor an escaped key has this byte.
        let begun = [namespace.as_bytes(), b"\xff", rule.as_bytes(), b"\xff"].into_iter().fold(BASIS, fnv1a);
        RollOut { bound: (percent / 100.0 * WHOLE as f64) as u64, begun }
    }

    /// Whether the rule is enforced for every key.
    #[inline]
    pub(crate) fn is_whole(self) -> bool {
        self.bound >= WHOLE
    }

    /// Whether the rule is enforced for this key, given as it is escaped.
    #[inline]
    pub(crate) fn enforces(self, key: &[u8]) -> bool {
        self.is_whole() || self.bound > 0 && place(fnv1a(self.begun, key)) < self.bound
    }
}

/// FNV-1a, 64 bits.
const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0100_0000_01b3;

fn fnv1a(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME))
}

/// From 0 to [`WHOLE`], without it. The last bytes of a key hardly reach the upper bits of its hash; mixed as SplitMix64 does, they do.
fn place(hash: u64) -> u64 {
    let hash = (hash ^ hash >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ hash >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (hash ^ hash >> 31) >> 11
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys() -> impl Iterator<Item = String> {
        (0..10_000).map(|user| format!("user-{user}"))
    }

    /// Worked out once by another program. Were they to change, deployed shares would be other keys.
    #[test]
    fn places_are_the_same_for_ever() {
        let of = |namespace, rule, key: &str| place(fnv1a(RollOut::new(namespace, rule, 1.0).begun, key.as_bytes()));
        assert_eq!(of("shop", "per-user", "alice"), 2_452_333_170_616_181);
        assert_eq!(of("shop", "per-user", "bob"), 5_286_276_414_885_150);
        assert_eq!(of("shop", "per-ip", "alice"), 1_628_675_670_867_896);
        assert_eq!(of("shop-eu", "per-user", "alice"), 2_606_120_344_568_306);
    }

    #[test]
    fn a_share_of_the_keys_is_enforced() {
        for percent in [0.5, 1.0, 10.0, 25.0, 50.0, 90.0] {
            let roll_out = RollOut::new("shop", "per-user", percent);
            let enforced = keys().filter(|key| roll_out.enforces(key.as_bytes())).count() as f64;
            // Four standard deviations of as many throws of a coin; the keys are the same on every run.
            let (mean, deviation) = (percent * 100.0, (percent * (100.0 - percent)).sqrt());
            assert!((enforced - mean).abs() < 4.0 * deviation, "{percent} %: {enforced}");
        }
    }

    #[test]
    fn a_larger_share_only_adds_keys() {
        let shares = [0.0, 0.1, 1.0, 5.0, 20.0, 50.0, 99.9, 100.0].map(|percent| RollOut::new("shop", "r", percent));
        for key in keys() {
            let enforced = shares.map(|share| share.enforces(key.as_bytes()));
            assert!(enforced.is_sorted(), "{key}: {enforced:?}");
            assert_eq!((enforced[0], enforced[7]), (false, true));
        }
    }

    #[test]
    fn rules_take_other_keys_first() {
        let [one, other] = ["one", "other"].map(|rule| RollOut::new("shop", rule, 50.0));
        let both = keys().filter(|key| one.enforces(key.as_bytes()) && other.enforces(key.as_bytes())).count();
        assert!((2_200..2_800).contains(&both), "{both}");
    }
}
