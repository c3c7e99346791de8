//! What a gateway itself asks of a policy: whether it can be kept here, whether proxies stand in front, and who a caller is.

use std::{
    net::IpAddr,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use http::Request;
use serde_json::Value;
use sluicegate::{
    Limiter,
    key::TrustedProxies,
    policy::{Explainer, Loading, Names, Policy, PolicyFile, PolicySource, SourceError},
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
    explainer: Option<Explainer>,
}

impl Known {
    fn new(policy: &Policy) -> Known {
        Known { proxies: proxies(at(&document(policy), "/proxies")), explainer: policy.explainer(&Names::new()).ok() }
    }

    /// Whether a proxy asks: what it says of the client is taken for true.
    pub(super) fn is_proxy(&self, peer: Option<IpAddr>) -> bool {
        self.proxies.as_ref().is_some_and(|proxies| peer.is_some_and(|peer| proxies.trusts(peer)))
    }

    /// Who a request is of: its tier, and the customer as overrides name it. Secrets are hashed.
    pub(super) fn who<B>(&self, request: &Request<B>) -> (Option<String>, Option<String>) {
        let Some(explained) = self.explainer.as_ref().map(|explainer| explainer.explain(&head_of(request))) else {
            return (None, None);
        };
        let tier = explained.tier().and_then(|tier| tier.name());
        let customer = explained.customer().and_then(|customer| customer.key());
        (tier.map(str::to_owned), customer.map(str::to_owned))
    }
}

fn proxies(document: &Value) -> Option<TrustedProxies> {
    let networks = || Some(document.get("trust")?.as_array()?.iter().filter_map(Value::as_str));
    let hops = || usize::try_from(document.get("hops")?.as_u64()?).ok();
    networks().map(TrustedProxies::cidrs).or_else(|| hops().map(TrustedProxies::hops))
}

/// What a request is asked about.
fn head_of<B>(request: &Request<B>) -> http::request::Parts {
    let (mut head, ()) = Request::new(()).into_parts();
    head.method = request.method().clone();
    head.uri = request.uri().clone();
    head.headers = request.headers().clone();
    head.extensions = request.extensions().clone();
    head
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
