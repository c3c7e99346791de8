use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use http::{HeaderName, HeaderValue, header, request::Parts};

use super::{
    Headers,
    family::{Family, Field, Lists},
    names,
    partition::Secret,
    show::Show,
};
use crate::{decision::Decision, error::BuildError};

/// Gathers what [`Headers`] are made of; [`build`](HeadersBuilder::build) says what is wrong with it.
///
/// Families may be combined, unless they have a field in common. Those that show one rule show the tightest, or the one that
/// [`of_rule`](HeadersBuilder::of_rule) names.
#[must_use]
pub struct HeadersBuilder {
    families: Vec<Family>,
    headers: Headers,
    wrong: Option<BuildError>,
}

impl HeadersBuilder {
    pub(super) fn new() -> HeadersBuilder {
        HeadersBuilder { families: Vec::new(), headers: Headers::none(), wrong: None }
    }

    fn add(mut self, family: Family) -> HeadersBuilder {
        self.families.push(family);
        self
    }

    /// Keeps the first thing that is wrong.
    fn wrong(mut self, field: &'static str, text: String) -> HeadersBuilder {
        self.wrong.get_or_insert_with(|| BuildError::new(field, text));
        self
    }

    /// `X-RateLimit-Limit`, `-Remaining` and `-Reset`, which is in Unix seconds.
    pub fn x_ratelimit(self) -> HeadersBuilder {
        self.add(Family::x_ratelimit())
    }

    /// The same with the reset in seconds from now. Some clients take that for a time long past and come back at once.
    pub fn x_ratelimit_delta(self) -> HeadersBuilder {
        self.add(Family::x_ratelimit_delta())
    }

    /// `X-Rate-Limit-Limit`, `-Remaining` and `-Reset` in Unix seconds, as X and Okta have them.
    pub fn x_rate_limit(self) -> HeadersBuilder {
        self.add(Family::x_rate_limit())
    }

    /// `RateLimit-Policy` and `RateLimit` for every rule, as drafts 8 to 11 of the IETF's RateLimit fields have them.
    pub fn ietf(self) -> HeadersBuilder {
        self.add(Family::ietf())
    }

    /// `RateLimit-Policy`, and `RateLimit` for one rule, as draft 7 has them.
    pub fn ietf_draft7(self) -> HeadersBuilder {
        self.add(Family::ietf_draft7())
    }

    /// `RateLimit-Policy`, and `RateLimit-Limit`, `-Remaining` and `-Reset` for one rule, as draft 6 has them.
    pub fn ietf_draft6(self) -> HeadersBuilder {
        self.add(Family::ietf_draft6())
    }

    /// [`x_ratelimit`](HeadersBuilder::x_ratelimit) with `-Used` and `-Resource`, which is the name of the rule.
    pub fn github(self) -> HeadersBuilder {
        self.add(Family::github())
    }

    /// `X-RateLimit-Limit`, `-Remaining`, `-Reset` and `-Reset-After` to the millisecond, and `-Bucket`. Refusals have a
    /// `-Scope`: `global` by a rule of that name, with `-Global: true`; `shared` by a rule of that name; else `user`.
    pub fn discord(self) -> HeadersBuilder {
        self.add(Family::discord())
    }

