use redis::{ConnectionAddr, ConnectionInfo};

/// Where a node is.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) host: String,
    pub(super) port: u16,
}

impl Address {
    /// That of a connection; a socket in the file system has none.
    pub(super) fn of(info: &ConnectionInfo) -> Option<Address> {
        match info.addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                Some(Address { host: host.clone(), port: *port })
            }
            _ => None,
        }
    }

    /// `host:port`, as a redirect writes it. Without a host it is on the machine of `here`, whose name only we know.
    pub(super) fn read(text: &str, here: &Address) -> Option<Address> {
        let (host, port) = text.rsplit_once(':')?;
        Some(Address { host: known(host, here), port: port.parse().ok().filter(|port| *port > 0)? })
    }

    /// How to connect there: with everything else as it is for `like`.
    pub(super) fn info(&self, like: &ConnectionInfo) -> ConnectionInfo {
        let host = self.host.clone();
        let address = match like.addr() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                ConnectionAddr::TcpTls { host, port: self.port, insecure: *insecure, tls_params: tls_params.clone() }
            }
            _ => ConnectionAddr::Tcp(host, self.port),
        };
        like.clone().set_addr(address)
    }
}

/// The host that a node names, or that of `here` if it knows none.
pub(super) fn known(host: &str, here: &Address) -> String {
    // Brackets stand around a version 6 address in text; connecting wants it without.
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    if matches!(bare, "" | "?") { here.host.clone() } else { bare.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_are_read_with_and_without_a_host() {
        let here = Address { host: "here".into(), port: 1 };
        let read = |text| Address::read(text, &here).map(|found| (found.host, found.port));
        assert_eq!(read("10.0.0.1:7000"), Some(("10.0.0.1".into(), 7_000)));
        assert_eq!(read("node-2.example:7000"), Some(("node-2.example".into(), 7_000)));
        assert_eq!(read("::1:7000"), Some(("::1".into(), 7_000)));
        assert_eq!(read(":7000"), Some(("here".into(), 7_000)));
        assert_eq!(read("?:7000"), Some(("here".into(), 7_000)));
        for nonsense in ["", "host", "host:", "host:0", "host:70000", "host:x"] {
            assert_eq!(read(nonsense), None, "{nonsense}");
        }
    }
}
