//! Options of TCP sockets.

use std::{io, time::Duration};

use redis::io::tcp::socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

/// After this long without traffic the peer is asked whether it is still there; then as often and as many times as below.
pub(super) const KEEPALIVE: Duration = Duration::from_secs(15);
const PROBE_EVERY: Duration = Duration::from_secs(5);
const PROBES: u32 = 3;
/// How long sent bytes may stay unacknowledged.
pub(super) const USER_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Clone, Debug)]
pub(super) struct Sockets {
    pub(super) nodelay: bool,
    pub(super) keepalive: Option<Duration>,
    pub(super) user_timeout: Option<Duration>,
}

impl Sockets {
    pub(super) fn set(&self, stream: &TcpStream) -> io::Result<()> {
        stream.set_nodelay(self.nodelay)?;
        let socket = SockRef::from(stream);
        if let Some(after) = self.keepalive {
            let keepalive = TcpKeepalive::new().with_time(after);
            #[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple", target_os = "windows"))]
            let keepalive = keepalive.with_interval(PROBE_EVERY.min(after));
            #[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
            let keepalive = keepalive.with_retries(PROBES);
            socket.set_tcp_keepalive(&keepalive)?;
        }
        #[cfg(any(target_os = "linux", target_os = "android"))]
        socket.set_tcp_user_timeout(self.user_timeout)?;
        Ok(())
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[tokio::test]
    async fn sockets_are_set_as_told() -> io::Result<()> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let stream = TcpStream::connect(listener.local_addr()?).await?;
        let second = Duration::from_secs(1);
        Sockets { nodelay: true, keepalive: Some(second * 15), user_timeout: Some(second * 5) }.set(&stream)?;
        let socket = SockRef::from(&stream);
        assert!(socket.tcp_nodelay()? && socket.keepalive()?);
        assert_eq!((socket.tcp_keepalive_time()?, socket.tcp_keepalive_interval()?), (second * 15, second * 5));
        assert_eq!((socket.tcp_keepalive_retries()?, socket.tcp_user_timeout()?), (3, Some(second * 5)));
        let stream = TcpStream::connect(listener.local_addr()?).await?;
        Sockets { nodelay: false, keepalive: None, user_timeout: None }.set(&stream)?;
        let socket = SockRef::from(&stream);
        assert!(!socket.tcp_nodelay()? && !socket.keepalive()?);
        assert_eq!(socket.tcp_user_timeout()?, None);
        Ok(())
    }
}
