//! Quota fields: one decision in, response headers out.
//!
//! A *family* is what one preset writes. List fields (the IETF draft's) are added to those of limiters further in. Of
//! single-valued families a response carries the tighter standing, all fields of a family together, and a family that a
//! handler has set, if only in part, stays as it is.

mod build;
mod family;
mod ietf;
mod moments;
pub(crate) mod names;
mod partition;
mod policies;
mod retry_after;
mod shadow;
mod show;
mod text;

use std::{
    fmt,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, request::Parts};

pub use build::HeadersBuilder;
use family::Family;
use partition::{Partitions, Secret};
pub(crate) use policies::{Policies, Policy, Told};
pub(crate) use retry_after::retry_after;
pub(crate) use text::push_escaped;

use crate::{
    decision::{Decision, Standing},
    error::StoreErrorKind,
    limiter::{Limiter, Pick},
};

type Hides = Arc<dyn Fn(&Parts) -> bool + Send + Sync>;

/// Which quota fields responses carry.
///
/// Without a word these are [`x_ratelimit`](HeadersBuilder::x_ratelimit), which most clients and people read, and
/// [`ietf`](HeadersBuilder::ietf), which is to become the standard. Others are put together by a builder:
///
/// ```
/// use sluicegate::{Headers, Limiter, RateLimitLayer};
///
/// # fn layer(limiter: Limiter) -> Result<RateLimitLayer, sluicegate::BuildError> {
/// let headers = Headers::builder().github().ietf().only_below(0.2).build()?;
/// Ok(RateLimitLayer::new(limiter).headers(headers))
/// # }
/// ```
///
/// `Retry-After` is on every refusal that waiting helps, whatever is chosen here. What clients do with each field is in the
/// [guide](crate::guide::headers).
#[derive(Clone)]
pub struct Headers {
    families: Vec<Arc<Family>>,
    /// How many fields there may be, to make room for them once.
    most: usize,
    /// Whether a family shows a time of day.
    tells_time: bool,
    retry_after_ms: bool,
    degraded: bool,
    shadow: bool,
    only_below: Option<f64>,
    on_redirects: bool,
    hide_when: Option<Hides>,
    partition: Option<Secret>,
    /// `None`: nobody has said.
    cap: Option<Duration>,
    /// Units a second, for show.
    cap_ratio: Option<f64>,
}

impl Headers {
    /// Begins with no family at all.
    pub fn builder() -> HeadersBuilder {
        HeadersBuilder::new()
    }

    /// No quota fields. Refusals still say when to come back.
    pub fn none() -> Headers {
        Headers::of(Vec::new())
    }

    fn of(families: Vec<Arc<Family>>) -> Headers {
        let names = families.iter().flat_map(|family| family.names());
        let tells_time = families.iter().any(|family| family.tells_time());
        Headers {
            most: names.count(),
            tells_time,
            families,
            retry_after_ms: false,
            degraded: false,
            shadow: false,
            only_below: None,
            on_redirects: true,
            hide_when: None,
            partition: None,
            cap: None,
            cap_ratio: None,
        }
    }

