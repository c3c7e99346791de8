//! The partition key: which of a rule's counts a request belongs to, told without telling the key.

use std::{fmt, sync::Arc};

use hmac::{Hmac, Mac};
use sha2::Sha256;

use super::text::Text;
use crate::{base64::base64, limiter::Pick};

/// Bytes of the digest that are told. A Byte Sequence is padded; a multiple of three needs no padding.
const TOLD: usize = 12;

#[derive(Clone)]
pub(super) struct Secret(Hmac<Sha256>);

impl Secret {
    /// `None` does not happen: HMAC takes secrets of any length.
    pub(super) fn new(secret: &[u8]) -> Option<Secret> {
        Hmac::new_from_slice(secret).ok().map(Secret)
    }

    fn told(&self, key: &[u8]) -> [u8; TOLD] {
        let digest = self.0.clone().chain_update(key).finalize().into_bytes();
        let mut told = [0; TOLD];
        told.iter_mut().zip(digest).for_each(|(to, from)| *to = from);
        told
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// The partition of each rule that applies to a request. It travels in the request's extensions, since a decision does not
/// know the keys.
#[derive(Clone, Debug)]
pub(super) struct Partitions(Arc<[(u16, [u8; TOLD])]>);

impl Partitions {
    pub(super) fn new(secret: &Secret, picks: &[Pick]) -> Partitions {
        Partitions(picks.iter().map(|pick| (pick.rule, secret.told(pick.key.as_bytes()))).collect())
    }

    /// Writes `;pk=:AAECAwQFBgcICQoL:`, a Byte Sequence.
    pub(super) fn write(&self, rule: u16, text: &mut Text) {
        if let Some((_, told)) = self.0.iter().find(|(of, _)| *of == rule) {
            text.text(";pk=:");
            text.text(&base64(told));
            text.text(":");
        }
    }
}
