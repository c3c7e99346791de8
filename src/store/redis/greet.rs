//! The first words on a connection: who we are, which database, and whether the server takes charges.
//!
//! Said by us and not by the client, which takes any error here for a wrong password, also that of a server with as many
//! clients as it takes.

use redis::{Cmd, RedisConnectionInfo, RedisError, ServerErrorKind, Value};

use super::{failure, link::Connection};
use crate::error::{StoreError, StoreErrorKind};

/// Logs in and chooses the database.
pub(super) async fn enter(connection: &mut Connection, settings: &RedisConnectionInfo) -> Result<(), StoreError> {
    if let Some(password) = settings.password() {
        let mut command = redis::cmd("AUTH");
        if let Some(user) = settings.username() {
            command.arg(user);
        }
        if let Err(error) = say(connection, command.arg(password)).await {
            return Err(match error.kind() {
                redis::ErrorKind::Server(ServerErrorKind::ResponseError) if failure::is_crowded(&error) => {
                    failure::greeting(&error)
                }
                redis::ErrorKind::Server(_) | redis::ErrorKind::Extension => failure::refused_login(),
                _ => failure::greeting(&error),
            });
        }
    }
    if settings.db() != 0 {
        let chosen = say(connection, redis::cmd("SELECT").arg(settings.db())).await;
        chosen.map_err(|error| match error.kind() {
            redis::ErrorKind::Server(ServerErrorKind::NoPerm) => {
                let text = "cannot connect: the Redis user may not choose a database; it needs +select";
                StoreError::new(StoreErrorKind::Permanent, text).uncharged()
            }
            _ => failure::greeting(&error),
        })?;
    }
    Ok(())
}

/// An error unless the server is a primary. A user who may not ask passes: a replica refuses charges anyway.
pub(super) async fn primary(connection: &mut Connection) -> Result<(), StoreError> {
    let reply = match say(connection, &redis::cmd("ROLE")).await {
        Ok(reply) => reply,
        Err(error) => {
            return match error.kind() {
                redis::ErrorKind::Server(ServerErrorKind::NoPerm) => Ok(()),
                // A service that hides the command.
                _ if error.detail().is_some_and(|detail| detail.contains("unknown command")) => Ok(()),
                _ => Err(failure::greeting(&error)),
            };
        }
    };
    let role = match &reply {
        Value::Array(fields) => match fields.first() {
            Some(Value::BulkString(role)) => role.as_slice(),
            _ => b"",
        },
        _ => b"",
    };
    let (kind, text) = match role {
        b"slave" => (StoreErrorKind::Refused, "cannot connect: the server is a replica"),
        b"sentinel" => (
            StoreErrorKind::Permanent,
            "cannot connect: the server is a Sentinel; name the primary to ask it for with .sentinel(..)",
        ),
        _ => return Ok(()),
    };
    Err(StoreError::new(kind, text).uncharged())
}

/// Says that we only read: a replica in a Cluster sends whoever has not said so to its primary.
pub(super) async fn reader(connection: &mut Connection) -> Result<(), StoreError> {
    say(connection, &redis::cmd("READONLY")).await.map(|_| ()).map_err(|error| match error.kind() {
        redis::ErrorKind::Server(ServerErrorKind::NoPerm) => {
            let text = "cannot connect: the Redis user may not read from replicas of the Cluster; it needs +readonly";
            StoreError::new(StoreErrorKind::Permanent, text).uncharged()
        }
        _ => failure::greeting(&error),
    })
}

async fn say(connection: &mut Connection, command: &Cmd) -> Result<Value, RedisError> {
    match connection.send(command).await? {
        Value::ServerError(error) => Err(error.into()),
        reply => Ok(reply),
    }
}