    /// The names of every field that a response may carry, `Retry-After` among them: what a browser must be allowed to read.
    ///
    /// ```
    /// use sluicegate::Headers;
    ///
    /// assert!(Headers::default().names().any(|name| name == "ratelimit-policy"));
    /// ```
    pub fn names(&self) -> impl Iterator<Item = HeaderName> + '_ {
        let always = std::iter::once(names::RETRY_AFTER);
        let milliseconds = self.retry_after_ms.then_some(names::RETRY_AFTER_MS);
        let degraded = self.degraded.then_some(names::DEGRADED);
        let shadow = self.shadow.then_some(names::SHADOW);
        always
            .chain(milliseconds)
            .chain(degraded)
            .chain(shadow)
            .chain(self.families.iter().flat_map(|family| family.names()))
    }

    /// The longest wait or reset that is told.
    pub(crate) fn cap(&self) -> Duration {
        self.cap.unwrap_or(retry_after::LONGEST)
    }

    /// Says so if a family is to show a rule that is not there.
    pub(crate) fn check(&self, limiter: &Limiter) {
        let limiter = limiter.usual_now();
        for rule in self.families.iter().filter_map(|family| family.rule()) {
            if !limiter.rules().has(rule) {
                tracing::error!("headers are to show the rule {rule:?}, but the limiter has {}", limiter.rules());
            }
        }
    }

    /// Keeps what the partition keys are made of, which a decision no longer has.
    #[inline]
    pub(crate) fn keep_partitions(&self, picks: &[Pick], head: &mut Parts) {
        if let Some(secret) = &self.partition {
            head.extensions.insert(Partitions::new(secret, picks));
        }
    }

    /// Writes the quota fields of a decision that was made without a layer: by a [`Limiter`] that a handler asked. Partition
    /// keys and `Retry-After` are not among them.
    ///
    /// ```
    /// use axum::response::{IntoResponse, Response};
    /// use sluicegate::{Headers, Limiter};
    ///
    /// async fn upload(limiter: Limiter, headers: Headers) -> Response {
    ///     let decision = limiter.acquire([("uploads", "alice")]).await;
    ///     let mut response = "done".into_response();
    ///     headers.write(&decision, &mut response);
    ///     response
    /// }
    /// ```
    pub fn write<B>(&self, decision: &Decision, response: &mut Response<B>) {
        if self.tells_of(decision) {
            let noted = Noted { now: self.now(), nested: false, partitions: None };
            let seconds = decision.retry_after().map(|wait| retry_after(wait, self.cap(), false));
            self.write_noted(decision, &noted, seconds.filter(|_| !decision.is_banned()), response);
        }
    }

    /// What must be noted before the service is called; `None` when there is nothing to write. `nested`: there is a limiter
    /// further out.
    pub(crate) fn note(&self, decision: &Decision, head: &Parts, nested: bool) -> Option<Noted> {
        (self.tells_of(decision) && !self.hides(head)).then(|| self.noted(head, nested))
    }

    fn noted(&self, head: &Parts, nested: bool) -> Noted {
        let partitions = self.partition.as_ref().and_then(|_| head.extensions.get::<Partitions>().cloned());
        Noted { now: self.now(), nested, partitions }
    }

    /// Whether this request is to learn nothing about quotas.
    pub(crate) fn hides(&self, head: &Parts) -> bool {
        self.hide_when.as_ref().is_some_and(|hides| hides(head))
    }

    /// Whether there is anything to write.
    #[inline]
    fn tells_of(&self, decision: &Decision) -> bool {
        self.speaks_of(decision) || self.degradation(decision).is_some() || self.shadow && decision.would_refuse()
    }

    /// How the store failed, if that is to be shown.
    fn degradation(&self, decision: &Decision) -> Option<HeaderValue> {
        let kind = if self.degraded { decision.failure()?.kind() } else { return None };
        Some(HeaderValue::from_static(match kind {
            StoreErrorKind::Timeout => "timeout",
            StoreErrorKind::Unavailable => "unavailable",
            StoreErrorKind::Refused => "refused",
            StoreErrorKind::Permanent => "permanent",
            StoreErrorKind::Garbled => "garbled",
            StoreErrorKind::Open => "open",
        }))
    }

    /// Whether there are quota fields to write.
    fn speaks_of(&self, decision: &Decision) -> bool {
        let low = |share| decision.tightest_quota().is_some_and(|standing| is_below(&standing, share));
        !self.families.is_empty()
            && decision.applied().iter().any(|applied| !applied.is_shadow())
            && self.only_below.is_none_or(|share| decision.is_refused() || low(share))
    }

    /// Since the Unix epoch, if that matters.
    fn now(&self) -> Duration {
        let now = self.tells_time.then(|| SystemTime::now().duration_since(UNIX_EPOCH).ok());
        now.flatten().unwrap_or_default()
    }

    /// `retry_after`: the seconds that a refusal tells.
    pub(crate) fn write_noted<B>(
        &self,
        decision: &Decision,
        noted: &Noted,
        retry_after: Option<u64>,
        response: &mut Response<B>,
    ) {
        let status = response.status();
        if status.is_informational() || (!self.on_redirects && is_redirect(status)) {
            return;
        }
        if let Some(kind) = self.degradation(decision) {
            set_default(response.headers_mut(), names::DEGRADED, kind);
        }
        if self.shadow
            && let Some(rules) = shadow::would_refuse(decision)
        {
            // A list: limiters further in may have said theirs. A full map leaves it out.
            let _ = response.headers_mut().try_append(names::SHADOW, rules);
        }
        if !self.speaks_of(decision) {
            return;
        }
        let snapshot = Snapshot {
            decision,
            tightest: decision.tightest_quota(),
            noted,
            retry_after,
            cap: self.cap(),
            calendar_cap: self.cap.unwrap_or(Duration::MAX),
            cap_ratio: self.cap_ratio,
        };
        // A response has room for thousands of fields; where it is full, these are left out. One more than these, since servers
        // add a length: a map that grows has less to move while it is small.
        if response.headers_mut().try_reserve(self.most + 1).is_ok() {
            self.families.iter().for_each(|family| family.write(&snapshot, response));
        }
    }

    /// Writes what a refusal says about waiting, and the fields of its decision, if they are to be shown. What is there already
    /// stays.
    pub(crate) fn refuse<B>(
        &self,
        shown: Option<(&Decision, &Parts)>,
        wait: Option<Duration>,
        retry_after: Option<u64>,
        response: &mut Response<B>,
    ) {
        if let Some(seconds) = retry_after {
            set_default(response.headers_mut(), names::RETRY_AFTER, seconds.into());
            if self.retry_after_ms {
                let millis = retry_after::millis(wait, seconds, self.cap());
                set_default(response.headers_mut(), names::RETRY_AFTER_MS, millis.into());
            }
        }
        if let Some((decision, head)) = shown.filter(|(decision, _)| self.tells_of(decision)) {
            let noted = self.noted(head, head.extensions.get::<Decision>().is_some());
            // When a ban ends says nothing of a quota.
            let retry_after = retry_after.filter(|_| !decision.is_banned());
            self.write_noted(decision, &noted, retry_after, response);
        }
    }
}

