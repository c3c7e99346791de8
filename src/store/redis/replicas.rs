//! Replicas, which may say how counts stand. They are never asked to charge.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

use super::{connections::Live, node::Node, supply::Supply, wiring::Wiring};
use crate::{
    error::StoreError,
    store::{Answer, Ask, Purpose},
};

/// How long a replica that failed is left alone.
const REST: Duration = Duration::from_secs(1);
/// The same if it will not mend itself: a server without read-only scripts, or a missing permission.
const LONG_REST: Duration = Duration::from_secs(30);

/// Replicas that take turns.
pub(super) struct Replicas {
    list: Box<[Replica]>,
    next: AtomicUsize,
    /// A replica may take so long; the rest of the deadline is the primary's.
    patience: Duration,
}

struct Replica {
    node: Node,
    rests_until: Mutex<Option<Instant>>,
}

impl Replicas {
    pub(super) fn new(supplies: &[Supply], wiring: &Wiring) -> Replicas {
        let replica = |supply| Replica { node: wiring.node(supply).read_only(), rests_until: Mutex::new(None) };
        let list = supplies.iter().map(replica).collect();
        Replicas { list, next: AtomicUsize::new(0), patience: wiring.deadline / 2 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(super) fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.list.iter().map(|replica| &replica.node)
    }

    /// A replica's answer to a look-up, or why it gave none: then the primary is to be asked. `None`: there is no replica to ask now.
    pub(super) async fn peek(&self, ask: &Ask<'_>, until: Instant) -> Option<Result<Answer, StoreError>> {
        if self.is_empty() || ask.purpose != Purpose::Peek {
            return None;
        }
        let turn = self.next.fetch_add(1, Ordering::Relaxed) % self.list.len();
        let mut in_turn = self.list.iter().cycle().skip(turn).take(self.list.len());
        let replica = in_turn.find(|replica| replica.is_awake())?;
        let node = &replica.node;
        let until = until.min(Instant::now() + self.patience);
        let mut redirected = false;
        let answer = node.within(until, async |used| {
            let answer = node.decide(ask, Duration::ZERO, used).await;
            redirected = used.as_mut().and_then(Live::redirect).is_some();
            answer
        });
        let answer = answer.await;
        // One that points elsewhere follows another primary now, and the map will tell.
        Some(
            answer.inspect_err(|error| replica.rest(if redirected || error.is_transient() { REST } else { LONG_REST })),
        )
    }
}

impl Replica {
    fn is_awake(&self) -> bool {
        self.rests_until.lock().unwrap_or_else(PoisonError::into_inner).is_none_or(|until| until <= Instant::now())
    }

    fn rest(&self, rest: Duration) {
        *self.rests_until.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + rest);
    }
}
