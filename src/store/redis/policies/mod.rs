//! Policies and overrides on a server: configuration, which stays until somebody changes it. So unlike counts these keys have no TTL.
//!
//! | key | what it is |
//! | --- | --- |
//! | `sluicegate:policy:{name}` | a hash: `document`, `format`, `version`, which grows with every change, and `overrides`, which grows with those that are listed |
//! | `sluicegate:policy:{name}:changes` | a list: the customers whose overrides were changed last, the newest first |
//! | `sluicegate:policy:{name}:overrides` | a hash: a field for each customer |
//!
//! The braces are a Cluster hash tag, so all of it is in one slot. The channel has the name of the first key.

mod errand;
mod listen;

use std::time::Duration;

use redis::{Pipeline, Value};
use tokio::time::Instant;

use self::errand::garbled;
pub(super) use self::errand::{Errand, Turned};
pub(crate) use self::listen::Listening;
use super::{RedisStore, Topology};
use crate::error::StoreError;

/// How long anything here may take. No request waits for it.
const PATIENCE: Duration = Duration::from_secs(1);
/// How many changes of overrides are listed.
const LISTED: u64 = 1_000;

const READS: &str = "~sluicegate:policy:* +hmget +lrange";
const WRITES: &str =
    "~sluicegate:policy:* &sluicegate:policy:* +multi +exec +hset +hdel +hincrby +lpush +ltrim +publish";
const LISTENS: &str = "&sluicegate:policy:* +subscribe";

/// The keys of one policy.
pub(crate) struct PolicyKeys {
    store: RedisStore,
    policy: String,
    overrides: String,
    changes: String,
}

/// How often a policy and its overrides have changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// All changes.
    pub(crate) version: u64,
    /// Those of them that were of one override, and are listed.
    pub(crate) overrides: u64,
}

/// A document as it stands on the server.
pub(crate) struct Written {
    pub(crate) text: String,
    pub(crate) format: Option<String>,
}

impl Counts {
    /// How often anything but a listed override has changed.
    pub(crate) fn documents(self) -> u64 {
        self.version.wrapping_sub(self.overrides)
    }
}

impl PolicyKeys {
    pub(crate) fn new(store: &RedisStore, name: &str) -> PolicyKeys {
        let policy = format!("sluicegate:policy:{{{name}}}");
        let of = |what: &str| format!("{policy}:{what}");
        PolicyKeys { store: store.clone(), overrides: of("overrides"), changes: of("changes"), policy }
    }

    /// The name of the hash with the document.
    pub(crate) fn key(&self) -> &str {
        &self.policy
    }

    pub(crate) async fn counts(&self) -> Result<Counts, StoreError> {
        let mut commands = redis::pipe();
        commands.cmd("HMGET").arg(&self.policy).arg("version").arg("overrides");
        match &self.read(&commands, false).await?[..] {
            [Value::Array(fields)] => counts(fields),
            _ => Err(garbled()),
        }
    }

    /// The customers whose overrides have changed since `then`, and perhaps some more. `None`: nobody knows which.
    pub(crate) async fn changed_since(&self, then: Counts) -> Result<Option<Vec<Box<str>>>, StoreError> {
        let mut commands = redis::pipe();
        commands.cmd("LRANGE").arg(&self.changes).arg(0).arg(LISTED - 1);
        // Afterwards: of those that come in between, some may be counted that are not in the list, and none the other way round.
        commands.cmd("HMGET").arg(&self.policy).arg("version").arg("overrides");
        let replies = self.read(&commands, false).await?;
        let [Value::Array(listed), Value::Array(fields)] = &replies[..] else { return Err(garbled()) };
        let Some(count) = counts(fields)?.overrides.checked_sub(then.overrides) else { return Ok(None) };
        if count > listed.len() as u64 {
            return Ok(None);
        }
        let customers = listed.iter().zip(0..count).map(|(customer, _)| text(customer).map(Into::into));
        Ok(customers.collect())
    }

