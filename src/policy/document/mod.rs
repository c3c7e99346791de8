//! What stands in a document, as it was written.

mod change;
mod lists;
mod over;
mod rule;
mod several;
mod write;

use std::collections::BTreeMap;

pub(super) use change::Change;
pub(super) use lists::{Entries, ListsText};
pub use over::Override;
pub(super) use rule::{AlgorithmName, BanText, RuleText};
use serde::{Deserialize, Serialize};
pub(super) use several::{CostText, StatusText, Texts};

use super::{
    error::Problems,
    read::{Node, Value, decode},
    source::Source,
};
use crate::OnFailure;

/// Limits as data: rules, tiers, overrides and lists.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(deny_unknown_fields))]
pub(super) struct Document {
    /// The schema of this document, for editors. Not looked at.
    #[serde(rename = "$schema", skip_serializing_if = "Option::is_none")]
    pub(super) schema: Option<String>,
    /// What happens under rules that do not say it themselves when the store gives no answer in time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) on_failure: Option<OnFailureName>,
    /// Which quota fields responses have; absent, those of the layer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) headers: Option<Vec<HeaderName>>,
    /// How the client's address is found behind proxies, for `ip` and for lists of subnets. Absent, it is the peer's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) proxies: Option<ProxiesText>,
    /// Whom overrides are for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) customer: Option<CustomerText>,
    /// How the tier of a request is found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tier: Option<TierText>,
    /// The rules. Every one that applies to a request must admit it.
    #[cfg_attr(test, schemars(length(min = 1)))]
    pub(super) rules: Vec<RuleText>,
    /// By tier and by rule: what replaces the rule's own. A rule that a tier does not name stays as it is.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) tiers: BTreeMap<String, BTreeMap<String, Change>>,
    /// By customer: what replaces the customer's tier, and rules of it. Customers whose keys are secrets are written by the digest
    /// that stands in the store: # and 32 digits.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) overrides: BTreeMap<String, Override>,
    /// Who is always let through, and who never is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) lists: Option<ListsText>,
}

/// What happens when the store gives no answer in time: counting in this process, admitting, or refusing with 503.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) enum OnFailureName {
    Local,
    Allow,
    Refuse,
}

impl From<OnFailureName> for OnFailure {
    fn from(name: OnFailureName) -> OnFailure {
        match name {
            OnFailureName::Local => OnFailure::Local,
            OnFailureName::Allow => OnFailure::Allow,
            OnFailureName::Refuse => OnFailure::Refuse,
        }
    }
}

/// A family of quota fields, an addition to them, or `none` alone for no fields at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) enum HeaderName {
    XRatelimit,
    XRatelimitDelta,
    XRateLimit,
    Ietf,
    #[serde(rename = "ietf_draft7")]
    IetfDraft7,
    #[serde(rename = "ietf_draft6")]
    IetfDraft6,
    Github,
    Discord,
    Degraded,
    Shadow,
    RetryAfterMs,
    None,
}

/// Whose word is taken for the client's address.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct ProxiesText {
    /// The networks of the proxies: `["10.0.0.0/8"]`. Either this or `hops`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) trust: Option<Vec<String>>,
    /// How many proxies stand in front of this service. Either this or `trust`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) hops: Option<u64>,
    /// The header that says it: `x-forwarded-for` unless said otherwise, `forwarded`, or one with a single address, such as
    /// `x-real-ip` or `cf-connecting-ip`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) header: Option<String>,
    /// IPv6 addresses count together that agree in this many bits: 64 unless said otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ipv6_prefix: Option<u32>,
}

/// Whom overrides are for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct CustomerText {
    /// A key, as in rules: `header:x-customer`.
    pub(super) by: String,
}

/// How the tier of a request is found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct TierText {
    /// `header:NAME`, `claim:NAME`, or a name that code registers.
    pub(super) by: String,
    /// The tier of requests without one, and with one that is unknown. Absent, rules are as they are written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) default: Option<String>,
}

pub(super) const FIELDS: &[&str] =
    &["on_failure", "headers", "proxies", "customer", "tier", "rules", "tiers", "overrides", "lists", "$schema"];

