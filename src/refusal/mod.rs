//! The responses that take the service's place.
//!
//! A request that is not let through gets a response that says why and when to come back:
//!
//! | cause | HTTP | gRPC status |
//! | --- | --- | --- |
//! | a quota refused it | 429 | 8, `RESOURCE_EXHAUSTED` |
//! | only rules that [protect the service](crate::Rule::protects_service) refused it | 503 | 14, `UNAVAILABLE` |
//! | it is [banned](crate::Ban) | 429, or 403 by choice | 8, or 7, `PERMISSION_DENIED` |
//! | the store gave no answer, with [`OnFailure::Refuse`](crate::OnFailure::Refuse) | 503 | 14, `UNAVAILABLE` |
//! | a key closure refused it | the closure's status | 16 for 401, 7 for 403, 5 for 404, and so on |
//! | a [list](crate::Lists) denies it | 403, or 429 by [choice](crate::RateLimitLayer::deny_with) | 7, `PERMISSION_DENIED`, or 8 |
//! | its [body](crate::bodies) is larger than a rule looks at | 413 | 8, `RESOURCE_EXHAUSTED` |
//! | its body did not come in time | 408 | 4, `DEADLINE_EXCEEDED` |
//! | a rule looks into its body, and the layer does not [read](crate::RateLimitLayer::read_bodies) it | 500 | 13, `INTERNAL` |
//!
//! To HTTP requests it is [`application/problem+json`](Format::Problem) with the names of the rules that refused, plain
//! text [where one prefers that](crate::RateLimitLayer::refuse_with), or [anything
//! else](crate::RateLimitLayer::on_refused). `HEAD` gets the same fields and no body. Every refusal has `Cache-Control: no-store`,
//! the quota fields, and `Retry-After` unless no wait helps. It is made afresh: nothing of the service is in it.
//!
//! ```
//! use axum::{Router, body::{Body, to_bytes}, http::Request, routing::get};
//! use sluicegate::{key, Limiter, MemoryStore, Quota, RateLimitLayer, Rule, refusal::Format};
//! use tower::ServiceExt;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let limiter = Limiter::builder(MemoryStore::new())
//!     .rule(Rule::gcra("uploads", Quota::per_hour(5)).key(key::global()).cost(6))
//!     .build()?;
//! let app = Router::new().route("/", get(|| async { "hello" })).layer(RateLimitLayer::new(limiter).refuse_with(Format::Text));
//!
//! let response = app.oneshot(Request::new(Body::empty())).await?;
//! assert_eq!(response.status(), 429);
//! assert_eq!(
//!     to_bytes(response.into_body(), 1_000).await?,
//!     "The request costs more than the quota \"uploads\" ever allows; retrying does not help.\n"
//! );
//! # Ok(())
//! # }
//! ```
//!
//! # gRPC
//!
//! A POST is a gRPC call by its content type, `application/grpc` or `application/grpc+..`. Its refusal is what gRPC clients
//! understand, whatever HTTP requests get: status 200 and no body, with `grpc-status`, `grpc-message` and
//! `grpc-retry-pushback-ms` in the one frame there is. A plain 429 would reach the caller as `UNAVAILABLE`, and be retried at
//! once. The pushback is the wait of `Retry-After` in milliseconds; -1, do not retry, where no wait helps.
//! [`grpc_details`](crate::RateLimitLayer::grpc_details) adds `RetryInfo` and `QuotaFailure`. Where there is no gRPC, and a
//! status of 200 would be taken for a yes, [`grpc(false)`](crate::RateLimitLayer::grpc) refuses all requests alike.
//!
//! To gRPC-Web (`application/grpc-web`, `application/grpc-web-text`) it is the same in the content type of the request.
//!
//! A status of a key closure becomes 3 for 400, 16 for 401, 7 for 403, 5 for 404, 4 for 408 and 504, 10 for 409, 8 for 413 and 429,
//! 12 for 501, 14 for 502 and 503; other 4xx become 3, other 5xx 13, and the rest 2.

mod body;
mod body_fault;
mod custom;
mod dialect;
mod grpc;
mod grpc_details;
pub(crate) mod problem;
mod sentence;

use std::{fmt, time::Duration};

