//! Adding first and taking back: what stands in for a script that looks before it writes.
//!
//! The value of a count is never below what was admitted, since each call takes back no more than it added itself. A call is
//! admitted if the value with its own cost is within the limit, so what is admitted never exceeds it.
//!
//! It runs in a task of its own: a caller that gives up in between must not leave behind what nobody was admitted for.

use std::{sync::Arc, time::Duration};

use redis::Pipeline;
use tokio::{
    sync::oneshot,
    time::{Instant, timeout_at},
};

use super::{
    super::{
        cluster::{Place, Redirect},
        connections::Live,
        engine::Engine,
        failure,
    },
    replies,
    window::Window,
};
use crate::{
    error::{StoreError, StoreErrorKind},
    observer::{Observers, StoreEvent},
};

/// How much longer than its caller a task waits for the server.
const PATIENCE: Duration = Duration::from_secs(1);
/// More redirects of one change are a Cluster that does not know itself.
const HOPS: usize = 5;

/// Something to add to the counts of windows, in one transaction.
pub(super) struct Charge {
    pub(super) windows: Arc<[Window]>,
    /// For each window: how much to add, or to give back if it is negative. Zero only looks.
    pub(super) amounts: Vec<i64>,
    pub(super) kind: Kind,
    /// Whether the server's time says which window it is.
    pub(super) by_server: bool,
    /// Where the server is in its Cluster. What is taken back must go where the count is by then.
    pub(super) place: Option<Place>,
}

pub(super) enum Kind {
    /// All of it if all fits, else nothing; of shadows only what fits.
    Spend,
    /// As much as fits, once: the name of the record, and how long it is kept, in milliseconds.
    Once { record: Vec<u8>, ttl: u64 },
}

/// What came of it.
pub(super) struct Charged {
    /// The server's time.
    pub(super) at: u64,
    /// What the counts came to with all that was added.
    pub(super) counts: Vec<i64>,
    /// What was taken back of it.
    pub(super) taken_back: Vec<i64>,
    /// It was another window by then: nothing was judged.
    pub(super) moved: bool,
}

/// A result, how a Cluster node turned the charge away if it did, and where to say that it was received.
struct Told {
    result: Result<Charged, StoreError>,
    redirect: Option<Redirect>,
    received: oneshot::Sender<()>,
}

/// Charges; waits no longer than `until` by itself, and takes back what the caller does not stay for.
pub(super) async fn charge(
    charge: Charge,
    live: &mut Live,
    until: Instant,
    observers: Arc<Observers>,
) -> Result<Charged, StoreError> {
    let (tell, told) = oneshot::channel();
    let task = Task { charge, live: live.clone(), observers: Arc::clone(&observers) };
    tokio::spawn(async move {
        if timeout_at(until + PATIENCE, task.run(tell)).await.is_err() {
            let error = StoreError::new(StoreErrorKind::Timeout, "the server did not answer a call that gave up");
            observers.tell(&StoreEvent::NotGivenBack(error));
        }
    });
    match told.await {
        Ok(told) => {
            let _ = told.received.send(());
            live.redirect = told.redirect;
            told.result
        }
        Err(_) => Err(StoreError::new(StoreErrorKind::Timeout, "no answer in time")),
    }
}

struct Task {
    charge: Charge,
    live: Live,
    observers: Arc<Observers>,
}

impl Task {
    async fn run(mut self, tell: oneshot::Sender<Told>) {
        let (received, was_received) = oneshot::channel();
        let (at, counts) = match self.add().await {
            Ok(added) => added,
            Err(error) => {
                let _ = tell.send(Told { result: Err(error), redirect: self.live.redirect(), received });
                return;
            }
        };
        let moved = self.charge.by_server && !self.charge.windows.iter().all(|window| window.holds(at));
        let excess = self.excess(&counts, moved);
        self.take_back(&excess).await;
        let kept: Vec<i64> = self.charge.amounts.iter().zip(&excess).map(|(amount, excess)| amount - excess).collect();
        let result = Ok(Charged { at, counts, taken_back: excess, moved });
        let _ = tell.send(Told { result, redirect: None, received });
        // Not so for what is done once: who asks again is told that it was done.
        if was_received.await.is_err() && matches!(self.charge.kind, Kind::Spend) {
            self.take_back(&kept).await;
        }
    }

