//! Whose address a request has: what proxies of ours wrote decides, whatever the caller made up before it.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
};

use axum::{Router, extract::connect_info::MockConnectInfo, routing::get};
use http::{HeaderName, HeaderValue, Request, StatusCode, request::Parts};
use sluicegate::{
    Limiter, MemoryStore, Quota, RateLimitLayer, Rule,
    key::{self, ClientHeader, Found, Ip, KeyBy, TrustedProxies},
};

use crate::support::{
    app::{field, get as fetch, serve},
    log::logged,
};

pub const PEER: &str = "10.0.0.1";
pub const XFF: &str = "x-forwarded-for";

fn head(peer: Option<&str>, lines: &[(&str, &[u8])]) -> Parts {
    let mut request = Request::new(());
    for (name, line) in lines {
        let name = HeaderName::from_bytes(name.as_bytes()).expect("a name");
        request.headers_mut().append(name, HeaderValue::from_bytes(line).expect("a value"));
    }
    if let Some(peer) = peer {
        request.extensions_mut().insert(peer.parse::<IpAddr>().expect("an address"));
    }
    request.into_parts().0
}

/// The key, and `-` where there is none.
pub fn found(ip: Ip, peer: Option<&str>, lines: &[(&str, &[u8])]) -> String {
    match KeyBy::from(ip).find_now(&head(peer, lines)) {
        Some(Found::Key(key)) => String::from_utf8(key.as_bytes().to_vec()).expect("text"),
        Some(Found::Absent) => "-".into(),
        other => panic!("{other:?}"),
    }
}

pub fn cidrs() -> TrustedProxies {
    TrustedProxies::cidrs(["10.0.0.0/8", "2001:db8:f::/48", "192.0.2.200"])
}

pub fn behind(proxies: TrustedProxies) -> Ip {
    key::ip().behind(proxies).ipv6_prefix(128)
}

#[test]
fn the_list_is_read_from_the_right_up_to_the_first_that_is_no_proxy() {
    for (lines, expected) in [
        (&["203.0.113.7"][..], "v4:203.0.113.7"),
        (&["6.6.6.6, 203.0.113.7"], "v4:203.0.113.7"),
        (&["6.6.6.6, 203.0.113.7, 10.0.0.3, 192.0.2.200"], "v4:203.0.113.7"),
        (&["6.6.6.6, 203.0.113.7", "10.0.0.3"], "v4:203.0.113.7"),
        (&["6.6.6.6", "203.0.113.7"], "v4:203.0.113.7"),
        // Odd spellings of one address.
        (&["203.0.113.7:5678"], "v4:203.0.113.7"),
        (&["\"203.0.113.7\""], "v4:203.0.113.7"),
        (&["\t203.0.113.7 , 10.9.9.9\t"], "v4:203.0.113.7"),
        (&["::ffff:203.0.113.7"], "v4:203.0.113.7"),
        (&["[::ffff:203.0.113.7]:80"], "v4:203.0.113.7"),
        (&["2001:db8::1"], "v6:2001:db8::1/128"),
        (&["[2001:db8::1]"], "v6:2001:db8::1/128"),
        (&["[2001:DB8::1]:4711"], "v6:2001:db8::1/128"),
        (&["\"[2001:db8::1]:4711\""], "v6:2001:db8::1/128"),
        // A proxy inside IPv6, and IPv6 proxies.
        (&["203.0.113.7, ::ffff:10.0.0.9, 2001:db8:f::1"], "v4:203.0.113.7"),
        // All are proxies: the first of them asked.
        (&["10.0.0.4, 10.0.0.3"], "v4:10.0.0.4"),
        (&[], "v4:10.0.0.1"),
        // What is no address ends the walk at the last that is certain.
        (&["203.0.113.7, unknown, 10.0.0.3"], "v4:10.0.0.3"),
        (&["203.0.113.7, unknown"], "v4:10.0.0.1"),
        (&["203.0.113.7, , 10.0.0.3"], "v4:10.0.0.3"),
        (&["203.0.113.7,"], "v4:10.0.0.1"),
        (&[""], "v4:10.0.0.1"),
        (&["203.0.113.7", ""], "v4:10.0.0.1"),
        (&["fe80::1%eth0"], "v4:10.0.0.1"),
        (&["[fe80::1%2]:80"], "v4:10.0.0.1"),
        (&["01.2.3.4"], "v4:10.0.0.1"),
        (&["1.2.3"], "v4:10.0.0.1"),
        (&["1.2.3.4.5"], "v4:10.0.0.1"),
        (&["16909060"], "v4:10.0.0.1"),
        (&["1.2.3.4:"], "v4:10.0.0.1"),
        (&["1.2.3.4:99999"], "v4:10.0.0.1"),
        (&["1.2.3.4:+80"], "v4:10.0.0.1"),
        (&["1.2.3.4:_port"], "v4:10.0.0.1"),
        (&["[1.2.3.4]"], "v4:10.0.0.1"),
        (&["[2001:db8::1"], "v4:10.0.0.1"),
        (&["[2001:db8::1]x"], "v4:10.0.0.1"),
        (&["\"1.2.3.4"], "v4:10.0.0.1"),
        (&["1.2.3.4 5.6.7.8"], "v4:10.0.0.1"),
        (&["1.2.3.4;5.6.7.8"], "v4:10.0.0.1"),
        (&["_hidden"], "v4:10.0.0.1"),
    ] {
        let lines: Vec<_> = lines.iter().map(|line| (XFF, line.as_bytes())).collect();
        assert_eq!(found(behind(cidrs()), Some(PEER), &lines), expected, "{lines:?}");
    }
    let bytes: &[u8] = b"203.0.113.7, \xff\xfe";
    assert_eq!(found(behind(cidrs()), Some(PEER), &[(XFF, bytes)]), "v4:10.0.0.1");
}

