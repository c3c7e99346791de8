use std::fmt;

use crate::random;

/// Names one change of counts, so that a store makes it once however often it is asked to.
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
