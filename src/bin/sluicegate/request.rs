use http::request::Parts;
use sluicegate::{
    key::Key,
    policy::{Claims, Names, Policy},
};

use crate::args::Explain;

/// The request that is asked about.
pub(crate) fn head(args: &Explain) -> Parts {
    let (mut head, ()) = http::Request::new(()).into_parts();
    head.method = args.method.clone();
    head.uri = args.path.clone();
    for (name, value) in &args.headers {
        head.headers.append(name, value.clone());
    }
    if let Some(peer) = args.peer {
        head.extensions.insert(peer);
    }
    head.extensions.insert(Claims::from_iter(args.claims.iter().cloned()));
    head
}

/// What the application would register, with what it would find. What is not said is absent, costs one, and does not hold.
pub(crate) fn names(args: &Explain, policy: &Policy) -> Names {
    let (needed, nobody) = (policy.code_names(), |_: &Parts| None::<String>);
    let mut names = Names::new();
    for name in needed.keys() {
        names = names.key(name, nobody);
    }
    for name in needed.tiers() {
        names = names.tier(name, nobody);
    }
    for name in needed.costs() {
        names = names.cost(name, |_| 1);
    }
    for name in needed.conditions() {
        names = names.condition(name, |_| false);
    }
    for (name, value) in &args.keys {
        let key = Key::new(value.as_bytes());
        names = names.key(name, move |_| key.clone());
    }
    for (name, units) in &args.costs {
        let units = *units;
        names = names.cost(name, move |_| units);
    }
    args.conditions.iter().fold(names, |names, name| names.condition(name, |_| true))
}

/// Names that the policy does not have: nothing would come of them.
pub(crate) fn unknown(args: &Explain, policy: &Policy) -> Option<String> {
    let needed = policy.code_names();
    let is_built_in = |name: &str| {
        name.contains(':') || ["ip", "route", "path", "method", "global", "bearer", "given"].contains(&name)
    };
    let says = |kind: &str, name: &str, known: Vec<&str>| {
        let known = if known.is_empty() { "none".into() } else { known.join(", ") };
        Some(format!("the policy names no {kind} {name:?} for the application to know; it names {known}"))
    };
    let key = args.keys.iter().find(|(name, _)| !is_built_in(name) && !needed.keys().any(|key| key == name));
    let cost = args.costs.iter().find(|(name, _)| !needed.costs().any(|cost| cost == name));
    let condition = args.conditions.iter().find(|name| !needed.conditions().any(|one| one == *name));
    None.or_else(|| says("key", &key?.0, needed.keys().collect()))
        .or_else(|| says("cost", &cost?.0, needed.costs().collect()))
        .or_else(|| says("condition", condition?, needed.conditions().collect()))
}
