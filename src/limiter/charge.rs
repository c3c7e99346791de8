use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use http::response;

use super::{Limiter, Pick, pick::Picks, rules::CheckedRule};
use crate::{
    decision::Decision,
    store::{Change, Line, OwnedLine, Purpose, Verdict},
};

/// More than a unit for each byte of four gigabytes is a mistake.
pub(super) const MOST_UNITS: u64 = 1 << 32;

/// What a request was charged, to be settled when its true cost is known.
///
/// In axum handlers it is an extractor, wherever a rule has a cost by closure ([`Rule::cost_by`](crate::Rule::cost_by),
/// [`Rule::cost_by_body`](crate::Rule::cost_by_body)) or says [`with_charge`](crate::Rule::with_charge); elsewhere it stands in the
/// request's extensions, or comes from [`Limiter::charge`].
///
/// ```
/// use sluicegate::Charge;
///
/// async fn complete(charge: Charge, prompt: String) -> String {
///     let (answer, tokens) = ask_the_model(prompt).await;
///     charge.settle(tokens);          // the rule's cost_by had estimated it
///     answer
/// }
/// # async fn ask_the_model(prompt: String) -> (String, u64) { (prompt, 1) }
/// ```
///
/// Less than was charged is given back; more is owed: a token bucket falls below empty and later requests wait until it has refilled,
/// other limits are charged what they have left. Nobody waits for it: settlements go to the store in batches, soon, and once, whatever
/// becomes of the request. A charge that is never settled stands as it is.
///
/// Clones settle the same charge. Under nested limiters it is that of all of them, and the name of a rule means the innermost that has it. While the store [gives no answer](Decision::failure) nothing is given back.
#[derive(Clone)]
pub struct Charge(Arc<Inner>, Option<Box<Charge>>);

struct Inner {
    limiter: Limiter,
    decision: Decision,
    reserved: Box<[Reserved]>,
}

/// The charge under one rule.
struct Reserved {
    pick: Pick,
    charged: Verdict,
    /// Whether [`Charge::settle`] means it too.
    by_handler: bool,
    settled: AtomicBool,
}

impl Charge {
    /// [`Charge::settle`] means the rules that `by_handler` is true for.
    pub(super) fn new(
        limiter: &Limiter,
        decision: &Decision,
        picks: impl Iterator<Item = Pick>,
        by_handler: impl Fn(&CheckedRule) -> bool,
    ) -> Charge {
        let rules = limiter.rules();
        let reserved = picks.filter_map(|pick| {
            let applied = decision.applied().iter().find(|applied| applied.rule() == pick.rule)?;
            let rule = rules.get(pick.rule)?;
            // A place is free when its request ends, whatever it cost; a slot in a queue is over; and what a shadow rule would have
            // refused was not charged: nothing is left to settle.
            let ends = rule.limit().lease().is_some() || rule.limit().queue().is_some();
            let settled = AtomicBool::new(ends || applied.would_refuse());
            let by_handler = by_handler(rule);
            Some(Reserved { pick, charged: applied.verdict(), by_handler, settled })
        });
        let reserved = reserved.collect();
        Charge(Arc::new(Inner { limiter: limiter.clone(), decision: decision.clone(), reserved }), None)
    }

    /// Notes the charge of a limiter further out, which handlers settle with this one.
    pub(crate) fn within(mut self, outer: Option<Charge>) -> Charge {
        self.1 = outer.map(Box::new);
        self
    }

    fn outer(&self) -> Option<&Charge> {
        self.1.as_deref()
    }

    /// The decision that charged it. A refused request was charged nothing, and settling it changes nothing.
    pub fn decision(&self) -> &Decision {
        &self.0.decision
    }

    /// Says what the request really cost, under every rule whose cost is worked out for each request. Others count requests, and are
    /// left alone; [`settle_rule`](Charge::settle_rule) settles those too.
    ///
    /// `false`: it was settled before, or nothing was charged, and this changes nothing. More than 2^32 units count as so many.
    pub fn settle(&self, units: u64) -> bool {
        let mut any = false;
        for reserved in self.0.reserved.iter().filter(|reserved| reserved.by_handler) {
            any |= self.settle_one(reserved, units);
        }
        any | self.outer().is_some_and(|outer| outer.settle(units))
    }

    /// Says what the request really cost under the rule of this name.
    ///
    /// `false`: the rule did not apply, would have refused as a [shadow](crate::Rule::shadow), or was settled before, and this changes
    /// nothing.
    pub fn settle_rule(&self, rule: &str, units: u64) -> bool {
        match self.reserved(rule) {
            Some(reserved) => self.settle_one(reserved, units),
            None => self.outer().is_some_and(|outer| outer.settle_rule(rule, units)),
        }
    }

    /// Charges so many units more under every rule that the request was counted under, as a penalty: what a token bucket lacks it owes,
    /// others are charged what they have left. Said twice, it is charged twice, and nothing of it is given back when the cost is
    /// [settled](Charge::settle). More than 2^32 units count as so many.
    ///
    /// That also means rules that others are counted under too, like one for all: name the rule then.
    ///
    /// ```
    /// use sluicegate::Charge;
    ///
    /// async fn search(charge: Charge, query: String) -> &'static str {
    ///     if query.contains("' OR 1=1") {
    ///         charge.penalize_rule("per-ip", 500);
    ///     }
    ///     "nothing found"
    /// }
    /// ```
    pub fn penalize(&self, units: u64) {
        self.0.reserved.iter().for_each(|reserved| self.0.limiter.penalize_one(&reserved.pick, units));
        if let Some(outer) = self.outer() {
            outer.penalize(units);
        }
    }

