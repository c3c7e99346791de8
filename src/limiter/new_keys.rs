//! How many keys that were never seen a process may bring to the store.

use std::{
    collections::HashSet,
    hash::BuildHasher,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::key::Key;

/// The keys of a rule that this process has seen in this minute and the last, by their hashes: of each minute no more than twice as many
/// as may be new.
pub(super) struct NewKeys {
    most: usize,
    seen: Mutex<Seen>,
    hasher: std::hash::RandomState,
}

struct Seen {
    since: Instant,
    now: HashSet<u64>,
    before: HashSet<u64>,
    /// Of those seen now, how many were not before.
    new: usize,
}

const MINUTE: Duration = Duration::from_secs(60);

impl NewKeys {
    pub(super) fn new(most: u64) -> NewKeys {
        let seen = Seen { since: Instant::now(), now: HashSet::new(), before: HashSet::new(), new: 0 };
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        NewKeys { most, seen: Mutex::new(seen), hasher: std::hash::RandomState::new() }
    }

    /// How many may be new in a minute.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// Leaves the key as it is, or makes it the one that those share which are one too many.
    pub(super) fn admit(&self, key: &mut Key) {
        if !self.knows(self.hasher.hash_one(key.as_bytes()), Instant::now()) {
            *key = Key::overflow();
        }
    }

    /// Whether it is known, or may be from now on.
    fn knows(&self, hash: u64, now: Instant) -> bool {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = now.saturating_duration_since(seen.since);
        if passed >= MINUTE {
            // Of a minute in which nobody came nothing is remembered.
            seen.before = if passed < 2 * MINUTE { std::mem::take(&mut seen.now) } else { HashSet::new() };
            seen.now = HashSet::new();
            (seen.since, seen.new) = (now, 0);
        }
        if seen.now.contains(&hash) {
            return true;
        }
        let known = seen.before.contains(&hash);
        let admitted = seen.now.len() < 2 * self.most && (known || seen.new < self.most);
        if admitted {
            seen.new += usize::from(!known);
            seen.now.insert(hash);
        }
        admitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_new_ones_a_minute_and_old_ones_stay() {
        let keys = NewKeys::new(3);
        let begin = Instant::now();
        let at = |minutes: f64| begin + MINUTE.mul_f64(minutes) + Duration::from_millis(1);
        let known = |hash, minutes| keys.knows(hash, at(minutes));
        assert!(known(1, 0.0) && known(2, 0.1) && known(3, 0.2));
        assert!(!known(4, 0.3) && known(1, 0.4) && !known(5, 0.9));
        // Those of the last minute are not new in this one.
        assert!(known(1, 1.1) && known(4, 1.2) && known(5, 1.3) && known(6, 1.4) && known(2, 1.5));
        assert!(!known(7, 1.6));
        // However many are carried over, there are no more than six.
        assert!(known(2, 2.1) && known(4, 2.1) && known(5, 2.1) && known(1, 2.1) && known(10, 2.2) && known(11, 2.2));
        assert!(!known(12, 2.3) && !known(6, 2.3));
        // After a quiet minute everybody is new.
        assert!(known(7, 5.0) && known(8, 5.1) && known(9, 5.2) && !known(1, 5.3));
    }
}
