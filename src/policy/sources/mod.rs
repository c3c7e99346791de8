//! Where policies and overrides come from.

mod changed;
mod file;
mod following;
mod overrides;
#[cfg(feature = "redis")]
mod redis;
mod status;

use std::{fmt, future::Future, pin::Pin, time::Duration};

pub(super) use self::file::read_file;
pub(crate) use self::overrides::Lookup;
#[cfg(feature = "redis")]
pub use self::redis::RedisPolicy;
pub use self::{
    changed::ChangedOverrides, file::PolicyFile, following::Following, overrides::OverrideSource, status::PolicyStatus,
};
use super::Policy;

/// A future of a source.
pub type Loading<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// How often a source is asked that cannot tell by itself when it has changed.
const OFTEN: Duration = Duration::from_secs(1);

/// Where a policy comes from: a file, Redis, or a table of one's own, for which an async closure is enough.
///
/// ```
/// use sluicegate::{Limiter, MemoryStore, policy::{Policy, PolicyError, PolicySource}};
///
/// # async fn text_from_the_database() -> String { String::new() }
/// # async fn start() -> Result<(), Box<dyn std::error::Error>> {
/// let source = async || Policy::from_toml(&text_from_the_database().await);
/// let limiter = Limiter::builder(MemoryStore::new()).policy(source.load().await?).build()?;
/// let following = limiter.follow(source);             // asks every second, until `following` is dropped
/// # Ok(())
/// # }
/// ```
pub trait PolicySource: Send + Sync + 'static {
    /// The policy as it is now.
    fn load(&self) -> Loading<'_, Result<Policy, SourceError>>;

    /// Waits until the policy may have changed since it was loaded: a second, unless a source knows better.
    fn changed(&self) -> Loading<'_, ()> {
        Box::pin(tokio::time::sleep(OFTEN))
    }

    /// Whose overrides may have changed since this was last asked, where they are kept beside the policy. It is asked whenever the policy
    /// may have [changed](PolicySource::changed); a limiter that follows looks those up again. Nobody's, unless a source knows better.
    fn changed_overrides(&self) -> ChangedOverrides {
        ChangedOverrides::None
    }
}

impl<F, Fut, E> PolicySource for F
where
    F: Fn() -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Policy, E>> + Send + 'static,
    E: fmt::Display + 'static,
{
    fn load(&self) -> Loading<'_, Result<Policy, SourceError>> {
        let loading = self();
        Box::pin(async move { loading.await.map_err(SourceError::new) })
    }
}

/// Why a source has nothing to give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceError(String);

impl SourceError {
    /// An error with this text, which must hold no secrets: it is logged.
    pub fn new(text: impl fmt::Display) -> SourceError {
        SourceError(text.to_string())
    }
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SourceError {}
