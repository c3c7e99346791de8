//! What came of a request: whether it may go on, and how each rule stands.

use std::{cmp::Ordering, fmt, slice, sync::Arc, time::Duration};

use crate::{
    algorithm::Wait,
    error::StoreError,
    limit::Limit,
    limiter::{Handle, Permit, Pick, Rules},
    store::Verdict,
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

/// A rule that applied, and how it stands.
///
/// Whole words, read and written one by one: what is copied in other pieces than it was written in stalls the processor for
/// longer than all the rest of handing on a decision takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Applied {
    remaining: u64,
    cost: u64,
    reset_after: u64,
    /// The index of the rule, and flags above it.
    rule: u64,
    /// In microseconds; zero: none, [`NEVER`].
    wait: u64,
    receipt: u64,
}

const NEVER: u64 = u64::MAX;
/// Flags of a rule that applied: it is only watched; the request may use what it reserves.
const SHADOW: u64 = 1 << 16;
const CRITICAL: u64 = 1 << 17;
/// When to look again for a place that comes back when somebody is done.
const SOON: Duration = Duration::from_secs(1);

impl Applied {
    #[inline]
    pub(crate) fn new(pick: &Pick, verdict: &Verdict) -> Applied {
        let wait = match verdict.wait {
            Wait::None => 0,
            Wait::Micros(micros) => micros.clamp(1, NEVER - 1),
            Wait::Never => NEVER,
        };
        let Verdict { remaining, reset_after, receipt, .. } = *verdict;
        let flag = |is: bool, flag: u64| if is { flag } else { 0 };
        let rule = u64::from(pick.rule) | flag(pick.shadow, SHADOW) | flag(pick.critical, CRITICAL);
        Applied { remaining, cost: pick.cost, reset_after, rule, wait, receipt }
    }

    #[inline]
    pub(crate) fn rule(&self) -> u16 {
        // It was one.
        self.rule as u16
    }

    pub(crate) fn is_critical(&self) -> bool {
        self.rule & CRITICAL != 0
    }

    #[inline]
    pub(crate) fn is_shadow(&self) -> bool {
        self.rule & SHADOW != 0
    }

    #[inline]
    fn is_refused(&self) -> bool {
        self.wait != 0 && !self.is_shadow()
    }

    #[inline]
    pub(crate) fn would_refuse(&self) -> bool {
        self.wait != 0 && self.is_shadow()
    }

    fn verdict(&self) -> Verdict {
        let wait = match self.wait {
            0 => Wait::None,
            NEVER => Wait::Never,
            micros => Wait::Micros(micros),
        };
        Verdict { wait, remaining: self.remaining, reset_after: self.reset_after, receipt: self.receipt }
    }

    pub(crate) fn receipt(&self) -> u64 {
        self.receipt
    }
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
    pub fn is_banned(&self) -> bool {
        !self.banned_by().is_empty()
    }

    /// The rules whose bans refused the request, and how long these last from now.
    pub fn bans(&self) -> impl Iterator<Item = (&str, Duration)> + '_ {
        let named = |banned: &Banned| Some((self.rules.get(banned.rule)?.name(), Duration::from_micros(banned.micros)));
        self.banned_by().iter().filter_map(named)
    }

    pub(crate) fn banned_by(&self) -> &[Banned] {
        self.more.as_ref().map_or(&[], |more| &more.bans)
    }

    /// The places that the request holds under [concurrency](crate::Rule::concurrency) rules, if it holds any. This decision
    /// and its clones hold them too; a permit is for what outlives them.
    pub fn permit(&self) -> Option<Permit> {
        self.more.as_ref()?.permit.clone()
    }

    pub(crate) fn applied(&self) -> &[Applied] {
        match &self.one {
            Some(one) => slice::from_ref(one),
            None => self.more.as_ref().map_or(&[], |more| &more.applied),
        }
    }

    /// Whether the request may go on: no rule refused it. When the store gave no answer, this is as the rules
    /// [say](crate::OnFailure); see [`failure`](Decision::failure).
    pub fn is_allowed(&self) -> bool {
        !self.is_refused()
    }

    /// Whether a rule refused the request, or its ban. Nothing was spent then, in any rule.
    pub fn is_refused(&self) -> bool {
        self.is_over_quota() || self.more.as_ref().is_some_and(|more| more.refused || !more.bans.is_empty())
    }

    /// Whether a quota refused the request, and not only a rule that refuses what the store gave no answer to.
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
    /// first. `None` when it was not refused, or can never fit.
    pub fn retry_after(&self) -> Option<Duration> {
        if self.can_never_fit() {
            return None;
        }
        let bans = self.banned_by().iter().map(|banned| Duration::from_micros(banned.micros));
        let refused = self.standings().filter(Standing::is_refused);
        refused.filter_map(|standing| standing.retry_after()).chain(bans).max()
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

fn tightest<'a>(standings: impl Iterator<Item = Standing<'a>>) -> Option<Standing<'a>> {
    let wait = |standing: &Standing<'_>| match standing.verdict.wait {
        Wait::None => 0,
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

impl fmt::Debug for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Decision");
        match self.failure() {
            Some(failure) => debug.field("failure", failure),
            None => debug.field("allowed", &self.is_allowed()),
        };
        if self.is_banned() {
            debug.field("banned", &self.banned_by());
        }
        for standing in self.standings() {
            debug.field(standing.name, &standing.verdict);
        }
        debug.finish()
    }
}

/// How one rule stands after a decision.
#[derive(Clone, Copy, Debug)]
pub struct Standing<'a> {
    index: u16,
    protects_service: bool,
    name: &'a str,
    limit: &'a Limit,
    /// Units of the limit that the request may not use.
    kept: u64,
    cost: u64,
    shadow: bool,
    verdict: Verdict,
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
        self.verdict.wait != Wait::None && !self.shadow
    }

    /// Whether the rule is only watched, for the key of this request: a [shadow](crate::Rule::shadow) rule, one whose
    /// [share](crate::Rule::roll_out) of keys does not reach this one, or any while
    /// [all are](crate::Limiter::set_shadow).
    pub fn is_shadow(&self) -> bool {
        self.shadow
    }

    /// Whether the rule would have refused the request, were it not a [shadow](Standing::is_shadow). It was charged nothing under it.
    pub fn would_refuse(&self) -> bool {
        self.verdict.wait != Wait::None && self.shadow
    }

    /// How long the request must wait for this rule; of a shadow, would have to. `None` when it fits, or never will.
    ///
    /// Under a [concurrency](crate::Rule::concurrency) rule nobody knows: a place is free when somebody is done. There it is a
    /// second, or less if a lease expires before that.
    pub fn retry_after(&self) -> Option<Duration> {
        match self.verdict.wait {
            Wait::Micros(micros) if self.limit.lease().is_some() => Some(Duration::from_micros(micros).min(SOON)),
            Wait::Micros(micros) => Some(Duration::from_micros(micros)),
            Wait::None | Wait::Never => None,
        }
    }

    /// Whether the cost is above the capacity, so that it can never fit.
    pub fn can_never_fit(&self) -> bool {
        self.verdict.wait == Wait::Never
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
