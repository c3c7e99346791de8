use std::net::IpAddr;

use http::{HeaderMap, HeaderName};

use super::{forwarded, from_right::Reading, node};

/// The header that names the client. Two of them are never mixed: a proxy that writes one passes the other on as it came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClientHeader {
    /// `X-Forwarded-For`, a list.
    #[default]
    XForwardedFor,
    /// `Forwarded` of RFC 7239, a list.
    Forwarded,
    /// `X-Real-IP`, as nginx is often told to set it.
    XRealIp,
    /// `CF-Connecting-IP` of Cloudflare.
    Cloudflare,
    /// `Fly-Client-IP` of Fly.io.
    Fly,
    /// `True-Client-IP` of Akamai.
    Akamai,
    /// `CloudFront-Viewer-Address`, an address and a port.
    CloudFront,
    /// `X-Envoy-External-Address` of Envoy and Istio.
    Envoy,
    /// Another header that the edge overwrites with one address.
    Single(HeaderName),
}

impl ClientHeader {
    pub(super) fn name(&self) -> HeaderName {
        HeaderName::from_static(match self {
            ClientHeader::XForwardedFor => "x-forwarded-for",
            ClientHeader::Forwarded => "forwarded",
            ClientHeader::XRealIp => "x-real-ip",
            ClientHeader::Cloudflare => "cf-connecting-ip",
            ClientHeader::Fly => "fly-client-ip",
            ClientHeader::Akamai => "true-client-ip",
            ClientHeader::CloudFront => "cloudfront-viewer-address",
            ClientHeader::Envoy => "x-envoy-external-address",
            ClientHeader::Single(name) => return name.clone(),
        })
    }

    /// How it is read, where it is a list.
    pub(super) fn list(&self) -> Option<Reading> {
        let last_comma = |bytes: &[u8]| bytes.iter().rposition(|byte| *byte == b',');
        match self {
            ClientHeader::XForwardedFor => Some(Reading { last_comma, parse: node::entry }),
            ClientHeader::Forwarded => Some(Reading { last_comma: forwarded::last_comma, parse: forwarded::element }),
            _ => None,
        }
    }

    /// The address of a header that has one: in one line, with nothing beside it.
    pub(super) fn one(&self, headers: &HeaderMap, name: &HeaderName) -> Option<IpAddr> {
        let mut lines = headers.get_all(name).iter();
        let line = lines.next()?.as_bytes();
        if lines.next().is_some() {
            return None;
        }
        match self {
            ClientHeader::CloudFront => node::viewer(line),
            _ => node::single(line),
        }
    }
}
