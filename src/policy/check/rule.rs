use std::{sync::Arc, time::Duration};

use http::Method;

use super::{Checker, Code, Index, Key, Step, Wrong, who};
use crate::{
    Algorithm, BuildError, Quota, Rule,
    algorithm::fixed_window::Start,
    key::KeyBy,
    limit::{Cost, Queue, Reserve, micros},
    policy::{
        document::{AlgorithmName, BanText, CostText, RuleText, StatusText, Texts},
        plan::Planned,
        text::{Pattern, Statuses, condition, did_you_mean, duration, listed, or_none, quota, utc_offset},
        words,
    },
};

/// Which methods one slips on.
const METHODS: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];

impl<'a> Checker<'a> {
    /// Tells what is wrong with a field of a rule.
    fn tell(&mut self, code: Code, place: usize, field: &[Step<'_>], wrong: Wrong) {
        let text = self.document.rules.get(place);
        let fields: Vec<&str> = field
            .iter()
            .filter_map(|step| match step {
                Key(name) => Some(*name),
                _ => None,
            })
            .collect();
        let who = text.map_or(String::new(), |text| format!("{}: {}", who(&text.name), fields.join(".")));
        self.told.tell(code, &who, wrong, &[&[Key("rules"), Index(place)][..], field].concat());
    }

    pub(super) fn rule(&mut self, place: usize, text: &'a RuleText) -> Option<Planned> {
        let before = self.told.problems.len();
        let utc_offset = text.utc_offset.as_deref().and_then(|offset| {
            utc_offset(offset).map_err(|wrong| self.tell(Code::Time, place, &[Key("utc_offset")], wrong)).ok()
        });
        let own = self.own_quota(place, text, utc_offset);
        let mut rule = with_algorithm(text.algorithm, &text.name, own.unwrap_or(Quota::unlimited()));
        rule.key = self.key(place, &text.key, &[Key("key")]);
        if let Some(cost) = self.cost(place, text) {
            rule.cost = cost;
        }
        self.times(place, text, &mut rule);
        rule.reserve = self.reserve(place, text);
        rule.on_failure = text.on_failure.map(Into::into);
        match (text.shadow, text.roll_out) {
            (true, Some(_)) => {
                let wrong = Wrong::new("stands beside shadow", "a shadow is rolled out to nobody; drop one of the two");
                self.tell(Code::Field, place, &[Key("roll_out")], wrong);
            }
            (true, None) => rule.roll_out = 0.0,
            (false, Some(percent)) => rule.roll_out = percent,
            (false, None) => {}
        }
        rule.protects_service = text.protects_service;
        rule.max_new_keys = text.max_new_keys;
        if let Some(fair) = &text.fair_share
            && let Some(tenant) = self.key(place, &fair.tenant, &[Key("fair_share"), Key("tenant")])
        {
            rule = rule.fair_share(fair.share, tenant);
        }
        if let Some(ban) = &text.ban {
            rule.ban = Some(self.ban(place, ban));
        }
        if let Some(counted) = self.statuses(place, text.count_responses.as_deref(), &[Key("count_responses")]) {
            rule = rule.count_if(move |response| counted.contain(response.status));
        }
        let paths = self.paths(place, text);
        let methods = self.methods(place, text);
        if self.told.problems.len() > before {
            return None;
        }
        let lease = rule.lease.unwrap_or_else(|| Rule::concurrency("", 1).quota.window());
        if rule.algorithm == Algorithm::Concurrency {
            rule.lease = None;
            if !rule.quota.is_unlimited() {
                rule.quota = Quota::per(rule.quota.amount(), lease);
            }
        }
        if let Err(error) = rule.check() {
            self.rule_error(place, text, &error);
            return None;
        }
        if utc_offset.is_some() && !self.knows_calendar(text) {
            let help = "only hours, days and months of the calendar have an offset; drop it, or use \"1000/calendar day\" and its kin";
            self.tell(Code::Field, place, &[Key("utc_offset")], Wrong::new("is of no use to this quota", help));
            return None;
        }
        Some(Planned { rule, quota_by_tier_only: own.is_none(), paths, methods, utc_offset, lease })
    }

    /// Whether any quota of the rule is of the calendar.
    fn knows_calendar(&self, text: &RuleText) -> bool {
        let is = |text: Option<&String>| text.is_some_and(|text| quota(text).is_ok_and(|quota| quota.is_calendar()));
        let document = self.document;
        let tiers = document.tiers.values().filter_map(|tier| tier.get(&text.name));
        let overrides = document.overrides.values().filter_map(|over| over.rules.get(&text.name));
        is(text.quota.as_ref()) || tiers.chain(overrides).any(|change| is(change.quota.as_ref()))
    }

    /// The quota that stands in the rule itself.
    fn own_quota(&mut self, place: usize, text: &RuleText, utc_offset: Option<i32>) -> Option<Quota> {
        let concurrent = text.algorithm == AlgorithmName::Concurrency;
        match (&text.quota, text.limit) {
            (Some(quota), _) if concurrent && !quota.trim().eq_ignore_ascii_case("unlimited") => {
                let wrong =
                    Wrong::new("a concurrency rule has no quota", "give how many at the same time, as limit = 20");
                self.tell(Code::Impossible, place, &[Key("quota")], wrong);
                None
            }
            (_, Some(_)) if !concurrent => {
                let wrong = Wrong::new("only a concurrency rule has a limit", "give a quota, as quota = \"100/min\"");
                self.tell(Code::Impossible, place, &[Key("limit")], wrong);
                None
            }
            (Some(_), Some(_)) => {
                let wrong = Wrong::new("stands beside an unlimited quota", "give one of the two");
                self.tell(Code::Impossible, place, &[Key("limit")], wrong);
                None
            }
            (None, Some(_)) if text.burst.is_some() => {
                self.tell(
                    Code::Impossible,
                    place,
                    &[Key("burst")],
                    Wrong::new("a concurrency rule has no burst", "drop it"),
                );
                None
            }
            (None, Some(limit)) => Some(Rule::concurrency("", limit).quota),
            (Some(written), None) => match quota(written) {
                Ok(quota) => Some(with(quota, text.burst, utc_offset)),
                Err(wrong) => {
                    self.tell(Code::Quota, place, &[Key("quota")], wrong);
                    None
                }
            },
            (None, None) => {
                if text.burst.is_some() {
                    let wrong = Wrong::new("stands without a quota", "give quota beside it, or give both in tiers");
                    self.tell(Code::Impossible, place, &[Key("burst")], wrong);
                }
                None
            }
        }
    }

    fn key(&mut self, place: usize, texts: &'a Texts, field: &[Step<'a>]) -> Option<KeyBy> {
        let several = matches!(texts, Texts::Several(_));
        let mut whole: Option<KeyBy> = None;
        for (part, text) in texts.as_slice().iter().enumerate() {
            match self.keys.read(text) {
                Ok(key) => whole = Some(whole.map_or(key.by.clone(), |whole| whole.and(key.by))),
                Err(unread) => {
                    let code = if unread.unknown { Code::UnknownName } else { Code::Key };
                    let field = if several { [field, &[Index(part)]].concat() } else { field.to_vec() };
                    self.tell(code, place, &field, unread.wrong);
                    return None;
                }
            }
        }
        if whole.is_none() {
            let wrong =
                Wrong::new("the list is empty", "say whose requests count together, as \"ip\", or \"global\" for all");
            self.tell(Code::Key, place, field, wrong);
        }
        whole
    }

