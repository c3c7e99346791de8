//! An ask whose lines lie in several slots: a share for each, all at once, and one answer of theirs.

use std::sync::Arc;

use super::{
    Cluster,
    call::{Fault, Span, Work},
    give_back::Kept,
    join::{Joined, join},
    slot,
};
use crate::{
    error::{StoreError, StoreErrorKind},
    store::{Answer, Ask, Line, Partial, Purpose, Verdict},
};

/// Lines in one slot, and their places in the ask.
struct Share<'a> {
    slot: u16,
    places: Vec<usize>,
    lines: Vec<Line<'a>>,
}

impl<'a> Share<'a> {
    fn by_slot(lines: &[Line<'a>]) -> Vec<Share<'a>> {
        let mut shares: Vec<Share<'a>> = Vec::new();
        for (place, line) in lines.iter().enumerate() {
            let slot = slot::of(line.name());
            match shares.iter_mut().find(|share| share.slot == slot) {
                Some(share) => {
                    share.places.push(place);
                    share.lines.push(*line);
                }
                None => shares.push(Share { slot, places: vec![place], lines: vec![*line] }),
            }
        }
        shares
    }

    /// Line by line, and without tenants: their counts are keys too. The limit holds meanwhile, and is not shared fairly.
    fn by_line(self) -> impl Iterator<Item = Share<'a>> {
        let slot = self.slot;
        self.places.into_iter().zip(self.lines).map(move |(place, line)| Share {
            slot,
            places: vec![place],
            lines: vec![Line { tenant: None, ..line }],
        })
    }
}

type Done<'a> = (Share<'a>, Result<Answer, StoreError>);

impl Cluster {
    /// Every share at its node, in parallel. One that a migration has torn apart is asked for line by line.
    async fn all<'a>(self: &Arc<Cluster>, work: Work<'a>, torn: bool, span: Span) -> Vec<Done<'a>> {
        let mut pending = Share::by_slot(work.lines());
        if torn {
            pending = pending.into_iter().flat_map(Share::by_line).collect();
        }
        let mut done = Vec::with_capacity(pending.len());
        while !pending.is_empty() {
            let calls = pending.iter().map(|share| -> Joined<'_, Result<Answer, Fault>> {
                let work = work.of(&share.lines);
                Box::pin(async move { self.call(share.slot, &work, span).await })
            });
            let results = join(calls).await;
            let mut torn = Vec::new();
            for (share, result) in pending.into_iter().zip(results) {
                match result {
                    Ok(answer) => done.push((share, Ok(answer))),
                    Err(Fault::Failed(error)) => done.push((share, Err(error))),
                    Err(Fault::Torn) => torn.extend(share.by_line()),
                }
            }
            pending = torn;
        }
        done
    }

    pub(super) async fn forget_apart(self: &Arc<Cluster>, lines: &[Line<'_>], span: Span) -> Result<(), StoreError> {
        let done = self.all(Work::Forget(lines), false, span).await;
        done.into_iter().try_for_each(|(_, result)| result.map(|_| ()))
    }

    /// What was granted is given back when another share refuses. Until then it counts, so others may be refused meanwhile.
    pub(super) async fn decide_apart(
        self: &Arc<Cluster>,
        ask: &Ask<'_>,
        torn: bool,
        span: Span,
    ) -> Result<Answer, StoreError> {
        let done = self.all(Work::Decide(*ask), torn, span).await;
        let admits = |share: &Share<'_>, answer: &Answer| Ask { lines: &share.lines, ..*ask }.admits(answer);
        let refused = done.iter().any(|(share, result)| result.as_ref().is_ok_and(|answer| !admits(share, answer)));
        // Nobody around this store falls back, so a rule that refuses what cannot be judged has refused.
        let refuses = |share: &Share<'_>| share.lines.iter().any(Line::refuses_unjudged);
        let refused =
            refused || self.wiring.bare && done.iter().any(|(share, result)| result.is_err() && refuses(share));
        let mut verdicts: Vec<Option<Verdict>> = vec![None; ask.lines.len()];
        let mut errors: Vec<Option<StoreError>> = vec![None; ask.lines.len()];
        let mut granted = Vec::new();
        for (share, result) in done {
            let answer = match result {
                Ok(answer) => answer,
                Err(error) => {
                    for place in share.places {
                        if let Some(own) = errors.get_mut(place) {
                            *own = Some(error.clone());
                        }
                    }
                    continue;
                }
            };
            let granted_here = refused && ask.purpose == Purpose::Spend && admits(&share, &answer);
            for ((place, line), verdict) in share.places.iter().zip(&share.lines).zip(answer.verdicts()) {
                // A shadow that does not fit was not charged.
                let returned = granted_here && verdict.wait.fits();
                if returned && line.cost > 0 {
                    granted.push(Kept::new(share.slot, &line.charged(verdict)));
                }
                if let Some(known) = verdicts.get_mut(*place) {
                    *known = Some(if returned { before(line, verdict) } else { *verdict });
                }
            }
        }
        if !granted.is_empty() {
            self.give_back(granted, ask.time).await;
        }
        let Some(error) = worst(&errors) else {
            let mut answer = Answer::default();
            verdicts.into_iter().flatten().for_each(|verdict| answer.push(verdict));
            return Ok(answer);
        };
        if errors.iter().all(|own| own.as_ref() == Some(&error)) {
            return Err(error);
        }
        let charged = matches!(ask.purpose, Purpose::Spend | Purpose::Take(_) | Purpose::Owe(_)) && !refused;
        Err(error.with(Partial::new(verdicts).failing(errors).charged(charged)))
    }
}

