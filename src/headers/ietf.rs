//! `RateLimit-Policy` and `RateLimit` as drafts 8 to 11 of draft-ietf-httpapi-ratelimit-headers have them.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};

use super::{Field, LARGEST, ceil_seconds, push_escaped};
use crate::{decision::Decision, limit::Limit};

const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// What the fields say of each rule whatever the request, written once.
#[derive(Debug)]
pub(crate) struct Policies {
    /// `"name"`, quoted and escaped.
    names: Box<[String]>,
    /// `"name";q=100;w=60`.
    items: Box<[String]>,
    /// All of them, for the requests that every rule applies to.
    all: Option<HeaderValue>,
    /// The capacities, for the fields that show one number.
    capacities: Box<[HeaderValue]>,
}

impl Policies {
    pub(crate) fn new<'a>(rules: impl Iterator<Item = (&'a str, &'a Limit)>) -> Policies {
        let mut capacities = Vec::new();
        let (names, items): (Vec<_>, Vec<_>) = rules
            .map(|(name, limit)| {
                capacities.push(limit.quota().capacity().into());
                let mut quoted = String::from("\"");
                push_escaped(&mut quoted, name);
                quoted.push('"');
                let item = quoted.clone() + &quota(limit);
                (quoted, item)
            })
            .unzip();
        let all = HeaderValue::try_from(items.join(", ")).ok();
        Policies { names: names.into(), items: items.into(), all, capacities: capacities.into() }
    }

    fn name(&self, rule: u16) -> &str {
        self.names.get(usize::from(rule)).map_or("", String::as_str)
    }

    pub(super) fn capacity(&self, rule: u16) -> Option<HeaderValue> {
        self.capacities.get(usize::from(rule)).cloned()
    }

    fn value(&self, decision: &Decision) -> Option<HeaderValue> {
        let lines = decision.applied();
        if lines.len() == self.items.len() {
            return self.all.clone();
        }
        let items = lines.iter().filter_map(|line| self.items.get(usize::from(line.rule())).map(String::as_str));
        HeaderValue::try_from(items.collect::<Vec<_>>().join(", ")).ok()
    }
}

/// `;q=100;w=60`. A window of a part of a second is told as whole seconds where it divides one, and else left out.
fn quota(limit: &Limit) -> String {
    let capacity = limit.quota().capacity();
    let period = limit.period();
    let second = Duration::from_secs(1);
    if period >= second {
        return format!(";q={};w={}", capacity.min(LARGEST), ceil_seconds(period));
    }
    let (whole, part) =
        (second.as_micros() / period.as_micros().max(1), second.as_micros() % period.as_micros().max(1));
    match u64::try_from(whole) {
        Ok(times) if part == 0 => format!(";q={};w=1", capacity.saturating_mul(times).min(LARGEST)),
        _ => format!(";q={}", capacity.min(LARGEST)),
    }
}

pub(super) fn write(decision: &Decision, headers: &mut HeaderMap) {
    let policies = decision.rules().policies();
    if let Some(value) = policies.value(decision) {
        headers.append(POLICY, value);
    }
    let mut field = Field::new();
    for (place, (line, standing)) in decision.applied().iter().zip(decision.standings()).enumerate() {
        if place > 0 {
            field.text(", ");
        }
        field.text(policies.name(line.rule()));
        field.text(";r=");
        field.number(standing.remaining());
        field.text(";t=");
        // Quota comes back by the time this request would fit, whatever the algorithm's own bound is.
        let next = standing.limit().next_unit_after(standing.remaining(), standing.reset_after());
        field.number(ceil_seconds(standing.retry_after().map_or(next, |wait| next.min(wait))));
    }
    if let Some(value) = field.value() {
        headers.append(RATELIMIT, value);
    }
}
