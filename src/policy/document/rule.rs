use serde::{Deserialize, Serialize};

use super::{
    OnFailureName,
    several::{CostText, StatusText, Texts},
};
use crate::Algorithm;

/// A limit: a name, an algorithm with its quota, and whose requests it counts together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(in crate::policy) struct RuleText {
    /// 1 to 64 printable ASCII characters, which stand in response headers and in the store: renaming a rule starts it afresh.
    #[cfg_attr(test, schemars(length(min = 1, max = 64)))]
    pub(in crate::policy) name: String,
    /// How it counts.
    pub(in crate::policy) algorithm: AlgorithmName,
    /// How much, in how long: `100/min`, `5/10s`, `1000/calendar month`, `unlimited`. May be absent where every tier gives one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::policy) quota: Option<String>,
    /// The capacity of a bucket: what may be spent at once after a pause. The amount of the quota unless said otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::policy) burst: Option<u64>,
    /// How many at the same time; for `concurrency`, in place of a quota.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::policy) limit: Option<u64>,
    /// Whose requests count together: `ip`, `route`, `path`, `method`, `global`, `bearer`, `given`, `header:NAME`, `api_key:NAME`,
    /// `cookie:NAME`, `path_param:NAME`, `claim:NAME`, or a name that code registers. `bearer|ip` takes the second where the first is
    /// absent, `bearer|refuse:401` refuses such requests. Of a list, requests count together that agree in all.
    pub(in crate::policy) key: Texts,
    /// What a request costs: a number, or a name that code registers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::policy) cost: Option<CostText>,
    /// Only requests for these paths: `{id}` is one segment, `{*rest}` at the end anything below.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(length(min = 1)))]
    pub(in crate::policy) paths: Option<Vec<String>>,
    /// Only requests with these methods.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(length(min = 1)))]
    pub(in crate::policy) methods: Option<Vec<String>>,
    /// A share that only critical requests may use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::policy) reserve: Option<ReserveText>,
    /// What happens under this rule when the store gives no answer in time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::policy) on_failure: Option<OnFailureName>,
    /// Counts and tells, and never refuses.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(in crate::policy) shadow: bool,
    /// The share of keys that it is enforced for, in percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(range(min = 0, max = 100)))]
    pub(in crate::policy) roll_out: Option<f64>,
    /// Whether it protects the service and is no quota of the caller's: refusals are 503.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(in crate::policy) protects_service: bool,
    /// How many new keys a process brings to the store in a minute; more share one count.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(range(min = 1, max = 10_000_000)))]
    pub(in crate::policy) max_new_keys: Option<u64>,
    /// Lets requests wait for their turn; for `leaky_bucket`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::policy) queue: Option<QueueText>,
    /// How long a place stays taken when its process dies, as `30s`; for `concurrency`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::policy) lease: Option<String>,
    /// How far the calendar's clock is ahead of UTC, as `+01:00`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::policy) utc_offset: Option<String>,
    /// Windows begin this much after the multiples of their length, as `5h`; for `fixed_window`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::policy) offset: Option<String>,
    /// A window begins with the first request that finds none running; for `fixed_window`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(in crate::policy) from_first_request: bool,
    /// Shares the limit fairly among tenants.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::policy) fair_share: Option<FairShareText>,
    /// Only requests count whose response is one of these: `[401]` counts failed logins. Others are given back.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(length(min = 1)))]
    pub(in crate::policy) count_responses: Option<Vec<StatusText>>,
    /// Refuses a key altogether, for a while, after too many refusals or bad responses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::policy) ban: Option<BanText>,
}

fn is_false(value: &bool) -> bool {
    !value
}

/// How a rule counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(in crate::policy) enum AlgorithmName {
    FixedWindow,
    SlidingLog,
    SlidingCounter,
    TokenBucket,
    Gcra,
    LeakyBucket,
    Concurrency,
}

impl From<AlgorithmName> for Algorithm {
    fn from(name: AlgorithmName) -> Algorithm {
        match name {
            AlgorithmName::FixedWindow => Algorithm::FixedWindow,
            AlgorithmName::SlidingLog => Algorithm::SlidingLog,
            AlgorithmName::SlidingCounter => Algorithm::SlidingCounter,
            AlgorithmName::TokenBucket => Algorithm::TokenBucket,
            AlgorithmName::Gcra => Algorithm::Gcra,
            AlgorithmName::LeakyBucket => Algorithm::LeakyBucket,
            AlgorithmName::Concurrency => Algorithm::Concurrency,
        }
    }
}

/// A share that only critical requests may use.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(in crate::policy) struct ReserveText {
    /// More than 0 and less than 1.
    pub(in crate::policy) share: f64,
    /// `header:NAME=VALUE`, or a condition that code registers.
    #[serde(rename = "for")]
    pub(in crate::policy) whom: String,
}

/// How long a line may be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(in crate::policy) struct QueueText {
    /// As `2s`.
    pub(in crate::policy) max_wait: String,
    /// How many may wait.
    pub(in crate::policy) max_waiters: u64,
}

/// Who shares a limit, and how much each leaves to others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(in crate::policy) struct FairShareText {
    /// More than 0 and less than 1.
    pub(in crate::policy) share: f64,
    /// A key that tells tenants apart.
    pub(in crate::policy) tenant: Texts,
}

/// Refuses a key altogether, for a while.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(in crate::policy) struct BanText {
    /// How many refusals, or bad responses, are a ban.
    pub(in crate::policy) after: u64,
    /// In how long: `1m` unless said otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::policy) within: Option<String>,
    /// How long the first ban lasts: `10m` unless said otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::policy) lasting: Option<String>,
    /// Each ban is so many times as long as the one before: 2 unless said otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::policy) escalating: Option<f64>,
    /// No ban lasts longer: `1d` unless said otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::policy) at_most: Option<String>,
    /// One ban less counts for each such time without one: `1d` unless said otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::policy) forgotten_after: Option<String>,
    /// Whether those who are banned get a 403 instead of a 429.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(in crate::policy) forbidden: bool,
    /// Which responses count, as `[401, "5xx"]`; absent, refusals do.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(length(min = 1)))]
    pub(in crate::policy) responses: Option<Vec<StatusText>>,
}
