use std::{cmp::Ordering, time::Duration};

use crate::{
    limit::Limit,
    store::{Verdict, Wait},
};

/// When to look again for a place that comes back when somebody is done.
const SOON: Duration = Duration::from_secs(1);

/// How one rule stands after a decision.
#[derive(Clone, Copy, Debug)]
pub struct Standing<'a> {
    pub(super) index: u16,
    pub(super) protects_service: bool,
    pub(super) name: &'a str,
    pub(super) limit: &'a Limit,
    /// Units of the limit that the request may not use.
    pub(super) kept: u64,
    pub(super) cost: u64,
    pub(super) shadow: bool,
    pub(super) verdict: Verdict,
}

impl<'a> Standing<'a> {
    pub(crate) fn index(&self) -> u16 {
        self.index
    }

    /// The rule's name.
    pub fn rule(&self) -> &'a str {
        self.name
    }

    /// The rule's limit.
    pub fn limit(&self) -> &'a Limit {
        self.limit
    }

    /// What the request cost under this rule.
    pub fn cost(&self) -> u64 {
        self.cost
    }

    /// The units that the request could use of an untouched limit: its capacity, less what is
    /// [reserved](crate::Rule::reserve) for others.
    pub fn capacity(&self) -> u64 {
        self.limit.quota().capacity().saturating_sub(self.kept)
    }

    /// Units of the limit that the request may not use.
    pub(crate) fn kept(&self) -> u64 {
        self.kept
    }

    /// Whether the rule [protects the service](crate::Rule::protects_service), and is no quota of its caller's.
    pub fn protects_service(&self) -> bool {
        self.protects_service
    }

    /// Units left for a request of its kind: after the charge if the request was allowed and the rule had room for it, otherwise as
    /// they are.
    pub fn remaining(&self) -> u64 {
        self.verdict.remaining
    }

    /// Until the limit is as good as untouched; of a sliding log, until its oldest entry leaves. Each algorithm's
    /// contract is in the [guide](crate::guide::algorithms). Under a [concurrency](crate::Rule::concurrency) rule, the time of a
    /// lease while any place is taken.
    pub fn reset_after(&self) -> Duration {
        Duration::from_micros(self.verdict.reset_after)
    }

    /// Whether this rule refused the request. Never of a [shadow](Standing::is_shadow).
    pub fn is_refused(&self) -> bool {
        !self.verdict.wait.fits() && !self.shadow
    }

    /// Whether the rule is only watched, for the key of this request: a [shadow](crate::Rule::shadow) rule, one whose
    /// [share](crate::Rule::roll_out) of keys does not reach this one, or any while
    /// [all are](crate::Limiter::set_shadow).
    pub fn is_shadow(&self) -> bool {
        self.shadow
    }

    /// Whether the rule would have refused the request, were it not a [shadow](Standing::is_shadow). It was charged nothing under it.
    pub fn would_refuse(&self) -> bool {
        !self.verdict.wait.fits() && self.shadow
    }

    /// How long the request must wait for this rule; of a shadow, would have to. `None` when it fits, or never will.
    ///
    /// Under a [concurrency](crate::Rule::concurrency) rule nobody knows: a place is free when somebody is done. There it is a
    /// second, or less if a lease expires before that.
    pub fn retry_after(&self) -> Option<Duration> {
        match self.verdict.wait {
            Wait::Micros(micros) if self.limit.lease().is_some() => Some(Duration::from_micros(micros).min(SOON)),
            Wait::Micros(micros) => Some(Duration::from_micros(micros)),
            Wait::None | Wait::Turn(_) | Wait::Never => None,
        }
    }

    /// How long the request waits for its turn in this rule's [queue](crate::Rule::queue); where it was looked at only, or another
    /// rule refused it, how long it would. `None` when it need not, or the rule has no queue.
    pub fn delay(&self) -> Option<Duration> {
        match self.verdict.wait {
            Wait::Turn(micros) => Some(Duration::from_micros(micros)),
            _ => None,
        }
    }

    /// Whether the cost is above the capacity, so that it can never fit.
    pub fn can_never_fit(&self) -> bool {
        self.verdict.wait == Wait::Never
    }
}

/// The one nearest to refusing.
pub(super) fn tightest<'a>(standings: impl Iterator<Item = Standing<'a>>) -> Option<Standing<'a>> {
    let wait = |standing: &Standing<'_>| match standing.verdict.wait {
        Wait::None | Wait::Turn(_) => 0,
        Wait::Micros(micros) => micros,
        Wait::Never => u64::MAX,
    };
    standings.filter(|standing| !standing.shadow).reduce(|one, other| {
        let share =
            |standing: &Standing<'_>, of: &Standing<'_>| u128::from(standing.remaining()) * u128::from(of.capacity());
        // Whoever waits longer; of those that do not wait, whoever has less.
        let tighter = match wait(&other).cmp(&wait(&one)) {
            Ordering::Equal if wait(&one) > 0 => true,
            Ordering::Equal => share(&other, &one) < share(&one, &other),
            waits => waits == Ordering::Greater,
        };
        if tighter { other } else { one }
    })
}
