//! What came of a request: whether it may go on, and how each rule stands.

mod applied;
mod standing;

use std::{fmt, slice, sync::Arc, time::Duration};

pub(crate) use applied::Applied;
pub use standing::Standing;

use self::{applied::NEVER, standing::tightest};
use crate::{
    error::StoreError,
    limiter::{Handle, Permit, Rules},
    lists::Listed,
};

/// One decision over every rule that applied to a request.
///
/// In axum handlers it is an extractor; elsewhere it stands in the request's extensions, or comes from
/// [`Limiter::acquire`](crate::Limiter::acquire).
#[derive(Clone)]
#[must_use]
pub struct Decision {
    rules: Arc<Handle>,
    /// The rule that applied, where it was one: the most common decision is plain numbers, made and handed on without an
    /// allocation.
    one: Option<Applied>,
    /// What other decisions have.
    more: Option<Arc<More>>,
}

#[derive(Clone, Default)]
struct More {
    /// The rules that applied, where they were several; in the order of the rules.
    applied: Box<[Applied]>,
    /// Why the store gave no answer.
    failure: Option<StoreError>,
    /// Whether a rule refuses what the store gave no answer to.
    refused: bool,
    /// The decision of a limiter further out.
    outer: Option<Decision>,
    /// The places that the request holds.
    permit: Option<Permit>,
    /// The list that the request is on.
    listed: Option<Listed>,
    /// The bans that refuse the request.
    bans: Box<[Banned]>,
}

/// A ban that refuses a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Banned {
    /// Whose ban it is.
    pub(crate) rule: u16,
    /// How long it lasts from now, in microseconds.
    pub(crate) micros: u64,
}

impl Decision {
    /// Of the rules that applied, in their order.
    #[inline]
    pub(crate) fn new(rules: Arc<Handle>, mut applied: impl ExactSizeIterator<Item = Applied>) -> Decision {
        if applied.len() > 1 {
            return Decision::of_many(rules, applied.collect());
        }
        Decision { rules, one: applied.next(), more: None }
    }

    #[inline]
    pub(crate) fn one(rules: Arc<Handle>, applied: Applied) -> Decision {
        Decision { rules, one: Some(applied), more: None }
    }

    fn of_many(rules: Arc<Handle>, applied: Box<[Applied]>) -> Decision {
        Decision { rules, one: None, more: Some(Arc::new(More { applied, ..More::default() })) }
    }

    pub(crate) fn failed(rules: Arc<Handle>, error: StoreError, applied: Box<[Applied]>, refused: bool) -> Decision {
        let more = More { applied, failure: Some(error), refused, ..More::default() };
        Decision { rules, one: None, more: Some(Arc::new(more)) }
    }

    /// Over who is on a list.
    pub(crate) fn listed_as(rules: Arc<Handle>, listed: Listed) -> Decision {
        let more = More { refused: listed == Listed::Denied, listed: Some(listed), ..More::default() };
        Decision { rules, one: None, more: Some(Arc::new(more)) }
    }

    #[inline]
    pub(crate) fn rules(&self) -> &Rules {
        &self.rules
    }

    /// This decision or one further out, if a limiter of these rules made it.
    pub(crate) fn of(&self, rules: &Rules) -> Option<&Decision> {
        if self.rules.is_of(rules) {
            return Some(self);
        }
        self.more.as_ref()?.outer.as_ref()?.of(rules)
    }

    /// Notes the decision of a limiter further out.
    pub(crate) fn within(mut self, outer: Option<Decision>) -> Decision {
        Arc::make_mut(self.more.get_or_insert_default()).outer = outer;
        self
    }

    /// Holds on to places under concurrency rules.
    pub(crate) fn holding(mut self, permit: Permit) -> Decision {
        Arc::make_mut(self.more.get_or_insert_default()).permit = Some(permit);
        self
    }

    /// Notes that the request is refused for these.
    pub(crate) fn banned(mut self, bans: Vec<Banned>) -> Decision {
        if !bans.is_empty() {
            Arc::make_mut(self.more.get_or_insert_default()).bans = bans.into();
        }
        self
    }

    /// Whether a [ban](crate::Rule::ban) refused the request. Its rules may admit it all the same, or refuse it too.
    #[inline]
    pub fn is_banned(&self) -> bool {
        !self.banned_by().is_empty()
    }