#[test]
fn headers_of_a_peer_that_is_no_proxy_are_not_read() {
    let lines: [(&str, &[u8]); 9] = [
        (XFF, b"1.2.3.4"),
        ("forwarded", b"for=1.2.3.4"),
        ("x-real-ip", b"1.2.3.4"),
        ("cf-connecting-ip", b"1.2.3.4"),
        ("fly-client-ip", b"1.2.3.4"),
        ("true-client-ip", b"1.2.3.4"),
        ("cloudfront-viewer-address", b"1.2.3.4:5"),
        ("x-envoy-external-address", b"1.2.3.4"),
        ("fastly-client-ip", b"1.2.3.4"),
    ];
    for header in headers() {
        let ip = behind(cidrs().header(header.clone()));
        assert_eq!(found(ip.clone(), Some("198.51.100.9"), &lines), "v4:198.51.100.9", "{header:?}");
        assert_eq!(found(ip.clone(), Some("::ffff:10.0.0.9"), &lines), "v4:1.2.3.4", "{header:?}");
        assert_eq!(found(ip, None, &lines), "-", "{header:?}");
    }
    assert_eq!(found(key::ip(), Some(PEER), &lines), "v4:10.0.0.1");
    let hops = TrustedProxies::hops(1);
    assert_eq!(found(behind(hops.clone()), Some("198.51.100.9"), &lines), "v4:1.2.3.4");
    let hops = hops.only_from(["10.0.0.0/8"]);
    assert_eq!(found(behind(hops.clone()), Some("198.51.100.9"), &lines), "v4:198.51.100.9");
    assert_eq!(found(behind(hops), Some("10.2.3.4"), &lines), "v4:1.2.3.4");
}

pub fn headers() -> [ClientHeader; 9] {
    [
        ClientHeader::XForwardedFor,
        ClientHeader::Forwarded,
        ClientHeader::XRealIp,
        ClientHeader::Cloudflare,
        ClientHeader::Fly,
        ClientHeader::Akamai,
        ClientHeader::CloudFront,
        ClientHeader::Envoy,
        ClientHeader::Single(HeaderName::from_static("fastly-client-ip")),
    ]
}

#[test]
fn hops_count_from_the_right() {
    for (hops, lines, expected) in [
        (1, &["6.6.6.6, 1.2.3.4"][..], "v4:1.2.3.4"),
        (2, &["6.6.6.6, 1.2.3.4, 198.51.100.1"], "v4:1.2.3.4"),
        (2, &["6.6.6.6, 1.2.3.4", "198.51.100.1"], "v4:1.2.3.4"),
        (3, &["6.6.6.6", "1.2.3.4, 198.51.100.1"], "v4:6.6.6.6"),
        // Fewer than there are proxies: somebody came past them.
        (2, &["1.2.3.4"], "v4:10.0.0.1"),
        (1, &[], "v4:10.0.0.1"),
        (2, &["1.2.3.4, unknown"], "v4:10.0.0.1"),
        (2, &["unknown, 1.2.3.4"], "v4:10.0.0.1"),
        (1, &["1.2.3.4, "], "v4:10.0.0.1"),
        (1, &["1.2.3.4:80"], "v4:1.2.3.4"),
    ] {
        let lines: Vec<_> = lines.iter().map(|line| (XFF, line.as_bytes())).collect();
        assert_eq!(found(behind(TrustedProxies::hops(hops)), Some(PEER), &lines), expected, "{hops} {lines:?}");
    }
    // Behind a Unix socket there is no peer, but a list that is long enough.
    assert_eq!(found(behind(TrustedProxies::hops(1)), None, &[(XFF, b"1.2.3.4")]), "v4:1.2.3.4");
    assert_eq!(found(behind(TrustedProxies::hops(2)), None, &[(XFF, b"1.2.3.4")]), "-");
}

