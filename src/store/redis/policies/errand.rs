//! Commands that are no decisions, off the path of requests.

use deadpool::managed::Manager as _;
use redis::{Pipeline, RedisError, RedisResult, Value};
use tokio::time::{Instant, timeout_at};

use super::{
    super::{
        cluster::Redirect,
        failure::{self, Failure},
        link::Link,
        node::Node,
        supply::Supply,
    },
    PATIENCE,
};
use crate::error::{StoreError, StoreErrorKind};

/// Commands about keys of one slot.
pub(in super::super) struct Errand<'a> {
    pub(super) commands: &'a Pipeline,
    /// Over a connection that is made for it, where that can be: its replies are long, and decisions would wait behind them.
    pub(super) apart: bool,
    /// What the server's user must be permitted.
    pub(super) needs: &'static str,
}

/// Why there are no replies.
pub(in super::super) enum Turned {
    /// By a node of a Cluster, and nothing ran.
    Away(Redirect),
    Failed(StoreError),
}

impl From<StoreError> for Turned {
    fn from(error: StoreError) -> Turned {
        Turned::Failed(error)
    }
}

impl Node {
    /// The replies, of which none is an error.
    pub(in super::super) async fn run_errand(
        &self,
        errand: &Errand<'_>,
        asking: bool,
        until: Instant,
    ) -> Result<Vec<Value>, Turned> {
        if errand.apart {
            let opened = timeout_at(until, self.apart()).await.map_err(|_| late("connection"))?;
            if let Some(link) = opened? {
                return errand.run_over(link, asking, until).await;
            }
        }
        let got = timeout_at(until, self.connections.get()).await;
        let mut live = got.map_err(|_| late("connection"))??;
        if asking {
            live.ask_first();
        }
        let Ok(sent) = timeout_at(until, live.send_all(errand.commands)).await else {
            live.timed_out();
            return Err(late("answer").into());
        };
        let error = match replies(sent) {
            Ok(replies) => {
                live.answered();
                return Ok(replies);
            }
            Err(Wrong { redirect: Some(redirect), .. }) => {
                live.answered();
                return Err(Turned::Away(redirect));
            }
            Err(Wrong { error, .. }) => error,
        };
        if let Some(refusal) = errand.refusal(&error) {
            live.answered();
            return Err(refusal.into());
        }
        Err(self.conclude(&mut live, &error, None).err().unwrap_or_else(garbled).into())
    }

    /// A connection beside those that are shared. `None` where somebody else makes them: those are shared by others still.
    pub(super) async fn apart(&self) -> Result<Option<Link>, StoreError> {
        match self.connections.slots.first().map(|slot| &slot.shared.supply) {
            Some(Supply::Own(pool)) => pool.manager().create().await.map(Some),
            Some(Supply::Given(_)) | None => Ok(None),
        }
    }
}

impl Errand<'_> {
    async fn run_over(&self, mut link: Link, asking: bool, until: Instant) -> Result<Vec<Value>, Turned> {
        let mut commands = redis::pipe();
        if asking {
            commands.cmd("ASKING");
        }
        self.commands.cmd_iter().for_each(|command| {
            commands.add_command(command.clone());
        });
        let sent = timeout_at(until, link.connection.send_all(&commands)).await.map_err(|_| late("answer"))?;
        match replies(sent) {
            Ok(mut replies) => {
                // The reply to the word itself.
                replies.drain(..replies.len().min(usize::from(asking)));
                Ok(replies)
            }
            Err(Wrong { redirect: Some(redirect), .. }) => Err(Turned::Away(redirect)),
            Err(Wrong { error, .. }) => Err(match (self.refusal(&error), failure::calling(&error, None)) {
                (Some(refusal), _) => refusal,
                (None, Failure::NoScript) => garbled(),
                (None, Failure::Demoted(error) | Failure::Replace(error) | Failure::Keep(error)) => error,
            }
            .into()),
        }
    }

    /// What only an operator can mend.
    fn refusal(&self, error: &RedisError) -> Option<StoreError> {
        let text = match error.code() {
            _ if failure::is_denied(error) => {
                format!("NOPERM: the Redis user lacks permissions; add them with: ACL SETUSER <user> {}", self.needs)
            }
            Some("WRONGTYPE") => "WRONGTYPE: a key of the policy holds something else".to_owned(),
            _ => return None,
        };
        Some(StoreError::new(StoreErrorKind::Permanent, text))
    }
}

struct Wrong {
    redirect: Option<Redirect>,
    error: RedisError,
}

/// The replies, or the first error among them; those of a transaction stand in its last reply.
fn replies(sent: RedisResult<Vec<Value>>) -> Result<Vec<Value>, Wrong> {
    let replies = sent.map_err(|error| Wrong { redirect: None, error })?;
    let error = |reply: &Value| match reply {
        Value::ServerError(error) => Some(error.clone()),
        _ => None,
    };
    let inner = match replies.last() {
        Some(Value::Array(inner)) => inner.iter().find_map(error),
        _ => None,
    };
    match replies.iter().find_map(error).or(inner) {
        Some(error) => Err(Wrong { redirect: Redirect::read(&error), error: error.into() }),
        None => Ok(replies),
    }
}

pub(super) fn late(waited_for: &str) -> StoreError {
    StoreError::new(StoreErrorKind::Timeout, format!("no {waited_for} within {PATIENCE:?}"))
}

pub(super) fn garbled() -> StoreError {
    StoreError::new(StoreErrorKind::Garbled, "the server's reply makes no sense")
}
