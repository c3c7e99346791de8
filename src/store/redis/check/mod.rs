//! What a start-up check finds. It may try INFO and CONFIG GET, which nothing on the path of requests does, and copes with a no.

mod permissions;
mod server;

use std::time::Duration;

use tokio::time::timeout;

use self::server::Server;
use super::{connections::Live, engine::Engine, node::Node, skew};
use crate::{
    algorithm::fixed_window::Start,
    error::{StoreError, StoreErrorKind},
    limit::{Algorithm, Limit, Quota},
    store::{Ask, Id, Line, Purpose, Report, Scope, Time},
};

/// The oldest version that is tested.
const OLDEST: (u64, u64) = (6, 2);
/// How often the server is asked for its time.
const ANSWERS: u32 = 3;
/// A user of a replica needs these.
const READ_NEEDS: &str = "+evalsha_ro +eval_ro +time +get +lrange +lindex +llen +zcard +zcount +zrange";

/// Checks one server, with a key that nobody has.
pub(super) async fn node(node: &Node, namespace: &str, patience: Duration) -> Report {
    let scope = Scope::new(namespace, "check");
    let key = format!("{:032x}", Id::random().bits());
    node_at(node, &scope, &key, namespace, patience).await
}

/// Checks one server with this key.
pub(super) async fn node_at(node: &Node, scope: &Scope, key: &str, namespace: &str, patience: Duration) -> Report {
    let mut report = Report::default();
    if timeout(patience, look(node, scope, key, namespace, &mut report)).await.is_err() {
        report.problem(format!("the server did not answer everything within {patience:?}"));
    }
    report
}

/// Adds what was found of a node of a Cluster.
pub(super) fn add_node(report: &mut Report, number: usize, of_node: &Report) {
    let named = |text: &str| format!("node {number}: {text}");
    of_node.problems().for_each(|text| report.problem(named(text)));
    of_node.warnings().for_each(|text| report.warn(named(text)));
    of_node.notes().for_each(|text| report.note(named(text)));
    report.clock(of_node.clock_ahead());
}

/// Adds what was found of a replica. The primary stands in for it, so nothing there keeps the store from deciding.
pub(super) fn add_replica(report: &mut Report, of_replica: &Report) {
    let named = |text: &str| format!("replica: {text}");
    of_replica.problems().chain(of_replica.warnings()).for_each(|text| report.warn(named(text)));
    of_replica.notes().for_each(|text| report.note(named(text)));
}

async fn look(node: &Node, scope: &Scope, key: &str, namespace: &str, report: &mut Report) {
    let mut live = match node.connections.get().await {
        Ok(live) => live,
        Err(error) => return report.problem(error.to_string()),
    };
    let server = Server::ask(&mut live).await;
    tell_of_server(node, &server, report);
    tell_of_eviction(&server, report);
    if node.engine != Engine::Cell && !node.is_replica {
        report.clock(skew::measure(&mut live, ANSWERS).await);
    }

    let limit = match limit(node.engine) {
        Ok(limit) => limit,
        Err(error) => return report.problem(error.to_string()),
    };
    let line = Line::new(scope, key.as_bytes(), &limit, 1);
    let denied = tell_of_permissions(node, &mut live, namespace, &line, report).await;
    tell_of_decision(node, &line, denied, report).await;
}

fn tell_of_server(node: &Node, server: &Server, report: &mut Report) {
    match (&server.product, &server.version) {
        (Some(product), Some(version)) => report.note(format!("the server is {product} {version}")),
        _ => report.note("not permitted to see the server's version (INFO or HELLO)"),
    }
    let mut numbers = server.version.iter().flat_map(|version| version.split('.')).map(|number| number.parse().ok());
    if let (Some(Some(major)), Some(Some(minor))) = (numbers.next(), numbers.next())
        && (major, minor) < OLDEST
    {
        report.problem(format!("the server is older than {}.{}; upgrade it", OLDEST.0, OLDEST.1));
    }
    match (server.is_replica, node.is_replica) {
        (Some(true), false) => {
            report.problem("the server is a replica and takes no charges; give the address of the primary")
        }
        (Some(false), true) => report.warn("a server given to peek_from_replicas(..) is a primary"),
        (Some(true), true) => report.note("its role is replica, for look-ups"),
        (Some(false), false) => report.note("its role is primary"),
        (None, _) => report.note("not permitted to see the server's role (INFO, HELLO or ROLE)"),
    }
}

