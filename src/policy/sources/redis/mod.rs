mod hearing;
mod publish;
mod seen;

use std::{
    collections::HashSet,
    fmt,
    hash::{BuildHasher, RandomState},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use self::{hearing::Hearing, seen::Seen};
use super::{ChangedOverrides, Loading, OverrideSource, PolicySource, SourceError};
use crate::{
    error::StoreError,
    key::{Found, IntoKey, Key},
    policy::{Format, Override, Policy},
    store::{PolicyKeys, RedisStore, Written},
};

/// How often the version is looked at; up to a fifth less, by chance, so that a fleet does not ask in step.
const EVERY: Duration = Duration::from_millis(500);
/// The longest name.
const LONGEST: usize = 64;
/// How many unusable overrides are remembered as told.
const MOST_TOLD: usize = 1_024;

/// A policy and overrides on the server of a [`RedisStore`], whatever its topology: every process that follows it changes within a
/// second.
///
/// ```no_run
/// use sluicegate::{Limiter, RedisStore, policy::{PolicySource, RedisPolicy}};
///
/// # async fn start() -> Result<(), Box<dyn std::error::Error>> {
/// let store = RedisStore::connect("redis://127.0.0.1:6379")?;
/// let source = RedisPolicy::new(&store, "shop");
/// let limiter = Limiter::builder(store).policy(source.load().await?).overrides(source.clone()).build()?;
/// let following = limiter.follow(source);             // until it is dropped
/// # Ok(())
/// # }
/// ```
///
/// # What stands on the server
///
/// | key | what it is |
/// | --- | --- |
/// | `sluicegate:policy:{shop}` | a hash: `document`, `format` (`toml` or `json`), `version`, a number that grows with every change |
/// | `sluicegate:policy:{shop}:overrides` | a hash: for each customer an [`Override`] in JSON |
/// | `sluicegate:policy:{shop}:changes` | a list: the customers whose overrides were changed last by [`set_override`](RedisPolicy::set_override); the field `overrides` beside `version` counts those |
///
/// The braces are part of the names: they keep all of it in one slot of a Cluster. A policy is configuration, not a count, so these keys
/// have no TTL; a server that is to keep them over a restart needs persistence, and no eviction policy of the `allkeys-` kind.
///
/// [`publish`](RedisPolicy::publish) writes a document that was checked. Where an operator does the same by hand, nothing checks it before
/// it is written; processes that cannot use it stay with the last good one, and say so. The version must grow, and the message is what
/// makes it quick:
///
/// ```text
/// redis-cli -x HSET 'sluicegate:policy:{shop}' format toml document < limits.toml
/// redis-cli HINCRBY 'sluicegate:policy:{shop}' version 1
/// redis-cli PUBLISH 'sluicegate:policy:{shop}' changed
/// ```
///
/// And an override; `HDEL` takes it away:
///
/// ```text
/// redis-cli HSET 'sluicegate:policy:{shop}:overrides' acme '{"tier": "pro", "rules": {"per-user": "5000/min"}}'
/// redis-cli HINCRBY 'sluicegate:policy:{shop}' version 1
/// redis-cli PUBLISH 'sluicegate:policy:{shop}' changed
/// ```
///
/// The customer is written as keys are [in the store](crate::key::Key::as_bytes): letters, digits and `.-_:@/` as they are, the rest
/// percent-encoded, secrets as their digest.
///
/// # How it is followed
///
/// The version is looked at every half second, in one command. A connection of its own subscribes to the channel
/// `sluicegate:policy:{shop}`, so that a change is seen at once; where the server or its user does not allow that, or the store is
/// [over a pool](RedisStore::from_pool), looking is all, and it is said once. A document is loaded over a connection of its own, so that no
/// decision waits behind it. Nothing takes longer than a second. While the server is away the last good policy stays.
///
/// Changes of overrides by [`set_override`](RedisPolicy::set_override) name the customer, who alone is looked up again; after those by
/// hand, and after more than a thousand in half a second, everybody is.
///
/// A clone follows on its own, from what this one has loaded: give each limiter one.
///
/// # Permissions
///
/// Beside [those for counts](crate::guide::operations#permissions):
///
/// | who | needs |
/// | --- | --- |
/// | processes that follow | `~sluicegate:policy:* +hmget +lrange`, and to hear of changes at once `&sluicegate:policy:* +subscribe` |
/// | whoever changes it | `~sluicegate:policy:* &sluicegate:policy:* +hmget +multi +exec +hset +hdel +hincrby +lpush +ltrim +publish` |
pub struct RedisPolicy {
    keys: Arc<PolicyKeys>,
    name: Arc<str>,
    /// What followed before. Its own for each clone.
    seen: Mutex<Seen>,
    hearing: tokio::sync::Mutex<Hearing>,
    told: Arc<Told>,
}

/// What was said, by any clone.
#[derive(Default)]
struct Told {
    /// That changes are not heard of.
    deaf: std::sync::atomic::AtomicBool,
    /// Overrides that cannot be used.
    overrides: Mutex<HashSet<u64>>,
    hasher: RandomState,
}

/// Why nothing could be read.
struct Unread {
    error: SourceError,
    /// Whether that may pass by itself.
    passes: bool,
}

impl RedisPolicy {
    /// The policy of this name on the servers of a store. Nothing is asked of them yet.
    ///
    /// A name is made of letters, digits and `.-_`; another is an error when it is first used.
    pub fn new(store: &RedisStore, name: impl Into<String>) -> RedisPolicy {
        let name = name.into();
        RedisPolicy {
            keys: Arc::new(PolicyKeys::new(store, &name)),
            name: name.into(),
            seen: Mutex::default(),
            hearing: tokio::sync::Mutex::default(),
            told: Arc::default(),
        }
    }

    /// Puts this policy in the place of the one on the server, and tells every process. Answers its version.
    ///
    /// ```no_run
    /// use sluicegate::policy::{Policy, RedisPolicy};
    ///
    /// # async fn change(source: RedisPolicy) -> Result<(), Box<dyn std::error::Error>> {
    /// let version = source.publish(&Policy::from_file("limits.toml")?).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// It stands there as it was written, with its comments. What cannot be read is no [`Policy`], so no such document is published; whether
    /// all its names are registered, [`Policy::check`] tells.
    ///
    /// # Errors
    ///
    /// When the server cannot be reached or does not permit it. After a timeout it may have been published all the same.
    pub async fn publish(&self, policy: &Policy) -> Result<u64, SourceError> {
        self.check_name()?;
        let (text, format) = policy.written();
        self.keys.publish(text, format.name()).await.map_err(|error| self.error("cannot be written", &error))
    }

    /// Gives a customer this override, in the place of the one before it, and tells every process. Answers the version.
    ///
    /// ```no_run
    /// use sluicegate::{Quota, policy::{Override, RedisPolicy}};
    ///
    /// # async fn change(source: RedisPolicy) -> Result<(), Box<dyn std::error::Error>> {
    /// source.set_override("acme", &Override::tier("pro").quota("per-user", Quota::per_minute(5_000))).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// When the policy on the server has no such tier or rule, the key is none, or the server cannot be reached or does not permit it. After
    /// a timeout it may have been written all the same.
    pub async fn set_override(&self, customer: impl IntoKey, own: &Override) -> Result<u64, SourceError> {
        let customer = key(customer)?;
        self.check_name()?;
        // Without a policy there is nothing to hold it against yet.
        if let Ok(policy) = self.read().await.map_err(|unread| unread.error)? {
            let own = own.clone();
            // Long documents take a while: not on a thread that serves requests.
            let checking = tokio::task::spawn_blocking(move || policy.check_override(&own));
            checking.await.unwrap_or_else(|error| Err(SourceError::new(error)))?;
        }
        self.write_override(&customer, Some(&own.to_json())).await
    }

    /// Takes a customer's override away, and tells every process. Answers the version.
    ///
    /// ```no_run
    /// # use sluicegate::policy::RedisPolicy;
    /// # async fn change(source: RedisPolicy) -> Result<(), Box<dyn std::error::Error>> {
    /// source.remove_override("acme").await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// When the key is none, or the server cannot be reached or does not permit it. After a timeout it may be gone all the same.
    pub async fn remove_override(&self, customer: impl IntoKey) -> Result<u64, SourceError> {
        let customer = key(customer)?;
        self.check_name()?;
        self.write_override(&customer, None).await
    }

    async fn write_override(&self, customer: &Key, json: Option<&str>) -> Result<u64, SourceError> {
        let written = self.keys.set_override(customer.as_bytes(), json).await;
        written.map_err(|error| self.error("cannot be written", &error))
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn error(&self, what: &str, error: &StoreError) -> SourceError {
        SourceError::new(format!("the policy `{}` in Redis {what}: {error}", self.name.escape_debug()))
    }

    /// Others would be another key, or move it to another slot.
    fn check_name(&self) -> Result<(), SourceError> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
        if (1..=LONGEST).contains(&self.name.len()) && self.name.bytes().all(plain) {
            return Ok(());
        }
        let name = self.name.escape_debug();
        let text = format!(
            "`{name}` is no name of a policy in Redis; use up to {LONGEST} letters, digits, dots, hyphens and underscores"
        );
        Err(SourceError::new(text))
    }

    /// What the document came to when it was read, from the server unless that was done since it changed.
    async fn read(&self) -> Result<Result<Policy, SourceError>, Unread> {
        let cannot = |error: StoreError| self.unread(&error);
        let known = self.seen().document();
        if let Some(known) = known {
            let counts = self.keys.counts().await.map_err(cannot)?;
            let loaded = self.seen().loaded(known);
            if let Some(loaded) = loaded.filter(|_| counts.documents() == known) {
                return Ok(loaded);
            }
        }
        let (counts, written) = self.keys.document().await.map_err(cannot)?;
        let read = match written {
            Some(written) => self.parse(written).await,
            None => {
                let (name, key) = (&self.name, self.keys.key());
                let help = "RedisPolicy::publish(..) writes it";
                let text =
                    format!("there is no policy `{name}` in Redis: the hash `{key}` has no field `document`; {help}");
                Err(SourceError::new(text))
            }
        };
        self.seen().take(counts, &read);
        Ok(read)
    }

    fn unread(&self, error: &StoreError) -> Unread {
        Unread { error: self.error("cannot be read", error), passes: error.is_transient() }
    }

    /// Long documents take a while: not on a thread that serves requests.
    async fn parse(&self, written: Written) -> Result<Policy, SourceError> {
        let place = self.keys.key().to_owned();
        let parsing = tokio::task::spawn_blocking(move || {
            let Written { text, format } = written;
            let format = match format.as_deref() {
                Some(name) => Format::named(name).ok_or_else(|| {
                    let name = name.escape_debug();
                    SourceError::new(format!("{place}: the format `{name}` is neither toml nor json"))
                })?,
                None if text.trim_start().starts_with('{') => Format::Json,
                None => Format::Toml,
            };
            Policy::named(&place, &text, format).map_err(SourceError::new)
        });
        parsing.await.unwrap_or_else(|error| Err(SourceError::new(error)))
    }

    /// An override as it stands on the server. One that cannot be read is as none, and told once.
    fn parse_override(&self, customer: &str, json: &str) -> Option<Override> {
        let place = format!("{}:overrides {customer}", self.keys.key());
        match Override::parse(&place, json, Format::Json) {
            Ok(own) => Some(own),
            Err(error) => {
                let mut told = self.told.overrides.lock().unwrap_or_else(PoisonError::into_inner);
                if told.len() >= MOST_TOLD {
                    told.clear();
                }
                if told.insert(self.told.hasher.hash_one((customer, json))) {
                    tracing::error!(%customer, %error, "the override of a customer cannot be read; its tier holds");
                }
                None
            }
        }
    }
}

impl PolicySource for RedisPolicy {
    fn load(&self) -> Loading<'_, Result<Policy, SourceError>> {
        Box::pin(async {
            self.check_name()?;
            match self.read().await {
                Ok(read) => {
                    self.seen().is_back();
                    read
                }
                Err(unread) => {
                    self.seen().is_away(&unread);
                    Err(self.seen().away().unwrap_or(unread.error))
                }
            }
        })
    }

    fn changed(&self) -> Loading<'_, ()> {
        Box::pin(async {
            let mut hearing = self.hearing.lock().await;
            loop {
                hearing.wait(&self.keys, &self.told.deaf, Instant::now() + EVERY - jitter()).await;
                if self.look().await {
                    return;
                }
            }
        })
    }

    fn changed_overrides(&self) -> ChangedOverrides {
        self.seen().doubt()
    }
}