    fn cost(&mut self, place: usize, text: &RuleText) -> Option<Cost> {
        match (text.cost.as_ref()?, self.names) {
            (CostText::Units(units), _) => Some(Cost::Fixed(*units)),
            (CostText::Name(_), None) => Some(Cost::By(Arc::new(|_| 1))),
            (CostText::Name(name), Some(names)) => match names.cost_named(name) {
                Some(closure) => Some(Cost::By(closure.clone())),
                None => {
                    let guess = did_you_mean(name, names.costs());
                    let help = format!("{guess}code registers {}; or give a number", or_none(listed(names.costs())));
                    let wrong = Wrong::new(format!("no cost is called {name:?}"), help);
                    self.tell(Code::UnknownName, place, &[Key("cost")], wrong);
                    None
                }
            },
        }
    }

    fn reserve(&mut self, place: usize, text: &RuleText) -> Option<Reserve> {
        let reserve = text.reserve.as_ref()?;
        let share = reserve.share;
        let field = [Key("reserve"), Key("for")];
        match (condition(&reserve.whom), self.names) {
            (Some(Ok(is_critical)), _) => Some(Reserve { share, is_critical }),
            (Some(Err(wrong)), _) => {
                self.tell(Code::Condition, place, &field, wrong);
                None
            }
            (None, None) => Some(Reserve { share, is_critical: Arc::new(|_| false) }),
            (None, Some(names)) => match names.condition_named(&reserve.whom).cloned() {
                Some(is_critical) => Some(Reserve { share, is_critical }),
                None => {
                    let guess = did_you_mean(&reserve.whom, names.conditions());
                    let registered = or_none(listed(names.conditions()));
                    let help = format!("{guess}code registers {registered}; or write \"header:NAME=VALUE\"");
                    let wrong = Wrong::new(format!("no condition is called {:?}", reserve.whom), help);
                    self.tell(Code::UnknownName, place, &field, wrong);
                    None
                }
            },
        }
    }

