//! A store around a store, so that nothing the inner one does can hurt.

use std::{sync::Arc, time::Duration};

use crate::{
    error::{BuildError, StoreError},
    limit::Limit,
    observer::Observer,
    store::{Answer, Ask, Line, Store, StoreFuture},
};

/// A store around a store that may fail.
#[derive(Debug)]
pub struct Resilient {
    store: Box<dyn Store>,
}

impl Resilient {
    /// Around `store`.
    pub fn new(store: impl Store) -> Resilient {
        Resilient { store: Box::new(store) }
    }
}

impl Store for Resilient {
    #[inline]
    fn acquire_now(&self, ask: &Ask<'_>, answer: &mut Answer) -> Option<Result<(), StoreError>> {
        self.store.acquire_now(ask, answer)
    }

    fn acquire<'a>(&'a self, ask: &'a Ask<'a>) -> StoreFuture<'a, Answer> {
        self.store.acquire(ask)
    }

    fn reset<'a>(&'a self, lines: &'a [Line<'a>]) -> StoreFuture<'a, ()> {
        self.store.reset(lines)
    }

    fn observe(&self, observer: &Arc<dyn Observer>) {
        self.store.observe(observer);
    }

    fn accept(&self, rules: &[(&str, &Limit)]) -> Result<(), BuildError> {
        self.store.accept(rules)
    }

    fn part(&self, line: &Line<'_>) -> usize {
        self.store.part(line)
    }

    fn deadline(&self) -> Option<Duration> {
        self.store.deadline()
    }
}
