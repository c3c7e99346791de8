//! A primary, a replica and three Sentinels on free loopback ports.

use std::time::{Duration, Instant};

use redis::{FromRedisValue, aio::MultiplexedConnection};

use super::{
    folder::Folder,
    server::{Server, Version, free_port},
};

/// What the Sentinels call the primary.
pub const NAME: &str = "mymaster";

pub struct SentinelSet {
    pub primary: Server,
    pub replica: Server,
    pub sentinels: Vec<Server>,
    _folders: Vec<Folder>,
}

impl SentinelSet {
    /// Starts them and waits until the Sentinels know the replica and each other.
    pub async fn start(version: Version) -> SentinelSet {
        let primary = Server::start_on(version, free_port(), &["--repl-diskless-sync-delay", "0"]);
        let leader = primary.port.to_string();
        let replica = Server::start_on(
            version,
            free_port(),
            &["--replicaof", "127.0.0.1", &leader, "--repl-diskless-sync-delay", "0"],
        );
        let mut connection = replica.connection().await;
        until(async || {
            let text: String = query(&mut connection, "INFO replication").await;
            text.contains("master_link_status:up")
        })
        .await;
        let (sentinels, folders): (Vec<_>, _) = (0..3).map(|_| start_sentinel(version, primary.port)).unzip();
        for sentinel in &sentinels {
            let mut connection = sentinel.connection().await;
            until(async || {
                let text: String = query(&mut connection, "INFO sentinel").await;
                text.contains("status=ok") && text.contains("slaves=1") && text.contains("sentinels=3")
            })
            .await;
            // A replica is fit to be promoted once it has been asked itself.
            until(async || {
                let replicas: Vec<Vec<String>> = query(&mut connection, "SENTINEL REPLICAS mymaster").await;
                let fields = replicas.concat();
                fields.windows(2).any(|pair| pair == ["master-link-status", "ok"])
            })
            .await;
        }
        SentinelSet { primary, replica, sentinels, _folders: folders }
    }

    pub fn urls(&self) -> Vec<String> {
        self.sentinels.iter().map(Server::url).collect()
    }
}

fn start_sentinel(version: Version, primary: u16) -> (Server, Folder) {
    let (port, folder) = (free_port(), Folder::new());
    let text = format!(
        "port {port}\nbind 127.0.0.1\ndir {}\nsentinel monitor {NAME} 127.0.0.1 {primary} 2\n\
         sentinel down-after-milliseconds {NAME} 1000\nsentinel failover-timeout {NAME} 3000\n",
        folder.0.display()
    );
    (Server::spawn(version, port, &[&folder.write("sentinel.conf", &text), "--sentinel"], &[]), folder)
}

pub async fn query<T: FromRedisValue>(connection: &mut MultiplexedConnection, command: &str) -> T {
    let mut words = command.split(' ');
    let mut command = redis::cmd(words.next().unwrap_or_default());
    command.arg(words.collect::<Vec<_>>()).query_async(connection).await.expect("an answer")
}

/// Waits for a state.
pub async fn until(mut so: impl AsyncFnMut() -> bool) {
    let since = Instant::now();
    while !so().await {
        assert!(since.elapsed() < Duration::from_secs(30), "it does not come about");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
