//! A place for one connection.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::{sync::watch, time::timeout};

use super::{
    connections::{Live, Made, Shared, watch},
    gate::{Gate, Leave},
    supply::Held,
};
use crate::{
    error::{StoreError, StoreErrorKind},
    observer::StoreEvent,
};

#[derive(Debug)]
pub(super) struct Slot {
    pub(super) shared: Arc<Shared>,
    state: Mutex<State>,
}

enum State {
    Empty,
    Connecting(watch::Receiver<()>),
    Live { held: Held, made: Arc<Made> },
}

/// What a slot has for a request.
pub(super) enum Turn {
    Live(Live),
    /// Look again when this ends.
    Wait(watch::Receiver<()>),
    No(StoreError),
}

impl Slot {
    pub(super) fn new(shared: &Arc<Shared>) -> Slot {
        Slot { shared: Arc::clone(shared), state: Mutex::new(State::Empty) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn gate(&self) -> MutexGuard<'_, Gate> {
        self.shared.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection, if there is one.
    pub(super) fn live(self: &Arc<Slot>) -> Option<Live> {
        match &*self.lock() {
            State::Live { made, .. } if !made.link.is_ended() => Some(Live {
                connection: made.link.connection.clone(),
                made: Arc::clone(made),
                demoted: false,
                asking: false,
                redirect: None,
            }),
            _ => None,
        }
    }

    /// The connection, or the wait for it. Begins to make one where there is none.
    pub(super) fn turn(self: &Arc<Slot>) -> Turn {
        let (attempt, made) = loop {
            if let Some(live) = self.live() {
                return Turn::Live(live);
            }
            self.bury();
            let mut state = self.lock();
            match &*state {
                // Made meanwhile.
                State::Live { .. } => continue,
                State::Connecting(made) => return Turn::Wait(made.clone()),
                State::Empty => {}
            }
            match self.gate().leave() {
                Leave::Wait(made) => return Turn::Wait(made),
                Leave::No(error) => return Turn::No(error),
                Leave::Go(done, made) => {
                    *state = State::Connecting(made.clone());
                    break (Attempt { slot: Arc::clone(self), outcome: State::Empty, _done: done }, made);
                }
            }
        };
        // Not under the lock: a runtime that shuts down drops the attempt here and now, and dropping it takes the lock.
        tokio::spawn(connect(attempt));
        Turn::Wait(made)
    }

    /// Empties the slot of a connection that has ended. The task that waits for its end may not have come to it.
    fn bury(&self) {
        let made = match &*self.lock() {
            State::Live { made, .. } if made.link.is_ended() => Arc::clone(made),
            _ => return,
        };
        self.empty(&made, ended());
    }

    /// Empties the slot, unless it holds another connection by now, and has a new one made.
    pub(super) fn give_up(self: &Arc<Slot>, made: &Arc<Made>, why: StoreError) {
        if self.empty(made, why) {
            self.turn();
        }
    }

    fn empty(&self, made: &Arc<Made>, why: StoreError) -> bool {
        let left = {
            let mut state = self.lock();
            match &*state {
                State::Live { made: own, .. } if Arc::ptr_eq(own, made) => std::mem::replace(&mut *state, State::Empty),
                _ => return false,
            }
        };
        self.gate().lost(why.clone());
        if let State::Live { held, .. } = left {
            held.close();
        }
        self.shared.observers.tell(&StoreEvent::Disconnected(why));
        true
    }
}

fn ended() -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, "the server closed the connection").uncharged()
}

/// An attempt to connect. However it ends, also with its runtime, the slot gets its outcome and waiters look again.
struct Attempt {
    slot: Arc<Slot>,
    outcome: State,
    _done: watch::Sender<()>,
}

impl Drop for Attempt {
    fn drop(&mut self) {
        *self.slot.lock() = std::mem::replace(&mut self.outcome, State::Empty);
    }
}

async fn connect(mut attempt: Attempt) {
    let slot = Arc::clone(&attempt.slot);
    let shared = Arc::clone(&slot.shared);
    let made = timeout(shared.connect_timeout, shared.supply.get()).await.unwrap_or_else(|_| {
        let text = format!("no connection was made within {:?}", shared.connect_timeout);
        Err(StoreError::new(StoreErrorKind::Timeout, text).uncharged())
    });
    match made {
        Ok(held) => {
            let link = held.link();
            let end = link.end();
            let made = Arc::new(Made::new(link, Arc::downgrade(&slot)));
            let watched = Arc::downgrade(&made);
            attempt.outcome = State::Live { held, made };
            slot.gate().made();
            shared.observers.tell(&StoreEvent::Connected);
            drop(attempt);
            if let Some(end) = end {
                tokio::spawn(watch(watched, end));
            }
        }
        Err(error) => {
            slot.gate().failed(error.clone());
            shared.observers.tell(&StoreEvent::ConnectFailed(error));
        }
    }
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            State::Empty => "empty",
            State::Connecting(_) => "connecting",
            State::Live { .. } => "live",
        })
    }
}
