//! TLS, with the feature `tls`.

use std::{fmt, io, sync::Arc};

use redis::RedisError;
use tokio::net::TcpStream;
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{
        AlertDescription, CertificateError, ClientConfig, Error, RootCertStore,
        crypto::{CryptoProvider, ring},
        pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
    },
};

use super::{builder::RedisStoreBuilder, dial::unavailable};
use crate::error::{BuildError, StoreError, StoreErrorKind};

/// What the builder was told.
#[derive(Clone, Default)]
pub(super) struct TlsOptions {
    ca: Vec<u8>,
    client: Option<(Vec<u8>, Vec<u8>)>,
}

impl RedisStoreBuilder {
    /// Trusts servers with a certificate of these authorities (PEM, one or more) instead of those that browsers trust. Give it
    /// several times for several files. Needs the feature `tls`.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let ca = std::fs::read("redis-ca.pem")?;
    /// let store = sluicegate::RedisStore::builder("rediss://redis.internal:6380").tls_ca(ca).build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn tls_ca(mut self, pem: impl AsRef<[u8]>) -> RedisStoreBuilder {
        self.tls_options.ca.extend_from_slice(pem.as_ref());
        self.tls_options.ca.push(b'\n');
        self
    }

    /// Shows servers that ask for it this certificate, with its chain, and its key (both PEM). Needs the feature `tls`.
    pub fn tls_client(mut self, certificate: impl AsRef<[u8]>, key: impl AsRef<[u8]>) -> RedisStoreBuilder {
        self.tls_options.client = Some((certificate.as_ref().to_vec(), key.as_ref().to_vec()));
        self
    }
}

impl TlsOptions {
    /// The field that was set, if one was.
    pub(super) fn field(&self) -> Option<&'static str> {
        match (self.ca.is_empty(), &self.client) {
            (false, _) => Some("tls_ca"),
            (true, Some(_)) => Some("tls_client"),
            (true, None) => None,
        }
    }

    pub(super) fn build(&self) -> Result<Tls, BuildError> {
        let mut roots = RootCertStore::empty();
        if self.ca.is_empty() {
            roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        }
        for certificate in CertificateDer::pem_slice_iter(&self.ca) {
            let added = certificate.ok().and_then(|certificate| roots.add(certificate).ok());
            added.ok_or_else(|| BuildError::new("tls_ca", "holds something else than certificates in PEM"))?;
        }
        if roots.is_empty() {
            return Err(BuildError::new("tls_ca", "holds no certificate; give a file in PEM"));
        }
        // The application's choice, if it has made one.
        let provider = CryptoProvider::get_default().cloned().unwrap_or_else(|| Arc::new(ring::default_provider()));
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|_| {
                BuildError::new("url", "asks for TLS, and the installed crypto provider has no version of it")
            })?
            .with_root_certificates(roots);
        let config = match &self.client {
            None => config.with_no_client_auth(),
            Some((certificate, key)) => {
                let wrong = |text| BuildError::new("tls_client", text);
                let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate).collect();
                let chain = chain.ok().filter(|chain| !chain.is_empty());
                let chain = chain.ok_or_else(|| wrong("the first is no certificate in PEM"))?;
                let key =
                    PrivateKeyDer::from_pem_slice(key).map_err(|_| wrong("the second is no private key in PEM"))?;
                config.with_client_auth_cert(chain, key).map_err(|_| wrong("the key is not that of the certificate"))?
            }
        };
        Ok(Tls(TlsConnector::from(Arc::new(config))))
    }
}

/// Shows no key.
impl fmt::Debug for TlsOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsOptions")
    }
}

/// Speaks TLS to servers, and only to those whose certificate is right.
pub(super) struct Tls(TlsConnector);

impl Tls {
    pub(super) async fn wrap(&self, host: &str, stream: TcpStream) -> Result<TlsStream<TcpStream>, StoreError> {
        let name = ServerName::try_from(host).map_err(|_| unavailable("no certificate can be for that host"))?;
        self.0.connect(name.to_owned(), stream).await.map_err(|error| refused(inner(&error)))
    }
}

/// What the server has against our certificate, if that is what it said. With TLS 1.3 it says so after the handshake, to the
/// first command; the client passes on no more than the text.
pub(super) fn complaint(error: &RedisError) -> Option<StoreError> {
    error
        .to_string()
        .contains("received fatal alert")
        .then(|| refused(Some(&Error::AlertReceived(AlertDescription::AccessDenied))))
}

/// A certificate that is not right needs an operator; anything else may pass.
fn refused(error: Option<&Error>) -> StoreError {
    let text = match error {
        Some(Error::InvalidCertificate(fault)) => match fault {
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                "TLS: the server's certificate is of an authority that is not trusted; see .tls_ca(..)"
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "TLS: the server's certificate is for another host"
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "TLS: the server's certificate has expired"
            }
            _ => "TLS: the server's certificate is not valid",
        },
        Some(Error::InvalidMessage(_)) => "TLS: the server does not speak it on this port",
        Some(Error::AlertReceived(_)) => "TLS: the server refused; does it want a certificate? See .tls_client(..)",
        _ => return unavailable("closed by the server during the TLS handshake"),
    };
    StoreError::new(StoreErrorKind::Permanent, format!("cannot connect: {text}")).uncharged()
}

fn inner(error: &io::Error) -> Option<&Error> {
    error.get_ref().and_then(|inner| inner.downcast_ref::<Error>())
}
