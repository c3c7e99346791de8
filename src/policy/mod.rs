//! Limits as data: rules, tiers, overrides and lists in a document of TOML or JSON.
//!
//! ```
//! use sluicegate::policy::{Names, Policy};
//!
//! let policy = Policy::from_toml(r#"
//!     [tier]
//!     by = "header:x-plan"
//!     default = "free"
//!
//!     [customer]
//!     by = "header:x-customer"
//!
//!     [[rules]]
//!     name = "per-user"
//!     algorithm = "token_bucket"
//!     quota = "100/min"
//!     burst = 20
//!     key = "user"
//!     paths = ["/v1/charges", "/v1/users/{id}"]
//!     methods = ["POST"]
//!
//!     [[rules]]
//!     name = "at-a-time"
//!     algorithm = "concurrency"
//!     limit = 10
//!     key = "user"
//!
//!     [tiers.free]                                       # rules are as they are written
//!
//!     [tiers.pro]
//!     per-user = { quota = "1000/min", burst = 200 }
//!     at-a-time = 50
//!
//!     [overrides.acme]
//!     tier = "pro"
//!     rules.per-user = "5000/min"
//!
//!     [lists]
//!     allow = { nets = ["10.0.0.0/8"] }
//! "#)?;
//! policy.check(&Names::new().key("user", |req| req.headers.get("x-user").cloned()))?;
//! # Ok::<(), sluicegate::policy::PolicyError>(())
//! ```
//!
//! # What stands in it
//!
//! | part | what it says |
//! | --- | --- |
//! | `[[rules]]` | limits, each as a [`Rule`](crate::Rule) of that name would be |
//! | `[tiers.NAME]` | by rule, what replaces its own quota for that tier; what is not named stays |
//! | `[tier]` | where the tier of a request is found (`by`), and which is the `default` |
//! | `[overrides.CUSTOMER]` | for one customer: another `tier`, other quotas under `rules`: an [`Override`] |
//! | `[customer]` | where the customer of a request is found (`by`): any key |
//! | `[lists]` | `allow` and `deny`, by `nets`, by `keys`, and by keys of one of the `rules`: [`Lists`](crate::Lists) |
//! | `[proxies]` | `trust` (networks) or `hops`, and `header`: how `ip` finds the client's address |
//! | `headers` | which quota fields responses have: the presets of [`Headers::builder`](crate::Headers::builder), or `["none"]` |
//! | `on_failure` | `local`, `allow` or `refuse`, for rules that do not say |
//!
//! [`Policy::schema`] has every field with its meaning, for editors too. Tiers and customers by a header are as true as the header: have
//! the gateway that sets it drop what callers send.
//!
//! **Quotas** are `"100/min"`, `"100 per minute"`, `"10_000/s"`, `"5/10s"`, `"1000/calendar month"`, `"unlimited"`; **times** `"500ms"`,
//! `"30s"`, `"1h 30m"`.
//!
//! **Keys** are `ip`, `route`, `path`, `method`, `global`, `bearer`, `given`, `header:NAME`, `api_key:NAME`, `cookie:NAME`, `path_param:NAME`,
//! `claim:NAME` (of [`Claims`]) and [`Names`] that code registers. `"bearer|ip"` takes the second where the first is absent;
//! `"bearer|refuse:401"` refuses such requests; a list, `["user", "route"]`, counts requests together that agree in all.
//!
//! **Paths** are as in axum: `{id}` stands for one segment, `{*rest}` at the end for anything below, or nothing.
//!
//! # What is wrong with it
//!
//! A [`PolicyError`] has everything that was found, each with a code, its place, and what would be right; the codes are on the page
//! [`policy_errors`](crate::guide::policy_errors). Rules that could never do anything are errors too: they are limits that somebody
//! believes in.

mod check;
mod claims;
mod code;
mod code_names;
mod document;
mod error;
mod explain;
mod names;
mod outline;
mod plan;
mod read;
mod source;
mod sources;
mod spare;
#[cfg(test)]
mod tests;
mod text;
mod words;

use std::{fmt, path::Path, sync::Arc};

pub use claims::Claims;
use code::Code;
pub use code_names::CodeNames;
use document::Document;
pub use document::Override;
use error::Problems;
pub use error::{PolicyError, Problem};
pub use explain::{
    Applies, ExplainedCustomer, ExplainedRule, ExplainedTier, Explainer, Explanation, KnownBy, Origin, Outcome,
};
pub use names::{IntoTier, Names, Tiered};
pub use outline::{Outline, OutlinedRule};
pub(crate) use plan::{Plan, Planned, Replacement, Tier, TierBy};
pub use read::Format;
use serde::{Serialize, Serializer};
use source::{Source, Tree};
pub(crate) use sources::Lookup;
#[cfg(feature = "redis")]
pub use sources::RedisPolicy;
pub use sources::{
    ChangedOverrides, Following, Loading, OverrideSource, PolicyFile, PolicySource, PolicyStatus, SourceError,
};
use spare::Spare;
use text::Wrong;
pub(crate) use text::{Pattern, Segment};

/// A document that was read and checked: see the [module](self).
///
/// ```
/// use sluicegate::policy::Policy;
///
/// let policy = Policy::from_json(r#"{ "rules": [{ "name": "per-ip", "algorithm": "gcra", "quota": "5/s", "key": "ip" }] }"#)?;
/// let same = Policy::from_toml("[[rules]]\nname = \"per-ip\"\nalgorithm = \"gcra\"\nquota = \"5/s\"\nkey = \"ip\"\n")?;
/// assert_eq!(policy, same);
/// # Ok::<(), sluicegate::policy::PolicyError>(())
/// ```
///
/// It can be shown, since it serializes as it was written; two are equal that say the same, in whatever format and order of fields.
#[derive(Clone)]
pub struct Policy {
    document: Document,
    source: Source,
    spare: Spare,
}

