//! What a gateway itself asks of a policy: whether it can be kept here, whether proxies stand in front, and who a caller is.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use http::Request;
use serde_json::Value;
use sluicegate::{
    Limiter,
    key::{self, Found, Key, KeyBy, TrustedProxies},
    policy::{Loading, Policy, PolicyFile, PolicySource, SourceError},
};

/// A policy file, without rules that could never apply here: somebody would believe in them.
pub(super) struct GatewayFile {
    name: String,
    file: PolicyFile,
}

impl GatewayFile {
    pub(super) fn new(path: &Path) -> GatewayFile {
        GatewayFile { name: path.display().to_string(), file: PolicyFile::new(path) }
    }
}

impl PolicySource for GatewayFile {
    fn load(&self) -> Loading<'_, Result<Policy, SourceError>> {
        Box::pin(async {
            let policy = self.file.load().await?;
            match unknown_key(&document(&policy)) {
                Some(wrong) => Err(SourceError::new(format!("{}: {wrong}", self.name))),
                None => Ok(policy),
            }
        })
    }

    fn changed(&self) -> Loading<'_, ()> {
        self.file.changed()
    }
}

fn document(policy: &Policy) -> Value {
    serde_json::to_value(policy).unwrap_or_default()
}

fn at<'a>(value: &'a Value, path: &str) -> &'a Value {
    value.pointer(path).unwrap_or(&Value::Null)
}

/// A key that no request has which comes to a gateway, and what to write instead.
fn unknown_key(document: &Value) -> Option<String> {
    let rules = at(document, "/rules").as_array().into_iter().flatten();
    let of_rules = rules.flat_map(|rule| {
        let name = format!("rule {}", rule["name"]);
        [(name.clone(), at(rule, "/key")), (name, at(rule, "/fair_share/tenant"))]
    });
    let of_all = [("customer".to_owned(), at(document, "/customer/by")), ("tier".to_owned(), at(document, "/tier/by"))];
    of_rules.chain(of_all).find_map(|(whose, key)| {
        let texts = key.as_array().map_or(std::slice::from_ref(key), Vec::as_slice).iter().filter_map(Value::as_str);
        let part =
            texts.flat_map(|text| text.split('|')).map(str::trim).find_map(|part| Some((part, instead_of(part)?)));
        part.map(|(part, instead)| format!("{whose}: a gateway does not know {part:?}: {instead}"))
    })
}

fn instead_of(part: &str) -> Option<&'static str> {
    match part.split_once(':').map_or(part, |(kind, _)| kind) {
        "route" => Some("it has no routes. Write a rule with paths for each, or \"path\""),
        "path_param" => Some("it has no routes. Take the tenant from a header that is set in front of it"),
        "claim" => Some("nobody verifies claims here. Take them from headers that are set in front of it"),
        "given" => Some("it is for code that asks without HTTP"),
        _ => None,
    }
}

/// What is known of the policy in force.
#[derive(Default)]
pub(super) struct Known {
    /// Those that stand in front.
    proxies: Option<TrustedProxies>,
    tier: Option<String>,
    default: Option<String>,
    tiers: Vec<String>,
    customer: Option<KeyBy>,
    /// By customer: the tier that an override names.
    overrides: BTreeMap<String, Option<String>>,
}

impl Known {
    fn new(policy: &Policy) -> Known {
        let document = document(policy);
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let entries = |value: &Value| value.as_object().cloned().unwrap_or_default();
        let overrides =
            entries(at(&document, "/overrides")).into_iter().map(|(name, own)| (stored(name), text(at(&own, "/tier"))));
        let proxies = proxies(at(&document, "/proxies"));
        Known {
            tier: at(&document, "/tier/by").as_str().and_then(|by| by.strip_prefix("header:")).map(str::to_owned),
            default: text(at(&document, "/tier/default")),
            tiers: entries(at(&document, "/tiers")).keys().cloned().collect(),
            customer: at(&document, "/customer/by").as_str().and_then(|by| key_of(by, proxies.is_some())),
            proxies,
            overrides: overrides.collect(),
        }
    }

