//! What the commands answered.

use redis::{RedisError, Value};

use crate::error::{StoreError, StoreErrorKind};

pub(super) fn garbled() -> StoreError {
    StoreError::new(StoreErrorKind::Garbled, "the server's reply makes no sense for the commands of a decision")
}

/// The reply to TIME, in microseconds.
pub(in super::super) fn time(reply: Option<&Value>) -> Result<u64, StoreError> {
    let Some(Value::Array(pair)) = reply else { return Err(garbled()) };
    let [seconds, micros] = &pair[..] else { return Err(garbled()) };
    let (seconds, micros) = (number(seconds)?, number(micros)?);
    let micros = seconds.checked_mul(1_000_000).and_then(|time| time.checked_add(micros));
    micros.and_then(|time| u64::try_from(time).ok()).ok_or_else(garbled)
}

/// A whole number; nothing is zero.
pub(super) fn number(reply: &Value) -> Result<i64, StoreError> {
    match reply {
        Value::Int(number) => Some(*number),
        Value::Nil => Some(0),
        Value::BulkString(digits) => std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()),
        Value::SimpleString(digits) => digits.parse().ok(),
        _ => None,
    }
    .ok_or_else(garbled)
}

/// The replies to what stands between MULTI and EXEC, or why nothing of it was done.
pub(super) fn executed(mut replies: Vec<Value>) -> Result<Vec<Value>, RedisError> {
    let last = replies.pop();
    // What could not be queued says more than that EXEC refused for it.
    for reply in replies {
        if let Value::ServerError(error) = reply {
            return Err(error.into());
        }
    }
    match last {
        Some(Value::Array(replies)) => Ok(replies),
        Some(Value::ServerError(error)) => Err(error.into()),
        _ => Err((redis::ErrorKind::Parse, "no reply to EXEC").into()),
    }
}

/// The first error among replies.
pub(super) fn error_in(replies: &[Value]) -> Option<RedisError> {
    replies.iter().find_map(|reply| match reply {
        Value::ServerError(error) => Some(error.clone().into()),
        _ => None,
    })
}
