//! Opens connections: a socket, TLS where the address asks for it, and the greeting.

use std::{io, time::Duration};

use redis::{ConnectionAddr, ConnectionInfo};
use tokio::{
    net::{TcpStream, lookup_host},
    time::timeout,
};

use super::{greet, link::Link, sockets::Sockets, tls::Tls};
use crate::error::{StoreError, StoreErrorKind};

/// What connections are opened with, whatever the address.
pub(super) struct Dial {
    pub(super) sockets: Sockets,
    pub(super) tls: Option<Tls>,
    pub(super) timeout: Duration,
}

impl Dial {
    /// A connection to the server at an address. Whoever calls sets a limit to its time.
    pub(super) async fn open(&self, info: &ConnectionInfo) -> Result<Link, StoreError> {
        let mut link = match info.addr() {
            ConnectionAddr::Tcp(host, port) => Link::begin(self.tcp(host, *port).await?),
            ConnectionAddr::TcpTls { host, port, .. } => {
                let Some(tls) = &self.tls else { return Err(unavailable("TLS is not set up")) };
                let stream = self.tcp(host, *port).await?;
                // A server that does not speak TLS may wait for the rest of what it takes for a command.
                let silent = "the TLS handshake got no answer; does the server speak TLS on this port?";
                let wrapped = timeout(self.timeout * 3 / 4, tls.wrap(host, stream)).await;
                Link::begin(wrapped.map_err(|_| unavailable(silent))??)
            }
            #[cfg(unix)]
            ConnectionAddr::Unix(path) => {
                let stream = tokio::net::UnixStream::connect(path).await.map_err(|error| failed(&error))?;
                Link::begin(stream)
            }
            _ => return Err(unavailable("this kind of address is not known")),
        };
        greet::enter(&mut link.connection, info.redis_settings()).await?;
        Ok(link)
    }

    /// Tries the addresses of a name one after the other; each has its share of the time, or one that is dead would take all.
    async fn tcp(&self, host: &str, port: u16) -> Result<TcpStream, StoreError> {
        let addresses: Vec<_> = match lookup_host((host, port)).await {
            Ok(addresses) => addresses.collect(),
            Err(_) => return Err(unavailable("the host's name is not known")),
        };
        let share = self.timeout / u32::try_from(addresses.len()).unwrap_or(u32::MAX).max(1);
        let mut last = unavailable("the host's name has no address");
        for address in addresses {
            match timeout(share, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => {
                    self.sockets.set(&stream).map_err(|_| unavailable("the socket does not take its options"))?;
                    return Ok(stream);
                }
                Ok(Err(error)) => last = failed(&error),
                Err(_) => last = unavailable("timed out"),
            }
        }
        Err(last)
    }
}

/// Without a connection nothing was sent.
pub(super) fn unavailable(cause: &str) -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, format!("cannot connect: {cause}")).uncharged()
}

fn failed(error: &io::Error) -> StoreError {
    unavailable(match error.kind() {
        io::ErrorKind::ConnectionRefused => "refused, nothing listens there",
        io::ErrorKind::NotFound => "there is no such socket",
        io::ErrorKind::PermissionDenied => "the system permits it not",
        io::ErrorKind::TimedOut => "timed out",
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => "there is no way to the host",
        io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted => "closed by the server",
        _ => "input or output failed",
    })
}
