use std::{fmt, time::Duration};

use crate::random;

/// How long a store remembers the [`Id`] of what it took: asked again within this time, it does not take it again.
pub const RECORD_TTL: Duration = Duration::from_secs(600);
/// The same for what it gave back, and for what was owed. On a Cluster anybody can cause that, by being refused, so it must not pile up.
pub const GIVE_RECORD_TTL: Duration = Duration::from_secs(30);

/// Names one change of counts, so that a store makes it once however often it is asked to, for [`RECORD_TTL`]
/// or [`GIVE_RECORD_TTL`].
///
/// A change has an id of its own: what is taken under one is not given back under the same.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Id(u128);

impl Id {
    /// One that nobody else has.
    pub fn random() -> Id {
        Id(u128::from(random::bits()) << 64 | u128::from(random::bits()))
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