    pub(crate) async fn document(&self) -> Result<(Counts, Option<Written>), StoreError> {
        let mut commands = redis::pipe();
        commands.cmd("HMGET").arg(&self.policy).arg("version").arg("overrides").arg("document").arg("format");
        let mut replies = self.read(&commands, true).await?;
        let Some(Value::Array(mut fields)) = replies.pop() else { return Err(garbled()) };
        let counts = counts(&fields)?;
        let (Some(format), Some(document)) = (fields.pop(), fields.pop()) else { return Err(garbled()) };
        let format = text(&format);
        let written = match document {
            Value::BulkString(bytes) => Some(Written { text: String::from_utf8_lossy(&bytes).into_owned(), format }),
            _ => None,
        };
        Ok((counts, written))
    }

    /// What stands there for each of these customers.
    pub(crate) async fn overrides(&self, customers: &[Box<str>]) -> Result<Vec<Option<String>>, StoreError> {
        if customers.is_empty() {
            return Ok(Vec::new());
        }
        let mut commands = redis::pipe();
        commands.cmd("HMGET").arg(&self.overrides);
        customers.iter().for_each(|customer| {
            commands.arg(&**customer);
        });
        match &self.read(&commands, false).await?[..] {
            [Value::Array(fields)] => Ok(fields.iter().map(text).collect()),
            _ => Err(garbled()),
        }
    }

    /// Puts a document in the place of the one before it. Answers the version.
    pub(crate) async fn publish(&self, document: &str, format: &str) -> Result<u64, StoreError> {
        let mut commands = redis::pipe();
        commands.cmd("MULTI");
        commands.cmd("HSET").arg(&self.policy).arg("document").arg(document).arg("format").arg(format);
        self.write(commands).await
    }

    /// Puts an override in the place of the one before it, or takes it away. Answers the version.
    pub(crate) async fn set_override(&self, customer: &[u8], json: Option<&str>) -> Result<u64, StoreError> {
        let mut commands = redis::pipe();
        commands.cmd("MULTI");
        match json {
            Some(json) => commands.cmd("HSET").arg(&self.overrides).arg(customer).arg(json),
            None => commands.cmd("HDEL").arg(&self.overrides).arg(customer),
        };
        commands.cmd("LPUSH").arg(&self.changes).arg(customer);
        commands.cmd("LTRIM").arg(&self.changes).arg(0).arg(LISTED - 1);
        commands.cmd("HINCRBY").arg(&self.policy).arg("overrides").arg(1);
        self.write(commands).await
    }

    async fn read(&self, commands: &Pipeline, apart: bool) -> Result<Vec<Value>, StoreError> {
        self.run(&Errand { commands, apart, needs: READS }).await
    }

    /// Ends the transaction with what every change does.
    async fn write(&self, mut commands: Pipeline) -> Result<u64, StoreError> {
        commands.cmd("HINCRBY").arg(&self.policy).arg("version").arg(1);
        commands.cmd("PUBLISH").arg(&self.policy).arg("changed");
        commands.cmd("EXEC");
        let replies = self.run(&Errand { commands: &commands, apart: false, needs: WRITES }).await?;
        match replies.last() {
            Some(Value::Array(done)) => match &done[..] {
                [.., Value::Int(version), _] => Ok(version.unsigned_abs()),
                _ => Err(garbled()),
            },
            _ => Err(garbled()),
        }
    }

    async fn run(&self, errand: &Errand<'_>) -> Result<Vec<Value>, StoreError> {
        let until = Instant::now() + PATIENCE;
        match &self.store.0.topology {
            Topology::One(node) => match node.run_errand(errand, false, until).await {
                Ok(replies) => Ok(replies),
                Err(Turned::Failed(error)) => Err(error),
                Err(Turned::Away(_)) => Err(super::failure::no_cluster("MOVED")),
            },
            Topology::Cluster(cluster) => cluster.run_errand(self.policy.as_bytes(), errand, until).await,
        }
    }
}

/// What is not there has never changed.
fn counts(fields: &[Value]) -> Result<Counts, StoreError> {
    let count = |field: &Value| match field {
        Value::Nil => Ok(0),
        field => text(field).and_then(|text| text.parse().ok()).ok_or_else(garbled),
    };
    match fields {
        [version, overrides, ..] => Ok(Counts { version: count(version)?, overrides: count(overrides)? }),
        _ => Err(garbled()),
    }
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        _ => None,
    }
}
