use std::{
    borrow::Cow,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

use http::{HeaderValue, Method, StatusCode};

use super::Key;

/// What looking for a key came to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Found {
    /// The key.
    Key(Key),
    /// There is none: the rule does not apply.
    Absent,
    /// The request is to be refused with this status.
    Refuse(StatusCode),
}

impl Found {
    pub(crate) fn key(&self) -> Option<&Key> {
        match self {
            Found::Key(key) => Some(key),
            Found::Absent | Found::Refuse(_) => None,
        }
    }
}

/// What a key closure may return.
///
/// Strings, bytes, numbers, addresses, tuples of up to four of these; an `Option`, where `None` means that the rule does not
/// apply; a `Result`, where `Err(status)` refuses the request.
pub trait IntoKey {
    /// The key, if there is one.
    fn into_key(self) -> Found;
}

impl IntoKey for Key {
    fn into_key(self) -> Found {
        Found::Key(self)
    }
}

impl IntoKey for Found {
    fn into_key(self) -> Found {
        self
    }
}

impl<K: IntoKey> IntoKey for Option<K> {
    fn into_key(self) -> Found {
        self.map_or(Found::Absent, K::into_key)
    }
}

impl<K: IntoKey, E: Into<StatusCode>> IntoKey for Result<K, E> {
    fn into_key(self) -> Found {
        match self {
            Ok(key) => key.into_key(),
            Err(status) => Found::Refuse(status.into()),
        }
    }
}

impl IntoKey for String {
    #[inline]
    fn into_key(self) -> Found {
        Found::Key(Key::of(self.into_bytes()))
    }
}

impl IntoKey for Vec<u8> {
    #[inline]
    fn into_key(self) -> Found {
        Found::Key(Key::of(self))
    }
}

macro_rules! from_bytes {
    ($($kind:ty),+) => {$(
        impl IntoKey for $kind {
            #[inline]
            fn into_key(self) -> Found {
                Found::Key(Key::new(AsRef::<[u8]>::as_ref(&self)))
            }
        }
    )+};
}
from_bytes!(Box<[u8]>, HeaderValue, bytes::Bytes);

macro_rules! from_text {
    ($($kind:ty),+) => {$(
        impl IntoKey for $kind {
            #[inline]
            fn into_key(self) -> Found {
                Found::Key(Key::new(AsRef::<str>::as_ref(&self).as_bytes()))
            }
        }
    )+};
}
from_text!(&str, Cow<'_, str>, Box<str>, Arc<str>, Method);

macro_rules! from_number {
    ($($kind:ty),+) => {$(
        impl IntoKey for $kind {
            #[inline]
            fn into_key(self) -> Found {
                Found::Key(Key::new(itoa::Buffer::new().format(self).as_bytes()))
            }
        }
    )+};
}
from_number!(u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize);

/// The address itself, an IPv4 address inside IPv6 as IPv4. Unlike [`ip()`](super::ip), IPv6 is not grouped.
impl IntoKey for IpAddr {
    fn into_key(self) -> Found {
        Found::Key(Key::new(self.to_canonical().to_string().as_bytes()))
    }
}

impl IntoKey for Ipv4Addr {
    fn into_key(self) -> Found {
        IpAddr::from(self).into_key()
    }
}

impl IntoKey for Ipv6Addr {
    fn into_key(self) -> Found {
        IpAddr::from(self).into_key()
    }
}

macro_rules! from_tuple {
    ($($part:ident),+) => {
        impl<$($part: IntoKey),+> IntoKey for ($($part,)+) {
            #[allow(non_snake_case)]
            fn into_key(self) -> Found {
                let ($($part,)+) = self;
                $(let $part = match $part.into_key() {
                    Found::Key(key) => key,
                    other => return other,
                };)+
                Found::Key(Key::join([$($part),+]))
            }
        }
    };
}
from_tuple!(A, B);
from_tuple!(A, B, C);
from_tuple!(A, B, C, D);