impl Policy {
    /// Reads TOML.
    ///
    /// # Errors
    ///
    /// All that is wrong with it, but for names that code registers: [`check`](Policy::check) looks at those.
    pub fn from_toml(text: &str) -> Result<Policy, PolicyError> {
        Policy::named("policy", text, Format::Toml)
    }

    /// Reads JSON, without comments and trailing commas.
    ///
    /// # Errors
    ///
    /// See [`from_toml`](Policy::from_toml).
    pub fn from_json(text: &str) -> Result<Policy, PolicyError> {
        Policy::named("policy", text, Format::Json)
    }

    /// Reads a file that ends in `.toml` or `.json`.
    ///
    /// ```no_run
    /// use sluicegate::policy::Policy;
    ///
    /// let policy = Policy::from_file("limits.toml")?;
    /// # Ok::<(), sluicegate::policy::PolicyError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// When it cannot be read, and as [`from_toml`](Policy::from_toml) says.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Policy, PolicyError> {
        let path = path.as_ref();
        Policy::of_read(path, sources::read_file(path))
    }

    /// Reads what stands in a file, unless it could not be read for a reason.
    fn of_read(path: &Path, read: Result<Vec<u8>, String>) -> Result<Policy, PolicyError> {
        let Some(format) = Format::of_file(path) else {
            let message = "is neither TOML nor JSON by its name";
            return Err(unread(path, message.into(), "name it with .toml or .json at the end"));
        };
        let text = read.map_err(|message| unread(path, message, "look whether it is there, and may be read"))?;
        match String::from_utf8(text) {
            Ok(text) => Policy::named(&path.display().to_string(), &text, format),
            Err(_) => Err(unread(path, "cannot be read: it is not UTF-8".into(), "save it in that encoding")),
        }
    }

    /// Reads a document from a place that errors name: a file's name, a key, or an address without credentials.
    ///
    /// ```
    /// use sluicegate::policy::{Format, Policy};
    ///
    /// let error = Policy::named("table limits", "rules = 5", Format::Toml).unwrap_err();
    /// assert_eq!(error.source_name(), "table limits");
    /// ```
    ///
    /// # Errors
    ///
    /// See [`from_toml`](Policy::from_toml).
    pub fn named(name: &str, text: &str, format: Format) -> Result<Policy, PolicyError> {
        let source = Source::new(name, text, format);
        let root = source.read()?;
        let mut problems = Problems::default();
        let document = Document::decode(&source, &root, &mut problems);
        if !problems.is_empty() {
            return Err(PolicyError::of(Arc::clone(&source.name), problems));
        }
        let spare = Spare::new(check::check(&document, Tree::new(&source, root), None)?);
        Ok(Policy { document, source, spare })
    }

    /// Looks whether a limiter can be built of it, with these names.
    ///
    /// ```
    /// use sluicegate::policy::{Names, Policy};
    ///
    /// let policy = Policy::from_toml("[[rules]]\nname = \"per-user\"\nalgorithm = \"gcra\"\nquota = \"5/s\"\nkey = \"usr\"\n")?;
    /// let error = policy.check(&Names::new().key("user", |_| "a user")).unwrap_err();
    /// let problem = error.iter().next().expect("a problem");
    /// assert_eq!(problem.message(), r#"rule "per-user": key: no key is called "usr""#);
    /// assert!(problem.help().starts_with(r#"did you mean "user"? "#));
    /// # Ok::<(), sluicegate::policy::PolicyError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// All that building one would say.
    pub fn check(&self, names: &Names) -> Result<(), PolicyError> {
        self.plan(names).map(drop)
    }

    /// What a limiter is made of, and the policy, which it keeps. What was planned when the document was read is not planned again, unless
    /// names may change it.
    pub(crate) fn into_plan(mut self, names: &Names) -> Result<(Policy, Plan), PolicyError> {
        let spare = self.spare.take().filter(|_| names.is_empty() && self.code_names().is_empty());
        let plan = match spare {
            Some(plan) => plan,
            None => self.plan(names)?,
        };
        Ok((self, plan))
    }

    /// What a limiter is made of.
    pub(crate) fn plan(&self, names: &Names) -> Result<Plan, PolicyError> {
        check::check(&self.document, Tree::again(&self.source), Some(names))
    }

    /// A customer's key by this text.
    fn customer_key(&self, names: &Names, text: &str) -> crate::key::Key {
        check::customer_key(&self.document, Tree::again(&self.source), names, text)
    }

    /// The JSON Schema of documents, for editors and tools. TOML is the same tree.
    ///
    /// ```
    /// use sluicegate::policy::Policy;
    ///
    /// assert!(Policy::schema().contains("token_bucket"));
    /// ```
    pub fn schema() -> &'static str {
        include_str!("../../schema/policy.json")
    }
}

fn unread(path: &Path, message: String, help: &str) -> PolicyError {
    PolicyError::one(path.display().to_string().into(), Code::File, Wrong::new(message, help))
}

impl Format {
    fn of_file(path: &Path) -> Option<Format> {
        match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "toml" => Some(Format::Toml),
            "json" => Some(Format::Json),
            _ => None,
        }
    }
}

impl PartialEq for Policy {
    fn eq(&self, other: &Policy) -> bool {
        self.document == other.document
    }
}

impl Serialize for Policy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.document.serialize(serializer)
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policy")
            .field("source", &self.source)
            .field("rules", &self.document.rules.len())
            .finish_non_exhaustive()
    }
}
