use std::{
    cell::Cell,
    fmt,
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use super::Rules;

/// How many counts of holders there are; threads beyond share them.
const HANDLES: usize = 32;

/// A limiter's rules, lent to its decisions.
///
/// Every decision holds on to the rules, so counting the holders in one place would make all threads write to one cache line for
/// every request. Each thread gets a handle of its own to count on.
pub(super) struct Shared {
    rules: Arc<Rules>,
    first: Arc<Handle>,
    /// Those of other threads.
    more: Box<[Arc<Handle>]>,
}

/// On a cache line of its own, or on two that are fetched together.
#[repr(align(128))]
pub(crate) struct Handle {
    rules: Arc<Rules>,
}

impl Shared {
    pub(super) fn new(rules: Rules) -> Shared {
        Shared::among(HANDLES, rules)
    }

    /// For rules that few threads use at the same time: all count on one handle.
    #[cfg_attr(not(feature = "policy"), allow(dead_code))]
    pub(super) fn of_few(rules: Rules) -> Shared {
        Shared::among(1, rules)
    }

    fn among(handles: usize, rules: Rules) -> Shared {
        let rules = Arc::new(rules);
        let handle = || Arc::new(Handle { rules: Arc::clone(&rules) });
        Shared { first: handle(), more: (1..handles).map(|_| handle()).collect(), rules }
    }

    /// This thread's handle.
    #[inline]
    pub(super) fn handle(&self) -> &Arc<Handle> {
        self.more.get(place()).unwrap_or(&self.first)
    }
}

impl Deref for Shared {
    type Target = Rules;

    #[inline]
    fn deref(&self) -> &Rules {
        &self.rules
    }
}

impl Handle {
    /// Whether both are handles on the rules of one limiter.
    pub(crate) fn is_of(&self, rules: &Rules) -> bool {
        self.rules.is_kin(rules)
    }
}

impl Deref for Handle {
    type Target = Rules;

    #[inline]
    fn deref(&self) -> &Rules {
        &self.rules
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// Below [`HANDLES`]: threads take turns.
#[inline]
fn place() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static PLACE: Cell<usize> = const { Cell::new(HANDLES) };
    }
    PLACE.with(|place| {
        if place.get() == HANDLES {
            place.set(THREADS.fetch_add(1, Ordering::Relaxed) % HANDLES);
        }
        place.get()
    })
}
