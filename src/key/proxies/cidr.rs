use std::net::IpAddr;

/// Networks, as ranges that are sorted and do not overlap: looking one up takes the same few steps in a list of a cloud's
/// hundreds. IPv4 and IPv6 are kept apart, so that `::/1` is not also half of IPv4.
#[derive(Clone, Debug, Default)]
pub(super) struct Networks {
    v4: Vec<(u128, u128)>,
    v6: Vec<(u128, u128)>,
}

impl Networks {
    /// Reads CIDRs and single addresses. An IPv4 network inside IPv6 is that IPv4 network.
    pub(super) fn read(texts: impl Iterator<Item = impl AsRef<str>>) -> Result<Networks, String> {
        let mut networks = Networks::default();
        for text in texts {
            let text = text.as_ref();
            if matches!(read(text), Some((_, 0))) {
                return Err(format!(
                    "{text:?} trusts everybody, so callers could choose their address; name your own proxies, or use TrustedProxies::hops(..)"
                ));
            }
            let network = Network::read(text)?;
            let first = network.first();
            networks.list(network.address).push((first, first | hosts(network.address, network.length)));
        }
        if networks.v4.is_empty() && networks.v6.is_empty() {
            return Err("names no proxy; give the networks that your proxies are in".into());
        }
        merge(&mut networks.v4);
        merge(&mut networks.v6);
        Ok(networks)
    }

    /// Whether the address, which is canonical, is in one of them.
    pub(super) fn contain(&self, address: IpAddr) -> bool {
        let bits = bits_of(address);
        let ranges = if address.is_ipv4() { &self.v4 } else { &self.v6 };
        let after = ranges.partition_point(|(first, _)| *first <= bits);
        after.checked_sub(1).and_then(|place| ranges.get(place)).is_some_and(|(_, last)| bits <= *last)
    }

    fn list(&mut self, family: IpAddr) -> &mut Vec<(u128, u128)> {
        if family.is_ipv4() { &mut self.v4 } else { &mut self.v6 }
    }
}

/// One network: its first address and the length of its prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Network {
    address: IpAddr,
    length: u32,
}

impl Network {
    /// Reads a CIDR or a single address.
    pub(crate) fn read(text: &str) -> Result<Network, String> {
        let (address, length) = read(text).ok_or_else(|| {
            format!("{text:?} is not a network; give CIDRs such as 10.0.0.0/8 and 2001:db8::/32, or single addresses")
        })?;
        let first = Network::first_of(address, length);
        if bits_of(address) != first {
            let first = address_of(first, address);
            return Err(format!("{text:?} has bits behind its prefix; give {first}/{length} or {address}"));
        }
        Ok(Network { address, length })
    }

    /// The first address of the network that holds this one, in bits.
    pub(crate) fn first_of(address: IpAddr, length: u32) -> u128 {
        bits_of(address) & !hosts(address, length)
    }

    pub(crate) fn first(&self) -> u128 {
        bits_of(self.address)
    }

    pub(crate) fn length(&self) -> u32 {
        self.length
    }

    pub(crate) fn is_ipv4(&self) -> bool {
        self.address.is_ipv4()
    }
}

/// The bits behind a prefix of this length.
fn hosts(family: IpAddr, length: u32) -> u128 {
    u128::MAX.checked_shr(128 - width(family) + length).unwrap_or(0)
}

fn read(text: &str) -> Option<(IpAddr, u32)> {
    let (address, length) = match text.split_once('/') {
        Some((address, length)) if length.bytes().all(|byte| byte.is_ascii_digit()) => {
            (address.parse().ok()?, length.parse().ok()?)
        }
        Some(_) => return None,
        None => {
            let address: IpAddr = text.parse().ok()?;
            (address, width(address))
        }
    };
    if length > width(address) {
        return None;
    }
    match address.to_canonical() {
        folded if folded != address && length >= 96 => Some((folded, length - 96)),
        _ => Some((address, length)),
    }
}

fn width(address: IpAddr) -> u32 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn bits_of(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

fn address_of(bits: u128, family: IpAddr) -> IpAddr {
    match family {
        IpAddr::V4(_) => IpAddr::V4((bits as u32).into()),
        IpAddr::V6(_) => IpAddr::V6(bits.into()),
    }
}

/// Sorts ranges and joins those that overlap.
fn merge(ranges: &mut Vec<(u128, u128)>) {
    ranges.sort_unstable();
    ranges.dedup_by(|next, before| {
        let overlaps = next.0 <= before.1;
        if overlaps {
            before.1 = before.1.max(next.1);
        }
        overlaps
    });
}
