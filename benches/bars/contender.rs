//! Who is compared: a limiter through its public face, and the floors.

use std::{sync::Arc, time::Duration};

use redis::{AsyncConnectionConfig, aio::MultiplexedConnection};
use sluicegate::{Call, Limiter, LimiterBuilder, RedisStore, Rule};

use crate::{drive::Contender, server::Server};

/// The crate, as an application uses it.
#[derive(Clone)]
pub struct Ours {
    limiter: Limiter,
    rules: Arc<[String]>,
}

impl Ours {
    pub fn new(server: &Server, rules: impl IntoIterator<Item = Rule>) -> Ours {
        Ours::with(server, rules, |builder| builder)
    }

    pub fn with(
        server: &Server,
        rules: impl IntoIterator<Item = Rule>,
        settings: impl FnOnce(LimiterBuilder) -> LimiterBuilder,
    ) -> Ours {
        let rules: Vec<Rule> = rules.into_iter().collect();
        let names = rules.iter().map(|rule| rule.name().to_owned()).collect();
        let builder = Limiter::builder(patient(&server.url)).namespace("b");
        let limiter = settings(rules.into_iter().fold(builder, LimiterBuilder::rule)).build().expect("sound rules");
        Ours { limiter, rules: names }
    }
}

/// Long enough that nothing times out, however busy the machine is.
pub const PATIENCE: Duration = Duration::from_secs(5);

pub fn patient(url: &str) -> RedisStore {
    RedisStore::builder(url).deadline(PATIENCE).build().expect("a sound address")
}

impl Contender for Ours {
    async fn decide(&mut self, user: &str) -> bool {
        let decision = match &*self.rules {
            [rule] => self.limiter.acquire([(rule.as_str(), user)]).await,
            rules => self.limiter.acquire(rules.iter().fold(Call::new(), |call, rule| call.key(rule, user))).await,
        };
        assert_eq!(decision.failure(), None);
        decision.is_allowed()
    }
}

/// A script of `floor/` with its arguments.
#[derive(Clone)]
pub struct Script {
    connection: MultiplexedConnection,
    sha: Arc<str>,
    args: Arc<[u64]>,
}

impl Script {
    /// With a timeout around each answer, as the client has it by default; as patient as the crate's here.
    pub async fn new(server: &Server, text: &str, args: &[u64]) -> Script {
        Script::over(&server.url, text, args, Some(PATIENCE)).await
    }

    /// Waits for answers however long they take, which saves a timer each.
    pub async fn endless(server: &Server, text: &str, args: &[u64]) -> Script {
        Script::over(&server.url, text, args, None).await
    }

    pub async fn over(url: &str, text: &str, args: &[u64], timeout: Option<Duration>) -> Script {
        let client = redis::Client::open(url).expect("an address");
        let config = AsyncConnectionConfig::new().set_response_timeout(timeout);
        let mut connection = client.get_multiplexed_async_connection_with_config(&config).await.expect("a connection");
        let loaded = redis::cmd("SCRIPT").arg("LOAD").arg(text).query_async::<String>(&mut connection).await;
        Script { connection, sha: loaded.expect("a sound script").into(), args: args.into() }
    }

    /// Keys are as long as the crate's.
    fn command(&self, user: &str, rules: &[&str]) -> redis::Cmd {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&*self.sha).arg(rules.len());
        for rule in rules {
            command.arg(format!("f:v1:{{{user}}}:{rule}"));
        }
        command.arg(&*self.args);
        command
    }

    /// Allowed, remaining, retry, reset.
    pub async fn call(&mut self, user: &str) -> (i64, i64, i64, i64) {
        let command = self.command(user, &["r"]);
        command.query_async(&mut self.connection).await.expect("an answer")
    }
}

/// One limit.
impl Contender for Script {
    async fn decide(&mut self, user: &str) -> bool {
        self.call(user).await.0 == 1
    }
}

/// The script that returns 1.
#[derive(Clone)]
pub struct One(pub Script);

impl Contender for One {
    async fn decide(&mut self, user: &str) -> bool {
        let command = self.0.command(user, &["r"]);
        command.query_async::<i64>(&mut self.0.connection).await.expect("an answer") == 1
    }
}

/// Three limits in one script.
#[derive(Clone)]
pub struct Three(pub Script);

impl Contender for Three {
    async fn decide(&mut self, user: &str) -> bool {
        let command = self.0.command(user, &["t", "s", "f"]);
        let answer: Vec<i64> = command.query_async(&mut self.0.connection).await.expect("an answer");
        answer.first() == Some(&1)
    }
}

/// Three scripts of a limit each in one pipeline.
#[derive(Clone)]
pub struct Pipeline(pub [Script; 3]);

impl Contender for Pipeline {
    async fn decide(&mut self, user: &str) -> bool {
        let mut pipeline = redis::Pipeline::with_capacity(3);
        for (script, rule) in self.0.iter().zip(["t", "s", "f"]) {
            pipeline.add_command(script.command(user, &[rule]));
        }
        let connection = &mut self.0[0].connection;
        let answers: [(i64, i64, i64, i64); 3] = pipeline.query_async(connection).await.expect("answers");
        answers.iter().all(|answer| answer.0 == 1)
    }
}