#[test]
fn forwarded_is_read_as_its_rfc_says() {
    for (lines, expected) in [
        (&["for=203.0.113.7"][..], "v4:203.0.113.7"),
        (&["For=203.0.113.7;proto=https;by=10.0.0.3"], "v4:203.0.113.7"),
        (&["proto=https; FOR=\"203.0.113.7:80\""], "v4:203.0.113.7"),
        (&["for=\"203.0.113.7:_obf\""], "v4:203.0.113.7"),
        (&["for=\"[2001:db8::1]:4711\""], "v6:2001:db8::1/128"),
        (&["for=\"[2001:db8::1]\""], "v6:2001:db8::1/128"),
        (&["for=\"2\\03.0.113.7\""], "v4:203.0.113.7"),
        (&["for=6.6.6.6, for=203.0.113.7 , for=10.0.0.3;host=\"a,b;for=1.2.3.4\""], "v4:203.0.113.7"),
        (&["for=6.6.6.6", "for=203.0.113.7", "for=10.0.0.3"], "v4:203.0.113.7"),
        (&["for=203.0.113.7;host=\"a\\\",for=1.2.3.4\", for=10.0.0.3"], "v4:203.0.113.7"),
        (&["for=6.6.6.6, for=203.0.113.7;host=\"a\\\"b\", for=10.0.0.3"], "v4:203.0.113.7"),
        // An open quote swallows nothing that stands behind it.
        (&["for=\", for=203.0.113.7"], "v4:203.0.113.7"),
        (&["for=\"\\, for=203.0.113.7, for=10.0.0.3"], "v4:203.0.113.7"),
        (&["for=10.0.0.4"], "v4:10.0.0.4"),
        // None of these is an address.
        (&["for=6.6.6.6, for=unknown, for=10.0.0.3"], "v4:10.0.0.3"),
        (&["for=_hidden"], "v4:10.0.0.1"),
        (&["for=unknown"], "v4:10.0.0.1"),
        (&["for=1.2.3.4;for=5.6.7.8"], "v4:10.0.0.1"),
        (&["for=2001:db8::1"], "v4:10.0.0.1"),
        (&["for=\"2001:db8::1\""], "v4:10.0.0.1"),
        (&["for=[2001:db8::1]"], "v4:10.0.0.1"),
        (&["for=1.2.3.4:80"], "v4:10.0.0.1"),
        (&["for=\"[fe80::1%eth0]\""], "v4:10.0.0.1"),
        (&["for=\"1.2.3.4"], "v4:10.0.0.1"),
        (&["for=\"1.2.3.4\"x"], "v4:10.0.0.1"),
        (&["for=\"1.2.3.4\\"], "v4:10.0.0.1"),
        (&["for = 1.2.3.4"], "v4:10.0.0.1"),
        (&["for="], "v4:10.0.0.1"),
        (&["for"], "v4:10.0.0.1"),
        (&["=1.2.3.4"], "v4:10.0.0.1"),
        (&["by=1.2.3.4"], "v4:10.0.0.1"),
        (&["1.2.3.4"], "v4:10.0.0.1"),
        (&[";;"], "v4:10.0.0.1"),
        (&[""], "v4:10.0.0.1"),
    ] {
        let mut lines: Vec<_> = lines.iter().map(|line| ("forwarded", line.as_bytes())).collect();
        // The two are never mixed.
        lines.push((XFF, b"9.9.9.9"));
        let ip = behind(cidrs().header(ClientHeader::Forwarded));
        assert_eq!(found(ip, Some(PEER), &lines), expected, "{lines:?}");
    }
    let hops = behind(TrustedProxies::hops(2).header(ClientHeader::Forwarded));
    assert_eq!(found(hops, Some(PEER), &[("forwarded", b"for=6.6.6.6, for=1.2.3.4, for=_p")]), "v4:10.0.0.1");
    let hops = behind(TrustedProxies::hops(1).header(ClientHeader::Forwarded));
    assert_eq!(found(hops, Some(PEER), &[("forwarded", b"for=6.6.6.6, for=1.2.3.4")]), "v4:1.2.3.4");
}

