//! A store that is asked for another purpose than its limiter has in mind: limiters take and give by themselves only.

use std::sync::{Arc, Mutex};

use sluicegate::{
    BuildError, Limit, RedisStore,
    store::{Answer, Ask, Line, Purpose, Store, StoreFuture},
};

#[derive(Clone, Debug)]
pub struct Purposed {
    pub store: RedisStore,
    /// What asks are for, if not for what the limiter says.
    pub purpose: Arc<Mutex<Option<Purpose>>>,
    /// Of the last charge, which is what is given back.
    receipts: Arc<Mutex<Vec<u64>>>,
}

impl Purposed {
    pub fn new(store: RedisStore) -> Purposed {
        Purposed { store, purpose: Arc::default(), receipts: Arc::default() }
    }

    pub fn set(&self, purpose: Option<Purpose>) {
        *self.purpose.lock().expect("no panic") = purpose;
    }
}

impl Store for Purposed {
    fn acquire<'a>(&'a self, ask: &'a Ask<'a>) -> StoreFuture<'a, Answer> {
        let purpose = self.purpose.lock().expect("no panic").unwrap_or(ask.purpose);
        let receipts = self.receipts.lock().expect("no panic").clone();
        let receipt = |place: usize| receipts.get(place).copied().unwrap_or(0);
        let lines = (0..).zip(ask.lines).map(|(place, line)| Line { receipt: receipt(place), ..*line });
        let lines: Vec<Line<'a>> = lines.collect();
        Box::pin(async move {
            let answer = self.store.acquire(&Ask { lines: &lines, purpose, ..*ask }).await?;
            if let Purpose::Spend | Purpose::Take(_) = purpose {
                let charged = answer.verdicts().iter().map(|verdict| verdict.receipt);
                *self.receipts.lock().expect("no panic") = charged.collect();
            }
            Ok(answer)
        })
    }

    fn reset<'a>(&'a self, lines: &'a [Line<'a>]) -> StoreFuture<'a, ()> {
        self.store.reset(lines)
    }

    fn accept(&self, rules: &[(&str, &Limit)]) -> Result<(), BuildError> {
        self.store.accept(rules)
    }
}
