//! The responses that take the service's place.

mod problem;

use http::{Method, Response, StatusCode, header, request::Parts};

use crate::{body::RefusalBody, decision::Decision, edge::Edge, headers};

/// A request that is not let through, and why.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refusal<'a> {
    pub(crate) cause: Cause,
    /// There is none where a key closure refused the request: no rule was asked.
    pub(crate) decision: Option<&'a Decision>,
    pub(crate) head: &'a Parts,
    /// In seconds; decided once, so that every place that tells it agrees. `None` when no wait helps.
    pub(crate) retry_after: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// A rule refused.
    Quota,
    /// The store gave no answer, and the layer refuses what it cannot judge.
    Store,
    /// A key closure refused, with this status.
    Key(StatusCode),
}

impl<'a> Refusal<'a> {
    /// `None`: the request may go on.
    pub(crate) fn of(decision: &'a Decision, head: &'a Parts, edge: &Edge) -> Option<Refusal<'a>> {
        let (cause, retry_after) = if decision.is_refused() {
            (Cause::Quota, headers::retry_after(decision))
        } else if decision.failure().is_some() && edge.refuses_failures() {
            (Cause::Store, Some(1))
        } else {
            return None;
        };
        Some(Refusal { cause, decision: Some(decision), head, retry_after })
    }

    pub(crate) fn by_key(status: StatusCode, head: &'a Parts) -> Refusal<'a> {
        Refusal { cause: Cause::Key(status), decision: None, head, retry_after: None }
    }

    /// The whole response.
    pub(crate) fn response(&self, _edge: &Edge) -> Response<RefusalBody> {
        let mut response = problem::response(self);
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
        }
        if let Some(decision) = self.decision {
            let nested = self.head.extensions.get::<Decision>().is_some();
            headers::write(decision, nested, &mut response);
        }
        if self.head.method == Method::HEAD {
            // The same headers as for GET, and no body.
            let length = response.body_mut().clear();
            response.headers_mut().insert(header::CONTENT_LENGTH, length.into());
        }
        response
    }
}
