use smallvec::SmallVec;

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
pub struct Call<'a>(pub(super) SmallVec<[Entry<'a>; 2]>);

#[derive(Clone, Debug)]
pub(super) struct Entry<'a> {
    pub(super) rule: &'a str,
    /// Absent: the rule does not apply.
    pub(super) key: Option<Key>,
    pub(super) cost: Option<u64>,
}

impl<'a> Call<'a> {
    /// A call that no rule applies to, yet.
    pub fn new() -> Call<'a> {
        Call::default()
    }

    /// The rule of this name applies, with this key; not if the key is a `None` or an `Err`.
    pub fn key(mut self, rule: &'a str, key: impl IntoKey) -> Call<'a> {
        let key = match key.into_key() {
            Found::Key(key) => Some(key),
            Found::Absent | Found::Refuse(_) => None,
        };
        self.0.push(Entry { rule, key, cost: None });
        self
    }

    /// What the call costs under the rule named last; without it, what the rule says, or 1.
    pub fn cost(mut self, units: u64) -> Call<'a> {
        if let Some(last) = self.0.last_mut() {
            last.cost = Some(units);
        }
        self
    }
}

impl<'a, K: IntoKey, const N: usize> From<[(&'a str, K); N]> for Call<'a> {
    #[inline]
    fn from(keys: [(&'a str, K); N]) -> Call<'a> {
        keys.into_iter().fold(Call::new(), |call, (rule, key)| call.key(rule, key))
    }
}
