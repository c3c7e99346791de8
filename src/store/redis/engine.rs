//! By which means a server decides. The one place that lists them: a node asks here, and so does who builds a limiter.

use super::{cell, plain};
use crate::{error::BuildError, limit::Limit};

/// By which means a server decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Engine {
    /// A script for all rules of a request, by its digest.
    #[default]
    Script,
    /// The same as a function that the server keeps; as a script where it does not.
    Functions,
    /// The command of the module redis-cell.
    Cell,
    /// Commands that every server has, without scripts.
    Plain,
}

impl Engine {
    /// Whether it can keep these limits of rules.
    pub(super) fn accept(self, rules: &[(&str, &Limit)]) -> Result<(), BuildError> {
        rules.iter().try_for_each(|(rule, limit)| match self {
            Engine::Script | Engine::Functions => Ok(()),
            Engine::Cell => cell::accept(rule, limit),
            Engine::Plain => plain::accept(rule, limit),
        })
    }

    /// The permissions that a Redis user needs for it.
    pub(super) fn needs(self) -> &'static str {
        match self {
            Engine::Script => {
                "+evalsha +eval +time +get +set +lrange +lindex +llen +lset +ltrim +rpush +zcard +zcount +zrange +zscore +zadd +zrem +zremrangebyscore +del +pexpire +pttl"
            }
            Engine::Functions => {
                "+fcall +function|load +function|list +time +get +set +lrange +lindex +llen +lset +ltrim +rpush +zcard +zcount +zrange +zscore +zadd +zrem +zremrangebyscore +del +pexpire +pttl"
            }
            Engine::Cell => "+cl.throttle +evalsha +eval +set +del",
            Engine::Plain => "+multi +exec +time +get +set +incrby +del",
        }
    }
}
