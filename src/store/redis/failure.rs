//! Errors of the client as errors of ours. Their texts name codes and causes, never addresses, keys or passwords.

use deadpool_redis::PoolError;
use redis::{ErrorKind, RedisError};

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
    let code = code_of(error);
    let say = |kind, text: String| StoreError::new(kind, text);
    let refused = |text: &str| say(StoreErrorKind::Refused, format!("{code}: {text}"));
    match code {
        "NOSCRIPT" => Failure::NoScript,
        "READONLY" => {
            Failure::Replace(refused("the server is a replica now; looking for the primary over a new connection"))
        }
        "LOADING" => Failure::Keep(refused("the server is loading its data")),
        "OOM" => Failure::Keep(refused("the server is out of memory and evicts nothing")),
        "BUSY" => Failure::Keep(refused("the server runs a script that does not end; see SCRIPT KILL")),
        "NOREPLICAS" | "MISCONF" | "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN" => {
            Failure::Keep(refused("the server takes no writes now"))
        }
        "MOVED" | "ASK" | "CROSSSLOT" => Failure::Keep(say(
            StoreErrorKind::Permanent,
            format!("{code}: the server is a Cluster node; say so with .cluster() when the store is built"),
        )),
        "NOPERM" => Failure::Keep(no_permission(code)),
        "NOAUTH" | "WRONGPASS" => refused_user(),
        _ => match error.kind() {
            ErrorKind::AuthenticationFailed => refused_user(),
            ErrorKind::Server(_) | ErrorKind::Extension => {
                let at = script.and_then(|script| script.origin_of(error.detail().unwrap_or_default()));
                let at = at.map(|at| format!(" at {at}")).unwrap_or_default();
                Failure::Keep(say(StoreErrorKind::Permanent, format!("{code}: a script failed{at}")))
            }
            ErrorKind::Parse => {
                Failure::Replace(say(StoreErrorKind::Garbled, "the server's reply cannot be read".into()))
            }
            _ if error.is_timeout() => {
                Failure::Replace(say(StoreErrorKind::Timeout, "the connection timed out".into()))
            }
            _ => {
                Failure::Replace(say(StoreErrorKind::Unavailable, format!("the connection was lost: {}", cause(error))))
            }
        },
    }
}

/// The code of an error reply. Errors of commands inside a script come as `ERR` on some servers, with their own code in the text.
fn code_of(error: &RedisError) -> &str {
    let code = error.code().unwrap_or_default();
    let detail = error.detail().unwrap_or_default();
    if code != "ERR" {
        return code;
    }
    let inner = ["READONLY", "OOM", "NOREPLICAS", "MISCONF", "MASTERDOWN", "LOADING", "BUSY", "NOPERM"];
    if let Some(inner) = inner.into_iter().find(|inner| detail.contains(&format!("-{inner} "))) {
        return inner;
    }
    if detail.contains("can't run this command") || detail.contains("ACL") || detail.contains("permission") {
        return "NOPERM";
    }
    code
}

fn refused_user() -> Failure {
    let text = "the server wants a user and password, or refused those it got";
    Failure::Replace(StoreError::new(StoreErrorKind::Permanent, text))
}

fn no_permission(code: &str) -> StoreError {
    let text = format!(
        "{code}: the Redis user may not run the script or a command in it; it needs \
        +evalsha +eval +time +get +set +lrange +lindex +llen +ltrim +rpush +del +pexpire +pttl on the keys of the namespace"
    );
    StoreError::new(StoreErrorKind::Permanent, text)
}

/// Why there is no connection.
pub(super) fn connecting(error: &PoolError) -> StoreError {
    let error = match error {
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
    };
    // Without a connection nothing was sent.
    error.uncharged()
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
