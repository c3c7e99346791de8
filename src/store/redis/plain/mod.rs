//! Without scripts: fixed windows by commands that every server has.
//!
//! Nothing on the server computes, so windows live in the names of counts: `namespace:v1:{key}:rule=start+length`. Which window it
//! is comes from the estimate of the server's clock, and each call asks for the server's TIME beside its work: if that is in another
//! window, the call was wrong, leaves nothing behind, and is made once more.
//!
//! A node of a Cluster turns a transaction away whole, when a command is queued or at its end; so does it a look at several counts,
//! which are sent as one there. Outside of one, a node that a slot is moving to would tell of a count that it does not have yet.

mod charge;
mod replies;
mod window;

use std::sync::{Arc, atomic::Ordering};

use redis::{Cmd, Value};
use tokio::time::Instant;

pub(super) use self::replies::time;
use self::{
    charge::{Charge, Kind},
    window::Window,
};
use super::{connections::Live, engine::Engine, failure, node::Node};
use crate::{
    algorithm::{Params, fixed_window::Start},
    error::{BuildError, StoreError, StoreErrorKind},
    limit::Limit,
    store::{Answer, Ask, Id, Line, Purpose, Time},
};

/// Shorter windows would be over before the call arrives.
const SHORTEST: u64 = 1_000_000;
/// How often a call is made that finds itself in another window.
const TRIES: u32 = 3;

/// Whether this rule can be kept.
pub(super) fn accept(rule: &str, limit: &Limit) -> Result<(), BuildError> {
    let bad = |field, text: String| Err(BuildError::rule(rule, field, text));
    if limit.is_shared() {
        let text =
            "a limit that tenants share needs scripts; drop .fair_share(..), or build the store without no_scripts()";
        return bad("fair_share", text.into());
    }
    match limit.params() {
        Params::FixedWindow(params) if params.start == Start::FirstRequest => bad(
            "from_first_request",
            "windows from the first request need scripts; drop from_first_request(), or build the store without no_scripts()"
                .into(),
        ),
        Params::FixedWindow(params) if params.window < SHORTEST => bad(
            "quota",
            format!("a window of {:?} is too short without scripts; give a second or more", limit.quota().window()),
        ),
        Params::FixedWindow(_) => Ok(()),
        Params::Ban(_) => {
            bad("ban", "bans need scripts; drop .ban(..), or build the store without no_scripts()".into())
        }
        _ => bad(
            "algorithm",
            format!("a {} needs scripts; use a fixed window, or build the store without no_scripts()", limit.algorithm()),
        ),
    }
}

/// What looking told.
#[derive(Default)]
struct Looked {
    at: u64,
    counts: Vec<u64>,
    /// Whether there is the record.
    known: bool,
    /// None when it is another window.
    answer: Option<Answer>,
}

impl Node {
    pub(super) async fn decide_plainly(&self, ask: &Ask<'_>, used: &mut Option<Live>) -> Result<Answer, StoreError> {
        if ask.lines.is_empty() {
            return Ok(Answer::default());
        }
        let until = Instant::now() + self.deadline;
        let live = self.live(used).await?;
        let mut now = self.time_of(ask.time, live).await?;
        let never_fits = ask.lines.iter().any(|line| line.need() > line.limit.quota().amount() && !line.shadow);
        for _ in 0..TRIES {
            let windows = windows(ask.lines, now, ask.time)?;
            let began = self.clock.local();
            let (at, answer) = match ask.purpose {
                Purpose::Spend if !never_fits => self.spend(&windows, ask, live, until).await?,
                // There are no leases without scripts.
                Purpose::Spend | Purpose::Peek | Purpose::Renew | Purpose::Release => {
                    let looked = self.look(&windows, ask, live, None).await?;
                    (looked.at, looked.answer)
                }
                Purpose::Take(id) | Purpose::Owe(id) | Purpose::Give(id) => {
                    self.once(&windows, ask, live, until, id).await?
                }
            };
            if ask.time == Time::Store {
                self.clock.learn(began, at);
            }
            if let Some(answer) = answer {
                return Ok(answer);
            }
            now = at;
        }
        let text = "every call found itself in another window of its rule than it was sent for";
        Err(StoreError::new(StoreErrorKind::Timeout, text).uncharged())
    }

    /// Now, as far as can be told before the call.
    async fn time_of(&self, time: Time, live: &mut Live) -> Result<u64, StoreError> {
        match time {
            Time::Application { now, .. } => Ok(now),
            Time::Injected(now) => {
                self.injected.store(now, Ordering::Relaxed);
                Ok(now)
            }
            Time::Store => {
                let local = self.clock.local();
                if let Some(now) = self.clock.not_after(local, std::time::Duration::ZERO) {
                    return Ok(u64::try_from(now).unwrap_or(0));
                }
                let reply = live.send(&redis::cmd("TIME")).await;
                let reply = reply.map_err(|error| failure::commanding(&error, Engine::Plain, live))?;
                let now = replies::time(Some(&reply))?;
                self.clock.learn(local, now);
                Ok(now)
            }
        }
    }

