//! Ready-made extractors.

use std::{
    fmt::Write,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    sync::atomic::{AtomicBool, Ordering},
};

use http::{HeaderName, header, request::Parts};

use super::{Found, Key, KeyBy};

/// IPv6 addresses that agree in this many bits belong to one customer.
const IPV6_PREFIX: u32 = 64;

/// The address of the peer: the client's own, or that of the proxy in front of this service.
///
/// With axum, serve with connect info or there is no address and the rule does not apply (which is logged, once):
///
/// ```no_run
/// # use axum::Router;
/// # use std::net::SocketAddr;
/// # async fn serve(listener: tokio::net::TcpListener, app: Router) -> std::io::Result<()> {
/// axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await
/// # }
/// ```
///
/// Elsewhere, put a `SocketAddr` or an `IpAddr` into the request's extensions. An IPv4 address inside IPv6 counts as IPv4;
/// IPv6 addresses count together by /64, the smallest block a customer gets.
pub fn ip() -> KeyBy {
    let told = AtomicBool::new(false);
    KeyBy::new(move |head| {
        let address = peer(head);
        if address.is_none() && !told.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "key::ip(): requests carry no peer address, so the rule does not apply; \
                 serve with `app.into_make_service_with_connect_info::<SocketAddr>()`"
            );
        }
        address.map(address_key)
    })
}

fn peer(head: &Parts) -> Option<IpAddr> {
    #[cfg(feature = "axum")]
    if let Some(info) = head.extensions.get::<axum::extract::ConnectInfo<SocketAddr>>() {
        return Some(info.0.ip());
    }
    let address = head.extensions.get::<SocketAddr>().map(SocketAddr::ip);
    address.or_else(|| head.extensions.get::<IpAddr>().copied())
}

fn address_key(address: IpAddr) -> Key {
    let mut text = smallvec::SmallVec::<[u8; 64]>::new();
    let mut out = Text(&mut text);
    // Writing into memory does not fail.
    let _ = match address.to_canonical() {
        IpAddr::V4(address) => write!(out, "v4:{address}"),
        IpAddr::V6(address) => {
            let masked = Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << (128 - IPV6_PREFIX)));
            write!(out, "v6:{masked}/{IPV6_PREFIX}")
        }
    };
    Key::new(&text)
}

struct Text<'a>(&'a mut smallvec::SmallVec<[u8; 64]>);

impl Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

/// The value of a header, as bytes; the first where there are several. `Authorization`, `Proxy-Authorization`, `Cookie` and
/// `X-Api-Key`, and values marked as sensitive, are hashed: the store does not see them.
pub fn header<N>(name: N) -> KeyBy
where
    N: TryInto<HeaderName> + std::fmt::Debug + Clone,
{
    match name.clone().try_into() {
        Ok(name) => {
            let secret = [header::AUTHORIZATION, header::PROXY_AUTHORIZATION, header::COOKIE].contains(&name)
                || name == "x-api-key";
            KeyBy::new(move |head| {
                let value = head.headers.get(&name)?;
                let hash = secret || value.is_sensitive();
                Some(if hash { Key::secret(value.as_bytes()) } else { Key::new(value.as_bytes()) })
            })
        }
        Err(_) => KeyBy::wrong(format!("{name:?} is not a header name; use letters, digits and hyphens")),
    }
}

/// The route as the router knows it, `/users/{id}` and not `/users/7`. There is none where no axum route matched.
pub fn route() -> KeyBy {
    KeyBy::new(|head| {
        #[cfg(feature = "axum")]
        if let Some(path) = head.extensions.get::<axum::extract::MatchedPath>() {
            return Some(Key::new(path.as_str().as_bytes()));
        }
        let _ = head;
        None::<Key>
    })
}

/// The path as the client sent it, without its query. Callers choose it, so it may take any number of values: prefer
/// [`route()`].
pub fn path() -> KeyBy {
    KeyBy::new(|head| Key::new(head.uri.path().as_bytes()))
}

/// The method.
pub fn method() -> KeyBy {
    KeyBy::new(|head| head.method.clone())
}

/// One key for every request.
pub fn global() -> KeyBy {
    KeyBy::new(|_| "all")
}

/// No key in HTTP requests: the rule applies only where [`Limiter::acquire`](crate::Limiter::acquire) names a key for it.
pub fn given() -> KeyBy {
    KeyBy::new(|_| Found::Absent)
}
