//! Stores that answer oddly: too little, too much, or that a request is to be refused whatever the verdicts.

use std::fmt;

use sluicegate::{
    Decision, Limiter, MemoryStore, OnFailure, Quota, Rule, StoreError, StoreErrorKind, key,
    store::{Answer, Ask, Line, Partial, Store, StoreFuture},
};

/// What becomes of an answer.
type Change = fn(Answer) -> Result<Answer, StoreError>;

/// Answers as a memory store does, and then as told.
struct Odd {
    inside: MemoryStore,
    change: Change,
    at_once: bool,
}

impl Odd {
    fn answer(&self, ask: &Ask<'_>) -> Result<Answer, StoreError> {
        let mut answer = Answer::default();
        self.inside.acquire_now(ask, &mut answer).expect("it answers at once")?;
        (self.change)(answer)
    }
}

impl Store for Odd {
    fn acquire_now(&self, ask: &Ask<'_>, answer: &mut Answer) -> Option<Result<(), StoreError>> {
        self.at_once.then(|| self.answer(ask).map(|odd| *answer = odd))
    }

    fn acquire<'a>(&'a self, ask: &'a Ask<'a>) -> StoreFuture<'a, Answer> {
        Box::pin(async move { self.answer(ask) })
    }

    fn reset<'a>(&'a self, lines: &'a [Line<'a>]) -> StoreFuture<'a, ()> {
        self.inside.reset(lines)
    }
}

impl fmt::Debug for Odd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Odd")
    }
}

/// Decisions over one rule and over two, each where the store is asked and where it is waited for.
async fn decisions(change: Change, on_failure: OnFailure) -> Vec<Decision> {
    let mut decisions = Vec::new();
    for at_once in [true, false] {
        let rule = |name| Rule::gcra(name, Quota::per_day(9)).key(key::given()).on_failure(on_failure);
        let builder = Limiter::builder(Odd { inside: MemoryStore::new(), change, at_once });
        let limiter = builder.rule(rule("a")).rule(rule("b")).build().expect("sound");
        decisions.push(limiter.acquire([("a", "k")]).await);
        decisions.push(limiter.acquire([("a", "k"), ("b", "k")]).await);
    }
    decisions
}

fn without_the_last(answer: Answer) -> Answer {
    let mut less = Answer::default();
    let verdicts = answer.verdicts();
    verdicts[..verdicts.len() - 1].iter().for_each(|verdict| less.push(*verdict));
    less
}

/// An answer that does not fit the question is none: rules do what they do without one.
#[tokio::test]
async fn an_answer_of_another_length_is_no_answer() {
    let odd: [Change; 3] = [
        |answer| Ok(without_the_last(answer)),
        |mut answer| {
            answer.push(answer.verdicts()[0]);
            Ok(answer)
        },
        |_| Ok(Answer::default()),
    ];
    for change in odd {
        for (on_failure, refused) in [(OnFailure::Refuse, true), (OnFailure::Allow, false)] {
            for decision in decisions(change, on_failure).await {
                let kind = decision.failure().map(StoreError::kind);
                assert_eq!((kind, decision.is_refused()), (Some(StoreErrorKind::Garbled), refused), "{decision:?}");
                assert!(decision.standing("a").is_none(), "nothing is made up: {decision:?}");
            }
        }
    }
}

/// The verdicts all the same, of a store that is away.
fn away(answer: &Answer, refuses: bool) -> StoreError {
    let verdicts: Vec<_> = answer.verdicts().iter().copied().map(Some).collect();
    StoreError::new(StoreErrorKind::Unavailable, "away").with(Partial::new(verdicts).refusing(refuses))
}

/// A store around a store may refuse though every verdict fits: a rule's own word was that.
#[tokio::test]
async fn a_store_may_refuse_whatever_the_verdicts() {
    let odd: [(Change, bool); 2] =
        [(|answer| Err(away(&answer, true)), true), (|answer| Err(away(&answer, false)), false)];
    for (change, refused) in odd {
        for decision in decisions(change, OnFailure::Allow).await {
            assert_eq!(decision.is_refused(), refused, "{decision:?}");
            assert!(decision.failure().is_some() && decision.standing("a").is_some(), "{decision:?}");
        }
    }
}
