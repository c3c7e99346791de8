//! What is written in one text: quotas, times, keys, paths, conditions.

mod condition;
mod duration;
mod key;
mod offset;
mod pattern;
mod quota;
mod status;
mod suggest;

pub(super) use condition::{Condition, condition};
pub(super) use duration::duration;
pub(super) use key::{KeyReader, KeyText, is_built_in, or_none};
pub(super) use offset::{utc_offset, write_utc_offset};
pub(crate) use pattern::{Pattern, Segment};
pub(super) use quota::{quota, write_quota, write_whole_quota};
pub(super) use status::Statuses;
pub(super) use suggest::{did_you_mean, listed};

/// What is wrong, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wrong {
    pub(crate) message: String,
    pub(crate) help: String,
}

impl Wrong {
    pub(super) fn new(message: impl Into<String>, help: impl Into<String>) -> Wrong {
        Wrong { message: message.into(), help: help.into() }
    }
}
