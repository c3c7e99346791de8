use super::{Id, Line, Purpose};

/// A change of one count that is made off the path of requests, once for its id: see [`Store::settle`](super::Store::settle).
#[derive(Clone, Copy, Debug)]
pub struct Settlement<'a> {
    /// Which count; the cost is how much it changes by, the receipt is that of the charge.
    pub line: Line<'a>,
    /// Nothing else has it.
    pub id: Id,
    /// What the change is.
    pub change: Change,
}

/// What becomes of a charge whose true cost is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// So much of it is given back: [`Purpose::Give`].
    Give,
    /// So much more is owed: [`Purpose::Owe`].
    Owe,
}

impl Settlement<'_> {
    /// What an ask for this change alone is for.
    pub fn purpose(&self) -> Purpose {
        match self.change {
            Change::Give => Purpose::Give(self.id),
            Change::Owe => Purpose::Owe(self.id),
        }
    }
}
