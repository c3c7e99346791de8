use std::{
    fmt,
    io::Write,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use http::request::Parts;

use super::{KeyBy, compose::Miss, proxies::TrustedProxies};

/// The address of the client: the peer's, or what [trusted proxies](Ip::behind) say it is.
///
/// With axum, serve with connect info, or there is no address and the rule does not apply. The first request without one
/// logs an error with this very line:
///
/// ```no_run
/// # use axum::Router;
/// # use std::net::SocketAddr;
/// # async fn serve(listener: tokio::net::TcpListener, app: Router) -> std::io::Result<()> {
/// axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await
/// # }
/// ```
///
/// To find out without reading logs, refuse: `key::ip().or_refuse(StatusCode::INTERNAL_SERVER_ERROR)`. Elsewhere, put a
/// `SocketAddr` or an `IpAddr` into the request's extensions, or say where it is with [`peer_by`](Ip::peer_by).
///
/// An IPv4 address inside IPv6 counts as IPv4; IPv6 addresses count together by /64, the smallest block a customer gets. The
/// key's text comes from the address, never from a header's text: `v4:192.0.2.1`, `v6:2001:db8:1:2::/64`.
pub fn ip() -> Ip {
    Ip { proxies: None, prefix: 64, peer: PeerBy(Arc::new(peer)), told: Arc::default() }
}

/// A key by address, made by [`ip()`].
#[derive(Clone, Debug)]
#[must_use]
pub struct Ip {
    proxies: Option<TrustedProxies>,
    prefix: u32,
    peer: PeerBy,
    /// Whether a missing peer was told of; clones in several rules tell of it once.
    told: Arc<AtomicBool>,
}

type Finds = dyn Fn(&Parts) -> Option<IpAddr> + Send + Sync;

#[derive(Clone)]
struct PeerBy(Arc<Finds>);

impl fmt::Debug for PeerBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PeerBy(closure)")
    }
}

impl Ip {
    /// Takes the word of these proxies for the client's address.
    ///
    /// ```
    /// use sluicegate::{key::{self, TrustedProxies}, Quota, Rule};
    ///
    /// Rule::gcra("per-ip", Quota::per_second(20)).key(key::ip().behind(TrustedProxies::cidrs(["10.0.0.0/8"])));
    /// ```
    pub fn behind(mut self, proxies: TrustedProxies) -> Ip {
        self.proxies = Some(proxies);
        self
    }

    /// Counts IPv6 addresses together that agree in this many bits, 32 to 128; 64 unless said otherwise. Many customers get a
    /// /56, some a /48: a second, larger rule by a shorter prefix keeps those from hopping through their blocks.
    pub fn ipv6_prefix(mut self, bits: u32) -> Ip {
        self.prefix = bits;
        self
    }

    /// Where the peer's address is found, for servers that keep it in a place of their own: tonic in
    /// `TcpConnectInfo::remote_addr()`, for one.
    ///
    /// ```
    /// use std::net::IpAddr;
    /// use sluicegate::key;
    ///
    /// # #[derive(Clone)]
    /// struct Connection { remote: IpAddr }
    ///
    /// key::ip().peer_by(|req| Some(req.extensions.get::<Connection>()?.remote));
    /// ```
    pub fn peer_by(mut self, closure: impl Fn(&Parts) -> Option<IpAddr> + Send + Sync + 'static) -> Ip {
        self.peer = PeerBy(Arc::new(closure));
        self
    }

    /// What is wrong with it.
    pub(crate) fn problem(&self) -> Option<String> {
        if let Some(problem) = self.proxies.as_ref().and_then(TrustedProxies::problem) {
            return Some(problem);
        }
        let prefix = self.prefix;
        (!(32..=128).contains(&prefix))
            .then(|| format!("an IPv6 prefix of {prefix} bits groups nothing; give 32 to 128"))
    }

    pub(crate) fn has_proxies(&self) -> bool {
        self.proxies.is_some()
    }

    /// The client's address, canonical.
    pub(crate) fn address(&self, head: &Parts) -> Option<IpAddr> {
        let peer = (self.peer.0)(head).map(|address| address.to_canonical());
        let address = match &self.proxies {
            Some(proxies) => proxies.client(peer, &head.headers),
            None => peer,
        };
        if address.is_none() && peer.is_none() && !self.told.swap(true, Ordering::Relaxed) {
            tell();
        }
        address
    }
}

impl From<Ip> for KeyBy {
    fn from(ip: Ip) -> KeyBy {
        if let Some(problem) = ip.problem() {
            return KeyBy::wrong(problem);
        }
        let client = Arc::new(ip.clone());
        let by = KeyBy::writer(move |head, text| {
            write(ip.address(head).ok_or(Miss::Absent)?, ip.prefix, text);
            Ok(())
        });
        by.with_client(client)
    }
}

/// A rule that does not apply is easily overlooked, so the first request says it.
#[cold]
fn tell() {
    tracing::error!(
        "key::ip(): requests carry no peer address, so rules and lists by address do not apply to them; with axum, serve with \
         `axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>())`, elsewhere put a SocketAddr \
         into the request's extensions"
    );
}

fn peer(head: &Parts) -> Option<IpAddr> {
    #[cfg(feature = "axum")]
    {
        use axum::extract::connect_info::{ConnectInfo, MockConnectInfo};

        if let Some(ConnectInfo(address)) = head.extensions.get::<ConnectInfo<SocketAddr>>() {
            return Some(address.ip());
        }
        if let Some(MockConnectInfo(address)) = head.extensions.get::<MockConnectInfo<SocketAddr>>() {
            return Some(address.ip());
        }
    }
    let address = head.extensions.get::<SocketAddr>().map(SocketAddr::ip);
    address.or_else(|| head.extensions.get::<IpAddr>().copied())
}

/// Writes the text of an address, which needs no escaping.
fn write(address: IpAddr, prefix: u32, text: &mut Vec<u8>) {
    match address {
        IpAddr::V4(address) => {
            let mut before: &[u8] = b"v4:";
            for part in address.octets() {
                text.extend_from_slice(before);
                text.extend_from_slice(itoa::Buffer::new().format(part).as_bytes());
                before = b".";
            }
        }
        IpAddr::V6(address) => {
            let hosts = u128::MAX.checked_shr(prefix).unwrap_or(0);
            let masked = Ipv6Addr::from_bits(address.to_bits() & !hosts);
            // Writing into memory does not fail.
            let _ = write!(text, "v6:{masked}/{prefix}");
        }
    }
}
