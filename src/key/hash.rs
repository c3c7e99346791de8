use std::fmt;

use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};

use super::{Key, text::write_digest};

/// How secrets become keys: by SHA-256, or by HMAC-SHA-256 where a key for it is given.
#[derive(Clone, Default)]
pub(super) struct Hash(Option<Hmac<Sha256>>);

impl Hash {
    pub(super) fn keyed(hmac_key: &[u8]) -> Hash {
        // HMAC takes keys of any length.
        Hash(Hmac::new_from_slice(hmac_key).ok())
    }

    pub(super) fn write(&self, secret: &[u8], text: &mut Vec<u8>) {
        match &self.0 {
            Some(hmac) => write_digest(b'#', &hmac.clone().chain_update(secret).finalize().into_bytes(), text),
            None => write_digest(b'#', &Sha256::digest(secret), text),
        }
    }

    pub(super) fn key(&self, secret: &[u8]) -> Key {
        let mut text = Vec::with_capacity(33);
        self.write(secret, &mut text);
        Key::written(text)
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "HMAC-SHA-256" } else { "SHA-256" })
    }
}
