use std::{
    fmt,
    hash::{BuildHasher, RandomState},
    time::Duration,
};

/// How long a store remembers the [`Id`] of a change: asked again within this time, it does not make the change again.
pub const RECORD_TTL: Duration = Duration::from_secs(600);

/// Names one change of counts, so that a store makes it once however often it is asked to, for [`RECORD_TTL`].
///
/// A change has an id of its own: what is taken under one is not given back under the same.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Id(u128);

impl Id {
    /// One that nobody else has.
    pub fn random() -> Id {
        // The standard library seeds every thread anew and gives each state keys of its own.
        let half = || u128::from(RandomState::new().hash_one(0u8));
        Id(half() << 64 | half())
    }

    /// Its bits.
    pub fn bits(self) -> u128 {
        self.0
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Id({:032x})", self.0)
    }
}