/// How a line stood before its cost was charged.
fn before(line: &Line<'_>, after: &Verdict) -> Verdict {
    let capacity = line.limit.quota().capacity();
    let remaining = after.remaining.saturating_add(line.cost).min(capacity);
    // Of one that was touched before, the time to full was shorter than this by an amount that the answer does not tell.
    let reset_after = if remaining == capacity { 0 } else { after.reset_after };
    Verdict { remaining, reset_after, ..*after }
}

/// The failure to tell of where one must stand for all: whether anything may have been charged matters most, then what needs an
/// operator.
fn worst(errors: &[Option<StoreError>]) -> Option<StoreError> {
    let rank =
        |error: &StoreError| (error.may_have_charged(), !error.is_transient(), error.kind() != StoreErrorKind::Timeout);
    errors.iter().flatten().max_by_key(|error| rank(error)).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Quota, Rule, key,
        store::{Scope, Wait},
    };

    #[test]
    fn a_line_stood_higher_by_its_cost_before_and_full_is_full() {
        let (scope, rule) = (Scope::new("n", "r"), Rule::gcra("r", Quota::per_second(10)).key(key::given()));
        let limit = rule.check().expect("sound");
        let stood = |cost, remaining| {
            let after = Verdict { wait: Wait::None, remaining, reset_after: 500, receipt: 7, tenant_receipt: 0 };
            let before = before(&Line::new(&scope, b"k", &limit, cost), &after);
            assert_eq!((before.wait, before.receipt), (Wait::None, 7));
            (before.remaining, before.reset_after)
        };
        assert_eq!(stood(3, 5), (8, 500));
        assert_eq!(stood(3, 7), (10, 0));
        // A limit that was lowered meanwhile.
        assert_eq!(stood(3, 9), (10, 0));
        assert_eq!(stood(0, 9), (9, 500));
    }

    #[test]
    fn what_may_have_been_charged_is_told_first_and_then_what_needs_an_operator() {
        let new = |kind| StoreError::new(kind, "");
        // The worst first.
        let ranked = [
            new(StoreErrorKind::Garbled),
            new(StoreErrorKind::Unavailable),
            new(StoreErrorKind::Timeout),
            new(StoreErrorKind::Permanent),
            new(StoreErrorKind::Refused),
            new(StoreErrorKind::Timeout).uncharged(),
        ];
        for (place, error) in ranked.iter().enumerate() {
            for other in &ranked[place..] {
                for pair in [[error, other], [other, error]] {
                    let errors = pair.map(|error| Some(error.clone()));
                    assert_eq!(worst(&[&errors[..], &[None]].concat()).as_ref(), Some(error), "{pair:?}");
                }
            }
        }
        assert_eq!(worst(&[None, None]), None);
    }
}
