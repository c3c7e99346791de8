//! A certificate authority, and servers with certificates of it.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

use super::{
    folder::Folder,
    server::{Server, Version, free_port},
};

/// An authority that lasts as long as a test.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // A certificate with its issuer's name is taken for one that signed itself.
        params.distinguished_name.push(DnType::CommonName, "an authority");
        Authority(CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("a certificate"))
    }

    /// Its own certificate in PEM.
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate for a name or address, and its key, in PEM.
    pub fn issue(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        (params.signed_by(&key, &self.0).expect("a certificate").pem(), key.serialize_pem())
    }

    /// A server that speaks TLS on the port it answers with, and plainly on its own. Only Debian's is built with TLS.
    pub fn server(&self, name: &str, clients: &str) -> (Server, u16) {
        // The server reads them when it starts.
        let folder = Folder::new();
        let (certificate, key) = self.issue(name);
        let (certificate, key) = (folder.write("cert.pem", &certificate), folder.write("key.pem", &key));
        let ca = folder.write("ca.pem", &self.pem());
        let port = free_port();
        let tls_port = port.to_string();
        let mut settings = vec!["--tls-port", &tls_port, "--tls-cert-file", &certificate, "--tls-key-file", &key];
        settings.extend(["--tls-ca-cert-file", &ca, "--tls-auth-clients", clients]);
        (Server::start_on(Version::Redis7, free_port(), &settings), port)
    }
}
