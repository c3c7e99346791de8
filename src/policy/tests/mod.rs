//! Documents from end to end.

mod figures;
mod fuzz;
mod golden;
mod page;
mod plans;
mod schema;

use super::{Format, Names, Plan, Policy, PolicyError};
use crate::Quota;

/// What the documents of these tests name.
fn names() -> Names {
    Names::new()
        .key("user", |head| head.headers.get("x-user").cloned())
        .tier("plan", |_| "free")
        .cost("weight", |_| 3)
        .condition("critical", |head| head.uri.path() == "/critical")
}

fn read(name: &str, text: &str) -> Result<Plan, PolicyError> {
    let format = if name.ends_with(".json") { Format::Json } else { Format::Toml };
    Policy::named(name, text, format)?.plan(&names())
}

/// A document with everything in it.
const WHOLE: &str = include_str!("whole.toml");

fn whole() -> Policy {
    Policy::from_toml(WHOLE).unwrap_or_else(|error| panic!("{error}"))
}

fn quota_of(plan: &Plan, tier: &str, rule: &str) -> Option<Quota> {
    let place = plan.rules.iter().position(|planned| &*planned.rule.name == rule).expect("a rule");
    let tier = plan.tiers.iter().find(|one| &*one.name == tier).expect("a tier");
    tier.replaced.iter().find(|one| one.rule == place)?.quota
}
