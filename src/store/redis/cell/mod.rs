//! By the module redis-cell, which has GCRA as a command: `CL.THROTTLE key max_burst count period quantity`.
//!
//! One rule is one such command. For several, to look without charging, and in a Cluster, a script asks the module about each before
//! it charges any.

mod quota;
mod reply;

use std::{sync::LazyLock, time::Instant};

use redis::{Cmd, Value};

use self::quota::Throttle;
pub(super) use self::quota::accept;
use super::{
    connections::Live,
    engine::Engine,
    failure::{self, Failure},
    node::Node,
};
use crate::{
    error::{StoreError, StoreErrorKind},
    limit::micros,
    observer::StoreEvent,
    store::{Answer, Ask, Line, Purpose, Time},
};

const TEXT: &str = include_str!("../../../../lua/ops/cell.lua");
static SHA: LazyLock<String> = LazyLock::new(|| redis::Script::new(TEXT).get_hash().to_owned());

impl Node {
    pub(super) async fn decide_by_cell(&self, ask: &Ask<'_>, used: &mut Option<Live>) -> Result<Answer, StoreError> {
        if ask.time != Time::Store {
            let text =
                "redis-cell knows no clock but the server's; drop clock(..) from the limiter, or cell() from the store";
            return Err(StoreError::new(StoreErrorKind::Permanent, text));
        }
        let throttles: Option<Vec<Throttle>> = ask.lines.iter().map(|line| Throttle::of(line.limit)).collect();
        let Some(throttles) = throttles else {
            return Err(StoreError::new(StoreErrorKind::Permanent, "a rule is none that redis-cell can keep"));
        };
        let live = self.live(used).await?;
        let sent = now();
        let answer = match (ask.lines, &throttles[..], ask.purpose) {
            // Nodes of a Cluster do not know that the command has a key, and run it for slots that are not theirs. Of a script they do.
            ([line], [throttle], Purpose::Spend) if line.cost <= throttle.capacity && self.place.is_none() => {
                let reply = self.send_to_cell(live, &command(line, throttle)).await?;
                reply::of_command(&reply, throttle, line.cost, sent)
            }
            _ => {
                let reply = self.run_cell_script(live, ask, &throttles).await?;
                reply::of_script(&reply, &throttles, sent)
            }
        };
        live.answered();
        answer.inspect_err(|error| {
            if error.kind() == StoreErrorKind::Garbled {
                live.give_up(error.clone());
            }
        })
    }

    async fn run_cell_script(
        &self,
        live: &mut Live,
        ask: &Ask<'_>,
        throttles: &[Throttle],
    ) -> Result<Value, StoreError> {
        match live.send(&script("EVALSHA", &SHA, ask, throttles)).await {
            Ok(reply) => return Ok(reply),
            Err(error) if matches!(failure::calling(&error, None), Failure::NoScript) => {}
            Err(error) => return Err(failure::commanding(&error, Engine::Cell, live)),
        }
        self.observers.tell(&StoreEvent::ScriptSent);
        self.send_to_cell(live, &script("EVAL", TEXT, ask, throttles)).await
    }

    async fn send_to_cell(&self, live: &mut Live, command: &Cmd) -> Result<Value, StoreError> {
        live.send(command).await.map_err(|error| failure::commanding(&error, Engine::Cell, live))
    }
}

/// Microseconds on this process's own clock, the same for all its stores.
fn now() -> u64 {
    static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
    micros(BEGAN.elapsed())
}

/// The name of a line's count. Other engines write other things under theirs; escaped names have no `=`.
fn name(line: &Line<'_>) -> Vec<u8> {
    let mut name = line.name().concat();
    name.extend_from_slice(b"=cell");
    name
}

/// Adds the name of each line's count.
pub(super) fn names(command: &mut Cmd, lines: &[Line<'_>]) {
    for line in lines {
        command.arg(name(line));
    }
}

fn command(line: &Line<'_>, throttle: &Throttle) -> Cmd {
    let mut command = redis::cmd("CL.THROTTLE");
    command.arg(name(line));
    command.arg(throttle.max_burst()).arg(throttle.count).arg(throttle.period).arg(line.cost);
    command
}

fn script(verb: &str, script: &str, ask: &Ask<'_>, throttles: &[Throttle]) -> Cmd {
    let (purpose, id) = match ask.purpose {
        // It has no leases.
        Purpose::Peek | Purpose::Renew | Purpose::Release => (0, None),
        Purpose::Spend => (1, None),
        // The module has no debts.
        Purpose::Take(id) | Purpose::Owe(id) => (2, Some(id)),
        Purpose::Give(id) => (3, Some(id)),
    };
    let mut command = redis::cmd(verb);
    command.arg(script).arg(ask.lines.len() + usize::from(id.is_some()));
    names(&mut command, ask.lines);
    if let (Some(id), Some(line)) = (id, ask.lines.first()) {
        let mut record = line.name().concat();
        record.extend_from_slice(format!("=id:{:032x}", id.bits()).as_bytes());
        command.arg(record);
    }
    command.arg(purpose).arg(super::wire::record_millis(ask.purpose));
    for (line, throttle) in ask.lines.iter().zip(throttles) {
        let cost = match ask.purpose {
            Purpose::Give(_) => throttle.still_counts(line.cost, line.receipt, now()),
            _ => line.cost,
        };
        let cost = cost.min(throttle.capacity.saturating_add(1));
        command.arg(throttle.max_burst()).arg(throttle.count).arg(throttle.period).arg(cost).arg(u8::from(line.shadow));
    }
    command
}
