//! The list fields of draft-ietf-httpapi-ratelimit-headers: `RateLimit-Policy` and `RateLimit` as drafts 8 to 11 have them, and
//! the `RateLimit-Policy` of drafts 6 and 7. Several lines of a list field are one list.

use http::{HeaderMap, HeaderValue};

use super::{
    Snapshot,
    family::Lists,
    moments::ceil_seconds,
    names::{POLICY, RATELIMIT},
    policies::{Policy, join_older},
    text::{Text, value},
};
use crate::decision::{Applied, Decision, Standing};

pub(super) fn write(lists: Lists, snapshot: &Snapshot<'_>, headers: &mut HeaderMap) {
    if speaks_another(lists, headers) {
        return;
    }
    let decision = snapshot.decision;
    let policy = match lists {
        Lists::Named => named(snapshot),
        Lists::Older => older(decision),
    };
    if let Some(policy) = policy {
        // A full map leaves the field out.
        let _ = headers.try_append(POLICY, policy);
    }
    if lists == Lists::Named
        && let Some(standings) = standings(snapshot)
    {
        let _ = headers.try_append(RATELIMIT, standings);
    }
}

/// Whether somebody further in has written these fields in another draft's terms: one list of both would be read by nobody.
fn speaks_another(lists: Lists, headers: &HeaderMap) -> bool {
    let own = |value: &HeaderValue| match lists {
        Lists::Named => value.as_bytes().starts_with(b"\""),
        Lists::Older => value.as_bytes().first().is_some_and(u8::is_ascii_digit),
    };
    // Going through the few fields there are is quicker than looking two of them up.
    headers.iter().any(|(name, value)| {
        let list = *name == POLICY || *name == RATELIMIT && lists == Lists::Named;
        list && !own(value)
    })
}

/// The rules that applied but shadows: those hold nobody to a quota.
fn enforced(decision: &Decision) -> impl Iterator<Item = &Applied> {
    decision.applied().iter().filter(|applied| !applied.is_shadow())
}

/// `"per-user";q=20;w=12, "per-ip";q=1000;w=60`.
fn named(snapshot: &Snapshot<'_>) -> Option<HeaderValue> {
    let rules = snapshot.decision.rules();
    let partitions = snapshot.noted.partitions.as_ref();
    if partitions.is_none() && are_all(snapshot.decision) {
        return rules.policies().all_named();
    }
    let mut text = Text::new();
    for applied in enforced(snapshot.decision) {
        let Some(policy) = rules.told(applied.rule(), applied.is_critical()) else { continue };
        if !text.is_empty() {
            text.text(", ");
        }
        text.text(&policy.named);
        if let Some(partitions) = partitions {
            partitions.write(applied.rule(), &mut text);
        }
    }
    text.value().filter(|value| !value.is_empty())
}

/// `20;w=12, 1000;w=60`.
fn older(decision: &Decision) -> Option<HeaderValue> {
    let rules = decision.rules();
    if are_all(decision) {
        return rules.policies().all_older();
    }
    let applied = enforced(decision);
    let applied: Vec<&Policy> =
        applied.filter_map(|applied| rules.told(applied.rule(), applied.is_critical())).collect();
    HeaderValue::try_from(join_older(applied.into_iter())).ok().filter(|value| !value.is_empty())
}

/// Whether every rule that is told of applied, as it does to ordinary requests.
fn are_all(decision: &Decision) -> bool {
    let rules = decision.rules();
    let ordinary = |applied: &&Applied| !applied.is_critical() && rules.is_told(applied.rule());
    enforced(decision).filter(ordinary).count() == rules.policies().len()
}

/// `"per-user";r=0;t=1, "per-ip";r=871;t=36`.
fn standings(snapshot: &Snapshot<'_>) -> Option<HeaderValue> {
    let rules = snapshot.decision.rules();
    value(|text| {
        for standing in snapshot.decision.standings().filter(|standing| !standing.is_shadow()) {
            let Some(policy) = rules.told(standing.index(), standing.kept() == 0) else { continue };
            if !text.is_empty() {
                text.text(", ");
            }
            text.text(&policy.remaining);
            if standing.limit().lease().is_some() {
                // Nobody knows when the next one is done.
                text.number(standing.remaining());
            } else {
                let more_after = more_after(&standing, snapshot);
                text.number(shown(standing.remaining(), more_after, snapshot.cap_ratio));
                text.text(";t=");
                text.number(more_after);
            }
            if let Some(partitions) = &snapshot.noted.partitions {
                partitions.write(standing.index(), text);
            }
        }
    })
    .filter(|value| !value.is_empty())
}

/// What is told of what remains: no more than the ratio allows until there is more. One unit at least of what there is, so that
/// nobody reads a refusal into it.
#[allow(clippy::cast_precision_loss)]
fn shown(remaining: u64, more_after: u64, cap_ratio: Option<f64>) -> u64 {
    match cap_ratio {
        Some(ratio) => remaining.min(((ratio * more_after as f64) as u64).max(1)),
        None => remaining,
    }
}

/// Seconds until there is more to spend: the end of a fixed window, the leaving of a log's oldest entry, a bucket's next unit. A
/// sliding counter may have more earlier.
fn more_after(standing: &Standing<'_>, snapshot: &Snapshot<'_>) -> u64 {
    let next = standing.limit().next_unit_after(standing.remaining() + standing.kept(), standing.reset_after());
    // There is more by the time this request would fit, whatever the algorithm's own bound is.
    let next = standing.retry_after().map_or(next, |wait| next.min(wait));
    // Of a refusal it is not to lie beyond `Retry-After`.
    let cap = if standing.is_refused() { snapshot.cap } else { snapshot.cap_of(standing) };
    ceil_seconds(next.min(cap))
}