use http::{HeaderValue, Method, Response, StatusCode, header, request::Parts};

pub(crate) use body::RefusalBody;
pub(crate) use body_fault::BodyFault;
pub(crate) use custom::OnRefused;

use crate::{
    decision::{Decision, Standing},
    edge::Edge,
    headers,
    lists::Listed,
};

const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
const PLAIN_TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// A request that is not let through, and why. Displayed, it is a sentence for people.
///
/// What [`RateLimitLayer::on_refused`](crate::RateLimitLayer::on_refused) makes a response of.
#[derive(Clone, Copy)]
pub struct Refusal<'a> {
    cause: Cause,
    status: StatusCode,
    /// There is none where a key closure or the body refused the request: no rule was asked.
    decision: Option<&'a Decision>,
    head: &'a Parts,
    /// In seconds; decided once, so that every place that tells it agrees. `None` when no wait helps.
    retry_after: Option<u64>,
    /// Whether the caller is to learn nothing about quotas, not even their names.
    hidden: bool,
    body_fault: Option<BodyFault>,
}

/// Who refused a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// A rule: its quota is used up, or can never hold the cost.
    Quota,
    /// A rule that [protects the service](crate::Rule::protects_service), and no quota.
    Service,
    /// The store gave no answer, and a rule refuses what it cannot judge.
    Store,
    /// A key closure.
    Key,
    /// The ban of a rule, whatever the quotas say.
    Ban,
    /// A [deny list](crate::Lists).
    List,
    /// A rule looks into the [body](crate::bodies), which is too large or too slow, or which the layer does not read.
    Body,
}

/// What callers on a [deny list](crate::Lists) get.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Denial {
    /// 403; gRPC's `PERMISSION_DENIED`.
    #[default]
    Forbidden,
    /// 429; gRPC's `RESOURCE_EXHAUSTED`. It does not say that there is a list.
    TooManyRequests,
}

/// What the layer's own refusals look like to HTTP requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// `application/problem+json`, with the types of the IETF's RateLimit draft and the names of the rules that refused.
    #[default]
    Problem,
    /// A sentence of plain text.
    Text,
}

/// What a layer was told about refusals.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) format: Format,
    pub(crate) on_refused: Option<OnRefused>,
    pub(crate) grpc: bool,
    pub(crate) grpc_details: bool,
    pub(crate) denial: Denial,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            format: Format::default(),
            on_refused: None,
            grpc: true,
            grpc_details: false,
            denial: Denial::default(),
        }
    }
}

