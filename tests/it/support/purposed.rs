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
}

impl Purposed {
    pub fn new(store: RedisStore) -> Purposed {
        Purposed { store, purpose: Arc::default() }
    }

    pub fn set(&self, purpose: Option<Purpose>) {
        *self.purpose.lock().expect("no panic") = purpose;
    }
}

impl Store for Purposed {
    fn acquire<'a>(&'a self, ask: &'a Ask<'a>) -> StoreFuture<'a, Answer> {
        let purpose = self.purpose.lock().expect("no panic").unwrap_or(ask.purpose);
        Box::pin(async move { self.store.acquire(&Ask { purpose, ..*ask }).await })
    }

    fn reset<'a>(&'a self, lines: &'a [Line<'a>]) -> StoreFuture<'a, ()> {
        self.store.reset(lines)
    }

    fn accept(&self, rules: &[(&str, &Limit)]) -> Result<(), BuildError> {
        self.store.accept(rules)
    }
}