    /// The same under the rule of this name alone. `false`: it did not apply.
    pub fn penalize_rule(&self, rule: &str, units: u64) -> bool {
        let Some(reserved) = self.reserved(rule) else {
            return self.outer().is_some_and(|outer| outer.penalize_rule(rule, units));
        };
        self.0.limiter.penalize_one(&reserved.pick, units);
        true
    }

    fn reserved(&self, rule: &str) -> Option<&Reserved> {
        let rules = self.0.limiter.rules();
        let named = |reserved: &&Reserved| rules.get(reserved.pick.rule).is_some_and(|known| known.name() == rule);
        self.0.reserved.iter().find(named)
    }

    /// Settles what rules know of the cost by the response. Answers whether a rule wants to know how many bytes are streamed.
    pub(crate) fn respond(&self, head: &response::Parts) -> bool {
        let mut by_bytes = false;
        for reserved in &self.0.reserved {
            let Some(rule) = self.0.limiter.rules().get(reserved.pick.rule) else { continue };
            self.0.limiter.penalize_one(&reserved.pick, rule.settle().penalty(head));
            if rule.ban().is_some_and(|ban| ban.is_bad(head)) {
                self.0.limiter.strike_one(&reserved.pick);
            }
            match rule.settle().by_response(head) {
                Some(units) => {
                    self.settle_one(reserved, units);
                }
                None => by_bytes |= rule.settle().wants_bytes(),
            }
        }
        by_bytes
    }

    /// The response has streamed so many bytes, and no more will come.
    pub(crate) fn streamed(&self, bytes: u64) {
        for reserved in &self.0.reserved {
            let rule = self.0.limiter.rules().get(reserved.pick.rule);
            if let Some(units) = rule.and_then(|rule| rule.settle().by_bytes(bytes)) {
                self.settle_one(reserved, units);
            }
        }
    }

    fn settle_one(&self, reserved: &Reserved, units: u64) -> bool {
        let decision = &self.0.decision;
        if decision.is_refused() || reserved.settled.swap(true, Ordering::Relaxed) {
            return false;
        }
        let (units, charged) = (units.min(MOST_UNITS), reserved.pick.cost);
        let (change, units) = match charged.checked_sub(units) {
            Some(0) => return true,
            // What was counted elsewhere is not here to be given back.
            Some(_) if decision.failure().is_some() => return true,
            Some(less) => (Change::Give, less),
            None => (Change::Owe, units - charged),
        };
        if let Some(line) = self.0.limiter.line(&reserved.pick) {
            let line = OwnedLine::of(&Line { cost: units, ..line.charged(&reserved.charged) });
            self.0.limiter.settle(line, change);
        }
        true
    }
}

impl Limiter {
    /// Like [`acquire`](Limiter::acquire), with a charge that is settled later: for jobs whose cost is known when they are done.
    ///
    /// ```
    /// use sluicegate::{Call, Limiter, MemoryStore, Quota, Rule, key};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), sluicegate::BuildError> {
    /// let limiter = Limiter::builder(MemoryStore::new())
    ///     .rule(Rule::token_bucket("rows", Quota::per_second(50).burst(1_000)).key(key::given()))
    ///     .build()?;
    /// let charge = limiter.charge(Call::new().key("rows", "tenant-7").cost(200)).await;
    /// assert!(charge.decision().is_allowed());
    /// charge.settle(120);
    /// assert_eq!(limiter.peek([("rows", "tenant-7")]).await.standing("rows").map(|rule| rule.remaining()), Some(880));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn charge<'a>(&self, call: impl Into<super::Call<'a>>) -> Charge {
        let (mut call, mut held) = (call.into(), None);
        let now = self.now(&mut held);
        let decision = now.ask_resolved(&mut call, Purpose::Spend).await;
        let picks: Picks = call.picks().cloned().collect();
        Charge::new(now, &decision, picks.into_iter(), |_| true)
    }

    /// The charge of a request, where a rule may settle one.
    #[inline]
    pub(crate) fn charge_of(&self, decision: &Decision, picks: Picks) -> Option<Charge> {
        if !self.rules().any_settles() || decision.is_refused() {
            return None;
        }
        Some(Charge::new(self, decision, picks.into_iter(), CheckedRule::has_own_cost))
    }
}

impl fmt::Debug for Charge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Charge").field(&self.0.decision).finish()
    }
}

#[cfg(feature = "axum")]
impl<S: Sync> axum::extract::FromRequestParts<S> for Charge {
    type Rejection = (http::StatusCode, &'static str);

    async fn from_request_parts(parts: &mut http::request::Parts, _: &S) -> Result<Self, Self::Rejection> {
        parts.extensions.get::<Charge>().cloned().ok_or((
            http::StatusCode::INTERNAL_SERVER_ERROR,
            "no Charge in this request: put a RateLimitLayer around the route, with a rule that has a cost_by(..) or says with_charge()",
        ))
    }
}