/// What is known of a request before its service is called, and needed after it.
#[derive(Clone, Debug)]
pub(crate) struct Noted {
    /// Since the Unix epoch, when the request was decided over.
    now: Duration,
    /// Whether there is a limiter further out.
    nested: bool,
    partitions: Option<Partitions>,
}

/// What every field of one response is written from.
struct Snapshot<'a> {
    decision: &'a Decision,
    tightest: Option<Standing<'a>>,
    noted: &'a Noted,
    retry_after: Option<u64>,
    cap: Duration,
    calendar_cap: Duration,
    cap_ratio: Option<f64>,
}

impl Snapshot<'_> {
    /// The longest reset that is told of a rule. When the calendar's window ends everybody knows, so that is told as it is.
    fn cap_of(&self, standing: &Standing<'_>) -> Duration {
        if standing.limit().quota().is_calendar() { self.calendar_cap } else { self.cap }
    }
}

#[allow(clippy::cast_precision_loss)]
fn is_below(standing: &Standing<'_>, share: f64) -> bool {
    (standing.remaining() as f64) < share * standing.capacity() as f64
}

/// Sets a field that is not there; leaves it out where the map is full.
pub(crate) fn set_default(headers: &mut HeaderMap, name: HeaderName, value: HeaderValue) {
    if let Ok(entry) = headers.try_entry(name) {
        let _ = entry.or_try_insert(value);
    }
}

/// Of the 3xx, 304 sends nobody anywhere.
fn is_redirect(status: StatusCode) -> bool {
    status.is_redirection() && status != StatusCode::NOT_MODIFIED
}

/// [`x_ratelimit`](HeadersBuilder::x_ratelimit) and [`ietf`](HeadersBuilder::ietf).
impl Default for Headers {
    fn default() -> Headers {
        Headers::of(vec![Arc::new(Family::ietf()), Arc::new(Family::x_ratelimit())])
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let presets = self.families.iter().map(|family| family.preset());
        f.debug_struct("Headers")
            .field("families", &presets.collect::<Vec<_>>())
            .field("retry_after_ms", &self.retry_after_ms)
            .field("degraded", &self.degraded)
            .field("shadow", &self.shadow)
            .field("only_below", &self.only_below)
            .field("on_redirects", &self.on_redirects)
            .field("hides", &self.hide_when.is_some())
            .field("partition_key", &self.partition.is_some())
            .field("cap", &self.cap())
            .field("cap_ratio", &self.cap_ratio)
            .finish()
    }
}
