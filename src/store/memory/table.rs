//! Entries by their hash: open addressing with linear probing, the entries themselves in the slots.
//!
//! By hand, since a general hash table looks at its control bytes and then at the slot, and a vector of entries beside a table of
//! indices is looked at twice as well: with many keys each look is a miss of the cache and of the page table. It grows by a
//! quarter, since doubling would waste half of a large store; so the number of slots is no power of two, and a hash is
//! scaled to it instead of masked.

// Every place is below the number of slots.
#![allow(clippy::indexing_slicing)]

pub(super) struct Table<E> {
    slots: Vec<Option<E>>,
    used: usize,
}

impl<E> Table<E> {
    pub(super) fn new() -> Table<E> {
        Table { slots: Vec::new(), used: 0 }
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
    pub(super) fn find(&mut self, hash: u32, same: impl Fn(&E) -> bool) -> Option<(usize, &mut E)> {
        if self.slots.is_empty() {
            return None;
        }
        let mut place = self.home(hash);
        // At most three in four slots are used, so this ends.
        loop {
            match &self.slots[place] {
                None => return None,
                Some(entry) if same(entry) => break,
                Some(_) => place = self.after(place),
            }
        }
        self.slots[place].as_mut().map(|entry| (place, entry))
    }

    /// Adds an entry. `hash_of` gives the hash of any entry.
    pub(super) fn insert(&mut self, entry: E, hash_of: impl Fn(&E) -> u32) {
        if (self.used + 1) * 4 > self.slots.len() * 3 {
            let size = self.slots.len() + self.slots.len() / 4 + 8;
            let mut larger = Vec::with_capacity(size);
            larger.resize_with(size, || None);
            let old = std::mem::replace(&mut self.slots, larger);
            for entry in old.into_iter().flatten() {
                self.put(hash_of(&entry), entry);
            }
        }
        self.used += 1;
        self.put(hash_of(&entry), entry);
    }

    fn put(&mut self, hash: u32, entry: E) {
        let mut place = self.home(hash);
        while self.slots[place].is_some() {
            place = self.after(place);
        }
        self.slots[place] = Some(entry);
    }

    /// Removes the entry at `place` and closes the gap: whoever would not be found past it moves up.
    pub(super) fn remove(&mut self, place: usize, hash_of: impl Fn(&E) -> u32) {
        if self.at(place).is_none() {
            return;
        }
        self.used -= 1;
        self.slots[place] = None;
        let (mut gap, mut place) = (place, self.after(place));
        while let Some(entry) = &self.slots[place] {
            let home = self.home(hash_of(entry));
            if self.between(home, place) >= self.between(gap, place) {
                self.slots[gap] = self.slots[place].take();
                gap = place;
            }
            place = self.after(place);
        }
    }

    #[inline]
    fn home(&self, hash: u32) -> usize {
        ((u64::from(hash) * self.slots.len() as u64) >> 32) as usize
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

    /// A few hashes for many entries: they collide all the time, also around the end of the table.
    fn hash_of(number: &u32) -> u32 {
        (number % 7) * (u32::MAX / 6)
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
            prop_assert_eq!(held, known.len());
        }
    }
}