impl RedisPolicy {
    /// Whether anything may have changed.
    async fn look(&self) -> bool {
        let counts = match self.keys.counts().await {
            Ok(counts) => counts,
            // Whoever loads it now learns why that fails.
            Err(error) => return self.seen().is_away(&self.unread(&error)),
        };
        let before = self.seen().before(counts);
        let Some(before) = before else { return self.seen().away().is_some() };
        let changed = match before.overrides.cmp(&counts.overrides) {
            std::cmp::Ordering::Equal => Some(Vec::new()),
            // One that cannot be answered is no reason to wait.
            _ => self.keys.changed_since(before).await.unwrap_or_default(),
        };
        self.seen().note(before, counts, changed);
        true
    }
}

impl OverrideSource for RedisPolicy {
    fn look_up<'a>(&'a self, customers: &'a [Box<str>]) -> Loading<'a, Result<Vec<Option<Override>>, SourceError>> {
        Box::pin(async move {
            self.check_name()?;
            let found = self.keys.overrides(customers).await;
            let found = found.map_err(|error| self.error("cannot be read", &error))?;
            let parse = |(customer, json): (&str, Option<String>)| self.parse_override(customer, &json?);
            Ok(customers.iter().map(|customer| &**customer).zip(found).map(parse).collect())
        })
    }

    /// Everybody who is remembered within a second, after a change that may be anybody's. It is one command for 64.
    fn most_a_second(&self) -> u32 {
        20_000
    }
}

impl Clone for RedisPolicy {
    fn clone(&self) -> RedisPolicy {
        RedisPolicy {
            keys: Arc::clone(&self.keys),
            name: Arc::clone(&self.name),
            seen: Mutex::new(self.seen().clone()),
            hearing: tokio::sync::Mutex::default(),
            told: Arc::clone(&self.told),
        }
    }
}

impl fmt::Debug for RedisPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisPolicy").field("name", &self.name).finish_non_exhaustive()
    }
}

fn key(customer: impl IntoKey) -> Result<Key, SourceError> {
    match customer.into_key() {
        Found::Key(key) => Ok(key),
        Found::Absent | Found::Refuse(_) => Err(SourceError::new("there is no customer without a key")),
    }
}

/// Up to a fifth of the time between looks.
fn jitter() -> Duration {
    let random = RandomState::new().hash_one(0u8) >> 32;
    Duration::from_nanos((random * 100_000_000) >> 32)
}
