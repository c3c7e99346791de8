//! What only the application knows.

use std::collections::BTreeSet;

use sluicegate::policy::{Applies, Explanation, KnownBy, Names, Outcome, Policy};

/// A name that may stand for anything.
pub(crate) fn anything(names: Names, name: &str) -> Names {
    let nothing = |_: &http::request::Parts| None::<String>;
    names.key(name, nothing).tier(name, nothing).cost(name, |_| 1).condition(name, |_| false)
}

/// Every name that code must register.
pub(crate) fn all(policy: &Policy) -> BTreeSet<String> {
    let names = policy.code_names();
    names.keys().chain(names.tiers()).chain(names.costs()).chain(names.conditions()).map(str::to_owned).collect()
}

/// What could be given to see more of an explanation.
pub(crate) fn missing(explanation: &Explanation) -> BTreeSet<String> {
    let mut flags = BTreeSet::new();
    // Who is on a list needs nothing else.
    if matches!(explanation.outcome(), Outcome::Allowed { .. } | Outcome::Denied { .. }) {
        return flags;
    }
    for rule in explanation.rules().filter(|rule| matches!(rule.applies(), Applies::NoKey | Applies::Refuses)) {
        flags.extend(rule.key_by().split([' ', '|', '+']).filter_map(flag));
    }
    let tier = explanation.tier().filter(|tier| tier.known_by() == KnownBy::Default && tier.found().is_none());
    if tier.is_some() {
        flags.insert("--tier TIER".into());
    }
    let customer = explanation.customer().filter(|customer| customer.key().is_none());
    if customer.is_some() {
        flags.insert("--customer CUSTOMER".into());
    }
    flags
}

/// The flag that gives a part of a key.
fn flag(part: &str) -> Option<String> {
    match part.split_once(':') {
        _ if part.is_empty() => None,
        Some(("refuse", _)) => None,
        Some(("header" | "api_key", name)) => Some(format!("--header '{name}: VALUE'")),
        Some(("cookie", name)) => Some(format!("--header 'cookie: {name}=VALUE'")),
        Some(("claim", name)) => Some(format!("--claim {name}=VALUE")),
        None if part == "ip" => Some("--peer ADDRESS".into()),
        None if part == "bearer" => Some("--header 'authorization: Bearer VALUE'".into()),
        _ => Some(format!("--key {part}=VALUE")),
    }
}
