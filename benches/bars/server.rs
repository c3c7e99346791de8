//! A redis-server of this benchmark's own.

use std::{
    io::{BufRead, BufReader},
    net::TcpListener,
    process::{Child, ChildStdin, Command, Stdio},
    time::{Duration, Instant},
};

use crate::machine::{SERVER_CORE, pinned};

/// Listens on a free loopback port, keeps nothing, and ends with this process however that ends.
pub struct Server {
    pub url: String,
    shell: Child,
    /// The shell ends the server when this closes.
    lifeline: Option<ChildStdin>,
}

impl Server {
    pub fn start() -> Server {
        let binary = std::env::var("SLUICEGATE_REDIS_7").unwrap_or_else(|_| "redis-server".into());
        if Command::new(&binary).arg("--version").output().is_err() {
            panic!("there is no {binary}: run tests/run, which installs one, or name one in SLUICEGATE_REDIS_7");
        }
        let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port").port();
        let pinned = pinned(&binary, SERVER_CORE);
        let mut shell = Command::new("sh")
            .args(["-c", r#""$@" >/dev/null 2>&1 & echo $!; cat >/dev/null; kill -9 $!"#, "sh"])
            .arg(pinned.get_program())
            .args(pinned.get_args())
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        BufReader::new(shell.stdout.take().expect("its output")).read_line(&mut String::new()).expect("it has begun");
        let server = Server { url: format!("redis://127.0.0.1:{port}"), lifeline: shell.stdin.take(), shell };
        let since = Instant::now();
        while server.connect().is_err() {
            assert!(since.elapsed() < Duration::from_secs(20), "{binary} does not listen on {port}");
            std::thread::sleep(Duration::from_millis(10));
        }
        server
    }

    fn connect(&self) -> redis::RedisResult<redis::Connection> {
        redis::Client::open(self.url.as_str())?.get_connection()
    }

    /// Asks one thing over a connection of its own.
    pub fn ask<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        let mut command = redis::Cmd::new();
        command.arg(words);
        command.query(&mut self.connect().expect("a connection")).expect("an answer")
    }

    /// Microseconds inside all script calls so far: what INFO says of EVALSHA, which includes the commands inside.
    pub fn script_micros(&self) -> f64 {
        let stats: String = self.ask(&["INFO", "commandstats"]);
        let line = stats.lines().find(|line| line.starts_with("cmdstat_evalsha:")).unwrap_or("usec=0,");
        let (_, rest) = line.split_once("usec=").expect("its time");
        rest.split(',').next().and_then(|digits| digits.parse().ok()).expect("microseconds")
    }

    pub fn used_memory(&self) -> f64 {
        let memory: String = self.ask(&["INFO", "memory"]);
        let line = memory.lines().find_map(|line| line.strip_prefix("used_memory:")).expect("its memory");
        line.trim().parse().expect("bytes")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.lifeline = None;
        let _ = self.shell.wait();
    }
}
