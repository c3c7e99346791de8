//! Finds entries by their hash: open addressing with linear probing.
//!
//! By hand, since a general hash table looks in two places, at its control bytes and at the slot, and with many keys each
//! look is a cache miss. Here a slot is one word: the upper half of the hash, and the index of the entry plus one. Zero is an
//! empty slot.

// The number of slots is a power of two and every place is masked by it.
#![allow(clippy::indexing_slicing)]

#[derive(Default)]
pub(super) struct Table {
    slots: Vec<u64>,
    used: usize,
}

const UPPER: u64 = !0 << 32;

impl Table {
    /// The index of the entry with this hash that is `same`.
    #[inline]
    pub(super) fn find(&self, hash: u64, same: impl Fn(usize) -> bool) -> Option<usize> {
        self.place_of(hash, same).map(|place| index_of(self.slots[place]))
    }

    #[inline]
    fn place_of(&self, hash: u64, same: impl Fn(usize) -> bool) -> Option<usize> {
        if self.slots.is_empty() {
            return None;
        }
        let mask = self.slots.len() - 1;
        let mut place = hash as usize & mask;
        // At most three in four slots are used, so this ends.
        loop {
            match self.slots[place] {
                0 => return None,
                slot if slot & UPPER == hash & UPPER && same(index_of(slot)) => return Some(place),
                _ => place = (place + 1) & mask,
            }
        }
    }

    /// Adds the entry at `index`. `hash_of` gives the hash of any entry there is.
    pub(super) fn insert(&mut self, hash: u64, index: usize, hash_of: impl Fn(usize) -> u64) {
        if (self.used + 1) * 4 > self.slots.len() * 3 {
            let size = (self.slots.len() * 2).max(8);
            let old = std::mem::replace(&mut self.slots, vec![0; size]);
            for index in old.into_iter().filter(|slot| *slot != 0).map(index_of) {
                self.put(hash_of(index), index);
            }
        }
        self.used += 1;
        self.put(hash, index);
    }

    fn put(&mut self, hash: u64, index: usize) {
        let mask = self.slots.len() - 1;
        let mut place = hash as usize & mask;
        while self.slots[place] != 0 {
            place = (place + 1) & mask;
        }
        self.slots[place] = slot_of(hash, index);
    }

    /// The entry with this hash at `from` has moved to `to`.
    pub(super) fn moved(&mut self, hash: u64, from: usize, to: usize) {
        if let Some(place) = self.place_of(hash, |index| index == from) {
            self.slots[place] = slot_of(hash, to);
        }
    }

    /// Removes the entry with this hash at `index`, and closes the gap: whoever would not be found past it moves up.
    pub(super) fn remove(&mut self, hash: u64, index: usize, hash_of: impl Fn(usize) -> u64) {
        let Some(mut gap) = self.place_of(hash, |candidate| candidate == index) else { return };
        self.used -= 1;
        let mask = self.slots.len() - 1;
        let mut place = gap;
        loop {
            place = (place + 1) & mask;
            let slot = self.slots[place];
            if slot == 0 {
                break;
            }
            let home = hash_of(index_of(slot)) as usize & mask;
            if place.wrapping_sub(home) & mask >= place.wrapping_sub(gap) & mask {
                self.slots[gap] = slot;
                gap = place;
            }
        }
        self.slots[gap] = 0;
    }
}

#[inline]
fn index_of(slot: u64) -> usize {
    (slot & !UPPER) as usize - 1
}

#[inline]
fn slot_of(hash: u64, index: usize) -> u64 {
    (hash & UPPER) | (index as u64 + 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Hashes from a small range collide all the time, also around the end of the table.
        #[test]
        fn finds_what_is_there_and_nothing_else(steps in prop::collection::vec((0u64..40, any::<bool>()), 0..400)) {
            let spread = |number: u64| ((number % 7) << 32) | (number * 3 % 16);
            let mut table = Table::default();
            let mut entries: Vec<u64> = Vec::new();
            for (number, add) in steps {
                let known = entries.iter().position(|entry| *entry == number);
                prop_assert_eq!(table.find(spread(number), |index| entries[index] == number), known);
                match known {
                    None if add => {
                        table.insert(spread(number), entries.len(), |index| spread(entries[index]));
                        entries.push(number);
                    }
                    Some(index) if !add => {
                        table.remove(spread(number), index, |index| spread(entries[index]));
                        entries.swap_remove(index);
                        if let Some(moved) = entries.get(index) {
                            table.moved(spread(*moved), entries.len(), index);
                        }
                    }
                    _ => {}
                }
            }
            for (index, number) in entries.iter().enumerate() {
                prop_assert_eq!(table.find(spread(*number), |index| entries[index] == *number), Some(index));
            }
        }
    }
}
