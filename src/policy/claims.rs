use std::{collections::BTreeMap, fmt, sync::Arc};

/// Verified claims about the caller, which the application's authentication puts into the request's extensions: `claim:NAME` in a
/// document reads them.
///
/// ```
/// use sluicegate::policy::Claims;
///
/// # fn verified(token: &str) -> Vec<(String, String)> { vec![("plan".into(), "pro".into())] }
/// let mut request = http::Request::new(());
/// request.extensions_mut().insert(Claims::from_iter(verified("a token")));
/// assert_eq!(request.extensions().get::<Claims>().and_then(|claims| claims.get("plan")), Some("pro"));
/// ```
///
/// Put only there what was verified: whoever can choose a claim can choose a limit. Without a claim of the name there is no key, or
/// the default tier.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Claims(Arc<BTreeMap<Box<str>, Box<str>>>);

impl Claims {
    /// What is claimed under this name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(|text| &**text)
    }
}

impl<N: Into<Box<str>>, T: Into<Box<str>>> FromIterator<(N, T)> for Claims {
    fn from_iter<I: IntoIterator<Item = (N, T)>>(claims: I) -> Claims {
        Claims(Arc::new(claims.into_iter().map(|(name, text)| (name.into(), text.into())).collect()))
    }
}

/// Without what is claimed.
impl fmt::Debug for Claims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Claims({} names)", self.0.len())
    }
}
