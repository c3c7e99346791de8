//! A store in memory that notes what it is asked.

use std::sync::{Arc, Mutex};

use sluicegate::{
    MemoryStore,
    store::{Answer, Ask, Line, Purpose, Store, StoreFuture},
};

/// Clones are one.
#[derive(Clone, Debug, Default)]
pub struct Noting(Arc<Mutex<Vec<(Purpose, usize)>>>, MemoryStore);

impl Noting {
    /// What it was asked since the last call, and about how many lines.
    pub fn asked(&self) -> Vec<(Purpose, usize)> {
        std::mem::take(&mut self.0.lock().expect("no panic"))
    }
}

impl Store for Noting {
    fn acquire<'a>(&'a self, ask: &'a Ask<'a>) -> StoreFuture<'a, Answer> {
        self.0.lock().expect("no panic").push((ask.purpose, ask.lines.len()));
        self.1.acquire(ask)
    }

    fn reset<'a>(&'a self, lines: &'a [Line<'a>]) -> StoreFuture<'a, ()> {
        self.1.reset(lines)
    }
}