#[test]
fn a_header_of_one_address_stands_once_and_holds_one() {
    let real = || behind(cidrs().header(ClientHeader::XRealIp));
    for (lines, expected) in [
        (&["203.0.113.7"][..], "v4:203.0.113.7"),
        (&[" 203.0.113.7 "], "v4:203.0.113.7"),
        (&["::ffff:203.0.113.7"], "v4:203.0.113.7"),
        (&["2001:db8::1"], "v6:2001:db8::1/128"),
        (&["203.0.113.7", "203.0.113.7"], "v4:10.0.0.1"),
        (&["203.0.113.7", ""], "v4:10.0.0.1"),
        (&["203.0.113.7, 1.2.3.4"], "v4:10.0.0.1"),
        (&["203.0.113.7:80"], "v4:10.0.0.1"),
        (&["01.2.3.4"], "v4:10.0.0.1"),
        (&["fe80::1%1"], "v4:10.0.0.1"),
        (&["unknown"], "v4:10.0.0.1"),
        (&[""], "v4:10.0.0.1"),
        (&[], "v4:10.0.0.1"),
    ] {
        let lines: Vec<_> = lines.iter().map(|line| ("x-real-ip", line.as_bytes())).collect();
        assert_eq!(found(real(), Some(PEER), &lines), expected, "{lines:?}");
    }
    for (line, expected) in [
        ("203.0.113.7:443", "v4:203.0.113.7"),
        ("2001:db8::1:443", "v6:2001:db8::1/128"),
        ("2001:db8:1:2:3:4:5:6:443", "v6:2001:db8:1:2:3:4:5:6/128"),
        ("203.0.113.7", "v4:10.0.0.1"),
        ("203.0.113.7:", "v4:10.0.0.1"),
        ("203.0.113.7:443:1", "v4:10.0.0.1"),
        ("[2001:db8::1]:443", "v4:10.0.0.1"),
    ] {
        let ip = behind(cidrs().header(ClientHeader::CloudFront));
        let lines: [(&str, &[u8]); 1] = [("cloudfront-viewer-address", line.as_bytes())];
        assert_eq!(found(ip, Some(PEER), &lines), expected, "{line}");
    }
}

#[test]
fn strict_proxies_find_no_address_where_the_header_leads_nowhere() {
    let unclear: [(&str, &[u8]); 1] = [(XFF, b"1.2.3.4, unknown, 10.0.0.3")];
    assert_eq!(found(behind(cidrs().strict()), Some(PEER), &unclear), "-");
    assert_eq!(found(behind(cidrs().strict()), Some(PEER), &[]), "v4:10.0.0.1");
    assert_eq!(found(behind(cidrs().strict()), Some("9.9.9.9"), &unclear), "v4:9.9.9.9");
    assert_eq!(found(behind(TrustedProxies::hops(4).strict()), Some(PEER), &unclear), "-");
    let twice: [(&str, &[u8]); 2] = [("x-real-ip", b"1.2.3.4"), ("x-real-ip", b"1.2.3.4")];
    assert_eq!(found(behind(cidrs().header(ClientHeader::XRealIp).strict()), Some(PEER), &twice), "-");
}

#[test]
fn no_more_than_32_entries_and_4_kib_are_looked_at() {
    let proxies = |number: usize| (0..number).map(|place| format!("10.1.0.{place}")).collect::<Vec<_>>().join(",");
    let of = |line: &str| found(behind(cidrs()), Some(PEER), &[(XFF, line.as_bytes())]);
    assert_eq!(of(&format!("1.2.3.4,{}", proxies(31))), "v4:1.2.3.4");
    assert_eq!(of(&format!("1.2.3.4,{}", proxies(32))), "v4:10.1.0.0");
    // Half of an address is another address, so what is not seen whole is none.
    let padded = |bytes: usize| format!("203.0.113.77,{:>width$}", "10.0.0.3", width = 4096 - 1 - bytes);
    assert_eq!(of(&padded("203.0.113.77".len())), "v4:203.0.113.77");
    assert_eq!(of(&padded("3.0.113.77".len())), "v4:10.0.0.3");
    assert_eq!(of(&padded(0)), "v4:10.0.0.3");
    let huge = "1.2.3.4, ".repeat(64 * 1024 / 9);
    assert_eq!(of(&format!("{huge}203.0.113.7, 10.0.0.3")), "v4:203.0.113.7");
    assert_eq!(of(&"9".repeat(64 * 1024)), "v4:10.0.0.1");
    assert_eq!(of(&",".repeat(64 * 1024)), "v4:10.0.0.1");
    let forwarded = behind(cidrs().header(ClientHeader::Forwarded));
    for text in ["\"", "\\", "for=", ";", "for=\"1", ",", "for=1.2.3.4;"] {
        let line = text.repeat(64 * 1024 / text.len());
        assert_eq!(found(forwarded.clone(), Some(PEER), &[("forwarded", line.as_bytes())]), "v4:10.0.0.1", "{text}");
    }
}

