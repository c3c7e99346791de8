//! Header fields that concern one connection, and those that tell the upstream who asked.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName, HeaderValue, Version, header, request::Parts, uri::Authority};

const FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

const HOP_BY_HOP: [HeaderName; 8] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// What a request or response wants to speak from now on, if it says so for this connection. HTTP does not pass: requests on a connection
/// that was changed to it would pass every rule.
pub(super) fn upgrade(headers: &HeaderMap, version: Version) -> Option<HeaderValue> {
    let asks = version == Version::HTTP_11
        && listed(headers, &header::CONNECTION).any(|word| word.eq_ignore_ascii_case("upgrade"));
    let is_http = |word: &str| ["h2c", "h2", "http", "tls"].iter().any(|name| named(word, name));
    let is_other = !listed(headers, &header::UPGRADE).any(is_http);
    headers.get(header::UPGRADE).filter(|_| asks && is_other).cloned()
}

/// Takes out what is for one connection alone. That the client reads trailers is worth passing on.
pub(super) fn strip(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = listed(headers, &header::CONNECTION).filter_map(|word| word.parse().ok()).collect();
    let trailers = listed(headers, &header::TE).any(|word| word.eq_ignore_ascii_case("trailers"));
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
    if trailers {
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
    }
}

/// Puts back what was stripped, for a connection that changes its protocol.
pub(super) fn ask_for(headers: &mut HeaderMap, protocol: HeaderValue) {
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, protocol);
}

/// Whether a protocol is of this name, whatever its version.
fn named(protocol: &str, name: &str) -> bool {
    protocol.split('/').next().is_some_and(|own| own.eq_ignore_ascii_case(name))
}

fn listed<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let lines = headers.get_all(name).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(str::trim)
}

/// Says who asked, for which host, and how. Unless a proxy asks, whatever came in these fields was made up by the caller.
pub(super) fn forwarded(head: &mut Parts, peer: Option<IpAddr>, by_proxy: bool) {
    if !by_proxy {
        for name in [FOR, PROTO, HOST, header::FORWARDED] {
            head.headers.remove(name);
        }
    }
    // HTTP/2, and requests with a whole URL, have the host there, and it counts for more than the field.
    if let Some(host) = head.uri.authority().map(host_of).and_then(|host| HeaderValue::from_str(host).ok()) {
        head.headers.insert(header::HOST, host);
    }
    if let Some(host) = head.headers.get(header::HOST).cloned() {
        head.headers.entry(HOST).or_insert(host);
    }
    head.headers.entry(PROTO).or_insert(HeaderValue::from_static("http"));
    if let Some(peer) = peer {
        let before = head.headers.get_all(FOR).iter().filter_map(|line| line.to_str().ok());
        let list: Vec<String> = before.map(str::to_owned).chain([peer.to_canonical().to_string()]).collect();
        if let Ok(list) = HeaderValue::try_from(list.join(", ")) {
            head.headers.insert(FOR, list);
        }
    }
}

/// Without a name and password.
fn host_of(authority: &Authority) -> &str {
    authority.as_str().rsplit('@').next().unwrap_or_default()
}
