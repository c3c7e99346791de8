//! Whose word is taken for a client's address.

mod cidr;
mod client_header;
mod forwarded;
mod from_right;
mod node;

use std::net::IpAddr;

use http::{HeaderMap, HeaderName};

pub(crate) use cidr::Network;
use cidr::Networks;
pub use client_header::ClientHeader;
use from_right::FromRight;

/// The proxies in front of a service, whose word on the client's address is taken.
///
/// Proxies write the address they were called from at the *end* of `X-Forwarded-For`; what stands further left the client may
/// have made up. So the list is read from the right, and only as far as it was written by proxies of your own:
///
/// ```
/// use sluicegate::key::{self, ClientHeader, TrustedProxies};
///
/// // By network: the first address from the right that is none of your proxies' is the client.
/// key::ip().behind(TrustedProxies::cidrs(["10.0.0.0/8", "2001:db8::/32"]));
/// // By number: with two proxies that append, the client is the second from the right.
/// key::ip().behind(TrustedProxies::hops(2));
/// // By a header that the edge overwrites, where the edge is the peer.
/// key::ip().behind(TrustedProxies::cidrs(["173.245.48.0/20", "103.21.244.0/22"]).header(ClientHeader::Cloudflare));
/// ```
///
/// Networks are the safer choice: a caller who gets around the proxies is counted by its own address. Numbers are for proxies
/// whose addresses change; see [`only_from`](TrustedProxies::only_from). Where the header leads nowhere, the
/// last address that is certain counts, which is coarse but cannot be chosen by the caller. What to say for which cloud is on the
/// page about [proxies](crate::guide::proxies).
#[derive(Clone, Debug)]
#[must_use]
pub struct TrustedProxies {
    trust: Trust,
    header: ClientHeader,
    /// Of the header.
    name: HeaderName,
    strict: bool,
    problem: Option<String>,
}

#[derive(Clone, Debug)]
enum Trust {
    Networks(Networks),
    Hops { number: usize, only_from: Option<Networks> },
}

impl TrustedProxies {
    /// Proxies by their networks, as CIDRs or single addresses. Where the peer is none of them it is the client; else the
    /// client is the first address from the right that is none of them.
    ///
    /// What is not a network is said when the limiter is built.
    pub fn cidrs(networks: impl IntoIterator<Item = impl AsRef<str>>) -> TrustedProxies {
        let (networks, problem) = read(networks);
        TrustedProxies::new(Trust::Networks(networks), problem)
    }

    /// Proxies by their number, 1 to 32: each appends the address it was called from, so the client is that many from the right.
    /// Where the list is shorter, the peer counts.
    ///
    /// Callers who reach the service past the proxies choose their address; shut that way, or say
    /// [`only_from`](TrustedProxies::only_from).
    pub fn hops(number: usize) -> TrustedProxies {
        let problem = (!(1..=from_right::MOST_ENTRIES).contains(&number)).then(|| {
            format!("{number} hops cannot be; give hops(..) the number of proxies in front of this service, 1 to 32")
        });
        TrustedProxies::new(Trust::Hops { number, only_from: None }, problem)
    }

    fn new(trust: Trust, problem: Option<String>) -> TrustedProxies {
        let header = ClientHeader::default();
        TrustedProxies { trust, name: header.name(), header, strict: false, problem }
    }

    /// Reads this header in place of `X-Forwarded-For`. Those with a single address are read only with
    /// [`cidrs`](TrustedProxies::cidrs); where one is missing, stands twice or holds anything else, the peer counts.
    pub fn header(mut self, header: ClientHeader) -> TrustedProxies {
        self.name = header.name();
        self.header = header;
        self
    }