    /// The rules whose bans refused the request, and how long these last from now.
    pub fn bans(&self) -> impl Iterator<Item = (&str, Duration)> + '_ {
        let named = |banned: &Banned| Some((self.rules.get(banned.rule)?.name(), Duration::from_micros(banned.micros)));
        self.banned_by().iter().filter_map(named)
    }

    #[inline]
    pub(crate) fn banned_by(&self) -> &[Banned] {
        self.more.as_ref().map_or(&[], |more| &more.bans)
    }

    /// The places that the request holds under [concurrency](crate::Rule::concurrency) rules, if it holds any. This decision
    /// and its clones hold them too; a permit is for what outlives them.
    pub fn permit(&self) -> Option<Permit> {
        self.more.as_ref()?.permit.clone()
    }

    #[inline]
    pub(crate) fn applied(&self) -> &[Applied] {
        match &self.one {
            Some(one) => slice::from_ref(one),
            None => self.more.as_ref().map_or(&[], |more| &more.applied),
        }
    }

    /// Whether the request may go on: no rule refused it, nor a list. When the store gave no answer, this is as the rules
    /// [say](crate::OnFailure); see [`failure`](Decision::failure).
    #[inline]
    pub fn is_allowed(&self) -> bool {
        !self.is_refused()
    }

    /// Whether a rule refused the request, its ban, or a list. Nothing was spent then, in any rule.
    #[inline]
    pub fn is_refused(&self) -> bool {
        self.is_over_quota() || self.is_refused_unjudged() || self.is_banned()
    }

    /// Whether a [list](crate::Lists) decided over the request, and which. No rule was asked then, so there are no standings.
    pub fn listed(&self) -> Option<Listed> {
        self.more.as_ref()?.listed
    }

    /// Whether a quota refused the request, and not only a rule that refuses what the store gave no answer to.
    #[inline]
    pub(crate) fn is_over_quota(&self) -> bool {
        self.applied().iter().any(Applied::is_refused)
    }

    /// Whether a [shadow](crate::Rule::shadow) rule would have refused the request, were it enforced: which ones, their
    /// [standings](Standing::would_refuse) say. The request may be refused all the same, by other rules.
    #[inline]
    pub fn would_refuse(&self) -> bool {
        self.applied().iter().any(Applied::would_refuse)
    }

    /// Why the store gave no answer, if it gave none. Rules that counted in this process instead have standings all the same.
    pub fn failure(&self) -> Option<&StoreError> {
        self.more.as_ref()?.failure.as_ref()
    }

    /// How long a refused request must wait: until then it is refused again, from then on it fits if nobody else comes
    /// first. `None` when it was not refused, can never fit, is on a deny list, or was refused because the store gave no answer.
    pub fn retry_after(&self) -> Option<Duration> {
        if self.can_never_fit() {
            return None;
        }
        let bans = self.banned_by().iter().map(|banned| Duration::from_micros(banned.micros));
        let refused = self.standings().filter(Standing::is_refused);
        refused.filter_map(|standing| standing.retry_after()).chain(bans).max()
    }

    /// How long an admitted request waits until its turn comes: the longest of the [queues](crate::Rule::queue) it is in, `None`
    /// when it may run at once. The layer and [`acquire_when_ready`](crate::Limiter::acquire_when_ready) have waited it.
    pub fn delay(&self) -> Option<Duration> {
        if self.is_refused() {
            return None;
        }
        self.applied().iter().filter_map(Applied::turn).max().map(Duration::from_micros)
    }

    /// The same when its turn has come: by so much is everything nearer that comes back. What remains is as it was, since nobody
    /// knows who has come meanwhile.
    pub(crate) fn after_turn(mut self) -> Decision {
        let Some(delay) = self.delay() else { return self };
        let waited = crate::limit::micros(delay);
        let pass = |applied: &mut Applied| applied.reset_after = applied.reset_after.saturating_sub(waited);
        self.one.iter_mut().for_each(pass);
        if let Some(more) = &mut self.more {
            Arc::make_mut(more).applied.iter_mut().for_each(pass);
        }
        self
    }

    /// Whether a rule refused what the store gave no answer to.
    #[inline]
    pub(crate) fn is_refused_unjudged(&self) -> bool {
        self.more.as_ref().is_some_and(|more| more.refused)
    }

    /// Whether a rule refused a cost above its capacity, which no waiting helps.
    pub fn can_never_fit(&self) -> bool {
        self.applied().iter().any(|line| line.wait == NEVER && line.is_refused())
    }

    /// How each rule that applied stands, in the order of the rules; [shadows](Standing::is_shadow) too.
    pub fn standings(&self) -> impl Iterator<Item = Standing<'_>> + '_ {
        self.applied().iter().filter_map(|applied| {
            let rule = self.rules.get(applied.rule())?;
            let (limit, mut verdict) = (rule.limit(), applied.verdict());
            let kept = if applied.is_critical() { 0 } else { limit.reserved() };
            verdict.remaining = verdict.remaining.saturating_sub(kept);
            Some(Standing {
                index: applied.rule(),
                protects_service: rule.protects_service(),
                name: rule.name(),
                limit,
                kept,
                cost: applied.cost,
                shadow: applied.is_shadow(),
                verdict,
            })
        })
    }

    /// How the rule of this name stands, if it applied.
    pub fn standing(&self, rule: &str) -> Option<Standing<'_>> {
        self.standings().find(|standing| standing.name == rule)
    }

    /// The rule nearest to refusing, by the share of its capacity that remains; of a refused request, the one that must
    /// wait longest. Not a [shadow](Standing::is_shadow), which never refuses.
    pub fn tightest(&self) -> Option<Standing<'_>> {
        tightest(self.standings())
    }

    /// The same among the quotas of the caller.
    pub(crate) fn tightest_quota(&self) -> Option<Standing<'_>> {
        tightest(self.standings().filter(|standing| !standing.protects_service))
    }
}

impl fmt::Debug for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Decision");
        match self.failure() {
            Some(failure) => debug.field("failure", failure),
            None => debug.field("allowed", &self.is_allowed()),
        };
        if let Some(listed) = self.listed() {
            debug.field("listed", &listed);
        }
        if self.is_banned() {
            debug.field("banned", &self.banned_by());
        }
        for standing in self.standings() {
            debug.field(standing.name, &standing.verdict);
        }
        debug.finish()
    }
}

#[cfg(feature = "axum")]
impl<S: Sync> axum::extract::FromRequestParts<S> for Decision {
    type Rejection = (http::StatusCode, &'static str);

    async fn from_request_parts(parts: &mut http::request::Parts, _: &S) -> Result<Self, Self::Rejection> {
        parts.extensions.get::<Decision>().cloned().ok_or((
            http::StatusCode::INTERNAL_SERVER_ERROR,
            "no Decision in this request: put a RateLimitLayer around the route that extracts it",
        ))
    }
}
