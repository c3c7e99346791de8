use smallvec::SmallVec;

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
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Call<'a> {
    pub(super) entries: SmallVec<[Entry<'a>; 1]>,
}

#[derive(Clone, Debug)]
pub(super) struct Entry<'a> {
    pub(super) name: &'a str,
    pub(super) pick: Pick,
    pub(super) usual_cost: bool,
}

impl<'a> Entry<'a> {
    #[inline]
    fn new(name: &'a str, key: impl IntoKey) -> Entry<'a> {
        let key = match key.into_key() {
            Found::Key(key) => key,
            Found::Absent | Found::Refuse(_) => Key::absent(),
        };
        // Which rule that is, and what it costs, is filled in by the limiter that is asked.
        Entry { name, pick: Pick { rule: 0, key, cost: 1 }, usual_cost: true }
    }
}

impl<'a> Call<'a> {
    /// A call that no rule applies to, yet.
    pub fn new() -> Call<'a> {
        Call::default()
    }

    /// The rule of this name applies, with this key; not if the key is a `None` or an `Err`.
    pub fn key(mut self, rule: &'a str, key: impl IntoKey) -> Call<'a> {
        self.entries.push(Entry::new(rule, key));
        self
    }

    pub(super) fn picks(&self) -> impl ExactSizeIterator<Item = &Pick> + Clone {
        self.entries.iter().map(|entry| &entry.pick)
    }

    /// What the call costs under the rule named last; without it, what the rule says, or 1.
    pub fn cost(mut self, units: u64) -> Call<'a> {
        if let Some(last) = self.entries.last_mut() {
            last.pick.cost = units;
            last.usual_cost = false;
        }
        self
    }
}

impl<'a, K: IntoKey, const N: usize> From<[(&'a str, K); N]> for Call<'a> {
    #[inline]
    fn from(keys: [(&'a str, K); N]) -> Call<'a> {
        let mut entries = keys.into_iter().map(|(rule, key)| Entry::new(rule, key));
        match entries.next() {
            // Made in place: pushing it would copy it once more.
            Some(only) if N == 1 => Call { entries: SmallVec::from_buf([only]) },
            first => Call { entries: first.into_iter().chain(entries).collect() },
        }
    }
}