    /// With [`hops`](TrustedProxies::hops): reads the header only where the peer is in these networks.
    pub fn only_from(mut self, networks: impl IntoIterator<Item = impl AsRef<str>>) -> TrustedProxies {
        let (networks, problem) = read(networks);
        self.problem = self.problem.or(problem);
        match &mut self.trust {
            Trust::Hops { only_from, .. } => *only_from = Some(networks),
            Trust::Networks(_) => {
                let text = "only_from(..) goes with hops(..); give cidrs(..) all networks of your proxies";
                self.problem.get_or_insert_with(|| text.into());
            }
        }
        self
    }

    /// Finds no address where the header leads nowhere, in place of the last one that is certain. What happens then is up to
    /// the key: without [`or_refuse`](super::KeyBy::or_refuse) the rule does not apply.
    pub fn strict(mut self) -> TrustedProxies {
        self.strict = true;
        self
    }

    /// Whether this peer is one of them, so far as is known: with [`hops`](TrustedProxies::hops) alone, everybody is. For whoever passes on
    /// what proxies said, as a proxy does itself.
    ///
    /// ```
    /// use sluicegate::key::TrustedProxies;
    ///
    /// let proxies = TrustedProxies::cidrs(["10.0.0.0/8"]);
    /// assert!(proxies.trusts("10.1.2.3".parse()?) && !proxies.trusts("192.0.2.1".parse()?));
    /// # Ok::<(), std::net::AddrParseError>(())
    /// ```
    pub fn trusts(&self, peer: IpAddr) -> bool {
        let peer = peer.to_canonical();
        match &self.trust {
            Trust::Networks(networks) => networks.contain(peer),
            Trust::Hops { only_from, .. } => only_from.as_ref().is_none_or(|networks| networks.contain(peer)),
        }
    }

    pub(super) fn problem(&self) -> Option<String> {
        let single = !matches!(self.header, ClientHeader::XForwardedFor | ClientHeader::Forwarded);
        let text = "a header with one address is trusted by the peer's network; give TrustedProxies::cidrs(..)";
        let counted = matches!(self.trust, Trust::Hops { .. });
        self.problem.clone().or_else(|| (single && counted).then(|| text.into()))
    }

    /// The address of the client, canonical as the peer's is.
    pub(super) fn client(&self, peer: Option<IpAddr>, headers: &HeaderMap) -> Option<IpAddr> {
        match &self.trust {
            Trust::Networks(networks) => {
                let peer = peer?;
                if !networks.contain(peer) {
                    return Some(peer);
                }
                match self.header.list() {
                    Some(reading) => self.first_other(networks, peer, FromRight::new(headers, &self.name, reading)),
                    None => self.header.one(headers, &self.name).or(self.certain(peer)),
                }
            }
            Trust::Hops { number, only_from } => {
                let trusted = |networks: &Networks| peer.is_some_and(|peer| networks.contain(peer));
                let reading = self.header.list()?;
                if !only_from.as_ref().is_none_or(trusted) {
                    return peer;
                }
                // Our proxies wrote that many addresses; anything else among them means that it was not they.
                let mut entries = FromRight::new(headers, &self.name, reading).take(*number);
                let found = entries.try_fold((0, None), |(seen, _), entry| Some((seen + 1, Some(entry?))));
                match found {
                    Some((seen, address)) if seen == *number => address,
                    _ => self.certain(peer?),
                }
            }
        }
    }

    fn first_other(&self, networks: &Networks, peer: IpAddr, entries: FromRight<'_>) -> Option<IpAddr> {
        let mut last = peer;
        for entry in entries {
            match entry {
                Some(address) if networks.contain(address) => last = address,
                Some(address) => return Some(address),
                // Never jump over it: what stands behind it may be made up.
                None => return self.certain(last),
            }
        }
        Some(last)
    }

    fn certain(&self, address: IpAddr) -> Option<IpAddr> {
        (!self.strict).then_some(address)
    }
}

fn read(networks: impl IntoIterator<Item = impl AsRef<str>>) -> (Networks, Option<String>) {
    match Networks::read(networks.into_iter()) {
        Ok(networks) => (networks, None),
        Err(problem) => (Networks::default(), Some(format!("trusted proxies: {problem}"))),
    }
}
