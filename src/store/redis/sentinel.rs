//! Finds the primary through Sentinels.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo, Value};
use tokio::time::timeout;

use super::{
    dial::{Dial, unavailable},
    greet,
    link::Link,
};
use crate::error::{StoreError, StoreErrorKind};

/// The Sentinels of one primary.
pub(super) struct Sentinels {
    /// What they call it.
    pub(super) name: String,
    pub(super) addresses: Vec<ConnectionInfo>,
    /// How the servers are greeted.
    pub(super) server: RedisConnectionInfo,
    /// Whether the servers speak TLS.
    pub(super) tls: bool,
    /// The one to ask first: the one that was right last time.
    pub(super) first: AtomicUsize,
}

/// Where a Sentinel says the primary is.
type Place = (String, u16);

impl Sentinels {
    /// A connection to the primary. The Sentinels are asked in turn, every time: each until one names a server that can be
    /// reached and says that it is a primary.
    pub(super) async fn connect(&self, dial: &Dial) -> Result<Link, StoreError> {
        let (mut silent, mut wrong) = (None, None);
        let mut tried = Vec::new();
        let first = self.first.load(Ordering::Relaxed);
        for turn in 0..self.addresses.len() {
            let index = first.wrapping_add(turn) % self.addresses.len();
            let Some(sentinel) = self.addresses.get(index) else { continue };
            match self.ask(dial, sentinel).await {
                Err(error) => silent = Some(error),
                // Another of them has named it already.
                Ok(place) if tried.contains(&place) => {}
                Ok(place) => match self.open(dial, &place).await {
                    Ok(link) => {
                        self.first.store(index, Ordering::Relaxed);
                        return Ok(link);
                    }
                    Err(error) => {
                        wrong.get_or_insert(error);
                        tried.push(place);
                    }
                },
            }
            // Also for the next attempt, if this one runs out of time.
            self.first.store(index.wrapping_add(1), Ordering::Relaxed);
        }
        // What the named server did tells more than which Sentinels are silent.
        Err(wrong.or(silent).unwrap_or_else(|| unavailable("there are no Sentinels to ask")))
    }

    async fn ask(&self, dial: &Dial, sentinel: &ConnectionInfo) -> Result<Place, StoreError> {
        let patience = dial.timeout / 4;
        match timeout(patience, self.query(dial, sentinel)).await {
            Ok(Ok(place)) => Ok(place),
            Ok(Err(error)) => Err(step("asking a Sentinel", &error)),
            Err(_) => Err(late("asking a Sentinel", patience)),
        }
    }

    async fn query(&self, dial: &Dial, sentinel: &ConnectionInfo) -> Result<Place, StoreError> {
        let mut link = dial.open(sentinel).await?;
        let mut command = redis::cmd("SENTINEL");
        command.arg("GET-MASTER-ADDR-BY-NAME").arg(&self.name);
        let say = |kind, text: String| Err(StoreError::new(kind, text).uncharged());
        match link.connection.send(&command).await {
            Ok(Value::Nil) => {
                let name = self.name.escape_debug();
                say(StoreErrorKind::Permanent, format!("it knows no primary named `{name}`"))
            }
            Ok(Value::Array(fields)) => match fields.as_slice() {
                [Value::BulkString(host), Value::BulkString(port)] => {
                    let host = std::str::from_utf8(host).ok().filter(|host| !host.is_empty());
                    let port = std::str::from_utf8(port).ok().and_then(|port| port.parse().ok());
                    match (host, port) {
                        (Some(host), Some(port)) => Ok((host.to_owned(), port)),
                        _ => say(StoreErrorKind::Garbled, "its answer is no address".into()),
                    }
                }
                _ => say(StoreErrorKind::Garbled, "its answer is no address".into()),
            },
            Ok(Value::ServerError(error)) => match error.code() {
                "NOPERM" => {
                    say(StoreErrorKind::Permanent, "NOPERM: its user needs +sentinel|get-master-addr-by-name".into())
                }
                "NOAUTH" => {
                    say(StoreErrorKind::Permanent, "it wants a user and password; write them in its URL".into())
                }
                _ => {
                    say(StoreErrorKind::Permanent, "it answers as no Sentinel does; is this a server's address?".into())
                }
            },
            Ok(_) => say(StoreErrorKind::Garbled, "its answer is no address".into()),
            Err(error) => Err(super::failure::greeting(&error)),
        }
    }

    /// A server that is gone without a word must not use up the time in which another Sentinel may know better.
    async fn open(&self, dial: &Dial, (host, port): &Place) -> Result<Link, StoreError> {
        let address = match self.tls {
            true => ConnectionAddr::TcpTls { host: host.clone(), port: *port, insecure: false, tls_params: None },
            false => ConnectionAddr::Tcp(host.clone(), *port),
        };
        let info = address.into_connection_info().map_err(|_| unavailable("a Sentinel names no usable address"))?;
        let info = info.set_redis_settings(self.server.clone());
        let opened = async {
            let mut link = dial.open(&info).await?;
            greet::primary(&mut link.connection).await?;
            Ok(link)
        };
        let patience = dial.timeout / 2;
        match timeout(patience, opened).await {
            Ok(Ok(link)) => Ok(link),
            Ok(Err(error)) => Err(step("the primary that a Sentinel names", &error)),
            Err(_) => Err(late("the primary that a Sentinel names", patience)),
        }
    }
}

/// The same error, with what was being done.
fn step(doing: &str, error: &StoreError) -> StoreError {
    StoreError::new(error.kind(), format!("{doing}: {error}")).uncharged()
}

fn late(doing: &str, patience: Duration) -> StoreError {
    StoreError::new(StoreErrorKind::Timeout, format!("{doing}: no answer within {patience:?}")).uncharged()
}
