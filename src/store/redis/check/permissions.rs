//! Which permissions are missing, found by trying: that works on every version, and needs no permission to ask.

use redis::{Pipeline, RedisError, Value};

use super::super::{connections::Live, failure};

/// What the user lacks.
#[derive(Default)]
pub(super) struct Missing {
    /// Of a list like `+get +set`.
    pub(super) commands: Vec<&'static str>,
    /// It may not touch the key.
    pub(super) key: bool,
}

/// Tries each on `key`, which holds nothing that matters and is gone afterwards.
pub(super) async fn missing(
    live: &mut Live,
    needs: impl Iterator<Item = &'static str>,
    key: &[u8],
) -> Result<Missing, RedisError> {
    let mut missing = Missing::default();
    // SET first, so that what follows finds a key with a TTL; DEL last. On a string, commands of lists and sets do nothing but fail.
    let mut needs: Vec<&str> = needs.collect();
    needs.sort_by_key(|need| match *need {
        "+set" => 0,
        "+del" => 2,
        "+multi" => 3,
        _ => 1,
    });
    for need in needs {
        // EXEC is tried behind MULTI, which a denied EXEC ends too. RPUSH and ZADD would make what stays, without that key.
        let makes = matches!(need, "+rpush" | "+zadd");
        if need == "+exec" || (makes && (missing.key || missing.commands.contains(&"+set"))) {
            continue;
        }
        let replies = live.send_all(&probe(need, key)).await?;
        let tried = [need, "+exec"].into_iter().take(if need == "+multi" { 2 } else { 1 });
        for (reply, need) in replies.into_iter().zip(tried) {
            match denial(reply) {
                None => {}
                Some(error) if error.detail().unwrap_or_default().contains("to run the") => missing.commands.push(need),
                Some(_) => missing.key = true,
            }
        }
    }
    Ok(missing)
}

fn denial(reply: Value) -> Option<RedisError> {
    let Value::ServerError(error) = reply else { return None };
    let error = RedisError::from(error);
    failure::is_denied(&error).then_some(error)
}

fn probe(need: &str, key: &[u8]) -> Pipeline {
    let mut commands = redis::pipe();
    let name = need.trim_start_matches('+');
    let command = commands.cmd(&name.to_uppercase());
    match name {
        "evalsha" | "evalsha_ro" => command.arg("0".repeat(40)).arg(1).arg(key),
        "eval" | "eval_ro" => command.arg("return 1").arg(1).arg(key),
        "set" => command.arg(key).arg(0).arg("PX").arg(1_000).arg("NX"),
        "pexpire" => command.arg(key).arg(1_000),
        "incrby" => command.arg(key).arg(1),
        "lrange" | "ltrim" | "zcount" | "zrange" | "zremrangebyscore" => command.arg(key).arg(0).arg(0),
        "lindex" => command.arg(key).arg(0),
        "rpush" | "zscore" | "zrem" => command.arg(key).arg("x"),
        "lset" | "zadd" => command.arg(key).arg(0).arg("x"),
        "cl.throttle" => command.arg([key, b"=cell"].concat()).arg(0).arg(1).arg(60).arg(0),
        "multi" => command.cmd("EXEC"),
        // It holds for the next command on the connection, whoever sends it.
        "asking" => command.cmd("TIME"),
        "time" => command,
        // get, del, pttl, llen, zcard
        _ => command.arg(key),
    };
    commands
}
