use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header, request::Parts};

use super::{KeyBy, compose::Miss, hash::Hash, percent::decode};

/// Shorter keys for HMAC can be guessed.
const SHORTEST_HMAC_KEY: usize = 16;

/// The token of `Authorization: Bearer ..`, hashed. There is no key under another scheme or where the token is empty; a request
/// with two `Authorization` lines is refused with 400, since nobody can say which of them counts.
///
/// Anybody can send any token, and each new one is a new count: let this rule come after authentication, or pair it with one by
/// [`ip()`](super::ip).
pub fn bearer() -> Credential {
    Credential::new(Source::Bearer)
}

/// The value of a header that holds an API key, hashed. There is no key where it is missing or empty; a request with two of it is
/// refused with 400. What [`bearer`] says of made-up tokens is true of API keys.
pub fn api_key<N>(name: N) -> Credential
where
    N: TryInto<HeaderName> + std::fmt::Debug + Clone,
{
    Credential::new(match name.clone().try_into() {
        Ok(name) => Source::Header(name),
        Err(_) => Source::Wrong(super::extract::no_header_name(&name)),
    })
}

/// The value of a cookie, hashed: without quotes, percent-decoded, and the last where several have the name. There is no key
/// where it is missing or empty.
pub fn cookie(name: &str) -> Credential {
    let is_token = |byte: u8| byte.is_ascii_graphic() && !b"()<>@,;:\\\"/[]?={}".contains(&byte);
    Credential::new(if !name.is_empty() && name.bytes().all(is_token) {
        Source::Cookie(name.into())
    } else {
        Source::Wrong(format!("{name:?} is not a cookie's name; use letters, digits, hyphens and underscores"))
    })
}

/// A key by something secret, made by [`bearer()`], [`api_key()`] and [`cookie()`]. The store, logs and headers see half of its
/// SHA-256, or of its HMAC-SHA-256 where a key for that is given.
#[derive(Clone, Debug)]
#[must_use]
pub struct Credential {
    source: Source,
    hash: Hash,
}

#[derive(Clone, Debug)]
enum Source {
    Bearer,
    Header(HeaderName),
    Cookie(Box<str>),
    Wrong(String),
}

impl Credential {
    fn new(source: Source) -> Credential {
        Credential { source, hash: Hash::default() }
    }

    /// Hashes with a key of 16 bytes or more, the same in all processes that count together: whoever reads the store can
    /// then not even try guesses. Changing it starts all counts afresh.
    ///
    /// ```no_run
    /// use sluicegate::{key, Quota, Rule};
    ///
    /// # fn main() -> Result<(), std::env::VarError> {
    /// let hmac_key = std::env::var("RATE_LIMIT_HMAC_KEY")?;
    /// Rule::gcra("per-token", Quota::per_minute(100)).key(key::bearer().keyed(hmac_key));
    /// # Ok(())
    /// # }
    /// ```
    pub fn keyed(mut self, hmac_key: impl AsRef<[u8]>) -> Credential {
        let hmac_key = hmac_key.as_ref();
        if hmac_key.len() < SHORTEST_HMAC_KEY {
            self.source = Source::Wrong(format!(
                "a key for HMAC of {} bytes can be guessed; give keyed(..) {SHORTEST_HMAC_KEY} random bytes or more",
                hmac_key.len()
            ));
        }
        self.hash = Hash::keyed(hmac_key);
        self
    }
}

impl From<Credential> for KeyBy {
    fn from(Credential { source, hash }: Credential) -> KeyBy {
        match source {
            Source::Bearer => KeyBy::writer(move |head, text| {
                let line = only(&head.headers, &header::AUTHORIZATION)?.as_bytes().trim_ascii();
                let end = line.iter().position(|byte| matches!(byte, b' ' | b'\t')).unwrap_or(line.len());
                let (scheme, token) = line.split_at(end);
                let scheme = if scheme.eq_ignore_ascii_case(b"bearer") { Ok(()) } else { Err(Miss::Absent) };
                scheme.and_then(|()| hashed(token.trim_ascii(), &hash, text))
            }),
            Source::Header(name) => KeyBy::writer(move |head, text| {
                hashed(only(&head.headers, &name)?.as_bytes().trim_ascii(), &hash, text)
            }),
            Source::Cookie(name) => KeyBy::writer(move |head, text| {
                let value = last_cookie(head, name.as_bytes()).ok_or(Miss::Absent)?;
                hashed(&decode(value), &hash, text)
            }),
            Source::Wrong(problem) => KeyBy::wrong(problem),
        }
    }
}

fn hashed(secret: &[u8], hash: &Hash, text: &mut Vec<u8>) -> Result<(), Miss> {
    if secret.is_empty() {
        return Err(Miss::Absent);
    }
    hash.write(secret, text);
    Ok(())
}

/// The only line of a field that may stand once: nobody can say which of two counts.
pub(super) fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<&'a HeaderValue, Miss> {
    let mut lines = headers.get_all(name).iter();
    let line = lines.next().ok_or(Miss::Absent)?;
    match lines.next() {
        None => Ok(line),
        Some(_) => Err(Miss::Refuse(StatusCode::BAD_REQUEST)),
    }
}

/// HTTP/2 may split the field into lines.
fn last_cookie<'a>(head: &'a Parts, name: &[u8]) -> Option<&'a [u8]> {
    let lines = head.headers.get_all(header::COOKIE).iter();
    let pairs = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b';'));
    let mut named = pairs.filter_map(|pair| {
        let (key, value) = pair.split_at(pair.iter().position(|byte| *byte == b'=')?);
        (key.trim_ascii() == name).then(|| value.strip_prefix(b"=").unwrap_or_default().trim_ascii())
    });
    let value = named.next_back()?;
    Some(value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value))
}
