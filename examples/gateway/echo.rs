use axum::body::Body;
use http::{Request, Response, StatusCode};
use serde::Serialize;
use sluicegate::{Decision, Listed, Standing};

use super::{facts::Known, pretty::pretty};

/// What stands in for an upstream: an answer that shows what was decided, and for whom.
#[derive(Serialize)]
struct Shown<'a> {
    method: &'a str,
    path: &'a str,
    tier: Option<String>,
    /// As overrides name it: secrets are hashed.
    customer: Option<String>,
    /// Which list let it through.
    list: Option<&'static str>,
    /// Why the store did not decide, if it did not.
    store_failed: Option<String>,
    rules: Vec<Rule<'a>>,
}

#[derive(Serialize)]
struct Rule<'a> {
    rule: &'a str,
    quota: String,
    limit: u64,
    remaining: u64,
    reset_after: f64,
    cost: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    would_refuse: Option<bool>,
}

impl<'a> From<Standing<'a>> for Rule<'a> {
    fn from(standing: Standing<'a>) -> Rule<'a> {
        Rule {
            rule: standing.rule(),
            quota: standing.limit().to_string(),
            limit: standing.capacity(),
            remaining: standing.remaining(),
            reset_after: standing.reset_after().as_secs_f64(),
            cost: standing.cost(),
            would_refuse: standing.is_shadow().then(|| standing.would_refuse()),
        }
    }
}

pub(super) fn echo<B>(request: &Request<B>, known: &Known) -> Response<Body> {
    let decision = request.extensions().get::<Decision>();
    let (tier, customer) = known.who(request);
    let shown = Shown {
        method: request.method().as_str(),
        path: request.uri().path(),
        tier,
        customer,
        list: decision
            .and_then(Decision::listed)
            .map(|listed| if listed == Listed::Allowed { "allow" } else { "deny" }),
        store_failed: decision.and_then(Decision::failure).map(ToString::to_string),
        rules: decision.into_iter().flat_map(Decision::standings).map(Rule::from).collect(),
    };
    pretty(StatusCode::OK, &shown)
}