#[test]
fn ipv6_counts_by_prefix() {
    for (prefix, expected) in [
        (32, "v6:2001:db8::/32"),
        (48, "v6:2001:db8:1::/48"),
        (56, "v6:2001:db8:1:200::/56"),
        (64, "v6:2001:db8:1:203::/64"),
        (128, "v6:2001:db8:1:203:4:5:6:7/128"),
    ] {
        let ip = key::ip().ipv6_prefix(prefix);
        assert_eq!(found(ip.clone(), Some("2001:db8:1:203:4:5:6:7"), &[]), expected);
        assert_eq!(found(ip, Some("::ffff:192.0.2.1"), &[]), "v4:192.0.2.1");
    }
    assert_eq!(found(key::ip(), Some("64:ff9b::c000:201"), &[]), "v6:64:ff9b::/64");
}

#[test]
fn networks_hold_what_they_say() {
    let trusts = |network: &str, address: &str| {
        let proxies = TrustedProxies::cidrs([network, "100.64.0.0/10", "100.64.0.0/16", "100.80.0.0/16"]);
        found(behind(proxies), Some(address), &[(XFF, b"1.2.3.4")]) == "v4:1.2.3.4"
    };
    for (network, inside, outside) in [
        ("10.0.0.0/8", "10.255.255.255", "11.0.0.0"),
        ("192.0.2.128/25", "192.0.2.128", "192.0.2.127"),
        ("192.0.2.7", "192.0.2.7", "192.0.2.8"),
        ("192.0.2.7/32", "::ffff:192.0.2.7", "192.0.2.6"),
        ("::ffff:192.0.2.0/120", "192.0.2.255", "192.0.3.0"),
        ("2001:db8::/33", "2001:db8:7fff:ffff::1", "2001:db8:8000::"),
        ("2001:db8::1", "2001:db8::1", "2001:db8::2"),
        // Half of IPv6 is not also half of IPv4.
        ("::/1", "7fff::1", "1.1.1.1"),
        ("fe80::/10", "100.127.255.255", "100.128.0.0"),
    ] {
        assert!(trusts(network, inside), "{inside} is in {network}");
        assert!(!trusts(network, outside), "{outside} is not in {network}");
    }
}

