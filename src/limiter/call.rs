use std::slice;

use super::Pick;
use crate::key::{Found, IntoKey, Key};

/// The keys of one call by the names of the rules, for [`Limiter::acquire`](crate::Limiter::acquire) and its kin.
///
/// An array of pairs becomes one; this form mixes kinds of keys and sets costs:
///
/// ```
/// use sluicegate::Call;
///
/// Call::new().key("per-user", 42).cost(5).key("per-region", "eu");
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Call<'a>(Entries<'a>);

#[derive(Clone, Debug)]
enum Entries<'a> {
    /// Nearly every call, and it takes no allocation.
    One(Entry<'a>),
    Many(Vec<Entry<'a>>),
}

#[derive(Clone, Debug)]
pub(super) struct Entry<'a> {
    pub(super) name: &'a str,
    pub(super) pick: Pick,
    pub(super) usual_cost: bool,
    /// Whether there is nothing to ask: no key, or no limit.
    pub(super) left_out: bool,
    /// Whose part of a shared limit it uses.
    pub(super) tenant: Option<Box<Key>>,
}

impl<'a> Entry<'a> {
    #[inline]
    fn new(name: &'a str, key: impl IntoKey) -> Entry<'a> {
        let key = match key.into_key() {
            Found::Key(key) => key,
            Found::Absent | Found::Refuse(_) => Key::absent(),
        };
        // Which rule that is, and what else it says, is filled in by the limiter that is asked.
        Entry {
            name,
            pick: Pick { rule: 0, key, cost: 1, shadow: false, critical: false, tenant: None },
            usual_cost: true,
            left_out: false,
            tenant: None,
        }
    }
}

impl<'a> Call<'a> {
    /// A call that no rule applies to, yet.
    pub fn new() -> Call<'a> {
        Call(Entries::Many(Vec::new()))
    }

    /// The rule of this name applies, with this key; not if the key is a `None` or an `Err`.
    pub fn key(self, rule: &'a str, key: impl IntoKey) -> Call<'a> {
        let entry = Entry::new(rule, key);
        Call(match self.0 {
            Entries::One(first) => Entries::Many(vec![first, entry]),
            Entries::Many(entries) if entries.is_empty() => Entries::One(entry),
            Entries::Many(mut entries) => {
                entries.push(entry);
                Entries::Many(entries)
            }
        })
    }

    /// What the call costs under the rule named last; without it, what the rule says, or 1.
    pub fn cost(mut self, units: u64) -> Call<'a> {
        if let Some(last) = self.entries_mut().last_mut() {
            last.pick.cost = units;
            last.usual_cost = false;
        }
        self
    }

    /// The call may use what the rules it names so far [reserve](crate::Rule::reserve) for critical ones.
    pub fn critical(mut self) -> Call<'a> {
        self.entries_mut().iter_mut().for_each(|entry| entry.pick.critical = true);
        self
    }

    /// Who calls, of the tenants that [share](crate::Rule::fair_share) the limit of the rule named last. Calls without one are not
    /// held to a fair share, and count in nobody's.
    pub fn tenant(mut self, tenant: impl IntoKey) -> Call<'a> {
        if let Some(last) = self.entries_mut().last_mut() {
            last.tenant = tenant.into_key().key().cloned().map(Box::new);
        }
        self
    }

    /// What applies, where it is one rule.
    #[inline]
    pub(super) fn only_mut(&mut self) -> Option<&mut Entry<'a>> {
        match &mut self.0 {
            Entries::One(entry) => Some(entry),
            Entries::Many(_) => None,
        }
    }

    #[inline]
    pub(super) fn picks(&self) -> impl ExactSizeIterator<Item = &Pick> + Clone {
        let entries = match &self.0 {
            Entries::One(entry) => slice::from_ref(entry),
            Entries::Many(entries) => entries,
        };
        entries.iter().map(|entry| &entry.pick)
    }

    /// The rules that it names, with their keys.
    pub(super) fn named(&self) -> impl Iterator<Item = (&'a str, &Key)> {
        let entries = match &self.0 {
            Entries::One(entry) => slice::from_ref(entry),
            Entries::Many(entries) => entries,
        };
        entries.iter().map(|entry| (entry.name, &entry.pick.key))
    }

    #[inline]
    pub(super) fn entries_mut(&mut self) -> &mut [Entry<'a>] {
        match &mut self.0 {
            Entries::One(entry) => slice::from_mut(entry),
            Entries::Many(entries) => entries,
        }
    }

    /// Leaves out the rules that there is nothing to ask about.
    #[cold]
    pub(super) fn leave_out(&mut self) {
        let mut entries = match std::mem::take(self).0 {
            Entries::One(entry) => vec![entry],
            Entries::Many(entries) => entries,
        };
        entries.retain(|entry| !entry.left_out);
        self.0 = Entries::Many(entries);
    }
}

impl Default for Call<'_> {
    fn default() -> Self {
        Call::new()
    }
}

impl<'a, K: IntoKey, const N: usize> From<[(&'a str, K); N]> for Call<'a> {
    #[inline]
    fn from(keys: [(&'a str, K); N]) -> Call<'a> {
        let mut keys = keys.into_iter();
        match keys.next() {
            Some((rule, key)) if N == 1 => Call(Entries::One(Entry::new(rule, key))),
            first => {
                let keys = first.into_iter().chain(keys);
                Call(Entries::Many(keys.map(|(rule, key)| Entry::new(rule, key)).collect()))
            }
        }
    }
}
