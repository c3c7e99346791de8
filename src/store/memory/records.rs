use std::collections::{HashSet, VecDeque};

use crate::store::{Id, RECORD_TTL};

/// Beyond this the oldest are forgotten early.
const MOST: usize = 65_536;

/// The ids of changes that were made of late.
#[derive(Debug, Default)]
pub(super) struct Records {
    known: HashSet<Id>,
    /// Oldest first, with their times in microseconds.
    order: VecDeque<(u64, Id)>,
}

impl Records {
    /// Adds an id; `false` if it is there already.
    pub(super) fn add(&mut self, id: Id, now: u64) -> bool {
        let ttl = crate::limit::micros(RECORD_TTL);
        while self.order.front().is_some_and(|(at, _)| at + ttl <= now) {
            self.forget_oldest();
        }
        if !self.known.insert(id) {
            return false;
        }
        if self.order.len() >= MOST {
            self.forget_oldest();
        }
        self.order.push_back((now, id));
        true
    }

    fn forget_oldest(&mut self) {
        if let Some((_, oldest)) = self.order.pop_front() {
            self.known.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_known_for_as_long_as_it_says_and_there_are_never_too_many() {
        let mut records = Records::default();
        let (id, ttl) = (Id::random(), crate::limit::micros(RECORD_TTL));
        assert!(records.add(id, 5));
        assert!(!records.add(id, 5 + ttl - 1));
        assert!(records.add(id, 5 + ttl));
        for _ in 0..3 * MOST {
            assert!(records.add(Id::random(), 6 + ttl));
        }
        assert_eq!((records.known.len(), records.order.len()), (MOST, MOST));
    }
}
