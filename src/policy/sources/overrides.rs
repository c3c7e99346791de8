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
/// too. A process remembers some sixteen thousand customers and looks up no more than [a thousand a
/// second](OverrideSource::most_a_second), so that made-up names cost neither memory nor look-ups without bound. Those who are known to have
/// an override, or whose was changed, go before the others.
///
/// A closure is asked for one customer by one, sixteen calls at a time. One that fails or takes longer than five seconds is asked again a
/// second later and holds up no other; what was known of its customer stays.
pub trait OverrideSource: Send + Sync + 'static {
    /// The overrides of these customers, in their order; `None` for those who have none. A customer is the text of the key that the
    /// policy names in `customer.by`, as [`Key::as_bytes`](crate::key::Key::as_bytes) has it.
    fn look_up<'a>(&'a self, customers: &'a [Box<str>]) -> Loading<'a, Result<Vec<Option<Override>>, SourceError>>;

    /// How many customers one call may ask about, 64 unless said otherwise. There is one call at a time, or sixteen where it is 1.
    fn at_once(&self) -> usize {
        64
    }

    /// How many customers are looked up in a second at most, 1,000 unless said otherwise. Known ones are looked up again when they are no
    /// longer [fresh](OverrideSource::fresh_for), so with more than ten thousand who ask all the time, say more, or that they stay fresh for longer.
    fn most_a_second(&self) -> u32 {
        1_000
    }

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

    /// What fails for one is not to fail for others.
    fn at_once(&self) -> usize {
        1
    }
}
