use std::{fmt, time::Duration};

use crate::random;

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