    /// Adds, and answers the server's time and the counts with what was added.
    async fn add(&mut self) -> Result<(u64, Vec<i64>), StoreError> {
        let mut commands = redis::pipe();
        commands.cmd("MULTI").cmd("TIME");
        if let Kind::Once { record, ttl } = &self.charge.kind {
            commands.cmd("SET").arg(record).arg(1).arg("PX").arg(*ttl).arg("NX");
        }
        for (window, amount) in self.charge.windows.iter().zip(&self.charge.amounts) {
            match amount {
                0 => {
                    commands.cmd("GET").arg(&window.name);
                }
                amount => add(&mut commands, window, *amount),
            }
        }
        commands.cmd("EXEC");
        let replies = self.live.send_all(&commands).await.and_then(replies::executed);
        let replies = replies.map_err(|error| failure::commanding(&error, Engine::Plain, &self.live))?;
        self.live.answered();
        let mut replies = replies.iter();
        let at = replies::time(replies.next());
        let known = match self.charge.kind {
            Kind::Spend => false,
            Kind::Once { .. } => matches!(replies.next(), Some(redis::Value::Nil)),
        };
        let mut counts = Vec::new();
        for amount in &self.charge.amounts {
            if *amount != 0 {
                // The reply to SET.
                replies.next();
            }
            counts.push(replies.next());
        }
        let failed = counts.iter().flatten().find_map(|reply| replies::error_in(std::slice::from_ref(reply)));
        let numbers: Result<Vec<i64>, StoreError> =
            counts.iter().map(|reply| reply.map_or_else(|| Err(replies::garbled()), replies::number)).collect();
        if let (Ok(at), Ok(numbers), false) = (&at, &numbers, known) {
            return Ok((*at, numbers.clone()));
        }
        // What was added beside the one that failed, or once more, is taken back.
        let added = counts.iter().zip(&self.charge.amounts);
        let added: Vec<i64> = added
            .map(|(reply, amount)| if matches!(reply, Some(redis::Value::Int(_))) { *amount } else { 0 })
            .collect();
        self.take_back(&added).await;
        match failed {
            Some(error) => Err(failure::commanding(&error, Engine::Plain, &self.live)),
            None => {
                let numbers =
                    numbers?.iter().zip(&added).map(|(number, added)| number.saturating_sub(*added)).collect();
                self.charge.amounts.fill(0);
                Ok((at?, numbers))
            }
        }
    }

    /// How much of what was added must go.
    fn excess(&self, counts: &[i64], moved: bool) -> Vec<i64> {
        let charge = &self.charge;
        let lines = || charge.windows.iter().zip(counts).zip(&charge.amounts);
        let over = |((window, count), amount): ((&Window, &i64), &i64)| {
            *amount > 0 && u64::try_from(*count).is_ok_and(|count| count > window.most())
        };
        match charge.kind {
            Kind::Spend if moved || lines().any(|line| over(line) && !line.0.0.shadow) => charge.amounts.clone(),
            Kind::Spend => lines().map(|line| if over(line) { *line.1 } else { 0 }).collect(),
            Kind::Once { .. } => lines()
                .map(|((window, count), amount)| {
                    let above = count.saturating_sub_unsigned(window.limit);
                    if *amount > 0 { above.clamp(0, *amount) } else { (*count).clamp(*amount, 0) }
                })
                .collect(),
        }
    }

    /// Takes these amounts from the counts. A count that is gone meanwhile (forgotten, or evicted) must not end below zero:
    /// that would admit more.
    async fn take_back(&mut self, amounts: &[i64]) {
        let windows = Arc::clone(&self.charge.windows);
        let changes: Vec<_> = windows
            .iter()
            .zip(amounts)
            .filter(|(_, amount)| **amount != 0)
            .map(|(window, amount)| (window, -amount))
            .collect();
        let counts = self.change(&changes).await;
        let below: Vec<_> = changes.iter().zip(counts).filter(|(_, count)| *count < 0).collect();
        let below: Vec<_> = below.into_iter().map(|((window, _), count)| (*window, count.saturating_neg())).collect();
        self.change(&below).await;
    }

    /// Changes counts, and answers what they come to. In a Cluster one by one: while their slot moves, some are here and some there.
    async fn change(&self, changes: &[(&Window, i64)]) -> Vec<i64> {
        let at_once = if self.charge.place.is_some() { 1 } else { changes.len().max(1) };
        let mut counts = Vec::new();
        for changes in changes.chunks(at_once) {
            counts.extend(self.change_together(changes).await);
        }
        counts
    }

    async fn change_together(&self, changes: &[(&Window, i64)]) -> Vec<i64> {
        let mut commands = redis::pipe();
        commands.cmd("MULTI");
        for (window, amount) in changes {
            add(&mut commands, window, *amount);
        }
        commands.cmd("EXEC");
        // From where the charge went: what is true of one count's way need not be so of the next.
        let (mut live, mut place, mut hops) = (self.live.clone(), self.charge.place.clone(), 0);
        let error = loop {
            let error = match live.send_all(&commands).await.and_then(replies::executed) {
                // Of each pair, the reply to INCRBY.
                Ok(replies) => {
                    let counts = replies.iter().skip(1).step_by(2);
                    return counts.map(|reply| replies::number(reply).unwrap_or(0)).collect();
                }
                Err(error) => error,
            };
            hops += 1;
            // A node that turned it away did nothing of it. Not otherwise: if only the reply was lost, sending it again would take
            // back twice and admit more.
            let (Some(redirect), Some(place), Some((window, _))) = (live.redirect(), &mut place, changes.first())
            else {
                break error;
            };
            match place.follow(redirect, &window.name).await {
                Some(there) if hops <= HOPS => live = there,
                _ => break error,
            }
        };
        let error = failure::commanding(&error, Engine::Plain, &live);
        self.observers.tell(&StoreEvent::NotGivenBack(error));
        // As many as there are changes, so that those of others are not taken for theirs.
        vec![0; changes.len()]
    }
}

/// Adds to a count, which begins with its TTL.
fn add(commands: &mut Pipeline, window: &Window, amount: i64) {
    commands.cmd("SET").arg(&window.name).arg(0).arg("PX").arg(window.ttl).arg("NX");
    commands.cmd("INCRBY").arg(&window.name).arg(amount);
}
