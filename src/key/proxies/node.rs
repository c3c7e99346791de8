//! One address, as headers write it. What std does not parse (zone ids, leading zeros) is none.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An entry of `X-Forwarded-For`: an address, bare, in quotes, with a port, or in brackets.
pub(super) fn entry(bytes: &[u8]) -> Option<IpAddr> {
    let text = text(bytes)?;
    let text = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    let address = text.parse().ok().or_else(|| with_port(text, is_number))?;
    Some(address.to_canonical())
}

/// A node of `Forwarded`: IPv6 in brackets only, and ports may be obfuscated.
pub(super) fn node(bytes: &[u8]) -> Option<IpAddr> {
    let obfuscated = |port: &str| {
        port.strip_prefix('_').is_some_and(|rest| {
            !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
        })
    };
    let address = with_port(text(bytes)?, |port| is_number(port) || obfuscated(port))?;
    Some(address.to_canonical())
}

/// An address and nothing else.
pub(super) fn single(bytes: &[u8]) -> Option<IpAddr> {
    let address: IpAddr = text(bytes)?.parse().ok()?;
    Some(address.to_canonical())
}

/// An address and a port behind the last colon; IPv6 is without brackets.
pub(super) fn viewer(bytes: &[u8]) -> Option<IpAddr> {
    let (address, port) = text(bytes)?.rsplit_once(':')?;
    let address: IpAddr = address.parse().ok().filter(|_| is_number(port))?;
    Some(address.to_canonical())
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes.trim_ascii()).ok()
}

/// `192.0.2.1`, `192.0.2.1:80`, `[2001:db8::1]`, `[2001:db8::1]:80`.
fn with_port(text: &str, is_port: impl Fn(&str) -> bool) -> Option<IpAddr> {
    let (address, after) = match text.strip_prefix('[') {
        Some(rest) => {
            let (address, after) = rest.split_once(']')?;
            (address.parse::<Ipv6Addr>().ok()?.into(), after)
        }
        None => {
            let (address, after) = text.split_at(text.find(':').unwrap_or(text.len()));
            (address.parse::<Ipv4Addr>().ok()?.into(), after)
        }
    };
    (after.is_empty() || after.strip_prefix(':').is_some_and(is_port)).then_some(address)
}

fn is_number(port: &str) -> bool {
    port.len() <= 5 && port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok()
}
