//! Rules that change while a limiter runs, without the feature `policy`: there are none.

use std::sync::Arc;

use http::{Method, request::Parts};
use smallvec::SmallVec;

use super::{Core, Limiter, Now, ground::Ground};
use crate::{error::BuildError, limit::Rule, lists::Lists};

pub(crate) type Places = SmallVec<[u16; 1]>;

#[derive(Debug)]
pub(crate) enum Paths {}

impl Paths {
    pub(crate) fn find(&self, _: &Method, _: &str) -> Places {
        match *self {}
    }

    pub(crate) fn are_two(&self, _: &str) -> bool {
        match *self {}
    }
}

#[derive(Debug)]
pub(crate) enum Live {}

impl Live {
    pub(super) fn usual(&self) -> Limiter {
        match *self {}
    }

    pub(super) fn of_request(&self, _: &Parts) -> Now<'_> {
        match *self {}
    }
}

/// What a builder was told of policies: nothing.
#[derive(Default)]
pub(super) struct Wanted {}

impl Wanted {
    pub(super) fn is_given(&self) -> bool {
        false
    }

    pub(super) fn make(self, _: &Arc<Core>, _: Ground, _: Vec<Rule>, _: Option<Lists>) -> Result<Live, BuildError> {
        Err(BuildError::new("policy", "needs the feature `policy`"))
    }
}

/// The limiter of a request, without a lock.
#[derive(Debug)]
pub(crate) enum Held {}

impl Held {
    pub(super) fn limiter(&self) -> &Limiter {
        match *self {}
    }
}
