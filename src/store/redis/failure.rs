//! Errors of the client as errors of ours. Their texts name codes and causes, never addresses, keys or passwords.

use deadpool::managed::PoolError;
use redis::{ErrorKind, RedisError};

use super::{assemble::Assembled, connections::Live, engine::Engine, tls};
use crate::error::{StoreError, StoreErrorKind};

/// The words of servers for what is wrong.
const CODES: [&str; 18] = [
    "ASK",
    "BUSY",
    "CLUSTERDOWN",
    "CROSSSLOT",
    "ERR",
    "LOADING",
    "MASTERDOWN",
    "MISCONF",
    "MOVED",
    "NOAUTH",
    "NOPERM",
    "NOREPLICAS",
    "OOM",
    "READONLY",
    "TRYAGAIN",
    "UNKILLABLE",
    "WRONGPASS",
    "WRONGTYPE",
];

/// What a failed call means for the connection it came over.
pub(super) enum Failure {
    /// The server has never seen the script: send it.
    NoScript,
    /// The server is a primary no longer. Nothing ran, and it will not while the connection leads there.
    Demoted(StoreError),
    /// The connection is of no more use.
    Replace(StoreError),
    /// The connection is sound.
    Keep(StoreError),
}

pub(super) fn calling(error: &RedisError, script: Option<&Assembled>) -> Failure {
    let code = code_of(error);
    let known = CODES.into_iter().find(|known| *known == code);
    let say = |kind, text: String| StoreError::new(kind, text).coded(known);
    let refused = |text: &str| say(StoreErrorKind::Refused, format!("{code}: {text}"));
    match code {
        "NOSCRIPT" => Failure::NoScript,
        "READONLY" => {
            Failure::Demoted(refused("the server is a replica now; looking for the primary over a new connection"))
        }
        "LOADING" => Failure::Keep(refused("the server is loading its data")),
        "OOM" => Failure::Keep(refused("the server is out of memory and evicts nothing")),
        "BUSY" => Failure::Keep(refused("the server runs a script that does not end; see SCRIPT KILL")),
        "NOREPLICAS" | "MISCONF" | "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN" => {
            Failure::Keep(refused("the server takes no writes now"))
        }
        "MOVED" | "ASK" | "CROSSSLOT" => Failure::Keep(no_cluster(code)),
        "NOPERM" => Failure::Keep(no_permission(error, Engine::Script)),
        "NOAUTH" | "WRONGPASS" => Failure::Replace(refused_login().coded(known)),
        _ => match error.kind() {
            ErrorKind::AuthenticationFailed => Failure::Replace(refused_login()),
            ErrorKind::Server(_) | ErrorKind::Extension => {
                let at = script.and_then(|script| script.origin_of(error.detail().unwrap_or_default()));
                let at = at.map(|at| format!(" at {at}")).unwrap_or_default();
                let failed = say(StoreErrorKind::Permanent, format!("{code}: a script failed{at}"));
                // What it had written by then stays written.
                Failure::Keep(failed.doubtful())
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

/// The code of an error reply. Errors of commands inside a script come as `ERR` on some servers, with their own code in the text;
/// what is wrong with EXEC itself comes as `EXECABORT`.
fn code_of(error: &RedisError) -> &str {
    let code = error.code().unwrap_or_default();
    let detail = error.detail().unwrap_or_default();
    if code != "ERR" && code != "EXECABORT" {
        return code;
    }
    if detail.contains("Function not found") {
        return "NOSCRIPT";
    }
    let inner = ["READONLY", "OOM", "NOREPLICAS", "MISCONF", "MASTERDOWN", "LOADING", "BUSY", "NOPERM"];
    if let Some(inner) = inner
        .into_iter()
        .find(|inner| detail.contains(&format!("-{inner} ")) || detail.contains(&format!("of: {inner} ")))
    {
        return inner;
    }
    if detail.contains("can't run this command") || detail.contains("ACL") || detail.contains("permission") {
        return "NOPERM";
    }
    code
}

/// Whether the server has as many clients as it takes.
pub(super) fn is_crowded(error: &RedisError) -> bool {
    error.detail().is_some_and(|detail| detail.contains("max number of clients"))
}

pub(super) fn refused_login() -> StoreError {
    let text = "the server wants a user and password, or refused those it got";
    StoreError::new(StoreErrorKind::Permanent, text)
}

/// A node of a Cluster was taken for a server.
pub(super) fn no_cluster(code: &str) -> StoreError {
    let text = format!("{code}: the server is a Cluster node; say so with .cluster() when the store is built");
    StoreError::new(StoreErrorKind::Permanent, text)
}

fn no_permission(error: &RedisError, engine: Engine) -> StoreError {
    let what = if engine == Engine::Script { "the script or a command in it" } else { "a command of a decision" };
    let needs = engine.needs();
    let text = format!("NOPERM: the Redis user may not run {what}; it needs {needs} on the keys of the namespace");
    let denied = StoreError::new(StoreErrorKind::Permanent, text).coded(Some("NOPERM"));
    // A script that is denied a command ends there. What it has written stays written.
    if error.code() == Some("ERR") { denied.doubtful() } else { denied }
}

/// What a failed command of an engine without our scripts means; gives up the connection if it is of no more use.
pub(super) fn commanding(error: &RedisError, engine: Engine, live: &Live) -> StoreError {
    let failure = match code_of(error) {
        "NOPERM" => Failure::Keep(no_permission(error, engine)),
        _ if engine == Engine::Cell && is_unknown_command(error) => Failure::Keep(StoreError::new(
            StoreErrorKind::Permanent,
            "the server does not know CL.THROTTLE; load the module redis-cell there, or build the store without cell()",
        )),
        code @ ("ERR" | "WRONGTYPE" | "Cell") => {
            Failure::Keep(StoreError::new(StoreErrorKind::Permanent, format!("{code}: a command of a decision failed")))
        }
        _ => calling(error, None),
    };
    match failure {
        Failure::NoScript => StoreError::new(StoreErrorKind::Permanent, "NOSCRIPT: the server did not take the script"),
        Failure::Keep(error) => {
            live.answered();
            error
        }
        Failure::Replace(error) | Failure::Demoted(error) => {
            live.give_up(error.clone());
            error
        }
    }
}

/// Whether the server lacks the command; from within a script it says so in other words.
pub(super) fn is_unknown_command(error: &RedisError) -> bool {
    let detail = error.detail().unwrap_or_default();
    detail.contains("nknown command")
        || detail.contains("nknown Redis command")
        || detail.contains("Unknown Valkey command")
}

/// Whether the server's user lacks a permission.
pub(super) fn is_denied(error: &RedisError) -> bool {
    code_of(error) == "NOPERM"
}

/// Why the server did not take a connection. Nothing was sent over it, so nothing was charged.
pub(super) fn greeting(error: &RedisError) -> StoreError {
    if let Some(error) = tls::complaint(error) {
        return error;
    }
    let detail = error.detail().unwrap_or_default();
    let say = |kind, text: &'static str| StoreError::new(kind, text).uncharged();
    if is_crowded(error) {
        let text = "cannot connect: the server has as many clients as it takes";
        return say(StoreErrorKind::Unavailable, text).coded(Some("MAXCLIENTS"));
    }
    if detail.contains("DB index") || detail.contains("SELECT is not allowed") {
        return say(StoreErrorKind::Permanent, "cannot connect: the server has no database of that number");
    }
    let error = match calling(error, None) {
        Failure::Replace(error) | Failure::Demoted(error) | Failure::Keep(error) if !error.is_transient() => error,
        _ => StoreError::new(StoreErrorKind::Unavailable, format!("cannot connect: {}", cause(error))),
    };
    error.uncharged()
}

/// Why a pool gave no connection although the server took one.
pub(super) fn pooling<E>(error: &PoolError<E>) -> StoreError {
    let (kind, text) = match error {
        PoolError::Timeout(_) => (StoreErrorKind::Timeout, "the connection pool gave no connection in time"),
        PoolError::Closed => (StoreErrorKind::Unavailable, "the connection pool is closed"),
        _ => (StoreErrorKind::Unavailable, "the connection pool is set up wrongly"),
    };
    StoreError::new(kind, text).uncharged()
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
