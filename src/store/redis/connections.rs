//! Connections that many requests share.
//!
//! deadpool makes and counts them; requests use clones of the multiplexed connection instead of checking one out each, which
//! would cost a round trip more and serve one request at a time. A connection is made in a task of its own when it is first
//! needed: it goes on when the request that wanted it has given up, so a handshake longer than a request's deadline succeeds.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
    time::Duration,
};

use redis::{Cmd, RedisResult, Value, aio::MultiplexedConnection};
use tokio::{
    sync::watch,
    time::{Instant, timeout},
};

use super::{
    cluster::Turn,
    supply::{Held, Supply},
};
use crate::{
    error::{StoreError, StoreErrorKind},
    observer::{Observers, StoreEvent},
};

/// As many timeouts in a row mean that the connection is dead, though nobody has said so.
const TIMEOUTS: u32 = 3;
/// How often a connection is given up for timeouts at most.
const REPLACE_EVERY: Duration = Duration::from_secs(1);
/// How long a failed attempt stands before the next.
const HOLD_OFF: Duration = Duration::from_millis(200);

/// A few slots, each with one connection.
#[derive(Debug)]
pub(super) struct Connections {
    slots: Box<[Arc<Slot>]>,
    next: AtomicUsize,
}

/// A place for one connection.
#[derive(Debug)]
struct Slot {
    supply: Supply,
    connect_timeout: Duration,
    observers: Arc<Observers>,
    state: Mutex<State>,
    /// When a connection was last given up for its timeouts.
    timed_out: Mutex<Option<Instant>>,
}

enum State {
    Empty,
    Connecting(watch::Receiver<()>),
    Live { held: Held, timeouts: Arc<AtomicU32> },
    Failed { error: StoreError, until: Instant },
}

/// A shared connection.
pub(super) struct Live {
    connection: MultiplexedConnection,
    slot: Arc<Slot>,
    timeouts: Arc<AtomicU32>,
    /// Whether each command goes with an `ASKING`, and how a Cluster node turned the last one away.
    asking: bool,
    turn: Option<Turn>,
}

impl Connections {
    pub(super) fn new(
        supply: &Supply,
        slots: usize,
        connect_timeout: Duration,
        observers: &Arc<Observers>,
    ) -> Connections {
        let slot = || {
            Arc::new(Slot {
                supply: supply.clone(),
                connect_timeout,
                observers: Arc::clone(observers),
                state: Mutex::new(State::Empty),
                timed_out: Mutex::new(None),
            })
        };
        Connections { slots: (0..slots.max(1)).map(|_| slot()).collect(), next: AtomicUsize::new(0) }
    }

    /// A live connection; waits until it is made.
    pub(super) async fn get(&self) -> Result<Live, StoreError> {
        let turn = if self.slots.len() == 1 { 0 } else { self.next.fetch_add(1, Ordering::Relaxed) % self.slots.len() };
        match self.slots.get(turn) {
            Some(slot) => slot.get().await,
            None => Err(StoreError::new(StoreErrorKind::Unavailable, "no connection")),
        }
    }
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn get(self: &Arc<Slot>) -> Result<Live, StoreError> {
        loop {
            let (mut made, attempt) = {
                let mut state = self.lock();
                match &*state {
                    State::Live { held, timeouts } => {
                        let connection = held.connection().clone();
                        let (slot, timeouts) = (Arc::clone(self), Arc::clone(timeouts));
                        return Ok(Live { connection, slot, timeouts, asking: false, turn: None });
                    }
                    State::Failed { error, until } if Instant::now() < *until => return Err(error.clone()),
                    State::Connecting(made) => (made.clone(), None),
                    State::Empty | State::Failed { .. } => {
                        let (done, made) = watch::channel(());
                        *state = State::Connecting(made.clone());
                        (made, Some(Attempt { slot: Arc::clone(self), outcome: State::Empty, _done: done }))
                    }
                }
            };
            // Not under the lock: a runtime that shuts down drops the attempt here and now, and dropping it takes the lock.
            if let Some(attempt) = attempt {
                tokio::spawn(connect(attempt));
            }
            // An error says that the attempt is over.
            let _ = made.changed().await;
        }
    }
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
    let made = match timeout(slot.connect_timeout, slot.supply.get()).await {
        Ok(Ok(held)) => Ok(held),
        Ok(Err(error)) => Err(super::failure::connecting(&error)),
        Err(_) => {
            let text = format!("no connection was made within {:?}", slot.connect_timeout);
            Err(StoreError::new(StoreErrorKind::Timeout, text).uncharged())
        }
    };
    match made {
        Ok(held) => {
            attempt.outcome = State::Live { held, timeouts: Arc::default() };
            slot.observers.tell(&StoreEvent::Connected);
        }
        Err(error) => {
            slot.observers.tell(&StoreEvent::ConnectFailed(error.clone()));
            attempt.outcome = State::Failed { error, until: Instant::now() + HOLD_OFF };
        }
    }
}