    fn time(&mut self, place: usize, text: Option<&String>, field: &[Step<'_>]) -> Option<Duration> {
        duration(text?).map_err(|wrong| self.tell(Code::Time, place, field, wrong)).ok()
    }

    fn times(&mut self, place: usize, text: &RuleText, rule: &mut Rule) {
        if let Some(lease) = self.time(place, text.lease.as_ref(), &[Key("lease")]) {
            rule.lease = Some(lease);
        }
        if let Some(queue) = &text.queue
            && let Some(wait) = self.time(place, Some(&queue.max_wait), &[Key("queue"), Key("max_wait")])
        {
            rule.queue = Some(Queue { max_wait: wait, max_waiters: queue.max_waiters });
        }
        if text.offset.is_some() && text.from_first_request {
            let wrong =
                Wrong::new("stands beside from_first_request", "a window begins at one of the two; drop the other");
            self.tell(Code::Field, place, &[Key("offset")], wrong);
        } else if let Some(offset) = self.time(place, text.offset.as_ref(), &[Key("offset")]) {
            rule.start = Start::Aligned(micros(offset));
        } else if text.from_first_request {
            rule.start = Start::FirstRequest;
        }
    }

    fn statuses(&mut self, place: usize, texts: Option<&[StatusText]>, field: &[Step<'_>]) -> Option<Statuses> {
        let texts = texts?;
        let mut statuses = Statuses::default();
        for (part, text) in texts.iter().enumerate() {
            if let Err(wrong) = statuses.add(&text.to_string()) {
                self.tell(Code::Condition, place, &[field, &[Index(part)]].concat(), wrong);
                return None;
            }
        }
        if texts.is_empty() {
            self.tell(
                Code::Condition,
                place,
                field,
                Wrong::new("the list is empty", "give statuses, as [401, \"5xx\"], or drop it"),
            );
            return None;
        }
        Some(statuses)
    }

    fn ban(&mut self, place: usize, text: &BanText) -> crate::Ban {
        let mut ban = crate::Ban::after(text.after);
        let mut time = |text: Option<&String>, name: &str| self.time(place, text, &[Key("ban"), Key(name)]);
        if let Some(within) = time(text.within.as_ref(), "within") {
            ban = ban.within(within);
        }
        if let Some(lasting) = time(text.lasting.as_ref(), "lasting") {
            ban = ban.lasting(lasting);
        }
        if let Some(at_most) = time(text.at_most.as_ref(), "at_most") {
            ban = ban.at_most(at_most);
        }
        if let Some(forgotten) = time(text.forgotten_after.as_ref(), "forgotten_after") {
            ban = ban.forgotten_after(forgotten);
        }
        if let Some(factor) = text.escalating {
            ban = ban.escalating(factor);
        }
        if text.forbidden {
            ban = ban.forbidden();
        }
        if let Some(bad) = self.statuses(place, text.responses.as_deref(), &[Key("ban"), Key("responses")]) {
            ban = ban.responses(move |response| bad.contain(response.status));
        }
        ban
    }

    fn paths(&mut self, place: usize, text: &RuleText) -> Vec<Pattern> {
        let Some(texts) = &text.paths else { return Vec::new() };
        if texts.is_empty() {
            let wrong =
                Wrong::new("the list is empty, so the rule applies to no request", "name paths, or drop it for all");
            self.tell(Code::Nowhere, place, &[Key("paths")], wrong);
        }
        let mut patterns = Vec::with_capacity(texts.len());
        for (part, text) in texts.iter().enumerate() {
            match Pattern::parse(text) {
                Ok(pattern) => patterns.push(pattern),
                Err(wrong) => self.tell(Code::Path, place, &[Key("paths"), Index(part)], wrong),
            }
        }
        patterns
    }

    fn methods(&mut self, place: usize, text: &RuleText) -> Vec<Method> {
        let Some(texts) = &text.methods else { return Vec::new() };
        if texts.is_empty() {
            let wrong =
                Wrong::new("the list is empty, so the rule applies to no request", "name methods, or drop it for all");
            self.tell(Code::Nowhere, place, &[Key("methods")], wrong);
        }
        let mut methods = Vec::with_capacity(texts.len());
        for (part, text) in texts.iter().enumerate() {
            // Methods are case-sensitive: `post` is none that clients send.
            let known = METHODS.iter().find(|known| known.eq_ignore_ascii_case(text));
            match (known, Method::from_bytes(text.as_bytes())) {
                (Some(known), _) if known != text => {
                    let wrong =
                        Wrong::new(format!("{text:?} is not a method that clients send"), format!("write {known:?}"));
                    self.tell(Code::Method, place, &[Key("methods"), Index(part)], wrong);
                }
                (_, Ok(method)) => methods.push(method),
                (_, Err(_)) => {
                    let wrong =
                        Wrong::new(format!("{text:?} is no method"), format!("give one of {}", listed(METHODS)));
                    self.tell(Code::Method, place, &[Key("methods"), Index(part)], wrong);
                }
            }
        }
        methods
    }

    /// What building the rule says, in the words of the document.
    fn rule_error(&mut self, place: usize, text: &RuleText, error: &BuildError) {
        let field = match error.field() {
            "quota" if text.quota.is_none() => "limit",
            "window" if text.from_first_request => "from_first_request",
            "window" => "offset",
            "utc_offset_minutes" => "utc_offset",
            "settle" => "count_responses",
            other => other,
        };
        let code = code_of(field);
        let field = field.to_owned();
        self.tell(code, place, &[Key(&field)], words::split(error.text()));
    }
}

/// Which of the two kinds of impossible things it is.
pub(super) fn code_of(field: &str) -> Code {
    if matches!(field, "quota" | "burst" | "limit") { Code::Impossible } else { Code::Field }
}

/// The quota with what stands beside it.
pub(super) fn with(quota: Quota, burst: Option<u64>, utc_offset: Option<i32>) -> Quota {
    let quota = burst.map_or(quota, |burst| quota.burst(burst));
    match utc_offset {
        Some(minutes) if quota.is_calendar() => quota.utc_offset_minutes(minutes),
        _ => quota,
    }
}

fn with_algorithm(algorithm: AlgorithmName, name: &str, quota: Quota) -> Rule {
    // The quota of a concurrency rule may be without a limit, which its constructor does not take.
    Rule { algorithm: Algorithm::from(algorithm), ..Rule::fixed_window(name, quota) }
}
