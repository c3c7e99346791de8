//! URLs as addresses. What is wrong is said without quoting them: they hold passwords.

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo};

use crate::error::BuildError;

const FORM: &str = "write redis://[user:password@]host[:port][/database]";
const SOCKET: &str = "write unix:///path/to/socket[?db=1&user=..&pass=..], or redis://host for a host";

/// Reads a URL. One that asks for TLS becomes an address with TLS, whatever the client was built with.
pub(super) fn read(url: &str) -> Result<ConnectionInfo, BuildError> {
    let wrong = |text: String| BuildError::new("url", text);
    let (scheme, rest) = url.split_once(':').unwrap_or(("", url));
    let (plain, tls) = match scheme {
        "redis" | "valkey" => ("redis", false),
        "rediss" | "valkeys" => ("redis", true),
        "unix" | "redis+unix" | "valkey+unix" => ("unix", false),
        _ => return Err(wrong(format!("begins with no scheme that is known; {FORM}, or rediss:// or unix:///"))),
    };
    let socket = plain == "unix";
    let form = if socket { SOCKET } else { FORM };
    if rest.contains('#') {
        let why = if tls && rest.ends_with("#insecure") {
            "asks for TLS without a look at the certificate, which is not to be had; see .tls_ca(..)"
        } else {
            "holds a `#`; in a password it is written %23"
        };
        return Err(wrong(format!("{why}; {form}")));
    }
    let known: &[&str] = if socket { &["db", "user", "pass", "protocol"] } else { &["protocol"] };
    let query = rest.split_once('?').map_or("", |(_, query)| query);
    let mut names = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| pair.split('=').next().unwrap_or(pair));
    if names.any(|name| !known.contains(&name)) {
        return Err(wrong(format!("has a parameter after `?` that is not known; {form}")));
    }
    if socket && !rest.starts_with("///") {
        return Err(wrong(format!("is the address of no socket; {form}")));
    }
    let info = format!("{plain}:{rest}").as_str().into_connection_info().map_err(|error| {
        // The client's own words are compared, not passed on: they may quote the URL.
        let said = error.to_string();
        let why = if said.contains("hostname") || rest.trim_start_matches('/').is_empty() {
            "names no host"
        } else if said.contains("database") {
            "ends with something else than the number of a database"
        } else if said.contains("wildcard") {
            "names every address (0.0.0.0 or ::) and not that of a server"
        } else if said.contains("UTF-8") {
            "holds a user or password that is not UTF-8"
        } else {
            "is not the address of a Redis server"
        };
        wrong(format!("{why}; {form}"))
    })?;
    if info.redis_settings().db() < 0 {
        return Err(wrong(format!("names a database below 0; {form}")));
    }
    if info.redis_settings().username().is_some() && info.redis_settings().password().is_none() {
        return Err(wrong(format!("names a user without a password; {form}")));
    }
    Ok(match info.addr() {
        ConnectionAddr::Tcp(host, port) if tls => {
            let address = ConnectionAddr::TcpTls { host: host.clone(), port: *port, insecure: false, tls_params: None };
            info.set_addr(address)
        }
        _ => info,
    })
}

/// Whether the server there speaks TLS.
pub(super) fn has_tls(info: &ConnectionInfo) -> bool {
    matches!(info.addr(), ConnectionAddr::TcpTls { .. })
}
