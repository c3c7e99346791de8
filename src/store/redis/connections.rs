//! Connections that many requests share.
//!
//! deadpool makes and counts them; requests use clones of the multiplexed connection instead of checking one out each, which
//! would cost a round trip more and serve one request at a time. A connection is made in a task of its own when it is first
//! needed: it goes on when the request that wanted it has given up, so a handshake longer than a request's deadline succeeds.
//! One that the server closes is replaced at once, so that no request comes upon it.

use std::{
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
    time::Duration,
};

use redis::{Cmd, Pipeline, RedisResult, Value};
use tokio::sync::watch;

use super::{
    cluster::Redirect,
    gate::Gate,
    link::{Connection, Link},
    slot::{Slot, Turn},
    supply::Supply,
};
use crate::{
    error::{StoreError, StoreErrorKind},
    observer::Observers,
};

/// As many timeouts in a row mean that the connection is dead, though nobody has said so.
const TIMEOUTS: u32 = 3;
/// Stands beside the timeouts of a connection until its server first answers: one that hangs takes connections all the same.
const UNPROVEN: u32 = 1 << 16;

/// A few slots, each with one connection.
#[derive(Debug)]
pub(super) struct Connections {
    pub(super) slots: Box<[Arc<Slot>]>,
    next: AtomicUsize,
}

/// What the slots of a server share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) supply: Supply,
    pub(super) connect_timeout: Duration,
    pub(super) observers: Arc<Observers>,
    pub(super) gate: Mutex<Gate>,
}

/// What all who share a connection know of it.
pub(super) struct Made {
    pub(super) link: Link,
    pub(super) slot: Weak<Slot>,
    /// Timeouts in a row, and [`UNPROVEN`].
    timeouts: AtomicU32,
}

impl Made {
    pub(super) fn new(link: Link, slot: Weak<Slot>) -> Made {
        Made { link, slot, timeouts: UNPROVEN.into() }
    }
}

/// A shared connection. One is made for every request, so it is little to count and to copy.
#[derive(Clone)]
pub(super) struct Live {
    pub(super) connection: Connection,
    pub(super) made: Arc<Made>,
    pub(super) demoted: bool,
    /// Whether each command goes with an `ASKING`, and how a Cluster node turned the last one away.
    pub(super) asking: bool,
    pub(super) redirect: Option<Redirect>,
}

impl Connections {
    pub(super) fn new(
        supply: &Supply,
        slots: usize,
        connect_timeout: Duration,
        observers: &Arc<Observers>,
    ) -> Connections {
        let shared = Arc::new(Shared {
            supply: supply.clone(),
            connect_timeout,
            observers: Arc::clone(observers),
            gate: Mutex::default(),
        });
        let slots = (0..slots.max(1)).map(|_| Arc::new(Slot::new(&shared))).collect();
        Connections { slots, next: AtomicUsize::new(0) }
    }

    /// Whether there are connections, and on each of them the last call was answered.
    pub(super) fn is_well(&self) -> bool {
        let mut live = self.slots.iter().filter_map(Slot::live).peekable();
        live.peek().is_some() && live.all(|live| live.made.timeouts.load(Ordering::Relaxed) == 0)
    }

    /// A live connection; waits until it is made.
    pub(super) async fn get(&self) -> Result<Live, StoreError> {
        let turn = if self.slots.len() == 1 { 0 } else { self.next.fetch_add(1, Ordering::Relaxed) % self.slots.len() };
        let Some(slot) = self.slots.get(turn) else {
            return Err(StoreError::new(StoreErrorKind::Unavailable, "no connection").uncharged());
        };
        match slot.live() {
            Some(live) => Ok(live),
            // Rare, so it takes its room elsewhere.
            None => Box::pin(self.wait(slot)).await,
        }
    }

    async fn wait(&self, slot: &Arc<Slot>) -> Result<Live, StoreError> {
        let mut waited = false;
        loop {
            let turn = match slot.turn() {
                Turn::Live(live) => return Ok(live),
                turn => turn,
            };
            // While one is replaced, the others serve.
            if let Some(live) = self.slots.iter().find_map(Slot::live) {
                return Ok(live);
            }
            // Who has waited for an attempt is told what came of it, and not to wait for the next.
            if waited && let Some(error) = slot.gate().error() {
                return Err(error);
            }
            match turn {
                Turn::Live(live) => return Ok(live),
                Turn::No(error) => return Err(error),
                Turn::Wait(mut made) => {
                    // An error says that the attempt is over.
                    let _ = made.changed().await;
                    waited = true;
                }
            }
        }
    }
}

