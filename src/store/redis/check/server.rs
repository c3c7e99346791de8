//! What a server tells of itself, as far as it may.

use redis::Value;

use super::super::connections::Live;

/// What a server tells of itself.
#[derive(Debug, Default)]
pub(super) struct Server {
    pub(super) product: Option<&'static str>,
    pub(super) version: Option<String>,
    pub(super) is_replica: Option<bool>,
    pub(super) eviction: Option<String>,
}

impl Server {
    /// From INFO; where that is denied, from HELLO, ROLE and CONFIG GET.
    pub(super) async fn ask(live: &mut Live) -> Server {
        let mut server = Server::default();
        if let Some(text) = text(live, redis::cmd("INFO")).await {
            server.read(&text);
        }
        if (server.version.is_none() || server.is_replica.is_none())
            && let Ok(reply) = live.send(&redis::cmd("HELLO")).await
        {
            let words = words(&reply);
            server.version = server.version.or_else(|| after(&words, "version"));
            server.product = server.product.or(Some(match after(&words, "server").as_deref() {
                Some("valkey") => "Valkey",
                _ => "Redis",
            }));
            server.is_replica = server.is_replica.or_else(|| after(&words, "role").map(|role| role != "master"));
        }
        if server.is_replica.is_none()
            && let Ok(reply) = live.send(&redis::cmd("ROLE")).await
        {
            server.is_replica = words(&reply).first().map(|role| role != "master");
        }
        if server.eviction.is_none()
            && let Ok(reply) = live.send(redis::cmd("CONFIG").arg("GET").arg("maxmemory-policy")).await
        {
            server.eviction = after(&words(&reply), "maxmemory-policy");
        }
        server
    }

    fn read(&mut self, info: &str) {
        let field = |name: &str| {
            info.lines().find_map(|line| line.trim_end().strip_prefix(name)?.strip_prefix(':').map(str::to_owned))
        };
        let valkey = field("valkey_version");
        if valkey.is_some() || field("redis_version").is_some() {
            self.product = Some(if valkey.is_some() { "Valkey" } else { "Redis" });
        }
        self.version = valkey.or_else(|| field("redis_version"));
        self.is_replica = field("role").map(|role| role != "master");
        self.eviction = field("maxmemory_policy");
    }
}

/// The name of the connection's user, if it may be asked.
pub(super) async fn user(live: &mut Live) -> Option<String> {
    let mut command = redis::cmd("ACL");
    command.arg("WHOAMI");
    text(live, command).await.filter(|name| name.bytes().all(|byte| byte.is_ascii_graphic()))
}

async fn text(live: &mut Live, command: redis::Cmd) -> Option<String> {
    match live.send(&command).await.ok()? {
        Value::BulkString(bytes) => String::from_utf8(bytes).ok(),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Some(text),
        _ => None,
    }
}

/// The words of a flat reply; what is no word is empty.
fn words(reply: &Value) -> Vec<String> {
    let word = |value: &Value| match value {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::SimpleString(text) => text.clone(),
        _ => String::new(),
    };
    match reply {
        Value::Array(values) => values.iter().map(word).collect(),
        Value::Map(pairs) => pairs.iter().flat_map(|(name, value)| [word(name), word(value)]).collect(),
        _ => Vec::new(),
    }
}

fn after(words: &[String], name: &str) -> Option<String> {
    let at = words.iter().position(|word| word == name)?;
    words.get(at + 1).filter(|word| !word.is_empty()).cloned()
}
