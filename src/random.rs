//! Chance, for jitter and names; not for secrets.

use std::hash::{BuildHasher, RandomState};

/// Any number. The standard library seeds every thread anew and gives each state keys of its own.
pub(crate) fn bits() -> u64 {
    RandomState::new().hash_one(0u8)
}

/// From 0 up to, but not, 1.
pub(crate) fn share() -> f64 {
    // As many bits as a double holds.
    (bits() >> 11) as f64 / (1u64 << 53) as f64
}

/// One of `0..=most`. For a handful of values its bias is nothing.
pub(crate) fn up_to(most: u64) -> u64 {
    u64::try_from((u128::from(bits()) * (u128::from(most) + 1)) >> 64).unwrap_or(0)
}