/// Whether what customers are known by may be a secret of theirs, which is not to be quoted. Headers are judged by their names.
fn may_be_secret(by: &str) -> bool {
    let by = by.to_ascii_lowercase();
    ["bearer", "api_key", "cookie", "auth", "key", "token", "secret", "session"].iter().any(|word| by.contains(word))
}

impl Document {
    /// Part by part, so that what is wrong with one does not hide what is wrong with others.
    pub(super) fn decode(source: &Source, root: &Node<'_>, problems: &mut Problems) -> Document {
        let mut document = Document::default();
        let Value::Table(entries) = &root.value else {
            part::<BTreeMap<String, CustomerText>>(source, problems, "", root);
            return document;
        };
        let customer = root.get("customer").and_then(|customer| customer.get("by")).and_then(Node::as_text);
        let are_secret = customer.is_some_and(may_be_secret);
        for entry in entries {
            let node = &entry.node;
            if matches!(node.value, Value::Null) {
                continue;
            }
            let name = &*entry.key;
            match name {
                "$schema" => document.schema = part(source, problems, name, node),
                "on_failure" => document.on_failure = part(source, problems, name, node),
                "headers" => document.headers = part(source, problems, name, node),
                "proxies" => document.proxies = part(source, problems, name, node),
                "customer" => document.customer = part(source, problems, name, node),
                "tier" => document.tier = part(source, problems, name, node),
                "lists" => document.lists = part(source, problems, name, node),
                "rules" => document.rules = rules(source, problems, node),
                "tiers" => document.tiers = tables(source, problems, ("tier", false), node),
                "overrides" => document.overrides = tables(source, problems, ("override", are_secret), node),
                _ => problems.add(|| {
                    let unknown: super::read::Fault = serde::de::Error::unknown_field(name, FIELDS);
                    let span = Some(entry.key_span.clone());
                    source.fault("", &super::read::Fault { span, ..unknown }, root)
                }),
            }
        }
        document
    }
}

fn part<'a, T: Deserialize<'a>>(source: &Source, problems: &mut Problems, who: &str, node: &'a Node<'a>) -> Option<T> {
    match decode(node) {
        Ok(part) => Some(part),
        Err(fault) => {
            problems.add(|| source.fault(who, &fault, node));
            None
        }
    }
}

fn rules(source: &Source, problems: &mut Problems, node: &Node<'_>) -> Vec<RuleText> {
    let Value::List(nodes) = &node.value else {
        // The table's own error, in the words of all others.
        return part(source, problems, "rules", node).unwrap_or_default();
    };
    let rule = |(place, node): (usize, &Node<'_>)| match decode(node) {
        Ok(rule) => Some(rule),
        Err(fault) => {
            let name = node.get("name").and_then(Node::as_text);
            let who = name.map_or_else(|| format!("rule {}", place + 1), |name| format!("rule {name:?}"));
            problems.add(|| source.fault(&who, &fault, node));
            None
        }
    };
    let mut rules = Vec::with_capacity(nodes.len());
    rules.extend(nodes.iter().enumerate().filter_map(rule));
    rules
}

fn tables<'a, T: Deserialize<'a>>(
    source: &Source,
    problems: &mut Problems,
    (kind, names_are_secret): (&str, bool),
    node: &'a Node<'a>,
) -> BTreeMap<String, T> {
    let Value::Table(entries) = &node.value else {
        return part(source, problems, &format!("{kind}s"), node).unwrap_or_default();
    };
    let table = |entry: &'a super::read::Entry<'a>| match decode(&entry.node) {
        Ok(table) => Some((entry.key.clone().into_owned(), table)),
        Err(fault) => {
            // A name may be a secret that should not stand there.
            let who = if names_are_secret { format!("one of the {kind}s") } else { format!("{kind} {:?}", entry.key) };
            problems.add(|| source.fault(&who, &fault, &entry.node).hidden(names_are_secret));
            None
        }
    };
    entries.iter().filter_map(table).collect()
}
