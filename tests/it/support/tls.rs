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
        let (folder, port) = (Folder::new(), free_port());
        let settings = self.settings(&folder, name, clients, port);
        let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
        (Server::start_on(Version::Redis7, free_port(), &settings), port)
    }

    /// Makes a server speak TLS on this port, with a certificate in the folder.
    pub fn settings(&self, folder: &Folder, name: &str, clients: &str, port: u16) -> Vec<String> {
        let (certificate, key) = self.issue(name);
        let write = |what: &str, text: &str| folder.write(&format!("{port}-{what}.pem"), text);
        let files = [write("cert", &certificate), write("key", &key), write("ca", &self.pem())];
        let mut settings = vec!["--tls-port".to_owned(), port.to_string()];
        for (setting, file) in ["--tls-cert-file", "--tls-key-file", "--tls-ca-cert-file"].into_iter().zip(files) {
            settings.extend([setting.to_owned(), file]);
        }
        settings.extend(["--tls-auth-clients".to_owned(), clients.to_owned()]);
        settings
    }
}