impl Live {
    /// Sends a command; an error reply is an error.
    pub(super) async fn send(&mut self, command: &Cmd) -> RedisResult<Value> {
        let reply = if self.asking {
            Box::pin(self.send_asking(command)).await?
        } else {
            self.connection.send(command).await?
        };
        // Errors inside an array make no sense as a decision either; looking for them there would copy it.
        match reply {
            Value::ServerError(error) => {
                self.redirect = Redirect::read(&error);
                Err(error.into())
            }
            reply => Ok(reply),
        }
    }

    /// Sends commands together, in a Cluster a transaction; the reply of each, errors among them.
    pub(super) async fn send_all(&mut self, commands: &Pipeline) -> RedisResult<Vec<Value>> {
        let replies = if self.asking {
            Box::pin(self.send_all_asking(commands)).await?
        } else {
            self.connection.send_all(commands).await?
        };
        self.redirect = replies.iter().find_map(|reply| match reply {
            Value::ServerError(error) => Redirect::read(error),
            _ => None,
        });
        Ok(replies)
    }

    /// In one pipeline, since the word holds for the next command on the connection, whoever sends it.
    #[cold]
    async fn send_asking(&mut self, command: &Cmd) -> RedisResult<Value> {
        let mut pipeline = redis::pipe();
        pipeline.cmd("ASKING").add_command(command.clone());
        let mut replies = self.connection.send_all(&pipeline).await?;
        Ok(replies.pop().unwrap_or(Value::Nil))
    }

    /// The same for a transaction: said before `MULTI`, the word holds until `EXEC`.
    #[cold]
    async fn send_all_asking(&mut self, commands: &Pipeline) -> RedisResult<Vec<Value>> {
        let mut pipeline = redis::pipe();
        pipeline.cmd("ASKING");
        commands.cmd_iter().for_each(|command| {
            pipeline.add_command(command.clone());
        });
        let mut replies = self.connection.send_all(&pipeline).await?;
        // The reply to the word itself.
        replies.drain(..replies.len().min(1));
        Ok(replies)
    }

    /// Sends an `ASKING` before each command or transaction from now on: the node is to serve a slot that is on its way to it.
    pub(super) fn ask_first(&mut self) {
        self.asking = true;
    }

    /// How a Cluster node turned the last command away, if it did.
    pub(super) fn redirect(&mut self) -> Option<Redirect> {
        self.redirect.take()
    }

    /// The server answered.
    pub(super) fn answered(&self) {
        if self.made.timeouts.load(Ordering::Relaxed) != 0 {
            self.made.timeouts.store(0, Ordering::Relaxed);
        }
    }

    /// The server did not answer in time; after a few in a row the connection is given up. Not before another may be made: a
    /// server that is merely slow must not be flooded with new connections, and the old one may still come round.
    pub(super) fn timed_out(&self) {
        let many = (self.made.timeouts.fetch_add(1, Ordering::Relaxed) + 1) % UNPROVEN >= TIMEOUTS;
        if many && self.made.slot.upgrade().is_some_and(|slot| slot.gate().is_ready()) {
            let text = format!("{TIMEOUTS} calls in a row got no answer in time");
            self.give_up(StoreError::new(StoreErrorKind::Timeout, text));
        }
    }

    /// Empties the slot, unless it holds another connection by now, and has a new one made.
    pub(super) fn give_up(&self, why: StoreError) {
        if let Some(slot) = self.made.slot.upgrade() {
            slot.give_up(&self.made, why);
        }
    }

    /// The server is a replica now. Nothing ran, so the call may go to another.
    pub(super) fn demoted(&mut self, why: StoreError) {
        self.demoted = true;
        self.give_up(why);
    }
}

/// Waits until the server closes a connection and has it replaced. Holds nothing that would keep it open.
pub(super) async fn watch(made: Weak<Made>, mut end: watch::Receiver<()>) {
    // An error says that it has ended.
    let _ = end.changed().await;
    if let Some(made) = made.upgrade()
        && let Some(slot) = made.slot.upgrade()
    {
        slot.give_up(&made, StoreError::new(StoreErrorKind::Unavailable, "the server closed the connection"));
    }
}