impl Live {
    /// Sends a command; an error reply is an error.
    pub(super) async fn send(&mut self, command: &Cmd) -> RedisResult<Value> {
        let reply = if self.asking {
            self.send_asking(command).await?
        } else {
            self.connection.send_packed_command(command).await?
        };
        // Errors inside an array make no sense as a decision either; looking for them there would copy it.
        match reply {
            Value::ServerError(error) => {
                self.turn = Turn::read(&error);
                Err(error.into())
            }
            reply => Ok(reply),
        }
    }

    /// In one pipeline, since the word holds for the next command on the connection, whoever sends it.
    #[cold]
    async fn send_asking(&mut self, command: &Cmd) -> RedisResult<Value> {
        let mut pipeline = redis::pipe();
        pipeline.cmd("ASKING").add_command(command.clone());
        let mut replies = Box::pin(self.connection.send_packed_commands(&pipeline, 0, 2)).await?;
        Ok(replies.pop().unwrap_or(Value::Nil))
    }

    /// Sends an `ASKING` before each command from now on: the node is to serve a slot that is on its way to it.
    pub(super) fn ask_first(&mut self) {
        self.asking = true;
    }

    /// How a Cluster node turned the last command away, if it did.
    pub(super) fn turn(&mut self) -> Option<Turn> {
        self.turn.take()
    }

    /// The server answered.
    pub(super) fn answered(&self) {
        if self.timeouts.load(Ordering::Relaxed) != 0 {
            self.timeouts.store(0, Ordering::Relaxed);
        }
    }

    /// The server did not answer in time; after a few in a row the connection is given up. Not more than once a second: a
    /// server that is merely slow must not be flooded with new connections.
    pub(super) fn timed_out(&self) {
        if self.timeouts.fetch_add(1, Ordering::Relaxed) + 1 >= TIMEOUTS {
            let mut last = self.slot.timed_out.lock().unwrap_or_else(PoisonError::into_inner);
            if last.is_some_and(|last| last.elapsed() < REPLACE_EVERY) {
                return;
            }
            *last = Some(Instant::now());
            drop(last);
            let text = format!("{TIMEOUTS} calls in a row got no answer in time");
            self.give_up(StoreError::new(StoreErrorKind::Timeout, text));
        }
    }

    /// Empties the slot, unless it holds another connection by now. The next request makes a new one.
    pub(super) fn give_up(&self, why: StoreError) {
        let held = {
            let mut state = self.slot.lock();
            match &*state {
                State::Live { timeouts, .. } if Arc::ptr_eq(timeouts, &self.timeouts) => {
                    std::mem::replace(&mut *state, State::Empty)
                }
                _ => return,
            }
        };
        if let State::Live { held, .. } = held {
            held.close();
        }
        self.slot.observers.tell(&StoreEvent::Disconnected(why));
    }
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            State::Empty => "empty",
            State::Connecting(_) => "connecting",
            State::Live { .. } => "live",
            State::Failed { .. } => "failed",
        })
    }
}
