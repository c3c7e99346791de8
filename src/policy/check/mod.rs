//! From a document to a plan: everything is looked at, and all that is wrong is told.

mod change;
mod customers;
mod lists;
mod proxies;
mod redundant;
mod rule;
mod tiers;

use std::collections::HashMap;

pub(super) use customers::customer_key;
use foldhash::fast::RandomState;

use super::{
    code::Code,
    document::{Document, HeaderName},
    error::{PolicyError, Problems},
    names::Names,
    plan::{Plan, Planned},
    read::Step::{self, Index, Key},
    source::Tree,
    text::{KeyReader, Wrong},
    words,
};
use crate::{Headers, key::Ip, limiter::MOST_RULES};

/// The places of rules by their names.
type ByName<'a> = HashMap<&'a str, usize, RandomState>;

/// The plan of a document. Without names, any name is taken for one that code will register.
pub(super) fn check<'a>(document: &'a Document, tree: Tree<'a>, names: Option<&'a Names>) -> Result<Plan, PolicyError> {
    let mut told = Told { tree, problems: Problems::default() };
    let client = proxies::client(document, &mut told);
    Checker { document, names, client: client.clone(), keys: KeyReader::new(names, client), told }.plan()
}

/// Problems, with the document they are in.
struct Told<'a> {
    tree: Tree<'a>,
    problems: Problems,
}

impl Told<'_> {
    /// Tells a problem of `who`, at the end of a path.
    fn tell(&mut self, code: Code, who: &str, wrong: Wrong, path: &[Step<'_>]) {
        let tree = &self.tree;
        self.problems.add(|| {
            let message = if who.is_empty() { wrong.message } else { format!("{who}: {}", wrong.message) };
            tree.problem(code, Wrong { message, ..wrong }, path)
        });
    }
}

struct Checker<'a> {
    document: &'a Document,
    names: Option<&'a Names>,
    /// How the client's address is found.
    client: Ip,
    keys: KeyReader<'a>,
    told: Told<'a>,
}

impl<'a> Checker<'a> {
    fn plan(mut self) -> Result<Plan, PolicyError> {
        let document = self.document;
        let by_name = self.rule_names();
        // What cannot be planned is told, and what is about it is looked at no further.
        let rules: Vec<Option<Planned>> =
            document.rules.iter().enumerate().map(|(place, text)| self.rule(place, text)).collect();
        self.count_rules();
        let headers = self.headers();
        let (tier_by, default_tier) = self.tier();
        let tiers = self.tiers(&rules, &by_name);
        let customer = self.customer();
        let overrides = self.overrides(&rules, &by_name, &tiers, customer.as_ref());
        let lists = self.lists(&by_name);
        self.quotas(&rules, &tiers);
        self.redundant(&rules, &tiers);
        if !self.told.problems.is_empty() {
            return Err(PolicyError::of(self.told.tree.source.name.clone(), self.told.problems));
        }
        Ok(Plan {
            rules: rules.into_iter().flatten().collect(),
            tiers,
            tier_by,
            default_tier,
            customer_by: customer.map(|customer| customer.by),
            overrides,
            lists,
            headers,
            on_failure: document.on_failure.map(Into::into),
        })
    }

    /// The places of rules by their names, which are all different.
    fn rule_names(&mut self) -> ByName<'a> {
        let document = self.document;
        let mut by_name = ByName::with_capacity_and_hasher(document.rules.len(), RandomState::default());
        for (place, rule) in document.rules.iter().enumerate() {
            if by_name.insert(rule.name.as_str(), place).is_some() {
                let wrong =
                    Wrong::new("the name stands twice", "give each rule a name of its own; counts are kept by it");
                let path = [Key("rules"), Index(place), Key("name")];
                self.told.tell(Code::Twice, &who(&rule.name), wrong, &path);
            }
        }
        by_name
    }

    fn count_rules(&mut self) {
        let document = self.document;
        if document.rules.is_empty() {
            let wrong =
                Wrong::new("there is no rule", "begin one with [[rules]], and give it name, algorithm, quota and key");
            return self.told.tell(Code::NoRules, "", wrong, &[Key("rules")]);
        }
        let everywhere =
            document.rules.iter().enumerate().filter(|(_, rule)| rule.paths.is_none() && rule.methods.is_none());
        let count = everywhere.clone().count();
        if let Some((place, rule)) = everywhere.clone().nth(MOST_RULES) {
            let message = format!("is one of {count} rules that apply to every request");
            let wrong = Wrong::new(
                message,
                format!("at most {MOST_RULES} can; give rules paths or methods, or put them together"),
            );
            self.told.tell(Code::TooMany, &who(&rule.name), wrong, &[Key("rules"), Index(place), Key("name")]);
        }
    }

    fn headers(&mut self) -> Option<Headers> {
        let names = self.document.headers.as_ref()?;
        let mut builder = Headers::builder();
        for (place, name) in names.iter().enumerate() {
            if names.iter().take(place).any(|before| before == name) {
                let wrong = Wrong::new("this one stands twice", "give each once");
                self.told.tell(Code::Headers, "headers", wrong, &[Key("headers"), Index(place)]);
                return None;
            }
            builder = match name {
                HeaderName::XRatelimit => builder.x_ratelimit(),
                HeaderName::XRatelimitDelta => builder.x_ratelimit_delta(),
                HeaderName::XRateLimit => builder.x_rate_limit(),
                HeaderName::Ietf => builder.ietf(),
                HeaderName::IetfDraft7 => builder.ietf_draft7(),
                HeaderName::IetfDraft6 => builder.ietf_draft6(),
                HeaderName::Github => builder.github(),
                HeaderName::Discord => builder.discord(),
                HeaderName::Degraded => builder.degraded(),
                HeaderName::Shadow => builder.shadow(),
                HeaderName::RetryAfterMs => builder.retry_after_ms(),
                HeaderName::None if names.len() == 1 => return Some(Headers::none()),
                HeaderName::None => {
                    let wrong = Wrong::new("\"none\" stands with others", "write [\"none\"] alone, or leave it out");
                    self.told.tell(Code::Headers, "headers", wrong, &[Key("headers"), Index(place)]);
                    return None;
                }
            };
        }
        if names.is_empty() {
            let wrong =
                Wrong::new("the list is empty", "write [\"none\"] for no fields, or leave it out for the layer's own");
            self.told.tell(Code::Headers, "headers", wrong, &[Key("headers")]);
            return None;
        }
        match builder.build() {
            Ok(headers) => Some(headers),
            Err(error) => {
                self.told.tell(Code::Headers, "headers", words::split(error.text()), &[Key("headers")]);
                None
            }
        }
    }
}

fn who(rule: &str) -> String {
    format!("rule {rule:?}")
}
