use std::{sync::OnceLock, time::Duration};

use http::HeaderValue;
use sha2::{Digest, Sha256};

use super::{
    moments::ceil_seconds,
    text::{LARGEST, push_escaped},
};
use crate::{key::hex, limit::Limit, limiter::MOST_RULES};

/// What the fields say of all rules together, for the requests that every rule applies to: written once.
#[derive(Clone, Debug)]
pub(crate) struct Policies {
    /// How many rules there are to tell of.
    told: usize,
    named: Option<HeaderValue>,
    older: Option<HeaderValue>,
}

/// What the fields say of a rule whatever the request. Written when it is first told, since of ten thousand rules few are on any one day.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told(OnceLock<Box<Policy>>);

#[derive(Clone, Debug)]
pub(crate) struct Policy {
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

#[derive(Clone, Debug)]
pub(super) struct Older {
    pub(super) quota: u64,
    pub(super) item: String,
}

impl Policies {
    /// Of rules of which so many are told of.
    pub(crate) fn new<'a>(told: usize, policies: impl Iterator<Item = &'a Policy> + Clone) -> Policies {
        // So many never apply to one request.
        if told > MOST_RULES {
            return Policies { told, named: None, older: None };
        }
        let named = policies.clone().map(|policy| policy.named.as_str()).collect::<Vec<_>>().join(", ");
        let older = join_older(policies);
        let value = |text: String| HeaderValue::try_from(text).ok().filter(|value| !value.is_empty());
        Policies { told, named: value(named), older: value(older) }
    }

    /// How many rules there are to tell of.
    pub(crate) fn len(&self) -> usize {
        self.told
    }

    pub(super) fn all_named(&self) -> Option<HeaderValue> {
        self.named.clone()
    }

    pub(super) fn all_older(&self) -> Option<HeaderValue> {
        self.older.clone()
    }
}

impl Told {
    /// What is told of the rule of this name and limit to a request that may use all of it, or not what is reserved.
    #[inline]
    pub(crate) fn policy(&self, name: &str, limit: &Limit, all: bool) -> &Policy {
        let policy = self.0.get_or_init(|| Box::new(Policy::of(name, limit)));
        policy.critical.as_deref().filter(|_| all).unwrap_or(policy)
    }
}

impl Policy {
    fn of(name: &str, limit: &Limit) -> Policy {
        let capacity = limit.quota().capacity();
        let critical = (limit.reserved() > 0).then(|| Box::new(Policy::new(name, limit, capacity)));
        Policy { critical, ..Policy::new(name, limit, capacity.saturating_sub(limit.reserved())) }
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
    use crate::{Limiter, LimiterBuilder, MemoryStore, Quota, Rule, key};

    /// Or no request would be found to have them all, and each response would be written anew.
    #[test]
    fn what_has_no_limit_is_not_one_of_those_to_tell_of() {
        let quotas = [("free", Quota::unlimited()), ("pages", Quota::per_hour(2)), ("more", Quota::unlimited())];
        let rules = quotas.map(|(name, quota)| Rule::gcra(name, quota).key(key::global()));
        let limiter = rules.into_iter().fold(Limiter::builder(MemoryStore::new()), LimiterBuilder::rule).build();
        let limiter = limiter.expect("sound");
        let rules = limiter.rules();
        assert_eq!(rules.policies().len(), 1);
        assert_eq!(rules.policies().all_named().expect("a field"), "\"pages\";q=2;w=3600");
        assert!(rules.told(0, true).is_none() && rules.told(1, true).is_some() && rules.told(2, true).is_none());
    }
}
