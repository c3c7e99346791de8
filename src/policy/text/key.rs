use std::collections::HashMap;

use http::{HeaderName, StatusCode, header};

use super::{Wrong, did_you_mean, listed};
use crate::{
    key::{self, Found, Ip, Key, KeyBy},
    policy::{Claims, Names},
};

/// What needs nothing from code, without and with a name of something.
const PLAIN: [&str; 7] = ["ip", "route", "path", "method", "global", "bearer", "given"];
const OF: [&str; 6] = ["header", "api_key", "cookie", "path_param", "claim", "refuse"];
const FORMS: &str = "ip, route, path, method, global, bearer, given, header:NAME, api_key:NAME, cookie:NAME, path_param:NAME, \
                     claim:NAME, and refuse:STATUS as the last of several";

/// A key as it is written: how it is found, and what is known of its text.
#[derive(Clone)]
pub(in crate::policy) struct KeyText {
    pub(in crate::policy) by: KeyBy,
    /// Whether its keys stand in the store as digests of secrets.
    pub(in crate::policy) hashed: bool,
    /// Whether it is an address.
    pub(in crate::policy) address: bool,
    /// Whether another takes its place where it is absent.
    pub(in crate::policy) alternatives: bool,
}

/// Reads keys, each text once.
pub(in crate::policy) struct KeyReader<'a> {
    names: Option<&'a Names>,
    client: Ip,
    read: HashMap<&'a str, Result<KeyText, Unread>>,
}

/// Why a key cannot be read.
#[derive(Clone)]
pub(in crate::policy) struct Unread {
    pub(in crate::policy) wrong: Wrong,
    /// Whether it is a name that nobody knows.
    pub(in crate::policy) unknown: bool,
}

impl<'a> KeyReader<'a> {
    /// With no names, any will do.
    pub(in crate::policy) fn new(names: Option<&'a Names>, client: Ip) -> KeyReader<'a> {
        KeyReader { names, client, read: HashMap::new() }
    }

    pub(in crate::policy) fn read(&mut self, text: &'a str) -> Result<KeyText, Unread> {
        if let Some(read) = self.read.get(text) {
            return read.clone();
        }
        let read = self.alternatives(text);
        self.read.insert(text, read.clone());
        read
    }

    fn alternatives(&self, text: &str) -> Result<KeyText, Unread> {
        let mut parts = text.split('|').map(str::trim);
        let mut whole = self.one(parts.next().unwrap_or_default())?;
        for part in parts {
            whole.alternatives = true;
            if let Some(status) = part.strip_prefix("refuse:") {
                let status = status.parse().ok().and_then(|code| StatusCode::from_u16(code).ok());
                let status = status.filter(|status| status.is_client_error() || status.is_server_error());
                let status = status.ok_or_else(|| {
                    Unread::form(
                        format!("{part:?} does not refuse a request"),
                        "give a status from 400 to 599, as refuse:401",
                    )
                })?;
                whole.by = whole.by.or_refuse(status);
                continue;
            }
            let next = self.one(part)?;
            whole = KeyText { by: whole.by.or(next.by), hashed: whole.hashed || next.hashed, ..whole };
        }
        Ok(whole)
    }

    fn one(&self, text: &str) -> Result<KeyText, Unread> {
        let registered = self.names.and_then(|names| names.key_named(text));
        let plain = |by: KeyBy| KeyText { by, hashed: false, address: false, alternatives: false };
        if let Some(by) = registered {
            return Ok(plain(by.clone()));
        }
        let secret = |by: KeyBy| KeyText { hashed: true, ..plain(by) };
        let key = match text.split_once(':') {
            None => match text {
                "ip" => KeyText { address: true, ..plain(self.client.clone().into()) },
                "route" => plain(key::route()),
                "path" => plain(key::path()),
                "method" => plain(key::method()),
                "global" => plain(key::global()),
                "given" => plain(key::given()),
                "bearer" => secret(key::bearer().into()),
                _ => return self.unregistered(text).map(plain),
            },
            Some(("header", name)) => {
                let by = key::header(name);
                let secrets = [header::AUTHORIZATION, header::PROXY_AUTHORIZATION, header::COOKIE];
                let is_secret =
                    HeaderName::try_from(name).is_ok_and(|name| secrets.contains(&name) || name == "x-api-key");
                KeyText { hashed: is_secret, ..plain(by) }
            }
            Some(("api_key", name)) => secret(key::api_key(name).into()),
            Some(("cookie", name)) => secret(key::cookie(name).into()),
            Some(("path_param", name)) => plain(key::path_param(name)),
            Some(("claim", name)) => plain(claim(name)?),
            Some(("refuse", _)) => {
                return Err(Unread::form(format!("{text:?} is no key"), "put it behind one, as \"bearer|refuse:401\""));
            }
            Some((kind, _)) => {
                let help = format!("{}keys are {FORMS}", did_you_mean(kind, OF));
                return Err(Unread::form(format!("{kind:?} is no kind of key"), help));
            }
        };
        match key.by.problem() {
            Some(problem) => Err(Unread { wrong: super::super::words::split(problem), unknown: false }),
            None => Ok(key),
        }
    }

    fn unregistered(&self, name: &str) -> Result<KeyBy, Unread> {
        if name.is_empty() {
            return Err(Unread::form("an empty text is no key".into(), format!("keys are {FORMS}")));
        }
        if OF.contains(&name) {
            return Err(Unread::form(format!("{name:?} does not say of what"), format!("write {name}:NAME")));
        }
        // What code registers is not known here, so any name may be one of those; a built-in one that is not quite is looked at
        // when it is.
        let Some(names) = self.names else { return Ok(KeyBy::new(|_| Found::Absent)) };
        let registered = names.keys();
        let guess = did_you_mean(name, registered.clone().chain(PLAIN).chain(OF));
        let help = format!("{guess}code registers {}; built in are {FORMS}", or_none(listed(registered)));
        Err(Unread { wrong: Wrong::new(format!("no key is called {name:?}"), help), unknown: true })
    }
}

pub(in crate::policy) fn or_none(list: String) -> String {
    if list.is_empty() { "none".into() } else { list }
}

/// Whether a key needs nothing that code registers.
pub(in crate::policy) fn is_built_in(part: &str) -> bool {
    part.contains(':') || PLAIN.contains(&part)
}

impl Unread {
    fn form(message: String, help: impl Into<String>) -> Unread {
        Unread { wrong: Wrong::new(message, help), unknown: false }
    }
}

fn claim(name: &str) -> Result<KeyBy, Unread> {
    if name.is_empty() {
        return Err(Unread::form("a claim without a name is none".into(), "write claim:NAME, as claim:sub"));
    }
    let name: Box<str> = name.into();
    Ok(KeyBy::new(move |head| {
        head.extensions.get::<Claims>().and_then(|claims| claims.get(&name)).map(|text| Key::new(text.as_bytes()))
    }))
}