    /// `X-RateLimit-Limit-Requests`, `-Remaining-Requests` and `-Reset-Requests` for the metric `requests`; the reset is a
    /// duration such as `6m0s`.
    ///
    /// ```
    /// use sluicegate::Headers;
    ///
    /// # fn main() -> Result<(), sluicegate::BuildError> {
    /// Headers::builder()
    ///     .openai("requests").of_rule("requests-per-user")
    ///     .openai("tokens").of_rule("tokens-per-user")
    ///     .retry_after_ms()
    ///     .build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn openai(self, metric: &str) -> HeadersBuilder {
        self.metered("openai", metric, Family::openai(metric))
    }

    /// `Anthropic-RateLimit-Requests-Limit`, `-Remaining` and `-Reset` for the metric `requests`; the reset is a time such as
    /// `2025-08-21T12:40:59Z`.
    pub fn anthropic(self, metric: &str) -> HeadersBuilder {
        self.metered("anthropic", metric, Family::anthropic(metric))
    }

    fn metered(self, preset: &'static str, metric: &str, family: Option<Family>) -> HeadersBuilder {
        match family {
            Some(family) => self.add(family),
            None => {
                let text = format!("{metric:?} cannot end a header name; use 1 to 64 of a-z, 0-9 and -");
                self.wrong(preset, text)
            }
        }
    }

    /// A field of one's own. The closure gives its value: text, a number, a `HeaderValue`; or `None` for no field. What cannot
    /// be a header value is left out, and logged once.
    ///
    /// ```
    /// use sluicegate::Headers;
    ///
    /// # fn main() -> Result<(), sluicegate::BuildError> {
    /// // As Shopify has it: used, of how many.
    /// Headers::builder()
    ///     .custom("x-call-limit", |decision| {
    ///         let standing = decision.tightest()?;
    ///         let capacity = standing.limit().quota().capacity();
    ///         Some(format!("{}/{capacity}", capacity.saturating_sub(standing.remaining())))
    ///     })
    ///     .build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn custom<V, F>(self, name: &str, closure: F) -> HeadersBuilder
    where
        V: TryInto<HeaderValue>,
        F: Fn(&Decision) -> Option<V> + Send + Sync + 'static,
    {
        let Ok(name) = HeaderName::try_from(name) else {
            return self.wrong("custom", format!("{name:?} is not a header name; use letters, digits and hyphens"));
        };
        if NOT_OURS.contains(&name) || name == names::RETRY_AFTER_MS {
            return self.wrong("custom", format!("`{name}` has a meaning of its own; name another field"));
        }
        let told = AtomicBool::new(false);
        let field = name.clone();
        let show = Show::Custom(Arc::new(move |decision| {
            let value = closure(decision)?.try_into().ok();
            if value.is_none() && !told.swap(true, Ordering::Relaxed) {
                tracing::warn!(
                    "headers: what was to be written into `{field}` cannot be a header value; it is left out"
                );
            }
            value
        }));
        self.add(Family::new("custom", None, Box::new([Field::new(name, show)])))
    }

    /// The family before this shows the rule of this name, rather than the tightest; where that rule does not apply, nothing.
    pub fn of_rule(mut self, rule: &str) -> HeadersBuilder {
        match self.families.pop() {
            Some(family) if family.shows_one_rule() => self.add(family.of_rule(rule)),
            Some(family) => {
                let text = format!("{} does not show one rule; drop .of_rule({rule:?})", family.preset());
                self.wrong("of_rule", text)
            }
            None => self.wrong("of_rule", format!("no family stands before .of_rule({rule:?})")),
        }
    }

    /// Adds to the fields of [`ietf`](HeadersBuilder::ietf) which count a request belongs to, so that a client with several
    /// keys can tell them apart: 12 bytes of the HMAC-SHA256 of the key. Keep the secret: with it, keys that are easy to
    /// guess, such as addresses, can be found by trying.
    pub fn partition_key(mut self, secret: impl AsRef<[u8]>) -> HeadersBuilder {
        let secret = secret.as_ref();
        if secret.len() < 16 {
            return self.wrong("partition_key", "the secret is too short; give at least 16 bytes".into());
        }
        self.headers.partition = Secret::new(secret);
        self
    }

    /// Adds `X-RateLimit-Degraded` to responses of requests that the store gave no answer to, with the
    /// [kind](crate::StoreErrorKind) of failure: `timeout`, `unavailable`, `refused`, `permanent`, `garbled`, or `open` while its
    /// circuit breaker is. For probes, canaries and people with an outage on their hands; it tells strangers of one.
    pub fn degraded(mut self) -> HeadersBuilder {
        self.headers.degraded = true;
        self
    }

    /// Adds `X-RateLimit-Shadow` to responses of requests that [shadow](crate::Rule::shadow) rules would have refused, with the rules:
    /// a list of names, each with what remains, `r`, and the seconds until the request would fit, `t`, if it ever would:
    /// `"per-user";r=0;t=12`. For those who roll a limit out; it tells strangers of one that is not in force.
    pub fn shadow(mut self) -> HeadersBuilder {
        self.headers.shadow = true;
        self
    }

    /// Adds `Retry-After-Ms` to `Retry-After`: the same wait to the millisecond. Some SDKs prefer it.
    pub fn retry_after_ms(mut self) -> HeadersBuilder {
        self.headers.retry_after_ms = true;
        self
    }

    /// Writes the fields only when less than this share of the tightest rule's capacity remains, and on refusals: `0.2` is a
    /// fifth.
    pub fn only_below(mut self, share: f64) -> HeadersBuilder {
        if !(share > 0.0 && share <= 1.0) {
            return self.wrong("only_below", format!("{share} is no share; give more than 0 and at most 1"));
        }
        self.headers.only_below = Some(share);
        self
    }

    /// Writes nothing but `Retry-After` for requests that the closure says yes to: those of strangers, whom limits are none
    /// of the business of. Their refusals name no quota either. It sees the request before the service does.
    ///
    /// ```
    /// use sluicegate::Headers;
    ///
    /// # #[derive(Clone)]
    /// # struct User;
    /// # fn main() -> Result<(), sluicegate::BuildError> {
    /// Headers::builder().x_ratelimit().hide_when(|req| req.extensions.get::<User>().is_none()).build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn hide_when<F>(mut self, closure: F) -> HeadersBuilder
    where
        F: Fn(&Parts) -> bool + Send + Sync + 'static,
    {
        self.headers.hide_when = Some(Arc::new(closure));
        self
    }

    /// Whether redirects carry the fields; they do unless said otherwise. A client that has little left may put off going
    /// where it was sent.
    pub fn on_redirects(mut self, write: bool) -> HeadersBuilder {
        self.headers.on_redirects = write;
        self
    }

    /// The longest wait or reset that is told, a day unless said otherwise. A client that must wait longer is told this, and
    /// told again when it comes back. Unless said otherwise, the reset of a [calendar's](crate::Quota::per_calendar_month) window
    /// is told however far away it is; a wait for it is not.
    pub fn cap(mut self, cap: Duration) -> HeadersBuilder {
        if cap < Duration::from_secs(1) {
            return self.wrong("cap", format!("{cap:?} is too short; give at least a second"));
        }
        self.headers.cap = Some(cap);
        self
    }

    /// The most units a second that the `RateLimit` field may invite to spend: what it says of the remaining is lowered to as many
    /// times its `t`. For show only; a client that spends faster is admitted as ever. Without it a burst is told whole.
    ///
    /// ```
    /// use sluicegate::Headers;
    ///
    /// # fn main() -> Result<(), sluicegate::BuildError> {
    /// Headers::builder().ietf().cap_ratio(100.0).build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn cap_ratio(mut self, units_per_second: f64) -> HeadersBuilder {
        if !(units_per_second.is_finite() && units_per_second > 0.0) {
            return self.wrong("cap_ratio", format!("{units_per_second} is no rate; give units a second, more than 0"));
        }
        self.headers.cap_ratio = Some(units_per_second);
        self
    }

    /// The headers.
    ///
    /// # Errors
    ///
    /// When a name is no header name, a number is out of range, or two families write one field.
    pub fn build(self) -> Result<Headers, BuildError> {
        if let Some(wrong) = self.wrong {
            return Err(wrong);
        }
        let mut written: Vec<(HeaderName, &'static str)> = Vec::new();
        for family in &self.families {
            for name in family.names() {
                if let Some((_, other)) = written.iter().find(|(other, _)| *other == name) {
                    let text = format!("{other} and {} both write `{name}`; drop one of them", family.preset());
                    return Err(BuildError::new("headers", text));
                }
                written.push((name, family.preset()));
            }
        }
        let named = self.families.iter().any(|family| family.lists() == Some(Lists::Named));
        if self.headers.partition.is_some() && !named {
            return Err(BuildError::new("partition_key", "only .ietf() can tell it; add .ietf(), or drop it"));
        }
        let Headers { families, most, tells_time, .. } = Headers::of(self.families.into_iter().map(Arc::new).collect());
        Ok(Headers { families, most, tells_time, ..self.headers })
    }
}

/// Fields that say how a response is to be read, and what is written anyway.
const NOT_OURS: [HeaderName; 8] = [
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::CONTENT_TYPE,
    header::RETRY_AFTER,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

impl fmt::Debug for HeadersBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeadersBuilder").field("families", &self.families).finish_non_exhaustive()
    }
}
