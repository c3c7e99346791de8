//! Whose requests are counted together: keys, and how they are found in a request.
//!
//! A [`Rule`](crate::Rule) counts requests of one key together. A key comes from a ready-made extractor of this module, from
//! a closure ([`Rule::key_by`](crate::Rule::key_by)), or from several joined by [`KeyBy::and`]:
//!
//! ```
//! use sluicegate::{key, Quota, Rule};
//!
//! Rule::gcra("tenant-route", Quota::per_second(50)).key(key::header("x-tenant").and(key::route()));
//! ```
//!
//! # What a key may hold
//!
//! Any bytes. Letters, digits and `.-_:@/` stand in the store as they are, everything else is percent-encoded, so braces
//! cannot move a Cluster slot and different tuples are different keys; a part longer than 64 bytes becomes its SHA-256
//! digest. An empty key is a key of its own. What a closure returns stands in the store: return [`Key::secret`] for secrets, as
//! [`header()`] does for headers that carry them.
//!
//! # When there is no key
//!
//! The rule does not apply to that request. So pair a rule whose key a caller can leave out with one that always has one,
//! such as [`ip()`].

mod by;
mod extract;
mod into_key;
mod text;

pub use by::KeyBy;
pub use extract::{given, global, header, ip, method, path, route};
pub use into_key::{Found, IntoKey};
pub use text::Key;
pub(crate) use text::escape;
