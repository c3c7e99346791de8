//! Numbers to the scripts and back.

use redis::Value;
use smallvec::SmallVec;

use crate::{
    algorithm::{EXACT, Fair, Params, Parts, fixed_window::Start},
    error::{StoreError, StoreErrorKind},
    store::{Answer, Ask, Change, GIVE_RECORD_TTL, Line, Purpose, RECORD_TTL, Settlement, Verdict, Wait},
};

/// The arguments of a script: doubles, so that neither side formats or parses digits.
pub(super) struct Args(SmallVec<[u8; 128]>);

impl Args {
    pub(super) fn new(common: [f64; 5], lines: &[Line<'_>], purpose: Purpose) -> Args {
        let mut args = Args(SmallVec::with_capacity(8 * (common.len() + 8 * lines.len())));
        for number in common {
            args.push(number);
        }
        for line in lines {
            match purpose {
                // Of leases the need alone matters: there is one cost.
                Purpose::Renew | Purpose::Release => args.line(&Line { cost: line.need(), ..*line }),
                _ => args.line(line),
            }
            match purpose {
                Purpose::Give(_) => args.all([line.receipt]),
                Purpose::Spend | Purpose::Peek if line.tenant.is_some() => {
                    let Fair { whole, half, rest } = line.limit.fair();
                    args.all([line.limit.parts_of(line.need()), line.limit.parts_of(1), whole, half, rest]);
                }
                Purpose::Spend | Purpose::Peek if line.need() > line.cost => {
                    args.all([line.limit.parts_of(line.need())]);
                }
                _ => {}
            }
        }
        for tenant in lines.iter().filter_map(|line| line.of_tenant(purpose)) {
            args.line(&tenant);
            if let Purpose::Give(_) = purpose {
                args.all([tenant.receipt]);
            }
        }
        args
    }

    /// For many changes, those of one algorithm in a group.
    pub(super) fn batch<'a>(
        common: [f64; 5],
        changes: usize,
        groups: impl Iterator<Item = &'a [&'a Settlement<'a>]>,
    ) -> Args {
        let mut args = Args(SmallVec::new());
        common.into_iter().for_each(|number| args.push(number));
        args.push(changes as f64);
        for group in groups {
            args.push(group.len() as f64);
            for settlement in group {
                args.line(&settlement.line);
                args.all([settlement.line.receipt, u64::from(settlement.change == Change::Owe)]);
                if let Some(tenant) = settlement.line.of_tenant(settlement.purpose()) {
                    args.line(&tenant);
                    args.all([tenant.receipt]);
                }
            }
        }
        args
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    fn push(&mut self, number: f64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn all<const N: usize>(&mut self, numbers: [u64; N]) {
        for number in numbers {
            // Everything is below 2^53 by construction, except a cost that can never fit.
            self.push(number.min(EXACT) as f64);
        }
    }

    fn parts(&mut self, parts: &Parts, cost: u64) {
        let power = u64::from(parts.tick.ilog10());
        let cost = cost.saturating_mul(parts.per_unit);
        self.all([parts.tick, power, parts.per_tick, parts.per_unit, parts.capacity, cost]);
    }

    /// In the order of the `--@ args` line of each algorithm.
    fn line(&mut self, line: &Line<'_>) {
        let cost = line.cost;
        match line.limit.params() {
            Params::FixedWindow(params) => {
                match params.start {
                    Start::Aligned(offset) => self.all([params.limit, params.window, offset]),
                    Start::FirstRequest => {
                        self.all([params.limit, params.window]);
                        self.push(-1.0);
                    }
                    Start::Month(utc_offset) => {
                        self.all([params.limit, 0]);
                        self.push(utc_offset as f64);
                    }
                }
                self.all([cost]);
            }
            Params::SlidingLog(params) => self.all([params.limit, params.window, cost]),
            Params::Concurrency(params) => {
                self.all([params.limit, params.lease, cost]);
                // Not a number but a name, in the room of one.
                self.0.extend_from_slice(&line.receipt.to_le_bytes());
            }
            Params::Ban(params) => {
                self.all([params.strikes, params.window, params.first, params.factor, params.longest, params.forget]);
                self.all([line.receipt, cost]);
            }
            Params::SlidingCounter(params) => self.all([params.limit, params.tick, params.window, cost]),
            Params::TokenBucket(parts) | Params::LeakyBucket(parts) => self.parts(parts, cost),
            Params::Queue(params) => self.parts(&params.parts, cost),
            Params::Gcra(parts) => {
                self.parts(parts, cost);
                self.all([parts.pace]);
            }
        }
    }
}

/// How long a change for this purpose is remembered.
pub(super) fn record_millis(purpose: Purpose) -> u64 {
    let ttl = if matches!(purpose, Purpose::Take(_)) { RECORD_TTL } else { GIVE_RECORD_TTL };
    ttl.as_millis() as u64
}

/// What a script returned.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reply {
    Answer {
        now: u64,
        answer: Answer,
    },
    /// It came too late to judge; the server's time is this.
    Expired {
        now: u64,
    },
}

pub(super) fn garbled() -> StoreError {
    StoreError::new(StoreErrorKind::Garbled, "the server's reply makes no sense for a decision script")
}

/// Reads the reply to an ask. Whatever makes no sense is an error.
pub(super) fn read(reply: &Value, ask: &Ask<'_>) -> Result<Reply, StoreError> {
    let lines = ask.lines;
    let Value::Array(values) = reply else { return Err(garbled()) };
    let mut numbers = values.iter().map(|value| match value {
        Value::Int(number) => Ok(*number),
        _ => Err(garbled()),
    });
    let mut count =
        || numbers.next().ok_or_else(garbled)?.and_then(|number| u64::try_from(number).map_err(|_| garbled()));
    let now = count()?;
    if values.len() == 1 {
        return Ok(Reply::Expired { now });
    }
    let is_shared = |line: &&Line<'_>| line.of_tenant(ask.purpose).is_some();
    let own = 1 + 3 * lines.len();
    if values.len() != own + lines.iter().filter(is_shared).count() {
        return Err(garbled());
    }
    let positive = |number: i64| u64::try_from(number).map_err(|_| garbled());
    let (own, tenants) = values.split_at(own);
    let mut tenants = tenants.iter();
    let mut verdicts = SmallVec::new();
    for (line, values) in lines.iter().zip(own.get(1..).unwrap_or_default().chunks_exact(3)) {
        let [Value::Int(remaining), Value::Int(retry), Value::Int(reset)] = values else { return Err(garbled()) };
        let wait = match *retry {
            0 => Wait::None,
            -1 => Wait::Never,
            // The other way round, less one: it fits when its turn has come.
            turn if turn < -1 && matches!(line.limit.params(), Params::Queue(_)) => Wait::Turn(positive(!turn)?),
            micros => Wait::Micros(positive(micros)?),
        };
        let (remaining, reset_after) = (positive(*remaining)?, positive(*reset)?);
        let receipt = line.limit.params().receipt(now, reset_after, line.receipt);
        let tenant_receipt = match is_shared(&line).then(|| tenants.next()) {
            Some(Some(Value::Int(reset))) => now.saturating_add(positive(*reset)?),
            Some(_) => return Err(garbled()),
            None => 0,
        };
        verdicts.push(Verdict { wait, remaining, reset_after, receipt, tenant_receipt });
    }
    Ok(Reply::Answer { now, answer: Answer { verdicts } })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        limit::{Algorithm, Limit, Quota},
        store::{Scope, Time},
    };
    use proptest::prelude::*;

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<i64>().prop_map(Value::Int),
            Just(Value::Int(i64::MIN)),
            Just(Value::Nil),
            Just(Value::Okay),
            any::<Vec<u8>>().prop_map(Value::BulkString),
            any::<f64>().prop_map(Value::Double),
            prop::sample::select(vec![i64::MAX, -1, 0, 1]).prop_map(Value::Int),
            any::<String>().prop_map(Value::SimpleString),
            any::<bool>().prop_map(Value::Boolean),
        ];
        leaf.prop_recursive(3, 16, 8, |inner| {
            prop_oneof![
                4 => prop::collection::vec(inner.clone(), 0..16).prop_map(Value::Array),
                1 => prop::collection::vec(inner.clone(), 0..8).prop_map(Value::Set),
                1 => prop::collection::vec((inner.clone(), inner), 0..4).prop_map(Value::Map),
            ]
        })
    }

    fn any_rule() -> (Scope, Limit) {
        let limit = Limit::new("r", Algorithm::Gcra, Quota::per_second(10), Start::FirstRequest);
        (Scope::new("n", "r"), limit.expect("a quota"))
    }

    fn ask<'a>(lines: &'a [Line<'a>]) -> Ask<'a> {
        Ask { lines, purpose: Purpose::Spend, time: Time::Store }
    }

    proptest! {
        #[test]
        fn no_reply_panics(reply in value(), lines in 0usize..5) {
            let (scope, limit) = any_rule();
            let _ = read(&reply, &ask(&vec![Line::new(&scope, b"k", &limit, 1); lines]));
        }

        /// Numbers alone, and as many as there should be: an answer comes out whole or not at all.
        #[test]
        fn no_numbers_panic(numbers in prop::collection::vec(prop_oneof![any::<i64>(), -2..3i64, Just(i64::MIN)], 0..14), lines in 0usize..5) {
            let reply = Value::Array(numbers.iter().copied().map(Value::Int).collect());
            let (scope, limit) = any_rule();
            if let Ok(Reply::Answer { answer, .. }) = read(&reply, &ask(&vec![Line::new(&scope, b"k", &limit, 1); lines])) {
                prop_assert_eq!(answer.verdicts().len(), lines);
                prop_assert!(numbers.iter().all(|number| *number >= -1));
            }
        }
    }

    #[test]
    fn what_makes_no_sense_is_an_error() {
        let (scope, limit) = any_rule();
        let lines = [Line::new(&scope, b"k", &limit, 1)];
        let ints = |numbers: &[i64]| Value::Array(numbers.iter().copied().map(Value::Int).collect());
        for reply in [ints(&[]), ints(&[-1]), ints(&[5, 1, 0]), ints(&[5, -1, 0, 0]), ints(&[5, 1, -2, 0]), Value::Okay]
        {
            let error = read(&reply, &ask(&lines)).expect_err("an error");
            assert_eq!(error.kind(), StoreErrorKind::Garbled);
        }
        assert_eq!(read(&ints(&[5]), &ask(&lines)), Ok(Reply::Expired { now: 5 }));
    }
}