fn tell_of_eviction(server: &Server, report: &mut Report) {
    match server.eviction.as_deref() {
        Some(policy @ ("noeviction" | "volatile-ttl")) => report.note(format!("the eviction policy is {policy}")),
        Some(policy) => report.warn(format!(
            "the eviction policy is {policy}: once memory is full, a flood of new keys evicts counts and so resets limits; set \
             maxmemory-policy to noeviction or volatile-ttl, on a server of their own"
        )),
        None => report.note(
            "not permitted to see the eviction policy (INFO or CONFIG GET); make sure that it is noeviction or volatile-ttl",
        ),
    }
}

/// Answers whether something is missing.
async fn tell_of_permissions(
    node: &Node,
    live: &mut Live,
    namespace: &str,
    line: &Line<'_>,
    report: &mut Report,
) -> bool {
    let needs = match (node.engine, node.is_replica) {
        (Engine::Plain, true) => "+time +get",
        (_, true) => READ_NEEDS,
        (engine, false) => engine.needs(),
    };
    // A slot that is on its way is asked for so.
    let needs = needs.split(' ').chain(node.place.is_some().then_some("+asking"));
    let missing = match permissions::missing(live, needs, &line.name().concat()).await {
        Ok(missing) => missing,
        Err(_) => {
            report.problem("the connection was lost while permissions were tried");
            return true;
        }
    };
    if missing.commands.is_empty() && !missing.key {
        report.note("no permission is missing");
        return false;
    }
    let user = server::user(live).await.unwrap_or_else(|| "<user>".into());
    let mut add = vec![format!("ACL SETUSER {user} ~{namespace}:*")];
    add.extend(missing.commands.into_iter().map(Into::into));
    report.problem(format!("the Redis user lacks permissions; add them with: {}", add.join(" ")));
    true
}

/// Decides about a key that nobody has, without charging it.
async fn tell_of_decision(node: &Node, line: &Line<'_>, denied: bool, report: &mut Report) {
    let ask = Ask { lines: &[*line], purpose: Purpose::Peek, time: Time::Store };
    match node.decide(&ask, Duration::ZERO, &mut None).await {
        Ok(_) => report.note(match node.engine {
            Engine::Script => "scripts run",
            Engine::Functions if node.functions.are_barred() => "functions are not to be had; scripts run instead",
            Engine::Functions => "functions run",
            Engine::Cell => "redis-cell answers",
            Engine::Plain => "plain commands are answered",
        }),
        // Said before, and better.
        Err(error) if denied && error.kind() == StoreErrorKind::Permanent => {}
        Err(error) => report.problem(explain(&error, node)),
    }
}

fn explain(error: &StoreError, node: &Node) -> String {
    match node.engine {
        Engine::Script | Engine::Functions if error.to_string().starts_with("ERR") => {
            format!(
                "the server does not run scripts ({error}); where they are forbidden, build the store with no_scripts()"
            )
        }
        _ => error.to_string(),
    }
}

/// A limit that the engine can keep.
fn limit(engine: Engine) -> Result<Limit, crate::BuildError> {
    let algorithm = match engine {
        Engine::Script | Engine::Functions | Engine::Plain => Algorithm::FixedWindow,
        Engine::Cell => Algorithm::Gcra,
    };
    Limit::new("check", algorithm, Quota::per_minute(1), Start::Aligned(0))
}
