//! The module's answers as verdicts.

use redis::Value;

use super::quota::Throttle;
use crate::{
    error::{StoreError, StoreErrorKind},
    store::{Answer, Verdict, Wait},
};

fn garbled() -> StoreError {
    StoreError::new(StoreErrorKind::Garbled, "the server's reply makes no sense for CL.THROTTLE")
}

/// The reply to `CL.THROTTLE`: refused, limit, remaining, retry, reset.
pub(super) fn of_command(reply: &Value, throttle: &Throttle, cost: u64, sent: u64) -> Result<Answer, StoreError> {
    let Value::Array(values) = reply else { return Err(garbled()) };
    let [Value::Int(refused), Value::Int(_), Value::Int(remaining), Value::Int(retry), Value::Int(reset)] = values[..]
    else {
        return Err(garbled());
    };
    // What costs nothing waits for nothing, though the module says so of a count above a lowered limit.
    let refused = if cost == 0 { 0 } else { refused };
    let mut answer = Answer::default();
    answer.push(verdict(throttle, [refused, remaining, retry, reset], sent)?);
    Ok(answer)
}

/// The reply of the script: refused, remaining, retry, reset for each line.
pub(super) fn of_script(reply: &Value, throttles: &[Throttle], sent: u64) -> Result<Answer, StoreError> {
    let Value::Array(values) = reply else { return Err(garbled()) };
    if values.len() != 4 * throttles.len() {
        return Err(garbled());
    }
    let mut answer = Answer::default();
    for (line, throttle) in values.chunks_exact(4).zip(throttles) {
        let [Value::Int(refused), Value::Int(remaining), Value::Int(retry), Value::Int(reset)] = *line else {
            return Err(garbled());
        };
        answer.push(verdict(throttle, [refused, remaining, retry, reset], sent)?);
    }
    Ok(answer)
}

fn verdict(
    throttle: &Throttle,
    [refused, remaining, retry, reset]: [i64; 4],
    sent: u64,
) -> Result<Verdict, StoreError> {
    let remaining = u64::try_from(remaining).map_err(|_| garbled())?.min(throttle.capacity);
    let wait = match refused {
        0 => Wait::None,
        _ if retry < 0 => Wait::Never,
        _ => Wait::Micros(until(retry)?),
    };
    let reset_after = if remaining == throttle.capacity { 0 } else { until(reset)? };
    Ok(Verdict { wait, remaining, reset_after, receipt: throttle.receipt(sent, remaining), tenant_receipt: 0 })
}

/// Microseconds that are not less than what the module cut to whole seconds.
fn until(seconds: i64) -> Result<u64, StoreError> {
    u64::try_from(seconds).ok().and_then(|seconds| (seconds + 1).checked_mul(1_000_000)).ok_or_else(garbled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_never_shorter_than_the_truth() {
        let throttle = Throttle { capacity: 10, count: 10, period: 60 };
        let ints = |numbers: &[i64]| Value::Array(numbers.iter().copied().map(Value::Int).collect());
        for (reply, wait, reset_after) in [
            ([0, 10, 10, -1, 0], Wait::None, 0),
            ([0, 10, 9, -1, 5], Wait::None, 6_000_000),
            ([1, 10, 0, 0, 59], Wait::Micros(1_000_000), 60_000_000),
            ([1, 10, 3, -1, 41], Wait::Never, 42_000_000),
        ] {
            let answer = of_command(&ints(&reply), &throttle, 1, 0).expect("an answer");
            let verdict = answer.verdicts()[0];
            assert_eq!((verdict.wait, verdict.reset_after), (wait, reset_after), "{reply:?}");
        }
        for reply in [ints(&[]), ints(&[0, 10, -1, 0, 0]), ints(&[1, 10, 0, i64::MAX, 0]), Value::Okay] {
            assert!(of_command(&reply, &throttle, 1, 0).is_err(), "{reply:?}");
        }
        assert!(of_script(&ints(&[0, 1, 2]), &[throttle], 0).is_err());
    }
}