#[test]
fn what_cannot_be_is_said_when_the_limiter_is_built() {
    let real = HeaderName::from_static("x-real-ip");
    let none: [&str; 0] = [];
    for (ip, remedy) in [
        (
            behind(TrustedProxies::cidrs(["10.0.0.0/33"])),
            "\"10.0.0.0/33\" is not a network; give CIDRs such as 10.0.0.0/8",
        ),
        (behind(TrustedProxies::cidrs(["10.0.0.0/8", "10.0.0/8"])), "\"10.0.0/8\" is not"),
        (behind(TrustedProxies::cidrs(["10.0.0.0/"])), "is not"),
        (behind(TrustedProxies::cidrs(["10.0.0.0/+8"])), "is not"),
        (behind(TrustedProxies::cidrs(["2001:db8::/129"])), "is not"),
        (behind(TrustedProxies::cidrs(["fe80::1%eth0/64"])), "is not"),
        (behind(TrustedProxies::cidrs(["load-balancer"])), "is not"),
        (behind(TrustedProxies::cidrs([""])), "is not"),
        (behind(TrustedProxies::cidrs(["10.1.2.3/8"])), "give 10.0.0.0/8 or 10.1.2.3"),
        (behind(TrustedProxies::cidrs(["2001:db8::1/64"])), "give 2001:db8::/64 or 2001:db8::1"),
        (behind(TrustedProxies::cidrs(["0.0.0.0/0"])), "trusts everybody"),
        (behind(TrustedProxies::cidrs(["::/0"])), "trusts everybody"),
        (behind(TrustedProxies::cidrs(["::ffff:0:0/96"])), "trusts everybody"),
        (behind(TrustedProxies::cidrs(none)), "names no proxy"),
        (behind(TrustedProxies::hops(0)), "1 to 32"),
        (behind(TrustedProxies::hops(33)), "1 to 32"),
        (behind(TrustedProxies::hops(1).only_from(["x"])), "\"x\" is not a network"),
        (behind(cidrs().only_from(["10.0.0.0/8"])), "goes with hops(..)"),
        (behind(TrustedProxies::hops(1).header(ClientHeader::Fly)), "give TrustedProxies::cidrs(..)"),
        (behind(TrustedProxies::hops(1).header(ClientHeader::Single(real))), "give TrustedProxies::cidrs(..)"),
        (key::ip().ipv6_prefix(31), "give 32 to 128"),
        (key::ip().ipv6_prefix(129), "give 32 to 128"),
    ] {
        for key in [KeyBy::from(ip.clone()), ip.clone().and(key::method()), key::method().or(ip)] {
            let error = Rule::gcra("r", Quota::per_second(1)).key(key).check().expect_err(remedy);
            assert_eq!((error.rule_name(), error.field()), (Some("r"), "key"));
            assert!(error.to_string().contains(remedy), "{error}");
        }
    }
    assert!(Rule::gcra("r", Quota::per_second(1)).key(behind(TrustedProxies::hops(32))).check().is_ok());
}

#[test]
fn a_missing_peer_is_said_once_with_the_line_that_helps() {
    let ip = key::ip();
    let log = logged(|| {
        for key in [KeyBy::from(ip.clone()), ip.clone().and(key::method()), ip.behind(cidrs()).into()] {
            assert_eq!(key.find_now(&head(None, &[])), Some(Found::Absent));
            assert_eq!(key.find_now(&head(None, &[])), Some(Found::Absent));
        }
    });
    assert_eq!(log.matches("ERROR").count(), 1, "{log}");
    assert!(log.contains("axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>())"), "{log}");
    let loud = key::ip().or_refuse(StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(loud.find_now(&head(None, &[])), Some(Found::Refuse(StatusCode::INTERNAL_SERVER_ERROR)));
    let silent = logged(|| assert_eq!(found(key::ip(), Some(PEER), &[]), "v4:10.0.0.1"));
    assert_eq!(silent, "");
}

fn limited(key: impl Into<KeyBy>) -> Router {
    let rule = Rule::fixed_window("ip", Quota::per_hour(100)).key(key);
    let limiter = Limiter::builder(MemoryStore::new()).rule(rule).build().expect("sound");
    Router::new().route("/", get(|| async {})).layer(RateLimitLayer::new(limiter))
}

#[tokio::test]
async fn the_peer_may_be_mocked_or_found_by_a_closure() {
    let address: SocketAddr = "192.0.2.1:1".parse().expect("an address");
    let mocked = limited(key::ip()).layer(MockConnectInfo(address));
    assert_eq!(field(&fetch(&mocked, "/").await, "x-ratelimit-remaining"), Some("99"));
    let closed = limited(key::ip().peer_by(|_| Some(IpAddr::from([192, 0, 2, 1]))));
    assert_eq!(field(&fetch(&closed, "/").await, "x-ratelimit-remaining"), Some("99"));
    assert_eq!(field(&fetch(&limited(key::ip()), "/").await, "x-ratelimit-remaining"), None);
}

#[tokio::test]
async fn clients_behind_a_proxy_count_apart_over_real_http() {
    let proxies = TrustedProxies::cidrs(["127.0.0.0/8", "::1"]);
    let address = serve(limited(key::ip().behind(proxies))).await;
    let client = reqwest::Client::new();
    let mut remaining: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for list in ["1.1.1.1", "2.2.2.2", "9.9.9.9, 1.1.1.1", "8.8.8.8, 1.1.1.1, 127.0.0.9"] {
        let response = client.get(format!("http://{address}/")).header(XFF, list).send().await.expect("a response");
        let left = response.headers()["x-ratelimit-remaining"].to_str().expect("text").to_owned();
        remaining.entry(if list.contains("1.1.1.1") { "1.1.1.1" } else { list }).or_default().push(left);
    }
    assert_eq!(remaining["1.1.1.1"], ["99", "98", "97"]);
    assert_eq!(remaining["2.2.2.2"], ["99"]);
}
