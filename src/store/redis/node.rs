//! One server: its connections, what is known of its clock, and the calls to it.

use std::{
    pin::pin,
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use redis::{Cmd, Value};
use tokio::time::{Instant, timeout_at};

use super::{
    cluster::Place,
    connections::{Connections, Live},
    engine::Engine,
    estimate::ServerClock,
    failure::{self, Failure},
    functions::Functions,
    job::{self, Call, Job},
    scripts::{Given, Script, Scripts},
    skew::{self, Skew},
    wire::{self, Args, Reply},
};
use crate::{
    algorithm::EXACT,
    error::{StoreError, StoreErrorKind},
    limit::micros,
    observer::{Observers, StoreEvent},
    store::{Answer, Ask, Line, Purpose, Time},
};

/// Stands for now where the server's own clock counts.
const SERVER_CLOCK: f64 = -1.0;
/// Milliseconds that every TTL is longer than its count matters.
const MARGIN: f64 = 1_000.0;
/// The same for injected time, which may stand still.
const MARGIN_INJECTED: f64 = 3_600_000.0;

/// A server.
pub(super) struct Node {
    pub(super) connections: Connections,
    pub(super) engine: Engine,
    /// Where it is in its Cluster, if it is in one.
    pub(super) place: Option<Place>,
    /// Whether it is a replica, which only looks.
    pub(super) is_replica: bool,
    pub(super) injected: Arc<AtomicU64>,
    pub(super) scripts: Arc<Scripts>,
    pub(super) functions: Functions,
    /// Scripts for giving back that this server has.
    pub(super) given: Given,
    pub(super) clock: ServerClock,
    pub(super) skew: Skew,
    pub(super) deadline: Duration,
    pub(super) observers: Arc<Observers>,
}

impl Node {
    /// Runs `work` within the deadline. A timeout counts against the connection it was waiting for.
    pub(super) async fn within<T>(
        &self,
        until: Instant,
        work: impl AsyncFnOnce(&mut Option<Live>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut used = None;
        {
            // Pinned here, or the future of the whole call would be copied into the timer's.
            let work = pin!(work(&mut used));
            if let Ok(result) = timeout_at(until, work).await {
                return result;
            }
        }
        let text = |waited_for| format!("no {waited_for} within {:?}", self.deadline);
        match used {
            Some(live) => {
                live.timed_out();
                Err(StoreError::new(StoreErrorKind::Timeout, text("answer")))
            }
            None => Err(StoreError::new(StoreErrorKind::Timeout, text("connection")).uncharged()),
        }
    }

    /// The same for a replica. It is never asked to change a count.
    pub(super) fn read_only(mut self) -> Node {
        self.is_replica = true;
        self
    }

    /// `age` is how long ago the ask began: other nodes may have been asked before.
    pub(super) async fn decide(
        &self,
        ask: &Ask<'_>,
        age: Duration,
        used: &mut Option<Live>,
    ) -> Result<Answer, StoreError> {
        if self.is_replica && ask.purpose != Purpose::Peek {
            return Err(StoreError::new(StoreErrorKind::Permanent, "a replica changes no counts"));
        }
        let answer = match self.engine {
            Engine::Script | Engine::Functions => self.decide_by_script(ask, age, used).await,
            // Boxed: they are seldom used, and would make the future of every call larger.
            Engine::Cell => Box::pin(self.decide_by_cell(ask, used)).await,
            Engine::Plain => Box::pin(self.decide_plainly(ask, used)).await,
        };
        if let Time::Application { now, tolerance } = ask.time
            && answer.is_ok()
            && self.skew.is_due(now)
        {
            self.look_at_clock(used.as_ref(), tolerance);
        }
        answer
    }

    /// Has it told if this machine's clock is too far from the server's.
    #[cold]
    fn look_at_clock(&self, used: Option<&Live>, tolerance: u64) {
        // The module goes by the server's clock in any case.
        if let Some(live) = used
            && self.engine != Engine::Cell
        {
            skew::look(live.clone(), tolerance, self.deadline, Arc::clone(&self.observers));
        }
    }

    async fn decide_by_script(
        &self,
        ask: &Ask<'_>,
        age: Duration,
        used: &mut Option<Live>,
    ) -> Result<Answer, StoreError> {
        let began = self.clock.local().saturating_sub_unsigned(micros(age));
        let live = self.live(used).await?;
        match self.judge(ask, began, live).await {
            Err(error) if live.demoted => Box::pin(self.decide_elsewhere(ask, began, used, error)).await,
            result => result,
        }
    }

    /// Once more, after a server has said that it is a replica now. It ran nothing, so the call may go over a new connection,
    /// if there is time to make one: through Sentinels, a name or an address that moved it may lead to the new primary.
    async fn decide_elsewhere(
        &self,
        ask: &Ask<'_>,
        began: i64,
        used: &mut Option<Live>,
        error: StoreError,
    ) -> Result<Answer, StoreError> {
        // Should time run out while it is made, nothing was sent.
        *used = None;
        match self.connections.get().await {
            Ok(live) => self.judge(ask, began, used.insert(live)).await,
            Err(_) => Err(error),
        }
    }

    async fn judge(&self, ask: &Ask<'_>, began: i64, live: &mut Live) -> Result<Answer, StoreError> {
        let script = self.scripts.of(ask.purpose, ask.lines);
        // An answer that came too late has reset the estimate of the server's clock; so it is judged once more.
        for _ in 0..2 {
            let common = self.common(ask.time, Some(ask.purpose), began);
            let args = Args::new(common, ask.lines, ask.purpose);
            let reply = self.run(Call { live, script: &script, job: Job::Ask(ask), args: &args }).await?;
            live.answered();
            let read = wire::read(&reply, ask).inspect_err(|error| live.give_up(error.clone()))?;
            let now = match &read {
                Reply::Answer { now, .. } | Reply::Expired { now } => *now,
            };
            if ask.time == Time::Store {
                self.clock.learn(began, now);
            }
            match read {
                Reply::Answer { answer, .. } => return Ok(answer),
                Reply::Expired { .. } => self.observers.tell(&StoreEvent::Expired),
            }
        }
        Err(StoreError::new(StoreErrorKind::Timeout, "the server came to the call after its deadline").uncharged())
    }

    /// The reply of a script.
    pub(super) async fn run(&self, call: Call<'_>) -> Result<Value, StoreError> {
        match self.engine {
            // Boxed, since it would make the future of every call larger.
            Engine::Functions if !self.is_replica && !self.functions.are_barred() => {
                Box::pin(self.call_function(call)).await
            }
            _ => self.call_script(call).await,
        }
    }

    /// now, not_after, tolerance, margin, spend.
    pub(super) fn common(&self, time: Time, purpose: Option<Purpose>, began: i64) -> [f64; 5] {
        let spend = f64::from(u8::from(matches!(purpose, Some(Purpose::Spend | Purpose::Renew))));
        let never = EXACT as f64;
        match time {
            // An end that comes late is one all the same.
            Time::Store if purpose == Some(Purpose::Release) => [SERVER_CLOCK, never, 0.0, MARGIN, spend],
            Time::Store => {
                let not_after = self.clock.not_after(began, self.deadline).map_or(never, |micros| micros as f64);
                [SERVER_CLOCK, not_after, 0.0, MARGIN, spend]
            }
            Time::Application { now, tolerance } => {
                [now as f64, never, tolerance as f64, MARGIN + tolerance.div_ceil(1_000) as f64, spend]
            }
            Time::Injected(now) => [now as f64, never, 0.0, MARGIN_INJECTED, spend],
        }
    }

    /// EVALSHA, and EVAL where the server does not know the script.
    pub(super) async fn call_script(&self, call: Call<'_>) -> Result<Value, StoreError> {
        if call.job.goes_out_whole() && self.given.is_new(&call.script.sha) {
            return Box::pin(self.send_script(call)).await;
        }
        let verb = if self.is_replica { "EVALSHA_RO" } else { "EVALSHA" };
        let command = call.command(verb, &call.script.sha);
        match call.live.send(&command).await {
            Ok(reply) => return Ok(reply),
            Err(error) => self.conclude(call.live, &error, Some(call.script))?,
        }
        // Rare, so it takes its room elsewhere.
        Box::pin(self.send_script(call)).await
    }

    async fn send_script(&self, call: Call<'_>) -> Result<Value, StoreError> {
        self.observers.tell(&StoreEvent::ScriptSent);
        let verb = if self.is_replica { "EVAL_RO" } else { "EVAL" };
        let command = call.command(verb, &call.script.source.text);
        let error = match call.live.send(&command).await {
            Ok(reply) => return Ok(reply),
            Err(error) => error,
        };
        self.conclude(call.live, &error, Some(call.script))?;
        Err(StoreError::new(StoreErrorKind::Permanent, "NOSCRIPT: the server did not take the script"))
    }

    /// Gives up the connection if it is of no more use. `Ok` when the server only lacks the script.
    pub(super) fn conclude(
        &self,
        live: &mut Live,
        error: &redis::RedisError,
        script: Option<&Script>,
    ) -> Result<(), StoreError> {
        match failure::calling(error, script.map(|script| &script.source)) {
            Failure::NoScript => Ok(()),
            Failure::Keep(error) => {
                live.answered();
                Err(error)
            }
            Failure::Demoted(error) => {
                live.demoted(error.clone());
                Err(error)
            }
            Failure::Replace(error) => {
                live.give_up(error.clone());
                Err(error)
            }
        }
    }

    /// The connection that is in use already, or one.
    pub(super) async fn live<'a>(&self, used: &'a mut Option<Live>) -> Result<&'a mut Live, StoreError> {
        match used {
            Some(live) => Ok(live),
            None => Ok(used.insert(self.connections.get().await?)),
        }
    }

    /// The reply to a command that charges nothing.
    pub(super) async fn query(&self, command: &Cmd) -> Result<Value, StoreError> {
        let mut live = self.connections.get().await?;
        let error = match live.send(command).await {
            Ok(reply) => return Ok(reply),
            Err(error) => error,
        };
        self.conclude(&mut live, &error, None)?;
        Err(StoreError::new(StoreErrorKind::Garbled, "NOSCRIPT: no script was called"))
    }

    pub(super) async fn forget(&self, lines: &[Line<'_>], used: &mut Option<Live>) -> Result<(), StoreError> {
        let live = self.live(used).await?;
        let mut command = redis::cmd("DEL");
        match self.engine {
            Engine::Script | Engine::Functions => job::names(&mut command, lines),
            Engine::Cell => super::cell::names(&mut command, lines),
            Engine::Plain => Box::pin(self.plain_names(&mut command, lines, live)).await?,
        }
        if let Err(error) = live.send(&command).await {
            self.conclude(live, &error, None)?;
        }
        live.answered();
        Ok(())
    }
}
