//! Which bodies must be read before the rules can judge.

use std::sync::atomic::{AtomicBool, Ordering};

use http::request::Parts;

use super::{Limiter, rules::CheckedRule};
use crate::{
    key::{Found, ReadBody},
    limit::Cost,
    lists::Listed,
};

/// What a layer that reads bodies is to do with a request.
pub(crate) enum Look {
    /// No rule looks into its body.
    Leave,
    /// Read as much of it, at most.
    Read(usize),
    /// The request is on a list, by its address alone, and no rule is asked. Whoever asks again may be told otherwise, since lists
    /// change at any time; so this is carried out as it stands.
    Listed(Listed),
}

/// What was said of a layer that does not read bodies which a rule looks into; it is said once.
#[derive(Default)]
pub(super) struct Unread {
    warned: AtomicBool,
    refused: AtomicBool,
}

impl CheckedRule {
    fn cost_by_body(&self) -> usize {
        match &self.cost {
            Cost::ByBody(by_body) if !self.limit().is_unlimited() => by_body.max_bytes(),
            _ => 0,
        }
    }

    /// Whether it looks for its key, or its tenant, in bodies.
    pub(super) fn finds_in_body(&self) -> bool {
        self.key().body() > 0 || self.shared().is_some_and(|shared| shared.key.body() > 0)
    }

    pub(super) fn reads_bodies(&self) -> bool {
        self.most_of_body() > 0
    }

    /// How much of the body of this request it may look at; zero where it needs none.
    fn body_to_read(&self, head: &Parts) -> usize {
        if !self.reads_bodies() || !self.applies(head) {
            return 0;
        }
        // A rule without a key does not apply either, whatever it would cost.
        if self.key().body() == 0 && matches!(self.key().find_now(head), Some(Found::Absent | Found::Refuse(_))) {
            return 0;
        }
        self.most_of_body()
    }

    /// How much of a body it may look at, for its key, its tenant and its cost.
    fn most_of_body(&self) -> usize {
        let tenant = self.shared().map_or(0, |shared| shared.key.body());
        self.key().body().max(tenant).max(self.cost_by_body())
    }
}

impl Limiter {
    /// What is to be done with the request's body.
    pub(crate) fn look_at_body(&self, head: &Parts) -> Look {
        if !self.rules().any_reads_bodies() {
            return Look::Leave;
        }
        if let Err(listed) = self.screen(head) {
            return Look::Listed(listed);
        }
        match self.body_to_read(head) {
            0 => Look::Leave,
            most => Look::Read(most),
        }
    }

    /// How much of the request's body the rules may look at; zero where none of them does.
    fn body_to_read(&self, head: &Parts) -> usize {
        self.rules().candidates(head).map(|rule| rule.body_to_read(head)).max().unwrap_or(0)
    }

    /// Whether a rule looks into the body, and nobody has read it. The lists have let the request go on to the rules.
    #[cold]
    pub(super) fn lacks_body(&self, head: &Parts) -> bool {
        if ReadBody::of(head).is_some() || self.body_to_read(head) == 0 {
            return false;
        }
        if !self.0.unread.refused.swap(true, Ordering::Relaxed) {
            tracing::error!(
                "requests get 500: a rule looks into bodies, and the layer does not read them; say \
                 RateLimitLayer::new(limiter).read_bodies()"
            );
        }
        true
    }

    /// The service is to get the body once.
    #[inline]
    pub(crate) fn forget_body(&self, head: &mut Parts) {
        if self.rules().any_reads_bodies() {
            head.extensions.remove::<ReadBody>();
        }
    }

    /// Says so when an application starts, since a layer cannot fail.
    pub(crate) fn warn_of_unread_bodies(&self) {
        let mut held = None;
        let now = self.now(&mut held);
        if now.rules().any_reads_bodies() && !self.0.unread.warned.swap(true, Ordering::Relaxed) {
            let rule = now.rules().iter().find(|rule| rule.reads_bodies()).map(CheckedRule::name);
            tracing::warn!(
                rule,
                "the rule looks into bodies, and this layer does not read them: requests that it applies to will get 500; say \
                 RateLimitLayer::new(limiter).read_bodies()"
            );
        }
    }
}
