use std::{sync::Arc, time::Duration};

use http::HeaderValue;
use sha2::{Digest, Sha256};

use super::{
    moments::ceil_seconds,
    text::{LARGEST, push_escaped},
};
use crate::{key::hex, limit::Limit};

/// What the fields say of each rule whatever the request, written once.
#[derive(Clone, Debug)]
pub(crate) struct Policies {
    each: Box<[Arc<Policy>]>,
    /// How many rules there are to tell of.
    limited: usize,
    /// The items of all these, for the requests that every rule applies to.
    named: Option<HeaderValue>,
    older: Option<HeaderValue>,
}

/// More rules never apply to one request.
const MOST_TOGETHER: usize = 64;

#[derive(Debug)]
pub(super) struct Policy {
    /// Nothing is told of it: there is no limit, or it is no quota of the caller's.
    silent: bool,
    /// `"name";r=`, the name quoted and escaped.
    pub(super) remaining: String,
    /// `"name";q=100;w=60`.
    pub(super) named: String,
    /// `100;w=60`, as drafts 6 and 7 have it. They have no words for a window that is no whole seconds.
    pub(super) older: Option<Older>,
    /// The capacity, for the fields that show one number.
    pub(super) capacity: HeaderValue,
    /// Tells the rule from others; a digest of its name.
    pub(super) bucket: Option<HeaderValue>,
    /// What it is to critical requests, where something is kept for them.
    critical: Option<Box<Policy>>,
}

#[derive(Debug)]
pub(super) struct Older {
    pub(super) quota: u64,
    pub(super) item: String,
}

impl Policies {
    pub(crate) fn new<'a>(rules: impl Iterator<Item = (&'a str, &'a Limit, bool)>) -> Policies {
        let policies = rules.map(|(name, limit, is_quota)| Policy::of(name, limit, is_quota));
        Policies::gather(policies.map(Arc::new).collect())
    }

    fn gather(each: Box<[Arc<Policy>]>) -> Policies {
        let limited = || each.iter().map(|policy| &**policy).filter(|policy| !policy.silent);
        let count = limited().count();
        if count > MOST_TOGETHER {
            return Policies { named: None, older: None, limited: count, each };
        }
        let named = limited().map(|policy| policy.named.as_str()).collect::<Vec<_>>().join(", ");
        let older = join_older(limited());
        let value = |text: String| HeaderValue::try_from(text).ok().filter(|value| !value.is_empty());
        Policies { named: value(named), older: value(older), limited: count, each }
    }

    /// Tells something else of the rule of this index. What is told of all together stays as it is until it is
    /// [joined](Policies::joined).
    pub(crate) fn replace(&mut self, index: u16, (name, limit, is_quota): (&str, &Limit, bool)) {
        if let Some(place) = self.each.get_mut(usize::from(index)) {
            *place = Arc::new(Policy::of(name, limit, is_quota));
        }
    }

    /// The same, with what is told of all together joined anew.
    pub(crate) fn joined(self) -> Policies {
        Policies::gather(self.each)
    }

    /// How many rules there are to tell of.
    pub(super) fn len(&self) -> usize {
        self.limited
    }

    /// What is told of a rule to a request that may use all of it, or not what is reserved. `None`: nothing.
    #[inline]
    pub(super) fn of(&self, rule: u16, all: bool) -> Option<&Policy> {
        let policy = self.each.get(usize::from(rule)).map(|policy| &**policy).filter(|policy| !policy.silent)?;
        Some(policy.critical.as_deref().filter(|_| all).unwrap_or(policy))
    }

    pub(super) fn all_named(&self) -> Option<HeaderValue> {
        self.named.clone()
    }

    pub(super) fn all_older(&self) -> Option<HeaderValue> {
        self.older.clone()
    }
}

impl Policy {
    fn of(name: &str, limit: &Limit, is_quota: bool) -> Policy {
        let capacity = limit.quota().capacity();
        let critical = (limit.reserved() > 0).then(|| Box::new(Policy::new(name, limit, capacity)));
        let ordinary = Policy::new(name, limit, capacity.saturating_sub(limit.reserved()));
        Policy { silent: limit.is_unlimited() || !is_quota, critical, ..ordinary }
    }

    /// Of as much as a request can use.
    fn new(name: &str, limit: &Limit, capacity: u64) -> Policy {
        let mut quoted = String::from("\"");
        push_escaped(&mut quoted, name);
        quoted.push('"');
        let (quota, window) = quota_and_window(limit, capacity);
        let named = match window {
            _ if limit.lease().is_some() => format!("{quoted};q={quota};qu=\"concurrent-requests\""),
            Some(window) => format!("{quoted};q={quota};w={window}"),
            None => format!("{quoted};q={quota}"),
        };
        let older = window.map(|window| Older { quota, item: format!("{quota};w={window}") });
        let bucket: Vec<u8> = Sha256::digest(name).iter().take(16).flat_map(|byte| hex(*byte)).collect();
        Policy {
            silent: false,
            critical: None,
            remaining: quoted + ";r=",
            named,
            older,
            capacity: capacity.min(LARGEST).into(),
            bucket: HeaderValue::try_from(bucket).ok(),
        }
    }
}

/// Drafts 6 and 7 allow one policy for each quota.
pub(super) fn join_older<'a>(policies: impl Iterator<Item = &'a Policy>) -> String {
    let mut seen: Vec<&Older> = Vec::new();
    for older in policies.filter_map(|policy| policy.older.as_ref()) {
        if seen.iter().all(|other| other.quota != older.quota) {
            seen.push(older);
        }
    }
    seen.iter().map(|older| older.item.as_str()).collect::<Vec<_>>().join(", ")
}

/// Units, and in how many seconds. A window of a part of a second is told as a whole one where it divides one, and else left
/// out; as is a calendar's month, which has no one length.
fn quota_and_window(limit: &Limit, capacity: u64) -> (u64, Option<u64>) {
    if limit.lease().is_some() {
        return (capacity, None);
    }
    let Some(period) = limit.period(capacity) else { return (capacity.min(LARGEST), None) };
    let second = Duration::from_secs(1);
    if period >= second {
        return (capacity.min(LARGEST), Some(ceil_seconds(period)));
    }
    let (whole, part) =
        (second.as_micros() / period.as_micros().max(1), second.as_micros() % period.as_micros().max(1));
    match u64::try_from(whole) {
        Ok(times) if part == 0 => (capacity.saturating_mul(times).min(LARGEST), Some(1)),
        _ => (capacity.min(LARGEST), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Quota, Rule, key};

    /// Or no request would be found to have them all, and each response would be written anew.
    #[test]
    fn what_has_no_limit_is_not_one_of_those_to_tell_of() {
        let rules = [("free", Quota::unlimited()), ("pages", Quota::per_hour(2)), ("more", Quota::unlimited())];
        let limits =
            rules.map(|(name, quota)| (name, Rule::gcra(name, quota).key(key::global()).check().expect("sound")));
        let policies = Policies::new(limits.iter().map(|(name, limit)| (*name, limit, true)));
        assert_eq!(policies.len(), 1);
        assert_eq!(policies.all_named().expect("a field"), "\"pages\";q=2;w=3600");
        assert!(policies.of(0, true).is_none() && policies.of(1, true).is_some() && policies.of(2, true).is_none());
    }
}
