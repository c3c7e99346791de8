//! Stands for TLS without the feature `tls`.

use redis::RedisError;
use tokio::net::TcpStream;

use crate::error::{BuildError, StoreError};

#[derive(Clone, Debug, Default)]
pub(super) struct TlsOptions {}

impl TlsOptions {
    pub(super) fn field(&self) -> Option<&'static str> {
        None
    }

    pub(super) fn build(&self) -> Result<Tls, BuildError> {
        let text = "asks for TLS, which is not built in; enable the feature `tls` of sluicegate, or use redis://";
        Err(BuildError::new("url", text))
    }
}

/// There is none.
pub(super) enum Tls {}

impl Tls {
    pub(super) async fn wrap(&self, _: &str, _: TcpStream) -> Result<TcpStream, StoreError> {
        match *self {}
    }
}

pub(super) fn complaint(_: &RedisError) -> Option<StoreError> {
    None
}

#[cfg(test)]
mod tests {
    use crate::RedisStore;

    #[test]
    fn an_address_with_tls_names_the_feature() {
        for url in ["rediss://user:hunter2@127.0.0.1", "valkeys://127.0.0.1:6380/2"] {
            let error = RedisStore::connect(url).map(|_| ()).map_err(|error| error.to_string());
            let text = error.err().unwrap_or_default();
            assert!(text.contains("feature `tls`") && !text.contains("hunter2"), "{text}");
        }
    }
}
