//! The presets: which fields each has, and what each field shows. Every name that is written stands here.

use http::{HeaderName, header};

use super::{
    family::{Family, Field, Lists},
    show::Show,
};

pub(crate) const RETRY_AFTER: HeaderName = header::RETRY_AFTER;
pub(crate) const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");
pub(crate) const DEGRADED: HeaderName = HeaderName::from_static("x-ratelimit-degraded");
pub(crate) const SHADOW: HeaderName = HeaderName::from_static("x-ratelimit-shadow");
pub(crate) const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
pub(crate) const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");

pub(crate) const X_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
pub(crate) const X_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
pub(crate) const X_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

const LIMIT: (&str, Show) = ("x-ratelimit-limit", Show::Limit);
const REMAINING: (&str, Show) = ("x-ratelimit-remaining", Show::Remaining);
const RESET: &str = "x-ratelimit-reset";

fn family<const N: usize>(preset: &'static str, lists: Option<Lists>, fields: [(&'static str, Show); N]) -> Family {
    let fields = fields.map(|(name, show)| Field::new(HeaderName::from_static(name), show));
    Family::new(preset, lists, fields.into())
}

impl Family {
    pub(super) fn ietf() -> Family {
        family("ietf", Some(Lists::Named), [])
    }

    pub(super) fn ietf_draft7() -> Family {
        family("ietf_draft7", Some(Lists::Older), [("ratelimit", Show::Draft7)])
    }

    pub(super) fn ietf_draft6() -> Family {
        family(
            "ietf_draft6",
            Some(Lists::Older),
            [
                ("ratelimit-limit", Show::Limit),
                ("ratelimit-remaining", Show::Remaining),
                ("ratelimit-reset", Show::SameAsRetryAfter),
            ],
        )
    }

    pub(super) fn x_ratelimit() -> Family {
        family("x_ratelimit", None, [LIMIT, REMAINING, (RESET, Show::Unix)])
    }

    pub(super) fn x_ratelimit_delta() -> Family {
        family("x_ratelimit_delta", None, [LIMIT, REMAINING, (RESET, Show::Delta)])
    }

    pub(super) fn x_rate_limit() -> Family {
        family(
            "x_rate_limit",
            None,
            [
                ("x-rate-limit-limit", Show::Limit),
                ("x-rate-limit-remaining", Show::Remaining),
                ("x-rate-limit-reset", Show::Unix),
            ],
        )
    }

    pub(super) fn github() -> Family {
        family(
            "github",
            None,
            [
                LIMIT,
                REMAINING,
                (RESET, Show::Unix),
                ("x-ratelimit-used", Show::Used),
                ("x-ratelimit-resource", Show::Rule),
            ],
        )
    }

    pub(super) fn discord() -> Family {
        family(
            "discord",
            None,
            [
                LIMIT,
                REMAINING,
                (RESET, Show::UnixMillis),
                ("x-ratelimit-reset-after", Show::DeltaMillis),
                ("x-ratelimit-bucket", Show::Bucket),
                ("x-ratelimit-global", Show::Global),
                ("x-ratelimit-scope", Show::Scope),
            ],
        )
    }

    /// `None`: the metric cannot stand in a name.
    pub(super) fn openai(metric: &str) -> Option<Family> {
        let fields = [("limit", Show::Limit), ("remaining", Show::Remaining), ("reset", Show::GoDuration)];
        metered("openai", metric, fields, |field| format!("x-ratelimit-{field}-{metric}"))
    }

    /// `None`: the metric cannot stand in a name.
    pub(super) fn anthropic(metric: &str) -> Option<Family> {
        let fields = [("limit", Show::Limit), ("remaining", Show::Remaining), ("reset", Show::Rfc3339)];
        metered("anthropic", metric, fields, |field| format!("anthropic-ratelimit-{metric}-{field}"))
    }
}

fn metered(
    preset: &'static str,
    metric: &str,
    fields: [(&str, Show); 3],
    name: impl Fn(&str) -> String,
) -> Option<Family> {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if !(1..=64).contains(&metric.len()) || !metric.bytes().all(allowed) {
        return None;
    }
    let fields =
        fields.into_iter().map(|(field, show)| Some(Field::new(HeaderName::try_from(name(field)).ok()?, show)));
    Some(Family::new(preset, None, fields.collect::<Option<_>>()?))
}
