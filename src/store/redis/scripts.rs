use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicU32, Ordering},
    },
};

use smallvec::SmallVec;

use super::assemble::{Assembled, Kind, Operation, SPARING, kind_of};
use crate::store::{Line, Purpose};

pub(super) type Kinds = SmallVec<[Kind; 8]>;

type Known = RwLock<HashMap<Kinds, Arc<Script>, foldhash::fast::RandomState>>;

/// Scripts by what they do, and by the sequence of algorithms they do it to. Made when first needed.
#[derive(Default)]
pub(super) struct Scripts {
    acquire: Known,
    take: Known,
    owe: Known,
    give: Known,
    batch: Known,
    leases: Known,
}

/// A script and its digest.
pub(super) struct Script {
    pub(super) sha: String,
    pub(super) source: Assembled,
    /// No other has it, in this process.
    pub(super) number: u32,
    /// The names of its function, and of the one for peeks: see [`super::functions`].
    function: String,
    peek: Option<String>,
}

impl Script {
    fn new(source: Assembled, has_peek: bool) -> Script {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let sha = redis::Script::new(&source.text).get_hash().to_owned();
        let function = format!("sluicegate_v1_{sha}");
        let peek = has_peek.then(|| format!("{function}_peek"));
        Script { sha, source, number: NEXT.fetch_add(1, Ordering::Relaxed), function, peek }
    }

    /// The name of its function, or of the one for peeks.
    pub(super) fn function(&self, is_peek: bool) -> &str {
        match &self.peek {
            Some(peek) if is_peek => peek,
            _ => &self.function,
        }
    }

    pub(super) fn library_name(&self) -> &str {
        &self.function
    }

    /// The text of its library.
    pub(super) fn library(&self) -> String {
        self.source.library(&self.function, self.peek.as_deref())
    }
}

/// Rules can be left out in many ways; beyond this, what was made is forgotten and made again.
const MOST: usize = 1_024;

impl Scripts {
    pub(super) fn of(&self, purpose: Purpose, lines: &[Line<'_>]) -> Arc<Script> {
        let operation = Operation::of(purpose);
        let known = match operation {
            Operation::Acquire => &self.acquire,
            Operation::Take => &self.take,
            Operation::Owe => &self.owe,
            Operation::Give => &self.give,
            Operation::Leases => &self.leases,
        };
        let lines = if operation == Operation::Leases { &[] } else { lines };
        let kind = |line: &Line<'_>| {
            let kind = kind_of(line, purpose);
            if kind < SPARING && operation == Operation::Acquire && line.need() > line.cost {
                kind + SPARING
            } else {
                kind
            }
        };
        let kinds: Kinds = lines.iter().map(kind).collect();
        let has_peek = operation == Operation::Acquire;
        find(known, kinds, |kinds| Script::new(Assembled::new(operation, kinds), has_peek))
    }

    /// The script that makes many changes to rules of these algorithms.
    pub(super) fn batch(&self, kinds: Kinds) -> Arc<Script> {
        find(&self.batch, kinds, |kinds| Script::new(Assembled::batch(kinds), false))
    }
}

fn find(known: &Known, kinds: Kinds, make: impl FnOnce(&[Kind]) -> Script) -> Arc<Script> {
    if let Some(script) = known.read().unwrap_or_else(PoisonError::into_inner).get(&kinds) {
        return Arc::clone(script);
    }
    let script = Arc::new(make(&kinds));
    let mut scripts = known.write().unwrap_or_else(PoisonError::into_inner);
    if scripts.len() >= MOST {
        scripts.clear();
    }
    scripts.insert(kinds, Arc::clone(&script));
    script
}

/// Digests of scripts that a server has been sent.
#[derive(Default)]
pub(super) struct Given(Mutex<HashSet<String>>);

impl Given {
    /// Whether the server is not known to have it. It is from now on.
    pub(super) fn is_new(&self, sha: &str) -> bool {
        let mut given = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if given.contains(sha) {
            return false;
        }
        if given.len() >= MOST {
            given.clear();
        }
        given.insert(sha.to_owned())
    }
}

impl std::fmt::Debug for Scripts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Scripts")
    }
}
