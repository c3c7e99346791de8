//! Entries by their hash: open addressing with linear probing, the entries themselves in the slots.
//!
//! A byte of the hash for each slot, kept apart, says which slots need not be looked at: with many keys each look is a miss of
//! the cache and of the page table, while the bytes of many slots share a line. By hand, since a general hash table doubles,
//! which would waste half of a large store. This one grows by a quarter; so the number of slots is no power of two, and a hash
//! is scaled to it instead of masked.

// Every place is below the number of slots.
#![allow(clippy::indexing_slicing)]

pub(super) struct Table<E> {
    /// For each slot a byte of its entry's hash; [`EMPTY`].
    tags: Vec<u8>,
    slots: Vec<Option<E>>,
    used: usize,
}

const EMPTY: u8 = 0;

/// From the upper half of the hash: where the entry stands is from the lower.
#[inline]
fn tag_of(hash: u64) -> u8 {
    ((hash >> 32) as u8).max(EMPTY + 1)
}

impl<E> Table<E> {
    pub(super) fn new() -> Table<E> {
        Table { tags: Vec::new(), slots: Vec::new(), used: 0 }
    }

    /// How many places there are, entries and empty ones.
    pub(super) fn places(&self) -> usize {
        self.slots.len()
    }

    #[inline]
    pub(super) fn at(&self, place: usize) -> Option<&E> {
        self.slots.get(place)?.as_ref()
    }

    /// The entry with this hash that is `same`, and its place.
    #[inline]
    pub(super) fn find(&mut self, hash: u64, same: impl Fn(&E) -> bool) -> Option<(usize, &mut E)> {
        if self.slots.is_empty() {
            return None;
        }
        let tag = tag_of(hash);
        let mut place = self.home(hash);
        // At most three in four slots are used, so this ends.
        loop {
            let found = self.tags[place];
            if found == EMPTY {
                return None;
            }
            if found == tag && self.slots[place].as_ref().is_some_and(&same) {
                break;
            }
            place = self.after(place);
        }
        self.slots[place].as_mut().map(|entry| (place, entry))
    }

    /// Adds an entry. `hash_of` gives the hash of any entry.
    pub(super) fn insert(&mut self, entry: E, hash_of: impl Fn(&E) -> u64) {
        if (self.used + 1) * 4 > self.slots.len() * 3 {
            let size = self.slots.len() + self.slots.len() / 4 + 8;
            let mut larger = Vec::with_capacity(size);
            larger.resize_with(size, || None);
            let old = std::mem::replace(&mut self.slots, larger);
            self.tags = vec![EMPTY; size];
            for entry in old.into_iter().flatten() {
                self.put(hash_of(&entry), entry);
            }
        }
        self.used += 1;
        self.put(hash_of(&entry), entry);
    }

    fn put(&mut self, hash: u64, entry: E) {
        let mut place = self.home(hash);
        while self.tags[place] != EMPTY {
            place = self.after(place);
        }
        self.tags[place] = tag_of(hash);
        self.slots[place] = Some(entry);
    }

    /// Removes the entry at `place` and closes the gap: whoever would not be found past it moves up.
    pub(super) fn remove(&mut self, place: usize, hash_of: impl Fn(&E) -> u64) {
        if self.at(place).is_none() {
            return;
        }
        self.used -= 1;
        self.slots[place] = None;
        self.tags[place] = EMPTY;
        let (mut gap, mut place) = (place, self.after(place));
        while let Some(entry) = &self.slots[place] {
            let home = self.home(hash_of(entry));
            if self.between(home, place) >= self.between(gap, place) {
                self.slots[gap] = self.slots[place].take();
                self.tags[gap] = std::mem::replace(&mut self.tags[place], EMPTY);
                gap = place;
            }
            place = self.after(place);
        }
    }

    #[inline]
    fn home(&self, hash: u64) -> usize {
        ((u64::from(hash as u32) * self.slots.len() as u64) >> 32) as usize
    }

    #[inline]
    fn after(&self, place: usize) -> usize {
        if place + 1 == self.slots.len() { 0 } else { place + 1 }
    }

    /// Steps from one place on to another.
    fn between(&self, from: usize, to: usize) -> usize {
        if to >= from { to - from } else { to + self.slots.len() - from }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A few places and tags for many entries: they collide all the time, also around the end of the table.
    fn hash_of(number: &u32) -> u64 {
        u64::from((number % 7) * (u32::MAX / 6)) | u64::from(number % 3) << 32
    }

    proptest! {
        #[test]
        fn finds_what_is_there_and_nothing_else(steps in prop::collection::vec((0u32..40, any::<bool>()), 0..400)) {
            let mut table = Table::new();
            let mut known = std::collections::BTreeSet::new();
            for (number, add) in steps {
                let found = table.find(hash_of(&number), |entry| *entry == number).map(|(place, entry)| (place, *entry));
                prop_assert_eq!(found.map(|(_, entry)| entry), known.get(&number).copied());
                match found {
                    None if add => {
                        table.insert(number, hash_of);
                        known.insert(number);
                    }
                    Some((place, _)) if !add => {
                        table.remove(place, hash_of);
                        known.remove(&number);
                    }
                    _ => {}
                }
            }
            for number in 0..40 {
                let found = table.find(hash_of(&number), |entry| *entry == number).is_some();
                prop_assert_eq!(found, known.contains(&number));
            }
            let held = (0..table.places()).filter(|place| table.at(*place).is_some()).count();
            let tagged = table.tags.iter().filter(|tag| **tag != EMPTY).count();
            prop_assert_eq!((held, tagged), (known.len(), known.len()));
        }
    }
}
