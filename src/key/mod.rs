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
//! digest. An empty key is a key of its own. What a closure returns stands in the store: return [`Key::secret`] or
//! [`Key::keyed`] for secrets, as [`bearer()`], [`api_key()`] and [`cookie()`] do.
//!
//! # Keys in bodies
//!
//! [`Rule::key_by_body`](crate::Rule::key_by_body) looks for one there; the layer must then [read bodies](crate::bodies).
//!
//! # When there is no key
//!
//! The rule does not apply to that request. So pair a rule whose key a caller can leave out with one that always has one,
//! such as [`ip()`]; or refuse such requests ([`KeyBy::or_refuse`]), or take another key ([`KeyBy::or`]):
//!
//! ```
//! use http::StatusCode;
//! use sluicegate::{key, Quota, Rule};
//!
//! Rule::gcra("tenant", Quota::per_second(50)).key(key::header("x-tenant").or_refuse(StatusCode::BAD_REQUEST));
//! Rule::gcra("caller", Quota::per_second(5)).key(key::api_key("x-api-key").or(key::ip()));
//! ```

mod body;
mod by;
mod compose;
mod credential;
mod extract;
mod hash;
mod into_key;
mod ip;
mod path_param;
mod percent;
mod proxies;
mod text;

pub(crate) use body::{ReadBody, wrong_bound};
pub use by::KeyBy;
pub use credential::{Credential, api_key, bearer, cookie};
pub use extract::{given, global, header, method, path, route};
use http::StatusCode;
pub use into_key::{Found, IntoKey};
pub use ip::{Ip, ip};
pub use path_param::path_param;
pub(crate) use proxies::Network;
pub use proxies::{ClientHeader, TrustedProxies};
pub use text::Key;
pub(crate) use text::{escape, hex};

/// What is made into a key composes as keys do.
macro_rules! composes {
    ($($kind:ty),+) => {$(
        impl $kind {
            /// See [`KeyBy::and`].
            pub fn and(self, other: impl Into<KeyBy>) -> KeyBy {
                KeyBy::from(self).and(other)
            }

            /// See [`KeyBy::or`].
            pub fn or(self, other: impl Into<KeyBy>) -> KeyBy {
                KeyBy::from(self).or(other)
            }

            /// See [`KeyBy::or_refuse`].
            pub fn or_refuse(self, status: StatusCode) -> KeyBy {
                KeyBy::from(self).or_refuse(status)
            }
        }
    )+};
}
composes!(Credential, Ip);