    /// Whether a proxy asks: what it says of the client is taken for true.
    pub(super) fn is_proxy(&self, peer: Option<IpAddr>) -> bool {
        self.proxies.as_ref().is_some_and(|proxies| peer.is_some_and(|peer| proxies.trusts(peer)))
    }

    /// The customer as overrides name it: secrets are hashed.
    pub(super) fn customer<B>(&self, request: &Request<B>) -> Option<String> {
        match self.customer.as_ref()?.find_now(&head_of(request))? {
            Found::Key(key) => Some(String::from_utf8_lossy(key.as_bytes()).into_owned()),
            _ => None,
        }
    }

    /// The tier that holds for a request of this customer.
    pub(super) fn tier<B>(&self, request: &Request<B>, customer: Option<&str>) -> Option<String> {
        let own = customer.and_then(|customer| self.overrides.get(customer)?.clone());
        let said = self.tier.as_ref().and_then(|name| request.headers().get(name)?.to_str().ok());
        let said = said.filter(|said| self.tiers.iter().any(|tier| tier == said)).map(str::to_owned);
        own.or(said).or_else(|| self.default.clone())
    }
}

fn proxies(document: &Value) -> Option<TrustedProxies> {
    let networks = || Some(document.get("trust")?.as_array()?.iter().filter_map(Value::as_str));
    let hops = || usize::try_from(document.get("hops")?.as_u64()?).ok();
    networks().map(TrustedProxies::cidrs).or_else(|| hops().map(TrustedProxies::hops))
}

/// The customer of an override as it stands in the store. Secrets and addresses are written so already.
fn stored(name: String) -> String {
    if name.starts_with(['#', '|']) {
        return name;
    }
    String::from_utf8_lossy(Key::new(name.as_bytes()).as_bytes()).into_owned()
}

/// Keys look at heads alone.
fn head_of<B>(request: &Request<B>) -> http::request::Parts {
    let (mut head, ()) = Request::new(()).into_parts();
    head.method = request.method().clone();
    head.uri = request.uri().clone();
    head.headers = request.headers().clone();
    head.extensions = request.extensions().clone();
    head
}

/// For showing who a customer is, in the ways that gateways know customers by. Behind proxies an address takes more than a look.
fn key_of(text: &str, fronted: bool) -> Option<KeyBy> {
    let one = |part: &str| match part.split_once(':') {
        Some(("header", name)) => Some(key::header(name)),
        Some(("api_key", name)) => Some(key::api_key(name).into()),
        Some(("cookie", name)) => Some(key::cookie(name).into()),
        None if part == "bearer" => Some(key::bearer().into()),
        None if part == "ip" && !fronted => Some(key::ip().into()),
        _ => None,
    };
    let mut keys = text.split('|').map(str::trim).map_while(one);
    let first = keys.next()?;
    Some(keys.fold(first, KeyBy::or))
}

/// The same of a policy that changes.
#[derive(Clone)]
pub(super) struct Facts {
    limiter: Limiter,
    last: Arc<Mutex<Option<Version>>>,
}

type Version = (u64, Arc<Known>);

impl Facts {
    pub(super) fn of(limiter: &Limiter) -> Facts {
        Facts { limiter: limiter.clone(), last: Arc::default() }
    }

    /// A policy is read once.
    pub(super) fn now(&self) -> Arc<Known> {
        let status = self.limiter.policy_status();
        let version = status.as_ref().map_or(0, |status| status.version());
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, known)) = last.as_ref().filter(|(seen, _)| *seen == version) {
            return Arc::clone(known);
        }
        let known = Arc::new(status.map_or_else(Known::default, |status| Known::new(status.policy())));
        *last = Some((version, Arc::clone(&known)));
        known
    }
}
