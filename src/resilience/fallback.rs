//! The decision where the store made none, or only a part of it.

use std::sync::Arc;

use smallvec::SmallVec;
use tokio::time::Instant;

use super::{Shared, breakers::Gates, through};
use crate::{
    error::{StoreError, StoreErrorKind},
    limit::OnFailure,
    store::{Answer, Ask, Line, Partial, Purpose, Verdict},
};

/// How each line of an ask stands, as far as that is known.
type Verdicts = SmallVec<[Option<Verdict>; 4]>;

impl Shared {
    /// A refusal that saves asking the parts that are well: a rule whose part is held up refuses what it cannot judge, or its
    /// local count is used up.
    pub(super) fn refused_already(&self, ask: &Ask<'_>, gates: &Gates<'_>) -> Option<StoreError> {
        let mut verdicts: Verdicts = SmallVec::from_elem(None, ask.lines.len());
        let held_up = |place: usize| !gates.let_through(place);
        if self.refuses(ask, held_up) {
            return Some(open().with(Partial::new(verdicts.into_vec()).refusing(true)));
        }
        let fits = self.judge_here(ask, held_up, Purpose::Peek, &mut verdicts);
        (!fits).then(|| open().with(Partial::new(verdicts.into_vec())))
    }

    /// Makes the decision of what the store answered to the lines that were let through; `None`: it was not asked.
    pub(super) fn conclude(
        self: &Arc<Shared>,
        ask: &Ask<'_>,
        gates: Gates<'_>,
        outcome: Option<Result<Answer, StoreError>>,
    ) -> Result<Answer, StoreError> {
        let spend = ask.purpose == Purpose::Spend;
        let asked: SmallVec<[bool; 4]> = (0..ask.lines.len()).map(|place| gates.let_through(place)).collect();
        let whole = asked.iter().all(|asked| *asked);
        let mut verdicts: Verdicts = SmallVec::from_elem(None, ask.lines.len());
        let (mut charged, mut errors) = (false, Vec::new());
        let error = match outcome {
            Some(Ok(answer)) => {
                let heard = gates.report(|_| None, &self.observers);
                // A look-up may have been answered by a replica, and says nothing of who takes charges.
                if heard && ask.purpose != Purpose::Peek && !self.journal.is_empty() {
                    self.commit_missed(ask.time);
                }
                if whole {
                    return Ok(answer);
                }
                fill(&mut verdicts, &asked, answer.verdicts().iter().copied().map(Some));
                let lines: SmallVec<[Line<'_>; 4]> = pick(ask, |place| asked.get(place) == Some(&true)).collect();
                charged = spend && Ask { lines: &lines, ..*ask }.admits(&answer);
                open()
            }
            Some(Err(error)) => {
                if let Some(partial) = error.partial() {
                    fill(&mut verdicts, &asked, partial.verdicts().iter().copied());
                    charged = partial.is_charged();
                }
                if !whole || error.partial().is_some_and(|partial| !partial.errors().is_empty()) {
                    // The store was not asked about the others; that is their reason.
                    errors = vec![Some(open()); ask.lines.len()];
                    fill(&mut errors, &asked, (0..).map(|place| error.of_line(place).cloned()));
                }
                let own = |place| errors.get(place).map_or_else(|| error.of_line(place), Option::as_ref);
                gates.report(own, &self.observers);
                error
            }
            None => open(),
        };
        if !ask.purpose.decides() {
            return Err(error);
        }
        Err(self.fall_back(ask, error, verdicts, errors, charged))
    }

    /// Decides over the lines without a verdict. `errors`: why they have none, each for itself; `error`: why, if there are none
    /// there. `charged`: those with a verdict were charged.
    fn fall_back(
        self: &Arc<Shared>,
        ask: &Ask<'_>,
        error: StoreError,
        mut verdicts: Verdicts,
        errors: Vec<Option<StoreError>>,
        charged: bool,
    ) -> StoreError {
        let refused =
            |(line, verdict): (&Line<'_>, &Option<Verdict>)| verdict.is_some_and(|known| line.is_refused(&known));
        if ask.lines.iter().zip(&verdicts).any(refused) {
            return error.with(Partial::new(verdicts.into_vec()).failing(errors));
        }
        let answered: SmallVec<[bool; 4]> = verdicts.iter().map(Option::is_some).collect();
        let missing = |place: usize| answered.get(place) == Some(&false);
        let refuses = self.refuses(ask, missing);
        if refuses || !self.judge_here(ask, missing, ask.purpose, &mut verdicts) {
            if charged {
                let lines = ask.lines.iter().zip(&verdicts).zip(&answered).filter(|(_, answered)| **answered);
                let lines: SmallVec<[Line<'_>; 4]> = lines
                    .filter_map(|((line, verdict), _)| {
                        // A shadow that does not fit was not charged.
                        let verdict = verdict.filter(|verdict| verdict.wait.fits())?;
                        Some(line.charged(&verdict))
                    })
                    .collect();
                self.give_back(&lines, ask.time);
            }
            return error.with(Partial::new(verdicts.into_vec()).failing(errors).refusing(refuses));
        }
        if ask.purpose == Purpose::Spend {
            // What may have been charged is not charged once more, and leases are told of when they are renewed.
            let own = |place: usize| errors.get(place).and_then(Option::as_ref).unwrap_or(&error);
            let missed = |place: usize, line: &Line<'_>| {
                let fits = verdicts.get(place).copied().flatten().is_some_and(|verdict| verdict.wait.fits());
                let counts = line.on_failure == OnFailure::Local && line.limit.lease().is_none() && fits;
                counts && missing(place) && !own(place).may_have_charged()
            };
            let lines: SmallVec<[Line<'_>; 4]> =
                (0..).zip(ask.lines).filter(|(place, line)| missed(*place, line)).map(|(_, line)| *line).collect();
            if !lines.is_empty() {
                self.not_committed(self.journal.add(&lines));
            }
        }
        error.with(Partial::new(verdicts.into_vec()).failing(errors).charged(ask.purpose == Purpose::Spend))
    }

    /// Whether a rule refuses what it cannot judge.
    fn refuses(&self, ask: &Ask<'_>, concerns: impl Fn(usize) -> bool) -> bool {
        pick(ask, concerns).any(|line| line.refuses_unjudged())
    }

    /// Judges those of the lines that are to be counted here. Answers whether they fit.
    fn judge_here(
        &self,
        ask: &Ask<'_>,
        concerns: impl Fn(usize) -> bool,
        purpose: Purpose,
        verdicts: &mut Verdicts,
    ) -> bool {
        let here = |place: usize, line: &Line<'_>| concerns(place) && line.on_failure == OnFailure::Local;
        let places: SmallVec<[usize; 4]> =
            (0..).zip(ask.lines).filter(|(place, line)| here(*place, line)).map(|(place, _)| place).collect();
        if places.is_empty() {
            return true;
        }
        let lines: SmallVec<[Line<'_>; 4]> = places.iter().filter_map(|place| ask.lines.get(*place)).copied().collect();
        let judged = self.local.judge(&lines, purpose, ask.time);
        for (place, verdict) in places.iter().zip(&judged) {
            if let Some(known) = verdicts.get_mut(*place) {
                *known = Some(*verdict);
            }
        }
        !lines.iter().zip(&judged).any(|(line, verdict)| line.is_refused(verdict))
    }

    /// What a store that answers at once has failed to.
    #[cold]
    pub(super) fn failed_now(self: &Arc<Shared>, ask: &Ask<'_>, error: StoreError) -> Result<(), StoreError> {
        self.conclude(ask, self.breakers.open_gates(ask, &*self.store, Instant::now()), Some(Err(error))).map(|_| ())
    }

    /// Decides without waiting where that can be done, while not all is well: the breakers are open, or the store answers at
    /// once.
    #[cold]
    pub(super) fn decide_now(self: &Arc<Shared>, ask: &Ask<'_>, answer: &mut Answer) -> Option<Result<(), StoreError>> {
        if !ask.purpose.decides() {
            return None;
        }
        let gates = self.gates(ask);
        let asked = through(ask, &gates).count();
        if asked == 0 {
            return Some(self.conclude(ask, gates, None).map(|_| ()));
        }
        if asked < ask.lines.len() {
            return None;
        }
        match self.store.acquire_now(ask, answer)? {
            Ok(()) => Some(self.conclude(ask, gates, Some(Ok(answer.clone()))).map(|_| ())),
            Err(error) => Some(self.conclude(ask, gates, Some(Err(error))).map(|_| ())),
        }
    }
}

#[cold]
pub(super) fn open() -> StoreError {
    StoreError::new(StoreErrorKind::Open, "the store is not asked: its circuit breaker is open")
}

/// The lines at the places that the closure names.
fn pick<'a>(ask: &Ask<'a>, concerns: impl Fn(usize) -> bool) -> impl Iterator<Item = Line<'a>> {
    (0..).zip(ask.lines).filter(move |(place, _)| concerns(*place)).map(|(_, line)| *line)
}

/// Puts what is known of the lines that were asked where it belongs.
fn fill<T>(all: &mut [T], asked: &[bool], known: impl Iterator<Item = T>) {
    let places = all.iter_mut().zip(asked).filter(|(_, asked)| **asked);
    for ((place, _), known) in places.zip(known) {
        *place = known;
    }
}