impl<'a> Refusal<'a> {
    /// `None`: the request may go on.
    pub(crate) fn of(decision: &'a Decision, head: &'a Parts, edge: &Edge) -> Option<Refusal<'a>> {
        let retry_after = || decision.retry_after().map(|wait| edge.retry_after(decision.rules(), wait));
        // Of several bans the one that lasts longest is the one to tell of.
        let ban = decision.banned_by().iter().max_by_key(|banned| banned.micros);
        let banned = ban.and_then(|ban| decision.rules().get(ban.rule)?.ban_status());
        let (cause, status, retry_after) = if decision.listed() == Some(Listed::Denied) {
            let status = match edge.refusals.denial {
                Denial::Forbidden => StatusCode::FORBIDDEN,
                Denial::TooManyRequests => StatusCode::TOO_MANY_REQUESTS,
            };
            (Cause::List, status, None)
        } else if let Some(status) = banned {
            (Cause::Ban, status, retry_after())
        } else if decision.is_over_quota() {
            let quota = decision.standings().any(|standing| standing.is_refused() && !standing.protects_service());
            let (cause, status) = match quota {
                true => (Cause::Quota, StatusCode::TOO_MANY_REQUESTS),
                false => (Cause::Service, StatusCode::SERVICE_UNAVAILABLE),
            };
            (cause, status, retry_after())
        } else if decision.is_refused() {
            (Cause::Store, StatusCode::SERVICE_UNAVAILABLE, {
                let soon = Duration::from_secs(1);
                Some(edge.retry_after(decision.rules(), soon))
            })
        } else {
            return None;
        };
        let hidden = edge.headers(decision.rules()).hides(head);
        Some(Refusal { cause, status, decision: Some(decision), head, retry_after, hidden, body_fault: None })
    }

    pub(crate) fn by_key(status: StatusCode, head: &'a Parts) -> Refusal<'a> {
        let (cause, decision, retry_after) = (Cause::Key, None, None);
        Refusal { cause, status, decision, head, retry_after, hidden: false, body_fault: None }
    }

    pub(crate) fn by_body(fault: BodyFault, head: &'a Parts) -> Refusal<'a> {
        Refusal { cause: Cause::Body, body_fault: Some(fault), ..Refusal::by_key(fault.status(), head) }
    }

    /// Who refused the request.
    pub fn cause(&self) -> Cause {
        self.cause
    }

    /// The status of the layer's own response: 429 for a quota, 503 for the service and the store, 429 or 403 for a ban, 403 or 429
    /// for a list, 413 or 408 for a body, a key closure's own.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// How every rule stands. `None` where a key closure or the body refused the request before any rule was asked; without standings
    /// where the store gave no answer, and where a list denied it.
    pub fn decision(&self) -> Option<&'a Decision> {
        self.decision
    }

    /// The head of the request.
    pub fn head(&self) -> &'a Parts {
        self.head
    }

    /// When to come back: whole seconds, the very number of the `Retry-After` field. `None` when no wait helps.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after.map(Duration::from_secs)
    }

    /// Whether the request costs more than a quota ever allows, so that no wait helps.
    pub fn can_never_fit(&self) -> bool {
        self.decision.is_some_and(Decision::can_never_fit)
    }

    /// The quotas that refused, or whose bans did, as far as the caller may know.
    fn violated(&self) -> impl Iterator<Item = Standing<'a>> {
        let told = self.decision.filter(|_| !self.hidden);
        let standings = told.into_iter().flat_map(|decision| decision.standings());
        let bans = self.decision.filter(|_| self.cause == Cause::Ban).map(|decision| decision.banned_by());
        standings.filter(move |standing| match bans {
            Some(bans) => bans.iter().any(|banned| banned.rule == standing.index()),
            None => standing.is_refused() && !standing.protects_service(),
        })
    }

    /// The whole response.
    pub(crate) fn response(&self, edge: &Edge) -> Response<RefusalBody> {
        let settings = &edge.refusals;
        if settings.grpc
            && let Some(dialect) = dialect::Dialect::of(self.head)
        {
            let mut response = grpc::response(self, dialect, settings);
            self.add_fields(edge, &mut response);
            return response;
        }
        let custom = settings.on_refused.as_ref().and_then(|closure| closure.response(self));
        let mut response = custom.unwrap_or_else(|| match settings.format {
            Format::Problem => self.own(problem::CONTENT_TYPE, problem::text(self)),
            Format::Text => self.own(PLAIN_TEXT, format!("{self}\n")),
        });
        self.add_fields(edge, &mut response);
        if self.head.method == Method::HEAD {
            // The same headers as for GET, and no body.
            if let Some(length) = response.body_mut().hide() {
                headers::set_default(response.headers_mut(), header::CONTENT_LENGTH, length.into());
            }
        }
        response
    }

    fn own(&self, content_type: HeaderValue, text: String) -> Response<RefusalBody> {
        let mut response = Response::new(RefusalBody::text(text));
        *response.status_mut() = self.status;
        response.headers_mut().insert(header::CONTENT_TYPE, content_type);
        response
    }

    /// Adds what a refusal has in any form. What is there already stays: a closure set it.
    fn add_fields(&self, edge: &Edge, response: &mut Response<RefusalBody>) {
        headers::set_default(response.headers_mut(), header::CACHE_CONTROL, NO_STORE);
        let shown = self.decision.map(|decision| (decision, self.head)).filter(|_| !self.hidden);
        let wait = self.decision.and_then(Decision::retry_after);
        let headers = self.decision.map_or(&edge.headers, |decision| edge.headers(decision.rules()));
        headers.refuse(shown, wait, self.retry_after, response);
    }
}

/// Without the head of the request, which has secrets in it.
impl fmt::Debug for Refusal<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Refusal");
        debug.field("cause", &self.cause).field("status", &self.status).field("decision", &self.decision);
        debug.field("retry_after", &self.retry_after()).finish_non_exhaustive()
    }
}