    /// Judges by what the counts are, and looks whether there is a record.
    async fn look(
        &self,
        windows: &[Window],
        ask: &Ask<'_>,
        live: &mut Live,
        record: Option<&[u8]>,
    ) -> Result<Looked, StoreError> {
        let mut commands = redis::pipe();
        let together = self.place.is_some();
        if together {
            commands.cmd("MULTI");
        }
        commands.cmd("TIME");
        for name in windows.iter().map(|window| &*window.name).chain(record) {
            commands.cmd("GET").arg(name);
        }
        if together {
            commands.cmd("EXEC");
        }
        let replies = live.send_all(&commands).await;
        let replies = if together { replies.and_then(replies::executed) } else { replies };
        let replies = replies.and_then(|replies| match replies::error_in(&replies) {
            Some(error) => Err(error),
            None => Ok(replies),
        });
        let replies = replies.map_err(|error| failure::commanding(&error, Engine::Plain, live))?;
        live.answered();
        let at = match ask.time {
            Time::Store => replies::time(replies.first())?,
            Time::Application { now, .. } | Time::Injected(now) => now,
        };
        if !windows.iter().all(|window| window.holds(at)) {
            return Ok(Looked { at, ..Looked::default() });
        }
        let counts = replies.iter().skip(1).take(windows.len());
        let counts: Result<Vec<u64>, StoreError> =
            counts.map(|reply| Ok(u64::try_from(replies::number(reply)?).unwrap_or(0))).collect();
        let counts = counts?;
        let mut answer = Answer::default();
        windows.iter().zip(&counts).for_each(|(window, count)| answer.push(window.judge(*count, at)));
        let known = replies.get(1 + windows.len()).is_some_and(|record| *record != Value::Nil);
        Ok(Looked { at, counts, known, answer: Some(answer) })
    }

    async fn spend(
        &self,
        windows: &Arc<[Window]>,
        ask: &Ask<'_>,
        live: &mut Live,
        until: Instant,
    ) -> Result<(u64, Option<Answer>), StoreError> {
        let amounts = windows.iter().map(Window::amount).collect();
        self.charge(windows, amounts, Kind::Spend, ask, live, until).await
    }

    /// Charges or gives back what can be, unless it was done before.
    async fn once(
        &self,
        windows: &Arc<[Window]>,
        ask: &Ask<'_>,
        live: &mut Live,
        until: Instant,
        id: Id,
    ) -> Result<(u64, Option<Answer>), StoreError> {
        let Some(line) = ask.lines.first() else { return Err(replies::garbled()) };
        let mut record = line.name().concat();
        record.extend_from_slice(format!("=id:{:032x}", id.bits()).as_bytes());
        let Looked { at, counts, known, answer } = self.look(windows, ask, live, Some(&record)).await?;
        if known || answer.is_none() {
            return Ok((at, answer));
        }
        let give = matches!(ask.purpose, Purpose::Give(_));
        let amounts = windows.iter().zip(ask.lines).zip(counts).map(|((window, line), count)| {
            let most = match give {
                true if window.holds_charge(line.receipt) => count,
                true => 0,
                false => window.limit.saturating_sub(count),
            };
            let amount = i64::try_from(window.cost.min(most)).unwrap_or(i64::MAX);
            if give { -amount } else { amount }
        });
        let kind = Kind::Once { record, ttl: super::wire::record_millis(ask.purpose) };
        self.charge(windows, amounts.collect(), kind, ask, live, until).await
    }

    async fn charge(
        &self,
        windows: &Arc<[Window]>,
        amounts: Vec<i64>,
        kind: Kind,
        ask: &Ask<'_>,
        live: &mut Live,
        until: Instant,
    ) -> Result<(u64, Option<Answer>), StoreError> {
        let spend = matches!(kind, Kind::Spend);
        // What is done once is not judged again: it stays in the window that it was sent for.
        let by_server = spend && ask.time == Time::Store;
        let (windows, place) = (Arc::clone(windows), self.place.clone());
        let charge = Charge { windows: Arc::clone(&windows), amounts: amounts.clone(), kind, by_server, place };
        let charged = charge::charge(charge, live, until, Arc::clone(&self.observers)).await?;
        if charged.moved {
            return Ok((charged.at, None));
        }
        let at = match ask.time {
            Time::Store => charged.at,
            Time::Application { now, .. } | Time::Injected(now) => now,
        };
        let mut answer = Answer::default();
        let lines = windows.iter().zip(&charged.counts).zip(&charged.taken_back);
        for (((window, count), taken_back), amount) in lines.zip(amounts) {
            let count = u64::try_from(count.saturating_sub(*taken_back)).unwrap_or(0);
            let kept = !spend || amount != 0 && *taken_back == 0;
            answer.push(if kept { window.left(count, at) } else { window.judge(count, at) });
        }
        Ok((charged.at, Some(answer)))
    }

    /// The names of the counts that run now.
    pub(super) async fn plain_names(
        &self,
        command: &mut Cmd,
        lines: &[Line<'_>],
        live: &mut Live,
    ) -> Result<(), StoreError> {
        let time = match self.injected.load(Ordering::Relaxed) {
            0 => Time::Store,
            now => Time::Injected(now),
        };
        let now = self.time_of(time, live).await?;
        for window in &*windows(lines, now, time)? {
            command.arg(&window.name);
        }
        Ok(())
    }
}

fn windows(lines: &[Line<'_>], now: u64, time: Time) -> Result<Arc<[Window]>, StoreError> {
    let windows: Option<Arc<[Window]>> = lines.iter().map(|line| Window::of(line, now, time)).collect();
    windows.ok_or_else(|| {
        StoreError::new(StoreErrorKind::Permanent, "a rule that is no aligned fixed window needs scripts")
    })
}
