use std::{fmt, future::Future, sync::Arc, time::Duration};

use super::{Loading, SourceError};
use crate::policy::Override;

/// A source of overrides, for whoever asks.
pub(crate) type Lookup = Arc<dyn OverrideSource>;

/// How long an override is taken to be as it was found.
const FRESH: Duration = Duration::from_secs(10);

/// Where the overrides of customers come from: Redis, or a table of one's own, for which an async closure over the customer is enough.
///
/// ```
/// use sluicegate::{Limiter, MemoryStore, policy::{Override, Policy, SourceError}};
///
/// # async fn plan_of(customer: String) -> Result<Option<String>, SourceError> { Ok(None) }
/// # fn start(policy: Policy) -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = Limiter::builder(MemoryStore::new())
///     .policy(policy)
///     .overrides(async |customer: String| Ok::<_, SourceError>(plan_of(customer).await?.map(|plan| Override::tier(&plan))))
///     .build()?;
/// # Ok(())
/// # }
/// ```
///
/// No request waits for it. One whose customer is not known goes by its tier while the look-up runs; who has no override is remembered
/// too. A process remembers some sixteen thousand customers and looks up no more than a thousand a second, so that made-up names
/// cost neither memory nor look-ups without bound.
pub trait OverrideSource: Send + Sync + 'static {
    /// The overrides of these customers, in their order; `None` for those who have none. A customer is the text of the key that the
    /// policy names in `customer.by`, as [`Key::as_bytes`](crate::key::Key::as_bytes) has it.
    fn look_up<'a>(&'a self, customers: &'a [Box<str>]) -> Loading<'a, Result<Vec<Option<Override>>, SourceError>>;

    /// How long what was found is taken for true; then it is looked up again, off the path of requests. 10 s unless said otherwise.
    /// [`Limiter::override_changed`](crate::Limiter::override_changed) is for those who know.
    fn fresh_for(&self) -> Duration {
        FRESH
    }
}

impl<F, Fut, E> OverrideSource for F
where
    F: Fn(String) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Option<Override>, E>> + Send + 'static,
    E: fmt::Display + Send + 'static,
{
    fn look_up<'a>(&'a self, customers: &'a [Box<str>]) -> Loading<'a, Result<Vec<Option<Override>>, SourceError>> {
        Box::pin(async move {
            let mut found = Vec::with_capacity(customers.len());
            for customer in customers {
                found.push(self(customer.to_string()).await.map_err(SourceError::new)?);
            }
            Ok(found)
        })
    }
}
