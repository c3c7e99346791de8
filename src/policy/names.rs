use std::{borrow::Cow, collections::BTreeMap, fmt, sync::Arc};

use http::request::Parts;

use super::text::Condition;
use crate::key::{IntoKey, KeyBy};

/// What code registers for documents to name: keys, tiers, costs and conditions that only code can tell.
///
/// ```
/// use sluicegate::policy::{Names, Policy};
///
/// # #[derive(Clone)] struct User { id: u64, plan: &'static str, staff: bool }
/// let names = Names::new()
///     .key("user", |req| req.extensions.get::<User>().map(|user| user.id))
///     .tier("plan", |req| req.extensions.get::<User>().map(|user| user.plan))
///     .cost("weight", |req| if req.method == "POST" { 10 } else { 1 })
///     .condition("staff", |req| req.extensions.get::<User>().is_some_and(|user| user.staff));
///
/// let policy = Policy::from_toml(r#"
///     [[rules]]
///     name = "per-user"
///     algorithm = "token_bucket"
///     quota = "100/min"
///     key = "user"
///     cost = "weight"
///     reserve = { share = 0.2, for = "staff" }
/// "#)?;
/// policy.check(&names)?;
/// # Ok::<(), sluicegate::policy::PolicyError>(())
/// ```
///
/// Names are letters, digits, `_`, `-` and `.`. A key of a built-in name, such as `ip`, takes the place of that one in documents.
#[derive(Clone, Default)]
#[must_use]
pub struct Names {
    keys: BTreeMap<String, KeyBy>,
    tiers: BTreeMap<String, TierOf>,
    costs: BTreeMap<String, CostOf>,
    conditions: BTreeMap<String, Condition>,
}

pub(super) type TierOf = Arc<dyn Fn(&Parts) -> Tiered + Send + Sync>;
pub(super) type CostOf = Arc<dyn Fn(&Parts) -> u64 + Send + Sync>;

impl Names {
    /// None yet.
    pub fn new() -> Names {
        Names::default()
    }

    /// A key by a closure, which may return what that of [`Rule::key_by`](crate::Rule::key_by) may.
    ///
    /// ```
    /// use sluicegate::policy::Names;
    ///
    /// # fn user_of(req: &http::request::Parts) -> Option<String> { None }
    /// Names::new().key("user", |req| user_of(req));
    /// ```
    pub fn key<K, F>(self, name: impl Into<String>, closure: F) -> Names
    where
        K: IntoKey,
        F: Fn(&Parts) -> K + Send + Sync + 'static,
    {
        self.key_by(name, KeyBy::new(closure))
    }

    /// A key that is put together in code, such as one hashed with a secret.
    ///
    /// ```
    /// use sluicegate::{key, policy::Names};
    ///
    /// # let hmac_key = [0; 32];
    /// Names::new().key_by("token", key::bearer().keyed(hmac_key));
    /// ```
    pub fn key_by(mut self, name: impl Into<String>, key: impl Into<KeyBy>) -> Names {
        self.keys.insert(name.into(), key.into());
        self
    }

    /// The tier of a request, by its name in the document: a string, or an `Option` of one. With `None`, and with a name that the
    /// document does not have, it is the document's default.
    ///
    /// ```
    /// use sluicegate::policy::Names;
    ///
    /// Names::new().tier("plan", |req| if req.headers.contains_key("x-partner") { "partner" } else { "free" });
    /// ```
    pub fn tier<T, F>(mut self, name: impl Into<String>, closure: F) -> Names
    where
        T: IntoTier,
        F: Fn(&Parts) -> T + Send + Sync + 'static,
    {
        self.tiers.insert(name.into(), Arc::new(move |head| closure(head).into_tier()));
        self
    }

    /// What a request costs: see [`Rule::cost_by`](crate::Rule::cost_by).
    ///
    /// ```
    /// use sluicegate::policy::Names;
    ///
    /// Names::new().cost("weight", |req| if req.method == "POST" { 10 } else { 1 });
    /// ```
    pub fn cost<F>(mut self, name: impl Into<String>, closure: F) -> Names
    where
        F: Fn(&Parts) -> u64 + Send + Sync + 'static,
    {
        self.costs.insert(name.into(), Arc::new(closure));
        self
    }

    /// Whether something is so of a request: what a `reserve` is for.
    ///
    /// ```
    /// use sluicegate::policy::Names;
    ///
    /// Names::new().condition("critical", |req| req.uri.path() == "/v1/charges");
    /// ```
    pub fn condition<F>(mut self, name: impl Into<String>, closure: F) -> Names
    where
        F: Fn(&Parts) -> bool + Send + Sync + 'static,
    {
        self.conditions.insert(name.into(), Arc::new(closure));
        self
    }

    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.tiers.is_empty() && self.costs.is_empty() && self.conditions.is_empty()
    }

    pub(super) fn key_named(&self, name: &str) -> Option<&KeyBy> {
        self.keys.get(name)
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &str> + Clone {
        self.keys.keys().map(String::as_str)
    }

    pub(super) fn tier_named(&self, name: &str) -> Option<&TierOf> {
        self.tiers.get(name)
    }

    pub(super) fn tiers(&self) -> impl Iterator<Item = &str> + Clone {
        self.tiers.keys().map(String::as_str)
    }

    pub(super) fn cost_named(&self, name: &str) -> Option<&CostOf> {
        self.costs.get(name)
    }

    pub(super) fn costs(&self) -> impl Iterator<Item = &str> + Clone {
        self.costs.keys().map(String::as_str)
    }

    pub(super) fn condition_named(&self, name: &str) -> Option<&Condition> {
        self.conditions.get(name)
    }

    pub(super) fn conditions(&self) -> impl Iterator<Item = &str> + Clone {
        self.conditions.keys().map(String::as_str)
    }
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Names")
            .field("keys", &self.keys.keys())
            .field("tiers", &self.tiers.keys())
            .field("costs", &self.costs.keys())
            .field("conditions", &self.conditions.keys())
            .finish()
    }
}

/// What a closure of [`Names::tier`] may return: a string, or an `Option` of one.
pub trait IntoTier {
    /// The name of the tier, if there is one.
    fn into_tier(self) -> Tiered;
}

/// The name of a tier, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tiered(Option<Name>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Name {
    Owned(Cow<'static, str>),
    Shared(Arc<str>),
}

impl Tiered {
    pub(super) fn none() -> Tiered {
        Tiered(None)
    }

    /// The name.
    pub fn name(&self) -> Option<&str> {
        self.0.as_ref().map(|name| match name {
            Name::Owned(name) => &**name,
            Name::Shared(name) => &**name,
        })
    }
}

impl<T: IntoTier> IntoTier for Option<T> {
    fn into_tier(self) -> Tiered {
        self.map_or(Tiered(None), T::into_tier)
    }
}

impl IntoTier for Arc<str> {
    fn into_tier(self) -> Tiered {
        Tiered(Some(Name::Shared(self)))
    }
}

macro_rules! owned {
    ($($kind:ty),+) => {$(
        impl IntoTier for $kind {
            fn into_tier(self) -> Tiered {
                Tiered(Some(Name::Owned(self.into())))
            }
        }
    )+};
}
owned!(&'static str, String, Cow<'static, str>);
