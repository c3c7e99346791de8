//! Errors of the client as errors of ours. Their texts name codes and causes, never addresses, keys or passwords.

use deadpool_redis::PoolError;
use redis::{ErrorKind, RedisError, ServerErrorKind};

use super::assemble::Assembled;
use crate::error::{StoreError, StoreErrorKind};

/// What a failed call means for the connection it came over.
pub(super) enum Failure {
    /// The server has never seen the script: send it.
    NoScript,
    /// The connection is of no more use.
    Replace(StoreError),
    /// The connection is sound.
    Keep(StoreError),
}

pub(super) fn calling(error: &RedisError, script: Option<&Assembled>) -> Failure {
    let code = error.code().unwrap_or_default().to_owned();
    let say = |kind, text: String| StoreError::new(kind, text);
    let refused = |text: &str| say(StoreErrorKind::Refused, format!("{code}: {text}"));
    match error.kind() {
        ErrorKind::Server(ServerErrorKind::NoScript) => Failure::NoScript,
        ErrorKind::Server(ServerErrorKind::ReadOnly) => {
            Failure::Replace(refused("the server is a replica now; looking for the primary over a new connection"))
        }
        ErrorKind::Server(ServerErrorKind::BusyLoading) => Failure::Keep(refused("the server is loading its data")),
        ErrorKind::Server(ServerErrorKind::MasterDown | ServerErrorKind::ClusterDown | ServerErrorKind::TryAgain) => {
            Failure::Keep(refused("the server cannot serve now"))
        }
        ErrorKind::Server(ServerErrorKind::Moved | ServerErrorKind::Ask | ServerErrorKind::CrossSlot) => {
            Failure::Keep(say(
                StoreErrorKind::Permanent,
                format!("{code}: the server is a Cluster node; give the address of a single server"),
            ))
        }
        ErrorKind::Server(ServerErrorKind::NoPerm) => Failure::Keep(no_permission(&code)),
        ErrorKind::AuthenticationFailed => {
            Failure::Replace(say(StoreErrorKind::Permanent, "the server refused the user or the password".into()))
        }
        ErrorKind::Extension if code == "OOM" => {
            Failure::Keep(refused("the server is out of memory and evicts nothing"))
        }
        ErrorKind::Extension if code == "BUSY" => {
            Failure::Keep(refused("the server runs a script that does not end; see SCRIPT KILL"))
        }
        ErrorKind::Server(_) | ErrorKind::Extension => {
            let detail = error.detail().unwrap_or_default();
            if detail.contains("can't run this command") || detail.contains("ACL") || detail.contains("permission") {
                return Failure::Keep(no_permission(&code));
            }
            let at = script.and_then(|script| script.origin_of(&format!("{code} {detail}")));
            let at = at.map(|at| format!(" at {at}")).unwrap_or_default();
            Failure::Keep(say(StoreErrorKind::Permanent, format!("{code}: a script failed{at}")))
        }
        ErrorKind::Parse => Failure::Replace(say(StoreErrorKind::Garbled, "the server's reply cannot be read".into())),
        _ if error.is_timeout() => Failure::Replace(say(StoreErrorKind::Timeout, "the connection timed out".into())),
        _ => Failure::Replace(say(StoreErrorKind::Unavailable, format!("the connection was lost: {}", cause(error)))),
    }
}

fn no_permission(code: &str) -> StoreError {
    let text = format!(
        "{code}: the Redis user may not run the script or a command in it; it needs \
        +evalsha +eval +time +get +set +lrange +lindex +llen +ltrim +rpush +del +pexpire on the keys of the namespace"
    );
    StoreError::new(StoreErrorKind::Permanent, text)
}

pub(super) fn connecting(error: &PoolError) -> StoreError {
    match error {
        PoolError::Backend(error) => match calling(error, None) {
            Failure::Replace(error) | Failure::Keep(error) if !error.is_transient() => error,
            _ => StoreError::new(StoreErrorKind::Unavailable, format!("cannot connect: {}", cause(error))),
        },
        PoolError::Timeout(_) => {
            StoreError::new(StoreErrorKind::Timeout, "the connection pool gave no connection in time")
        }
        PoolError::Closed => StoreError::new(StoreErrorKind::Unavailable, "the connection pool is closed"),
        PoolError::NoRuntimeSpecified | PoolError::PostCreateHook(_) => {
            StoreError::new(StoreErrorKind::Unavailable, "the connection pool is set up wrongly")
        }
    }
}

/// A word for what happened below, from a fixed set.
fn cause(error: &RedisError) -> &'static str {
    if error.is_connection_refusal() {
        "refused, nothing listens there"
    } else if error.is_timeout() {
        "timed out"
    } else if error.is_connection_dropped() {
        "closed by the server"
    } else {
        "input or output failed"
    }
}
