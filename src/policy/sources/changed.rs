/// Whose overrides may have changed: see [`PolicySource::changed_overrides`](super::PolicySource::changed_overrides).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChangedOverrides {
    /// Nobody's.
    #[default]
    None,
    /// Those of these customers, whose keys are written as [`look_up`](super::OverrideSource::look_up) gets them.
    Of(Vec<Box<str>>),
    /// Anybody's.
    All,
}

/// More are everybody.
#[cfg(feature = "redis")]
const MOST: usize = 10_000;

#[cfg(feature = "redis")]
impl ChangedOverrides {
    pub(super) fn add(&mut self, customers: Vec<Box<str>>) {
        match self {
            _ if customers.is_empty() => {}
            ChangedOverrides::None => *self = ChangedOverrides::Of(customers),
            ChangedOverrides::Of(known) if known.len() + customers.len() <= MOST => known.extend(customers),
            ChangedOverrides::Of(_) | ChangedOverrides::All => *self = ChangedOverrides::All,
        }
    }
}
