use std::num::TryFromIntError;

use http::HeaderName;

use super::{Code, Key, Told, Wrong};
use crate::{
    key::{self, ClientHeader, Ip, TrustedProxies},
    policy::{document::Document, words},
};

/// How the client's address is found.
pub(super) fn client(document: &Document, told: &mut Told<'_>) -> Ip {
    let ip = key::ip();
    let Some(text) = &document.proxies else { return ip };
    let mut tell = |field: &str, wrong: Wrong| {
        let who = if field.is_empty() { "proxies".to_owned() } else { format!("proxies: {field}") };
        told.tell(Code::Proxies, &who, wrong, &[Key("proxies"), Key(field)]);
    };
    let (proxies, field) = match (&text.trust, text.hops) {
        (Some(_), Some(_)) => {
            tell(
                "hops",
                Wrong::new("stands beside trust", "proxies are trusted by their networks or by their number; give one"),
            );
            return ip;
        }
        (Some(networks), None) => (Some(TrustedProxies::cidrs(networks)), "trust"),
        (None, Some(hops)) => {
            let hops: Result<usize, TryFromIntError> = hops.try_into();
            (Some(TrustedProxies::hops(hops.unwrap_or(usize::MAX))), "hops")
        }
        (None, None) if text.header.is_some() => {
            let help =
                "nobody's word is taken unasked; give trust, the networks of your proxies, or hops, their number";
            tell("header", Wrong::new("says where an address is, but not whose word is taken for it", help));
            return ip;
        }
        (None, None) => (None, "ipv6_prefix"),
    };
    let header = match text.header.as_deref().map(header) {
        Some(Ok(header)) => Some(header),
        Some(Err(wrong)) => {
            tell("header", wrong);
            return ip;
        }
        None => None,
    };
    let mut ip = match (proxies, header) {
        (Some(proxies), Some(header)) => ip.behind(proxies.header(header)),
        (Some(proxies), None) => ip.behind(proxies),
        (None, _) => ip,
    };
    if let Some(bits) = text.ipv6_prefix {
        ip = ip.ipv6_prefix(bits);
    }
    if let Some(problem) = ip.problem() {
        let field = if problem.starts_with("an IPv6 prefix") { "ipv6_prefix" } else { field };
        tell(field, words::split(&problem));
        return key::ip();
    }
    ip
}

fn header(name: &str) -> Result<ClientHeader, Wrong> {
    Ok(match name.to_ascii_lowercase().as_str() {
        "x-forwarded-for" => ClientHeader::XForwardedFor,
        "forwarded" => ClientHeader::Forwarded,
        "x-real-ip" => ClientHeader::XRealIp,
        "cf-connecting-ip" => ClientHeader::Cloudflare,
        "fly-client-ip" => ClientHeader::Fly,
        "true-client-ip" => ClientHeader::Akamai,
        "cloudfront-viewer-address" => ClientHeader::CloudFront,
        "x-envoy-external-address" => ClientHeader::Envoy,
        other => ClientHeader::Single(HeaderName::try_from(other).map_err(|_| {
            let help = "give x-forwarded-for, forwarded, or the name of a header that holds one address";
            Wrong::new(format!("{name:?} is not a header name"), help)
        })?),
    })
}
